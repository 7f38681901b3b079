"""The columns of further relations of PostgreSQL 15's catalog, as in `columns.py`.

Most have no rows, as they are about features that Foreshore lacks. Columns of views in `pg_catalog`
may be NULL.
"""

SYSTEM_VIEWS: dict[str, tuple[int, str]] = {
    "pg_available_extension_versions": (
        12085,
        "name name?, version text?, installed bool?, superuser bool?, trusted bool?, "
        "relocatable bool?, schema name?, requires name[]?, comment text?",
    ),
    "pg_ident_file_mappings": (
        12118,
        "line_number int4?, map_name text?, sys_name text?, pg_username text?, error text?",
    ),
    "pg_largeobject": (
        2613,
        "loid oid, pageno int4, data bytea",
    ),
    "pg_parameter_acl": (
        6243,
        "oid oid, parname text, paracl text[]?",
    ),
    "pg_policies": (
        12018,
        "schemaname name?, tablename name?, policyname name?, permissive text?, roles "
        "name[]?, cmd text?, qual text?, with_check text?",
    ),
    "pg_publication_tables": (
        12068,
        "pubname name?, schemaname name?, tablename name?, attnames name[]?, rowfilter text?",
    ),
    "pg_replication_origin": (
        6000,
        "roident oid, roname text",
    ),
    "pg_replication_origin_status": (
        12332,
        "local_id oid?, external_id text?, remote_lsn text?, local_lsn text?",
    ),
    "pg_rules": (
        12023,
        "schemaname name?, tablename name?, rulename name?, definition text?",
    ),
    "pg_seclabels": (
        12099,
        "objoid oid?, classoid oid?, objsubid int4?, objtype text?, objnamespace oid?, "
        "objname text?, provider text?, label text?",
    ),
    "pg_shseclabel": (
        3592,
        "objoid oid, classoid oid, provider text, label text",
    ),
    "pg_stat_all_indexes": (
        12183,
        "relid oid?, indexrelid oid?, schemaname name?, relname name?, indexrelname name?, "
        "idx_scan int8?, idx_tup_read int8?, idx_tup_fetch int8?",
    ),
    "pg_stat_all_tables": (
        12142,
        "relid oid?, schemaname name?, relname name?, seq_scan int8?, seq_tup_read int8?, "
        "idx_scan int8?, idx_tup_fetch int8?, n_tup_ins int8?, n_tup_upd int8?, n_tup_del "
        "int8?, n_tup_hot_upd int8?, n_live_tup int8?, n_dead_tup int8?, n_mod_since_analyze "
        "int8?, n_ins_since_vacuum int8?, last_vacuum timestamptz?, last_autovacuum "
        "timestamptz?, last_analyze timestamptz?, last_autoanalyze timestamptz?, vacuum_count "
        "int8?, autovacuum_count int8?, analyze_count int8?, autoanalyze_count int8?",
    ),
    "pg_stat_archiver": (
        12285,
        "archived_count int8?, last_archived_wal text?, last_archived_time timestamptz?, "
        "failed_count int8?, last_failed_wal text?, last_failed_time timestamptz?, "
        "stats_reset timestamptz?",
    ),
    "pg_stat_bgwriter": (
        12289,
        "checkpoints_timed int8?, checkpoints_req int8?, checkpoint_write_time float8?, "
        "checkpoint_sync_time float8?, buffers_checkpoint int8?, buffers_clean int8?, "
        "maxwritten_clean int8?, buffers_backend int8?, buffers_backend_fsync int8?, "
        "buffers_alloc int8?, stats_reset timestamptz?",
    ),
    "pg_stat_database_conflicts": (
        12271,
        "datid oid?, datname name?, confl_tablespace int8?, confl_lock int8?, confl_snapshot "
        "int8?, confl_bufferpin int8?, confl_deadlock int8?",
    ),
    "pg_stat_gssapi": (
        12253,
        "pid int4?, gss_authenticated bool?, principal text?, encrypted bool?",
    ),
    "pg_stat_progress_analyze": (
        12297,
        "pid int4?, datid oid?, datname name?, relid oid?, phase text?, sample_blks_total "
        "int8?, sample_blks_scanned int8?, ext_stats_total int8?, ext_stats_computed int8?, "
        "child_tables_total int8?, child_tables_done int8?, current_child_table_relid oid?",
    ),
    "pg_stat_progress_basebackup": (
        12317,
        "pid int4?, phase text?, backup_total int8?, backup_streamed int8?, tablespaces_total "
        "int8?, tablespaces_streamed int8?",
    ),
    "pg_stat_progress_cluster": (
        12307,
        "pid int4?, datid oid?, datname name?, relid oid?, command text?, phase text?, "
        "cluster_index_relid oid?, heap_tuples_scanned int8?, heap_tuples_written int8?, "
        "heap_blks_total int8?, heap_blks_scanned int8?, index_rebuild_count int8?",
    ),
    "pg_stat_progress_copy": (
        12322,
        "pid int4?, datid oid?, datname name?, relid oid?, command text?, type text?, "
        "bytes_processed int8?, bytes_total int8?, tuples_processed int8?, tuples_excluded "
        "int8?",
    ),
    "pg_stat_progress_create_index": (
        12312,
        "pid int4?, datid oid?, datname name?, relid oid?, index_relid oid?, command text?, "
        "phase text?, lockers_total int8?, lockers_done int8?, current_locker_pid int8?, "
        "blocks_total int8?, blocks_done int8?, tuples_total int8?, tuples_done int8?, "
        "partitions_total int8?, partitions_done int8?",
    ),
    "pg_stat_progress_vacuum": (
        12302,
        "pid int4?, datid oid?, datname name?, relid oid?, phase text?, heap_blks_total "
        "int8?, heap_blks_scanned int8?, heap_blks_vacuumed int8?, index_vacuum_count int8?, "
        "max_dead_tuples int8?, num_dead_tuples int8?",
    ),
    "pg_stat_recovery_prefetch": (
        12240,
        "stats_reset timestamptz?, prefetch int8?, hit int8?, skip_init int8?, skip_new "
        "int8?, skip_fpw int8?, skip_rep int8?, wal_distance int4?, block_distance int4?, "
        "io_depth int4?",
    ),
    "pg_stat_replication_slots": (
        12262,
        "slot_name text?, spill_txns int8?, spill_count int8?, spill_bytes int8?, stream_txns "
        "int8?, stream_count int8?, stream_bytes int8?, total_txns int8?, total_bytes int8?, "
        "stats_reset timestamptz?",
    ),
    "pg_stat_slru": (
        12232,
        "name text?, blks_zeroed int8?, blks_hit int8?, blks_read int8?, blks_written int8?, "
        "blks_exists int8?, flushes int8?, truncates int8?, stats_reset timestamptz?",
    ),
    "pg_stat_ssl": (
        12249,
        "pid int4?, ssl bool?, version text?, cipher text?, bits int4?, client_dn text?, "
        "client_serial numeric?, issuer_dn text?",
    ),
    "pg_stat_subscription": (
        12244,
        "subid oid?, subname name?, pid int4?, relid oid?, received_lsn text?, "
        "last_msg_send_time timestamptz?, last_msg_receipt_time timestamptz?, latest_end_lsn "
        "text?, latest_end_time timestamptz?",
    ),
    "pg_stat_subscription_stats": (
        12336,
        "subid oid?, subname name?, apply_error_count int8?, sync_error_count int8?, "
        "stats_reset timestamptz?",
    ),
    "pg_stat_sys_indexes": (
        12188,
        "relid oid?, indexrelid oid?, schemaname name?, relname name?, indexrelname name?, "
        "idx_scan int8?, idx_tup_read int8?, idx_tup_fetch int8?",
    ),
    "pg_stat_sys_tables": (
        12152,
        "relid oid?, schemaname name?, relname name?, seq_scan int8?, seq_tup_read int8?, "
        "idx_scan int8?, idx_tup_fetch int8?, n_tup_ins int8?, n_tup_upd int8?, n_tup_del "
        "int8?, n_tup_hot_upd int8?, n_live_tup int8?, n_dead_tup int8?, n_mod_since_analyze "
        "int8?, n_ins_since_vacuum int8?, last_vacuum timestamptz?, last_autovacuum "
        "timestamptz?, last_analyze timestamptz?, last_autoanalyze timestamptz?, vacuum_count "
        "int8?, autovacuum_count int8?, analyze_count int8?, autoanalyze_count int8?",
    ),
    "pg_stat_user_functions": (
        12275,
        "funcid oid?, schemaname name?, funcname name?, calls int8?, total_time float8?, "
        "self_time float8?",
    ),
    "pg_stat_user_indexes": (
        12192,
        "relid oid?, indexrelid oid?, schemaname name?, relname name?, indexrelname name?, "
        "idx_scan int8?, idx_tup_read int8?, idx_tup_fetch int8?",
    ),
    "pg_stat_wal": (
        12293,
        "wal_records int8?, wal_fpi int8?, wal_bytes numeric?, wal_buffers_full int8?, "
        "wal_write int8?, wal_sync int8?, wal_write_time float8?, wal_sync_time float8?, "
        "stats_reset timestamptz?",
    ),
    "pg_stat_wal_receiver": (
        12236,
        "pid int4?, status text?, receive_start_lsn text?, receive_start_tli int4?, "
        "written_lsn text?, flushed_lsn text?, received_tli int4?, last_msg_send_time "
        "timestamptz?, last_msg_receipt_time timestamptz?, latest_end_lsn text?, "
        "latest_end_time timestamptz?, slot_name text?, sender_host text?, sender_port int4?, "
        "conninfo text?",
    ),
    "pg_stat_xact_all_tables": (
        12147,
        "relid oid?, schemaname name?, relname name?, seq_scan int8?, seq_tup_read int8?, "
        "idx_scan int8?, idx_tup_fetch int8?, n_tup_ins int8?, n_tup_upd int8?, n_tup_del "
        "int8?, n_tup_hot_upd int8?",
    ),
    "pg_stat_xact_sys_tables": (
        12157,
        "relid oid?, schemaname name?, relname name?, seq_scan int8?, seq_tup_read int8?, "
        "idx_scan int8?, idx_tup_fetch int8?, n_tup_ins int8?, n_tup_upd int8?, n_tup_del "
        "int8?, n_tup_hot_upd int8?",
    ),
    "pg_stat_xact_user_functions": (
        12280,
        "funcid oid?, schemaname name?, funcname name?, calls int8?, total_time float8?, "
        "self_time float8?",
    ),
    "pg_stat_xact_user_tables": (
        12166,
        "relid oid?, schemaname name?, relname name?, seq_scan int8?, seq_tup_read int8?, "
        "idx_scan int8?, idx_tup_fetch int8?, n_tup_ins int8?, n_tup_upd int8?, n_tup_del "
        "int8?, n_tup_hot_upd int8?",
    ),
    "pg_statio_all_indexes": (
        12196,
        "relid oid?, indexrelid oid?, schemaname name?, relname name?, indexrelname name?, "
        "idx_blks_read int8?, idx_blks_hit int8?",
    ),
    "pg_statio_all_sequences": (
        12209,
        "relid oid?, schemaname name?, relname name?, blks_read int8?, blks_hit int8?",
    ),
    "pg_statio_all_tables": (
        12170,
        "relid oid?, schemaname name?, relname name?, heap_blks_read int8?, heap_blks_hit "
        "int8?, idx_blks_read int8?, idx_blks_hit int8?, toast_blks_read int8?, "
        "toast_blks_hit int8?, tidx_blks_read int8?, tidx_blks_hit int8?",
    ),
    "pg_statio_sys_indexes": (
        12201,
        "relid oid?, indexrelid oid?, schemaname name?, relname name?, indexrelname name?, "
        "idx_blks_read int8?, idx_blks_hit int8?",
    ),
    "pg_statio_sys_sequences": (
        12214,
        "relid oid?, schemaname name?, relname name?, blks_read int8?, blks_hit int8?",
    ),
    "pg_statio_sys_tables": (
        12175,
        "relid oid?, schemaname name?, relname name?, heap_blks_read int8?, heap_blks_hit "
        "int8?, idx_blks_read int8?, idx_blks_hit int8?, toast_blks_read int8?, "
        "toast_blks_hit int8?, tidx_blks_read int8?, tidx_blks_hit int8?",
    ),
    "pg_statio_user_indexes": (
        12205,
        "relid oid?, indexrelid oid?, schemaname name?, relname name?, indexrelname name?, "
        "idx_blks_read int8?, idx_blks_hit int8?",
    ),
    "pg_statio_user_sequences": (
        12218,
        "relid oid?, schemaname name?, relname name?, blks_read int8?, blks_hit int8?",
    ),
    "pg_statistic_ext_data": (
        3429,
        "stxoid oid, stxdinherit bool, stxdndistinct text?, stxddependencies text?, stxdmcv "
        "text?, stxdexpr text?",
    ),
    "pg_stats_ext": (
        12058,
        "schemaname name?, tablename name?, statistics_schemaname name?, statistics_name "
        "name?, statistics_owner name?, attnames name[]?, exprs text[]?, kinds text[]?, "
        "inherited bool?, n_distinct text?, dependencies text?, most_common_vals text[]?, "
        "most_common_val_nulls bool[]?, most_common_freqs float8[]?, most_common_base_freqs "
        "float8[]?",
    ),
    "pg_stats_ext_exprs": (
        12063,
        "schemaname name?, tablename name?, statistics_schemaname name?, statistics_name "
        "name?, statistics_owner name?, expr text?, inherited bool?, null_frac float4?, "
        "avg_width int4?, n_distinct float4?, most_common_vals text?, most_common_freqs "
        "float4[]?, histogram_bounds text?, correlation float4?, most_common_elems text?, "
        "most_common_elem_freqs float4[]?, elem_count_histogram float4[]?",
    ),
    "pg_subscription_rel": (
        6102,
        "srsubid oid, srrelid oid, srsubstate char, srsublsn text?",
    ),
    "pg_ts_config_map": (
        3603,
        "mapcfg oid, maptokentype int4, mapseqno int4, mapdict oid",
    ),
    "pg_user_mappings": (
        12327,
        "umid oid?, srvid oid?, srvname name?, umuser oid?, usename name?, umoptions text[]?",
    ),
    "pg_backend_memory_contexts": (
        12138,
        "name text?, ident text?, parent text?, level int4?, total_bytes int8?, total_nblocks "
        "int8?, free_bytes int8?, free_chunks int8?, used_bytes int8?",
    ),
    "pg_config": (12130, "name text?, setting text?"),
    "pg_file_settings": (
        12110,
        "sourcefile text?, sourceline int4?, seqno int4?, name text?, setting text?, applied "
        "bool?, error text?",
    ),
    "pg_shmem_allocations": (12134, "name text?, off int8?, size int8?, allocated_size int8?"),
    "pg_statistic": (
        2619,
        "starelid oid, staattnum int2, stainherit bool, stanullfrac float4, stawidth int4, "
        "stadistinct float4, stakind1 int2, stakind2 int2, stakind3 int2, stakind4 int2, "
        "stakind5 int2, staop1 oid, staop2 oid, staop3 oid, staop4 oid, staop5 oid, stacoll1 "
        "oid, stacoll2 oid, stacoll3 oid, stacoll4 oid, stacoll5 oid, stanumbers1 float4[]?, "
        "stanumbers2 float4[]?, stanumbers3 float4[]?, stanumbers4 float4[]?, stanumbers5 "
        "float4[]?, stavalues1 text?, stavalues2 text?, stavalues3 text?, stavalues4 text?, "
        "stavalues5 text?",
    ),
}

