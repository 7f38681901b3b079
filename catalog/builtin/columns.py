"""The columns of PostgreSQL 15's catalog relations.

For each relation its oid, then its columns as `name type`; a `?` marks nullable columns. Types that
Foreshore lacks are replaced by the nearest one (node trees by text).
"""

PG_CATALOG: dict[str, tuple[int, str]] = {
    "pg_class": (
        1259,
        "oid oid, relname name, relnamespace oid, reltype oid, reloftype oid, relowner oid, "
        "relam oid, relfilenode oid, reltablespace oid, relpages int4, reltuples float4, "
        "relallvisible int4, reltoastrelid oid, relhasindex bool, relisshared bool, "
        "relpersistence char, relkind char, relnatts int2, relchecks int2, relhasrules bool, "
        "relhastriggers bool, relhassubclass bool, relrowsecurity bool, relforcerowsecurity "
        "bool, relispopulated bool, relreplident char, relispartition bool, relrewrite oid, "
        "relfrozenxid xid, relminmxid xid, relacl text[]?, reloptions text[]?, relpartbound "
        "text?",
    ),
    "pg_namespace": (2615, "oid oid, nspname name, nspowner oid, nspacl text[]?"),
    "pg_attribute": (
        1249,
        "attrelid oid, attname name, atttypid oid, attstattarget int4, attlen int2, attnum "
        "int2, attndims int4, attcacheoff int4, atttypmod int4, attbyval bool, attalign char, "
        "attstorage char, attcompression char, attnotnull bool, atthasdef bool, atthasmissing "
        "bool, attidentity char, attgenerated char, attisdropped bool, attislocal bool, "
        "attinhcount int4, attcollation oid, attacl text[]?, attoptions text[]?, "
        "attfdwoptions text[]?, attmissingval text?",
    ),
    "pg_type": (
        1247,
        "oid oid, typname name, typnamespace oid, typowner oid, typlen int2, typbyval bool, "
        "typtype char, typcategory char, typispreferred bool, typisdefined bool, typdelim "
        "char, typrelid oid, typsubscript regproc, typelem oid, typarray oid, typinput "
        "regproc, typoutput regproc, typreceive regproc, typsend regproc, typmodin regproc, "
        "typmodout regproc, typanalyze regproc, typalign char, typstorage char, typnotnull "
        "bool, typbasetype oid, typtypmod int4, typndims int4, typcollation oid, "
        "typdefaultbin text?, typdefault text?, typacl text[]?",
    ),
    "pg_index": (
        2610,
        "indexrelid oid, indrelid oid, indnatts int2, indnkeyatts int2, indisunique bool, "
        "indnullsnotdistinct bool, indisprimary bool, indisexclusion bool, indimmediate bool, "
        "indisclustered bool, indisvalid bool, indcheckxmin bool, indisready bool, indislive "
        "bool, indisreplident bool, indkey int2vector, indcollation oidvector, indclass "
        "oidvector, indoption int2vector, indexprs text?, indpred text?",
    ),
    "pg_database": (
        1262,
        "oid oid, datname name, datdba oid, encoding int4, datlocprovider char, datistemplate "
        "bool, datallowconn bool, datconnlimit int4, datfrozenxid xid, datminmxid xid, "
        "dattablespace oid, datcollate text, datctype text, daticulocale text?, "
        "datcollversion text?, datacl text[]?",
    ),
    "pg_authid": (
        1260,
        "oid oid, rolname name, rolsuper bool, rolinherit bool, rolcreaterole bool, "
        "rolcreatedb bool, rolcanlogin bool, rolreplication bool, rolbypassrls bool, "
        "rolconnlimit int4, rolpassword text?, rolvaliduntil timestamptz?",
    ),
    "pg_am": (2601, "oid oid, amname name, amhandler regproc, amtype char"),
    "pg_proc": (
        1255,
        "oid oid, proname name, pronamespace oid, proowner oid, prolang oid, procost float4, "
        "prorows float4, provariadic oid, prosupport regproc, prokind char, prosecdef bool, "
        "proleakproof bool, proisstrict bool, proretset bool, provolatile char, proparallel "
        "char, pronargs int2, pronargdefaults int2, prorettype oid, proargtypes oidvector, "
        "proallargtypes oid[]?, proargmodes char[]?, proargnames text[]?, proargdefaults "
        "text?, protrftypes oid[]?, prosrc text, probin text?, prosqlbody text?, proconfig "
        "text[]?, proacl text[]?",
    ),
    "pg_attrdef": (2604, "oid oid, adrelid oid, adnum int2, adbin text"),
    "pg_constraint": (
        2606,
        "oid oid, conname name, connamespace oid, contype char, condeferrable bool, "
        "condeferred bool, convalidated bool, conrelid oid, contypid oid, conindid oid, "
        "conparentid oid, confrelid oid, confupdtype char, confdeltype char, confmatchtype "
        "char, conislocal bool, coninhcount int4, connoinherit bool, conkey int2[]?, confkey "
        "int2[]?, conpfeqop oid[]?, conppeqop oid[]?, conffeqop oid[]?, confdelsetcols "
        "int2[]?, conexclop oid[]?, conbin text?",
    ),
    "pg_description": (2609, "objoid oid, classoid oid, objsubid int4, description text"),
    "pg_shdescription": (2396, "objoid oid, classoid oid, description text"),
    "pg_settings": (
        12104,
        "name text?, setting text?, unit text?, category text?, short_desc text?, extra_desc "
        "text?, context text?, vartype text?, source text?, min_val text?, max_val text?, "
        "enumvals text[]?, boot_val text?, reset_val text?, sourcefile text?, sourceline "
        "int4?, pending_restart bool?",
    ),
    "pg_collation": (
        3456,
        "oid oid, collname name, collnamespace oid, collowner oid, collprovider char, "
        "collisdeterministic bool, collencoding int4, collcollate text?, collctype text?, "
        "colliculocale text?, collversion text?",
    ),
    "pg_inherits": (2611, "inhrelid oid, inhparent oid, inhseqno int4, inhdetachpending bool"),
    "pg_enum": (3501, "oid oid, enumtypid oid, enumsortorder float4, enumlabel name"),
    "pg_range": (
        3541,
        "rngtypid oid, rngsubtype oid, rngmultitypid oid, rngcollation oid, rngsubopc oid, "
        "rngcanonical regproc, rngsubdiff regproc",
    ),
    "pg_tablespace": (
        1213,
        "oid oid, spcname name, spcowner oid, spcacl text[]?, spcoptions text[]?",
    ),
    "pg_sequence": (
        2224,
        "seqrelid oid, seqtypid oid, seqstart int8, seqincrement int8, seqmax int8, seqmin "
        "int8, seqcache int8, seqcycle bool",
    ),
    "pg_policy": (
        3256,
        "oid oid, polname name, polrelid oid, polcmd char, polpermissive bool, polroles "
        "oid[], polqual text?, polwithcheck text?",
    ),
    "pg_publication": (
        6104,
        "oid oid, pubname name, pubowner oid, puballtables bool, pubinsert bool, pubupdate "
        "bool, pubdelete bool, pubtruncate bool, pubviaroot bool",
    ),
    "pg_publication_rel": (
        6106,
        "oid oid, prpubid oid, prrelid oid, prqual text?, prattrs int2vector?",
    ),
    "pg_publication_namespace": (6237, "oid oid, pnpubid oid, pnnspid oid"),
    "pg_statistic_ext": (
        3381,
        "oid oid, stxrelid oid, stxname name, stxnamespace oid, stxowner oid, stxstattarget "
        "int4, stxkeys int2vector, stxkind text[], stxexprs text?",
    ),
    "pg_trigger": (
        2620,
        "oid oid, tgrelid oid, tgparentid oid, tgname name, tgfoid oid, tgtype int2, "
        "tgenabled char, tgisinternal bool, tgconstrrelid oid, tgconstrindid oid, "
        "tgconstraint oid, tgdeferrable bool, tginitdeferred bool, tgnargs int2, tgattr "
        "int2vector, tgargs bytea, tgqual text?, tgoldtable name?, tgnewtable name?",
    ),
    "pg_rewrite": (
        2618,
        "oid oid, rulename name, ev_class oid, ev_type char, ev_enabled char, is_instead "
        "bool, ev_qual text, ev_action text",
    ),
    "pg_depend": (
        2608,
        "classid oid, objid oid, objsubid int4, refclassid oid, refobjid oid, refobjsubid "
        "int4, deptype char",
    ),
    "pg_shdepend": (
        1214,
        "dbid oid, classid oid, objid oid, objsubid int4, refclassid oid, refobjid oid, "
        "deptype char",
    ),
    "pg_extension": (
        3079,
        "oid oid, extname name, extowner oid, extnamespace oid, extrelocatable bool, "
        "extversion text, extconfig oid[]?, extcondition text[]?",
    ),
    "pg_language": (
        2612,
        "oid oid, lanname name, lanowner oid, lanispl bool, lanpltrusted bool, lanplcallfoid "
        "oid, laninline oid, lanvalidator oid, lanacl text[]?",
    ),
    "pg_opclass": (
        2616,
        "oid oid, opcmethod oid, opcname name, opcnamespace oid, opcowner oid, opcfamily oid, "
        "opcintype oid, opcdefault bool, opckeytype oid",
    ),
    "pg_opfamily": (2753, "oid oid, opfmethod oid, opfname name, opfnamespace oid, opfowner oid"),
    "pg_operator": (
        2617,
        "oid oid, oprname name, oprnamespace oid, oprowner oid, oprkind char, oprcanmerge "
        "bool, oprcanhash bool, oprleft oid, oprright oid, oprresult oid, oprcom oid, "
        "oprnegate oid, oprcode regproc, oprrest regproc, oprjoin regproc",
    ),
    "pg_cast": (
        2605,
        "oid oid, castsource oid, casttarget oid, castfunc oid, castcontext char, castmethod char",
    ),
    "pg_aggregate": (
        2600,
        "aggfnoid regproc, aggkind char, aggnumdirectargs int2, aggtransfn regproc, "
        "aggfinalfn regproc, aggcombinefn regproc, aggserialfn regproc, aggdeserialfn "
        "regproc, aggmtransfn regproc, aggminvtransfn regproc, aggmfinalfn regproc, "
        "aggfinalextra bool, aggmfinalextra bool, aggfinalmodify char, aggmfinalmodify char, "
        "aggsortop oid, aggtranstype oid, aggtransspace int4, aggmtranstype oid, "
        "aggmtransspace int4, agginitval text?, aggminitval text?",
    ),
    "pg_auth_members": (1261, "roleid oid, member oid, grantor oid, admin_option bool"),
    "pg_foreign_table": (3118, "ftrelid oid, ftserver oid, ftoptions text[]?"),
    "pg_foreign_server": (
        1417,
        "oid oid, srvname name, srvowner oid, srvfdw oid, srvtype text?, srvversion text?, "
        "srvacl text[]?, srvoptions text[]?",
    ),
    "pg_foreign_data_wrapper": (
        2328,
        "oid oid, fdwname name, fdwowner oid, fdwhandler oid, fdwvalidator oid, fdwacl "
        "text[]?, fdwoptions text[]?",
    ),
    "pg_user_mapping": (1418, "oid oid, umuser oid, umserver oid, umoptions text[]?"),
    "pg_partitioned_table": (
        3350,
        "partrelid oid, partstrat char, partnatts int2, partdefid oid, partattrs int2vector, "
        "partclass oidvector, partcollation oidvector, partexprs text?",
    ),
    "pg_event_trigger": (
        3466,
        "oid oid, evtname name, evtevent name, evtowner oid, evtfoid oid, evtenabled char, "
        "evttags text[]?",
    ),
    "pg_subscription": (
        6100,
        "oid oid, subdbid oid, subskiplsn text, subname name, subowner oid, subenabled bool, "
        "subbinary bool, substream bool, subtwophasestate char, subdisableonerr bool, "
        "subconninfo text, subslotname name?, subsynccommit text, subpublications text[]",
    ),
    "pg_default_acl": (
        826,
        "oid oid, defaclrole oid, defaclnamespace oid, defaclobjtype char, defaclacl text[]",
    ),
    "pg_seclabel": (3596, "objoid oid, classoid oid, objsubid int4, provider text, label text"),
    "pg_ts_config": (3602, "oid oid, cfgname name, cfgnamespace oid, cfgowner oid, cfgparser oid"),
    "pg_ts_dict": (
        3600,
        "oid oid, dictname name, dictnamespace oid, dictowner oid, dicttemplate oid, "
        "dictinitoption text?",
    ),
    "pg_ts_parser": (
        3601,
        "oid oid, prsname name, prsnamespace oid, prsstart regproc, prstoken regproc, prsend "
        "regproc, prsheadline regproc, prslextype regproc",
    ),
    "pg_ts_template": (
        3764,
        "oid oid, tmplname name, tmplnamespace oid, tmplinit regproc, tmpllexize regproc",
    ),
    "pg_conversion": (
        2607,
        "oid oid, conname name, connamespace oid, conowner oid, conforencoding int4, "
        "contoencoding int4, conproc regproc, condefault bool",
    ),
    "pg_init_privs": (
        3394,
        "objoid oid, classoid oid, objsubid int4, privtype char, initprivs text[]",
    ),
    "pg_largeobject_metadata": (2995, "oid oid, lomowner oid, lomacl text[]?"),
    "pg_amop": (
        2602,
        "oid oid, amopfamily oid, amoplefttype oid, amoprighttype oid, amopstrategy int2, "
        "amoppurpose char, amopopr oid, amopmethod oid, amopsortfamily oid",
    ),
    "pg_amproc": (
        2603,
        "oid oid, amprocfamily oid, amproclefttype oid, amprocrighttype oid, amprocnum int2, "
        "amproc regproc",
    ),
    "pg_transform": (
        3576,
        "oid oid, trftype oid, trflang oid, trffromsql regproc, trftosql regproc",
    ),
    "pg_db_role_setting": (2964, "setdatabase oid, setrole oid, setconfig text[]?"),
    "pg_stat_activity": (
        12222,
        "datid oid?, datname name?, pid int4?, leader_pid int4?, usesysid oid?, usename "
        "name?, application_name text?, client_addr text?, client_hostname text?, client_port "
        "int4?, backend_start timestamptz?, xact_start timestamptz?, query_start "
        "timestamptz?, state_change timestamptz?, wait_event_type text?, wait_event text?, "
        "state text?, backend_xid xid?, backend_xmin xid?, query_id int8?, query text?, "
        "backend_type text?",
    ),
    "pg_stat_user_tables": (
        12161,
        "relid oid?, schemaname name?, relname name?, seq_scan int8?, seq_tup_read int8?, "
        "idx_scan int8?, idx_tup_fetch int8?, n_tup_ins int8?, n_tup_upd int8?, n_tup_del "
        "int8?, n_tup_hot_upd int8?, n_live_tup int8?, n_dead_tup int8?, n_mod_since_analyze "
        "int8?, n_ins_since_vacuum int8?, last_vacuum timestamptz?, last_autovacuum "
        "timestamptz?, last_analyze timestamptz?, last_autoanalyze timestamptz?, vacuum_count "
        "int8?, autovacuum_count int8?, analyze_count int8?, autoanalyze_count int8?",
    ),
    "pg_stat_database": (
        12266,
        "datid oid?, datname name?, numbackends int4?, xact_commit int8?, xact_rollback "
        "int8?, blks_read int8?, blks_hit int8?, tup_returned int8?, tup_fetched int8?, "
        "tup_inserted int8?, tup_updated int8?, tup_deleted int8?, conflicts int8?, "
        "temp_files int8?, temp_bytes int8?, deadlocks int8?, checksum_failures int8?, "
        "checksum_last_failure timestamptz?, blk_read_time float8?, blk_write_time float8?, "
        "session_time float8?, active_time float8?, idle_in_transaction_time float8?, "
        "sessions int8?, sessions_abandoned int8?, sessions_fatal int8?, sessions_killed "
        "int8?, stats_reset timestamptz?",
    ),
    "pg_statio_user_tables": (
        12179,
        "relid oid?, schemaname name?, relname name?, heap_blks_read int8?, heap_blks_hit "
        "int8?, idx_blks_read int8?, idx_blks_hit int8?, toast_blks_read int8?, "
        "toast_blks_hit int8?, tidx_blks_read int8?, tidx_blks_hit int8?",
    ),
    "pg_locks": (
        12073,
        "locktype text?, database oid?, relation oid?, page int4?, tuple int2?, virtualxid "
        "text?, transactionid xid?, classid oid?, objid oid?, objsubid int2?, "
        "virtualtransaction text?, pid int4?, mode text?, granted bool?, fastpath bool?, "
        "waitstart timestamptz?",
    ),
    "pg_prepared_statements": (
        12095,
        "name text?, statement text?, prepare_time timestamptz?, parameter_types regtype[]?, "
        "from_sql bool?, generic_plans int8?, custom_plans int8?",
    ),
    "pg_cursors": (
        12077,
        "name text?, statement text?, is_holdable bool?, is_binary bool?, is_scrollable "
        "bool?, creation_time timestamptz?",
    ),
    "pg_timezone_names": (12126, "name text?, abbrev text?, utc_offset interval?, is_dst bool?"),
    "pg_timezone_abbrevs": (12122, "abbrev text?, utc_offset interval?, is_dst bool?"),
    "pg_available_extensions": (
        12081,
        "name name?, default_version text?, installed_version text?, comment text?",
    ),
    "pg_prepared_xacts": (
        12090,
        "transaction oid?, gid text?, prepared timestamptz?, owner name?, database name?",
    ),
    "pg_replication_slots": (
        12257,
        "slot_name name?, plugin name?, slot_type text?, datoid oid?, database name?, "
        "temporary bool?, active bool?, active_pid int4?, xmin xid?, catalog_xmin xid?, "
        "restart_lsn text?, confirmed_flush_lsn text?, wal_status text?, safe_wal_size int8?, "
        "two_phase bool?",
    ),
    "pg_stat_replication": (
        12227,
        "pid int4?, usesysid oid?, usename name?, application_name text?, client_addr text?, "
        "client_hostname text?, client_port int4?, backend_start timestamptz?, backend_xmin "
        "xid?, state text?, sent_lsn text?, write_lsn text?, flush_lsn text?, replay_lsn "
        "text?, write_lag interval?, flush_lag interval?, replay_lag interval?, sync_priority "
        "int4?, sync_state text?, reply_time timestamptz?",
    ),
    "pg_stats": (
        12053,
        "schemaname name?, tablename name?, attname name?, inherited bool?, null_frac "
        "float4?, avg_width int4?, n_distinct float4?, most_common_vals text?, "
        "most_common_freqs text?, histogram_bounds text?, correlation float4?, "
        "most_common_elems text?, most_common_elem_freqs text?, elem_count_histogram text?",
    ),
    "pg_hba_file_rules": (
        12114,
        "line_number int4?, type text?, database text[]?, user_name text[]?, address text?, "
        "netmask text?, auth_method text?, options text[]?, error text?",
    ),
    "pg_shadow": (
        12005,
        "usename name?, usesysid oid?, usecreatedb bool?, usesuper bool?, userepl bool?, "
        "usebypassrls bool?, passwd text?, valuntil timestamptz?, useconfig text[]?",
    ),
    "pg_group": (12010, "groname name?, grosysid oid?, grolist oid[]?"),
}