STANDARD_VIEWS: dict[str, tuple[int, str]] = {
    "administrable_role_authorizations": (
        13241,
        "grantee name, role_name name, is_grantable text",
    ),
    "attributes": (
        13245,
        "udt_catalog name, udt_schema name, udt_name name, attribute_name name, "
        "ordinal_position int4, attribute_default text, is_nullable text, data_type text, "
        "character_maximum_length int4, character_octet_length int4, character_set_catalog "
        "name, character_set_schema name, character_set_name name, collation_catalog name, "
        "collation_schema name, collation_name name, numeric_precision int4, "
        "numeric_precision_radix int4, numeric_scale int4, datetime_precision int4, "
        "interval_type text, interval_precision int4, attribute_udt_catalog name, "
        "attribute_udt_schema name, attribute_udt_name name, scope_catalog name, scope_schema "
        "name, scope_name name, maximum_cardinality int4, dtd_identifier name, "
        "is_derived_reference_attribute text",
    ),
    "check_constraint_routine_usage": (
        13255,
        "constraint_catalog name, constraint_schema name, constraint_name name, "
        "specific_catalog name, specific_schema name, specific_name name",
    ),
    "column_column_usage": (
        13275,
        "table_catalog name, table_schema name, table_name name, column_name name, "
        "dependent_column name",
    ),
    "column_domain_usage": (
        13280,
        "domain_catalog name, domain_schema name, domain_name name, table_catalog name, "
        "table_schema name, table_name name, column_name name",
    ),
    "column_options": (
        13503,
        "table_catalog name, table_schema name, table_name name, column_name name, "
        "option_name name, option_value text",
    ),
    "column_udt_usage": (
        13290,
        "udt_catalog name, udt_schema name, udt_name name, table_catalog name, table_schema "
        "name, table_name name, column_name name",
    ),
    "constraint_table_usage": (
        13305,
        "table_catalog name, table_schema name, table_name name, constraint_catalog name, "
        "constraint_schema name, constraint_name name",
    ),
    "domain_constraints": (
        13310,
        "constraint_catalog name, constraint_schema name, constraint_name name, "
        "domain_catalog name, domain_schema name, domain_name name, is_deferrable text, "
        "initially_deferred text",
    ),
    "domain_udt_usage": (
        13315,
        "udt_catalog name, udt_schema name, udt_name name, domain_catalog name, domain_schema "
        "name, domain_name name",
    ),
    "foreign_data_wrapper_options": (
        13511,
        "foreign_data_wrapper_catalog name, foreign_data_wrapper_name name, option_name name, "
        "option_value text",
    ),
    "foreign_data_wrappers": (
        13515,
        "foreign_data_wrapper_catalog name, foreign_data_wrapper_name name, "
        "authorization_identifier name, library_name text, foreign_data_wrapper_language text",
    ),
    "foreign_server_options": (
        13524,
        "foreign_server_catalog name, foreign_server_name name, option_name name, "
        "option_value text",
    ),
    "foreign_servers": (
        13528,
        "foreign_server_catalog name, foreign_server_name name, foreign_data_wrapper_catalog "
        "name, foreign_data_wrapper_name name, foreign_server_type text, "
        "foreign_server_version text, authorization_identifier name",
    ),
    "foreign_table_options": (
        13537,
        "foreign_table_catalog name, foreign_table_schema name, foreign_table_name name, "
        "option_name name, option_value text",
    ),
    "foreign_tables": (
        13541,
        "foreign_table_catalog name, foreign_table_schema name, foreign_table_name name, "
        "foreign_server_catalog name, foreign_server_name name",
    ),
    "role_column_grants": (
        13344,
        "grantor name, grantee name, table_catalog name, table_schema name, table_name name, "
        "column_name name, privilege_type text, is_grantable text",
    ),
    "role_routine_grants": (
        13358,
        "grantor name, grantee name, specific_catalog name, specific_schema name, "
        "specific_name name, routine_catalog name, routine_schema name, routine_name name, "
        "privilege_type text, is_grantable text",
    ),
    "role_udt_grants": (
        13450,
        "grantor name, grantee name, udt_catalog name, udt_schema name, udt_name name, "
        "privilege_type text, is_grantable text",
    ),
    "role_usage_grants": (
        13459,
        "grantor name, grantee name, object_catalog name, object_schema name, object_name "
        "name, object_type text, privilege_type text, is_grantable text",
    ),
    "routine_column_usage": (
        13348,
        "specific_catalog name, specific_schema name, specific_name name, routine_catalog "
        "name, routine_schema name, routine_name name, table_catalog name, table_schema name, "
        "table_name name, column_name name",
    ),
    "routine_privileges": (
        13353,
        "grantor name, grantee name, specific_catalog name, specific_schema name, "
        "specific_name name, routine_catalog name, routine_schema name, routine_name name, "
        "privilege_type text, is_grantable text",
    ),
    "routine_routine_usage": (
        13362,
        "specific_catalog name, specific_schema name, specific_name name, routine_catalog "
        "name, routine_schema name, routine_name name",
    ),
    "routine_sequence_usage": (
        13367,
        "specific_catalog name, specific_schema name, specific_name name, routine_catalog "
        "name, routine_schema name, routine_name name, sequence_catalog name, sequence_schema "
        "name, sequence_name name",
    ),
    "routine_table_usage": (
        13372,
        "specific_catalog name, specific_schema name, specific_name name, routine_catalog "
        "name, routine_schema name, routine_name name, table_catalog name, table_schema name, "
        "table_name name",
    ),
    "transforms": (
        13430,
        "udt_catalog name, udt_schema name, udt_name name, specific_catalog name, "
        "specific_schema name, specific_name name, group_name name, transform_type text",
    ),
    "triggered_update_columns": (
        13435,
        "trigger_catalog name, trigger_schema name, trigger_name name, event_object_catalog "
        "name, event_object_schema name, event_object_table name, event_object_column name",
    ),
    "udt_privileges": (
        13445,
        "grantor name, grantee name, udt_catalog name, udt_schema name, udt_name name, "
        "privilege_type text, is_grantable text",
    ),
    "usage_privileges": (
        13454,
        "grantor name, grantee name, object_catalog name, object_schema name, object_name "
        "name, object_type text, privilege_type text, is_grantable text",
    ),
    "user_defined_types": (
        13463,
        "user_defined_type_catalog name, user_defined_type_schema name, "
        "user_defined_type_name name, user_defined_type_category text, is_instantiable text, "
        "is_final text, ordering_form text, ordering_category text, ordering_routine_catalog "
        "name, ordering_routine_schema name, ordering_routine_name name, reference_type text, "
        "data_type text, character_maximum_length int4, character_octet_length int4, "
        "character_set_catalog name, character_set_schema name, character_set_name name, "
        "collation_catalog name, collation_schema name, collation_name name, "
        "numeric_precision int4, numeric_precision_radix int4, numeric_scale int4, "
        "datetime_precision int4, interval_type text, interval_precision int4, "
        "source_dtd_identifier name, ref_dtd_identifier name",
    ),
    "user_mapping_options": (
        13550,
        "authorization_identifier name, foreign_server_catalog name, foreign_server_name "
        "name, option_name name, option_value text",
    ),
    "user_mappings": (
        13555,
        "authorization_identifier name, foreign_server_catalog name, foreign_server_name name",
    ),
    "view_routine_usage": (
        13473,
        "table_catalog name, table_schema name, table_name name, specific_catalog name, "
        "specific_schema name, specific_name name",
    ),
    "view_table_usage": (
        13478,
        "view_catalog name, view_schema name, view_name name, table_catalog name, "
        "table_schema name, table_name name",
    ),
    "_pg_foreign_data_wrappers": (
        13507,
        "oid oid, fdwowner oid, fdwoptions text[], foreign_data_wrapper_catalog name, "
        "foreign_data_wrapper_name name, authorization_identifier name, "
        "foreign_data_wrapper_language text",
    ),
    "_pg_foreign_servers": (
        13519,
        "oid oid, srvoptions text[], foreign_server_catalog name, foreign_server_name name, "
        "foreign_data_wrapper_catalog name, foreign_data_wrapper_name name, "
        "foreign_server_type text, foreign_server_version text, authorization_identifier name",
    ),
    "_pg_foreign_table_columns": (
        13498,
        "nspname name, relname name, attname name, attfdwoptions text[]",
    ),
    "_pg_foreign_tables": (
        13532,
        "foreign_table_catalog name, foreign_table_schema name, foreign_table_name name, "
        "ftoptions text[], foreign_server_catalog name, foreign_server_name name, "
        "authorization_identifier name",
    ),
    "_pg_user_mappings": (
        13545,
        "oid oid, umoptions text[], umuser oid, authorization_identifier name, "
        "foreign_server_catalog name, foreign_server_name name, srvowner name",
    ),
    "collation_character_set_applicability": (
        13270,
        "collation_catalog name, collation_schema name, collation_name name, "
        "character_set_catalog name, character_set_schema name, character_set_name name",
    ),
    "data_type_privileges": (
        13488,
        "object_catalog name, object_schema name, object_name name, object_type text, "
        "dtd_identifier name",
    ),
    "sql_features": (
        13391,
        "feature_id text, feature_name text, sub_feature_id text, sub_feature_name text, "
        "is_supported text, is_verified_by text, comments text",
    ),
    "sql_implementation_info": (
        13396,
        "implementation_info_id text, implementation_info_name text, integer_value int4, "
        "character_value text, comments text",
    ),
    "sql_parts": (
        13401,
        "feature_id text, feature_name text, is_supported text, is_verified_by text, comments text",
    ),
    "sql_sizing": (
        13406,
        "sizing_id int4, sizing_name text, supported_value int4, comments text",
    ),
    "view_column_usage": (
        13468,
        "view_catalog name, view_schema name, view_name name, table_catalog name, "
        "table_schema name, table_name name, column_name name",
    ),
}