INFORMATION_SCHEMA: dict[str, tuple[int, str]] = {
    "tables": (
        13425,
        "table_catalog name, table_schema name, table_name name, table_type text, "
        "self_referencing_column_name name, reference_generation text, "
        "user_defined_type_catalog name, user_defined_type_schema name, "
        "user_defined_type_name name, is_insertable_into text, is_typed text, commit_action "
        "text",
    ),
    "columns": (
        13295,
        "table_catalog name, table_schema name, table_name name, column_name name, "
        "ordinal_position int4, column_default text, is_nullable text, data_type text, "
        "character_maximum_length int4, character_octet_length int4, numeric_precision int4, "
        "numeric_precision_radix int4, numeric_scale int4, datetime_precision int4, "
        "interval_type text, interval_precision int4, character_set_catalog name, "
        "character_set_schema name, character_set_name name, collation_catalog name, "
        "collation_schema name, collation_name name, domain_catalog name, domain_schema name, "
        "domain_name name, udt_catalog name, udt_schema name, udt_name name, scope_catalog "
        "name, scope_schema name, scope_name name, maximum_cardinality int4, dtd_identifier "
        "name, is_self_referencing text, is_identity text, identity_generation text, "
        "identity_start text, identity_increment text, identity_maximum text, "
        "identity_minimum text, identity_cycle text, is_generated text, generation_expression "
        "text, is_updatable text",
    ),
    "schemata": (
        13382,
        "catalog_name name, schema_name name, schema_owner name, "
        "default_character_set_catalog name, default_character_set_schema name, "
        "default_character_set_name name, sql_path text",
    ),
    "views": (
        13483,
        "table_catalog name, table_schema name, table_name name, view_definition text, "
        "check_option text, is_updatable text, is_insertable_into text, is_trigger_updatable "
        "text, is_trigger_deletable text, is_trigger_insertable_into text",
    ),
    "table_constraints": (
        13411,
        "constraint_catalog name, constraint_schema name, constraint_name name, table_catalog "
        "name, table_schema name, table_name name, constraint_type text, is_deferrable text, "
        "initially_deferred text, enforced text, nulls_distinct text",
    ),
    "key_column_usage": (
        13329,
        "constraint_catalog name, constraint_schema name, constraint_name name, table_catalog "
        "name, table_schema name, table_name name, column_name name, ordinal_position int4, "
        "position_in_unique_constraint int4",
    ),
    "referential_constraints": (
        13339,
        "constraint_catalog name, constraint_schema name, constraint_name name, "
        "unique_constraint_catalog name, unique_constraint_schema name, "
        "unique_constraint_name name, match_option text, update_rule text, delete_rule text",
    ),
    "constraint_column_usage": (
        13300,
        "table_catalog name, table_schema name, table_name name, column_name name, "
        "constraint_catalog name, constraint_schema name, constraint_name name",
    ),
    "routines": (
        13377,
        "specific_catalog name, specific_schema name, specific_name name, routine_catalog "
        "name, routine_schema name, routine_name name, routine_type text, module_catalog "
        "name, module_schema name, module_name name, udt_catalog name, udt_schema name, "
        "udt_name name, data_type text, character_maximum_length int4, character_octet_length "
        "int4, character_set_catalog name, character_set_schema name, character_set_name "
        "name, collation_catalog name, collation_schema name, collation_name name, "
        "numeric_precision int4, numeric_precision_radix int4, numeric_scale int4, "
        "datetime_precision int4, interval_type text, interval_precision int4, "
        "type_udt_catalog name, type_udt_schema name, type_udt_name name, scope_catalog name, "
        "scope_schema name, scope_name name, maximum_cardinality int4, dtd_identifier name, "
        "routine_body text, routine_definition text, external_name text, external_language "
        "text, parameter_style text, is_deterministic text, sql_data_access text, "
        "is_null_call text, sql_path text, schema_level_routine text, max_dynamic_result_sets "
        "int4, is_user_defined_cast text, is_implicitly_invocable text, security_type text, "
        "to_sql_specific_catalog name, to_sql_specific_schema name, to_sql_specific_name "
        "name, as_locator text, created timestamptz, last_altered timestamptz, "
        "new_savepoint_level text, is_udt_dependent text, result_cast_from_data_type text, "
        "result_cast_as_locator text, result_cast_char_max_length int4, "
        "result_cast_char_octet_length int4, result_cast_char_set_catalog name, "
        "result_cast_char_set_schema name, result_cast_char_set_name name, "
        "result_cast_collation_catalog name, result_cast_collation_schema name, "
        "result_cast_collation_name name, result_cast_numeric_precision int4, "
        "result_cast_numeric_precision_radix int4, result_cast_numeric_scale int4, "
        "result_cast_datetime_precision int4, result_cast_interval_type text, "
        "result_cast_interval_precision int4, result_cast_type_udt_catalog name, "
        "result_cast_type_udt_schema name, result_cast_type_udt_name name, "
        "result_cast_scope_catalog name, result_cast_scope_schema name, "
        "result_cast_scope_name name, result_cast_maximum_cardinality int4, "
        "result_cast_dtd_identifier name",
    ),
    "parameters": (
        13334,
        "specific_catalog name, specific_schema name, specific_name name, ordinal_position "
        "int4, parameter_mode text, is_result text, as_locator text, parameter_name name, "
        "data_type text, character_maximum_length int4, character_octet_length int4, "
        "character_set_catalog name, character_set_schema name, character_set_name name, "
        "collation_catalog name, collation_schema name, collation_name name, "
        "numeric_precision int4, numeric_precision_radix int4, numeric_scale int4, "
        "datetime_precision int4, interval_type text, interval_precision int4, udt_catalog "
        "name, udt_schema name, udt_name name, scope_catalog name, scope_schema name, "
        "scope_name name, maximum_cardinality int4, dtd_identifier name, parameter_default "
        "text",
    ),
    "sequences": (
        13386,
        "sequence_catalog name, sequence_schema name, sequence_name name, data_type text, "
        "numeric_precision int4, numeric_precision_radix int4, numeric_scale int4, "
        "start_value text, minimum_value text, maximum_value text, increment text, "
        "cycle_option text",
    ),
    "triggers": (
        13440,
        "trigger_catalog name, trigger_schema name, trigger_name name, event_manipulation "
        "text, event_object_catalog name, event_object_schema name, event_object_table name, "
        "action_order int4, action_condition text, action_statement text, action_orientation "
        "text, action_timing text, action_reference_old_table name, "
        "action_reference_new_table name, action_reference_old_row name, "
        "action_reference_new_row name, created timestamptz",
    ),
    "check_constraints": (
        13260,
        "constraint_catalog name, constraint_schema name, constraint_name name, check_clause text",
    ),
    "character_sets": (
        13250,
        "character_set_catalog name, character_set_schema name, character_set_name name, "
        "character_repertoire name, form_of_use name, default_collate_catalog name, "
        "default_collate_schema name, default_collate_name name",
    ),
    "collations": (
        13265,
        "collation_catalog name, collation_schema name, collation_name name, pad_attribute text",
    ),
    "applicable_roles": (13236, "grantee name, role_name name, is_grantable text"),
    "enabled_roles": (13325, "role_name name"),
    "table_privileges": (
        13416,
        "grantor name, grantee name, table_catalog name, table_schema name, table_name name, "
        "privilege_type text, is_grantable text, with_hierarchy text",
    ),
    "column_privileges": (
        13285,
        "grantor name, grantee name, table_catalog name, table_schema name, table_name name, "
        "column_name name, privilege_type text, is_grantable text",
    ),
    "role_table_grants": (
        13421,
        "grantor name, grantee name, table_catalog name, table_schema name, table_name name, "
        "privilege_type text, is_grantable text, with_hierarchy text",
    ),
    "domains": (
        13320,
        "domain_catalog name, domain_schema name, domain_name name, data_type text, "
        "character_maximum_length int4, character_octet_length int4, character_set_catalog "
        "name, character_set_schema name, character_set_name name, collation_catalog name, "
        "collation_schema name, collation_name name, numeric_precision int4, "
        "numeric_precision_radix int4, numeric_scale int4, datetime_precision int4, "
        "interval_type text, interval_precision int4, domain_default text, udt_catalog name, "
        "udt_schema name, udt_name name, scope_catalog name, scope_schema name, scope_name "
        "name, maximum_cardinality int4, dtd_identifier name",
    ),
    "element_types": (
        13493,
        "object_catalog name, object_schema name, object_name name, object_type text, "
        "collection_type_identifier name, data_type text, character_maximum_length int4, "
        "character_octet_length int4, character_set_catalog name, character_set_schema name, "
        "character_set_name name, collation_catalog name, collation_schema name, "
        "collation_name name, numeric_precision int4, numeric_precision_radix int4, "
        "numeric_scale int4, datetime_precision int4, interval_type text, interval_precision "
        "int4, domain_default text, udt_catalog name, udt_schema name, udt_name name, "
        "scope_catalog name, scope_schema name, scope_name name, maximum_cardinality int4, "
        "dtd_identifier name",
    ),
    "information_schema_catalog_name": (13227, "catalog_name name"),
}
