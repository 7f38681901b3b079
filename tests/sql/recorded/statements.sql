select 1
select 1, 'a', null, true, 1.5, 1e3, 12345678901, -2147483648, 2147483648, -9223372036854775808
select a from t
select t.a, t.* from t
select public.t.a from public.t
select a as x, b y, c "Z" from t
select a + 1, a - 1, a * 2, a / 2, a % 2, a ^ 2, - a, + a, @ a from t
select c + a, c * c, c / c, a / 2.0, a + 1.5 from t
select x + a, x * 2, x / c from t join u using (a)
select b || 'x', b || a, 'x' || b, a || b from t
select 'a' || 'b', 'a' || 1, 1 || 'a'
select a = 1, a <> 1, a != 1, a < 1, a <= 1, a > 1, a >= 1 from t
select a is null, a is not null, e is true, e is not false, e is unknown, a isnull, a notnull from t
select a is distinct from 1, a is not distinct from null from t
select not e, e and true, e or false, e and not e or e from t
select a between 1 and 2, a not between 1 and 2, a between symmetric 2 and 1 from t
select a in (1, 2), a not in (1, 2.5), b in ('x', 'y') from t
select b like 'x%', b not like 'x', b ilike 'X%', b similar to 'x|y', b like 'x!%' escape '!' from t
select b ~ 'x', b ~* 'x', b !~ 'x', b !~* 'x' from t
select case when a = 1 then 'x' when a = 2 then 'y' else b end from t
select case a when 1 then 1.5 else 2 end, case when e then 1 end from t
select coalesce(a, 0), coalesce(b, 'x'), nullif(a, 1), greatest(a, 1.5), least(1, 2, null) from t
select a::text, cast(a as bigint), c::int, '1'::int, '1.50'::numeric, '2020-01-01'::date from t
select 1::numeric(10, 2), 'abc'::varchar(2), 'abc'::char(5), 'x'::name, '1'::"char"
select date '2020-01-01', timestamp '2020-01-01 10:00', timestamptz '2020-01-01 10:00+00', time '10:00', interval '1 day'
select interval '1' day, interval '2' year, interval '1 day 2 hours'
select date '2020-01-01' + 1, date '2020-01-01' - date '2019-01-01', date '2020-01-01' + interval '1 day'
select timestamp '2020-01-01' - timestamp '2019-01-01', now() - interval '1 hour', d + time '10:00' from t
select extract(year from d), extract(epoch from y), date_part('month', d) from t, u
select date_trunc('month', y), date_trunc('day', d::timestamp), y at time zone 'UTC', (y at time zone 'UTC') at time zone 'UTC' from t, u
select current_date, current_timestamp, localtimestamp, now(), localtime
select current_user, session_user, user, current_database(), current_schema, current_schema(), current_catalog
select version(), pg_backend_pid()
select substring(b from 1 for 2), substring(b, 2), substring(b from 'x.'), position('x' in b), trim(b), trim(both 'x' from b), trim(leading from b) from t
select overlay(b placing 'zz' from 2), upper(b), lower(b), length(b), char_length(b), left(b, 1), right(b, 1) from t
select replace(b, 'x', 'y'), split_part(b, ',', 1), strpos(b, 'x'), lpad(b, 5), repeat(b, 2), reverse(b), md5(b) from t
select abs(a), round(c), round(c, 1), ceil(x), floor(x), sqrt(x), power(x, 2), mod(a, 2), sign(c) from t join u using (a)
select array[1, 2, 3], array['a', null], array[1, 2.5], '{1,2}'::int[], array[]::text[]
select z[1], z[1:2], (array[1,2])[1], array_length(z, 1), cardinality(z), z || 4, z || array[1], 1 = any(z), 2 > all(z) from u
select j -> 'a', j ->> 'a', j -> 0, j #> '{a,b}', j #>> '{a,b}', j @> '{}', j ? 'a', j || '{}'::jsonb, j - 'a' from u
select j -> 'a' ->> 'b' as v, (j ->> 'n')::int, jsonb_typeof(j), jsonb_build_object('a', 1) from u
select count(*), count(a), count(distinct a), sum(a), avg(a), min(a), max(b), bool_and(e), bool_or(e), every(e) from t
select sum(c), avg(c), sum(x), avg(x), min(c), max(d), min(y), max(s) from t, u
select string_agg(b, ','), array_agg(a), array_agg(b order by a desc), string_agg(distinct b, ',') from t
select count(*) filter (where a > 1), sum(a) filter (where e) from t
select a, count(*) from t group by a
select a + 1, count(*) from t group by a + 1
select a as k, count(*) from t group by k
select a, count(*) from t group by 1 order by 2 desc, 1
select a from t group by a having count(*) > 1
select count(*) from t having count(*) > 0
select distinct a, b from t order by a
select distinct on (a) a, b from t order by a, b desc
select a from t order by b
select a from t order by a + 1 desc nulls last limit 3 offset 1
select a from t limit 10
select a from t fetch first 5 rows only
select a from t fetch next row only
select a from t offset 2 rows
select a from t limit all
select * from t join u on t.a = u.a
select * from t left join u using (a)
select * from t natural join u
select * from t full join u using (a)
select * from t right join u on true
select * from t cross join u
select * from t, u where t.a = u.a
select * from (t join u using (a)) j
select * from (select a, b from t) q
select q.x from (select a from t) q(x)
select * from (values (1, 'a'), (2, 'b')) v(n, s)
select * from t t1 join t t2 on t1.a = t2.a left join t t3 on t3.a = t2.a
select * from t, lateral (select x from u where u.a = t.a) q
select * from t left join lateral (select x from u where u.a = t.a) q on true
select * from generate_series(1, 3)
select * from generate_series(1, 3) g
select g from generate_series(1, 3) as g(n)
select * from generate_series(1, 3) with ordinality
select * from generate_series(timestamp '2020-01-01', timestamp '2020-01-02', interval '1 hour') ts
select generate_series(1, 3), a from t
select unnest(z) from u
select * from u, unnest(z) as e
select * from unnest(array['a', 'b']) with ordinality as q(v, n)
select * from jsonb_each('{"a": 1}')
select * from jsonb_array_elements('[1]') e
select * from t where exists (select 1 from u where u.a = t.a)
select * from t where a in (select a from u)
select * from t where a not in (select a from u where x > 1)
select * from t where a = any (select a from u)
select * from t where a > all (select a from u)
select * from t where (a, b) in (select a, s from u)
select * from t where (a, b) = (1, 'x')
select * from t where (a, b) < (1, 'x')
select (select max(x) from u), (select 1 as one), exists (select 1), array(select a from t order by a)
select (select u.x from u where u.a = t.a limit 1) from t
select a, (select count(*) from u where u.a = t.a) as n from t
select 1 union select 2
select 1 union all select 2.5
select a, b from t union select a, s from u
select 1 as x union select 2 as y order by x
select 'a' union select null
select null union select null
select null union select 1
select 1 intersect select 1
select a from t except all select a from u
(select 1) union (select 2 limit 1) order by 1
select 1 union select 2 intersect select 3
values (1), (2)
values (1, 'a'), (2, null) order by 1 desc limit 1
table t
with q as (select a from t) select * from q
with q(x) as (select a from t), r as (select x + 1 as y from q) select * from q, r
with q as (values (1)) select * from q
select * from t where a = $1
select $1::int, $2::text
select $1 + 1
select a from t where b = $1 and a > $2 limit $3 offset $4
select a from t where a in ($1, $2)
select a from t where a = any($1)
select coalesce($1, 1), case when true then $2 else 'x' end
insert into t values (1, 'a', 1.5, '2020-01-01', true)
insert into t (a, b) values (1, 'x'), (2, default)
insert into t (a) select a from u
insert into t default values
insert into t (a, b) values ($1, $2) returning a, b || 'x'
update t set a = a + 1 where b = 'x'
update t set (a, b) = (1, 'y')
update t set a = u.a from u where u.a = t.a
update t as q set a = 1 where q.a = 2 returning *
delete from t where a = 1
delete from t using u where t.a = u.a
delete from t q where q.a = 1 returning q.a
select a.b.c from t
select foo
select foo from t
select t.foo from t
select q.a from t
select a from t q where t.a = 1
select a from t, u
select a from nowhere
select a from nowhere.t
select x.* from t
select *
select * from t t1, u t1
select a from t where b
select a from t where a
select a from t where a = 'x'
select a from t where 'x' = a
select a from t where a = b
select a + b from t
select a || c from t
select - b from t
select not a from t
select e + 1 from t
select d + d from t
select 1 + 'x'
select nofunc(1)
select nofunc(a, b) from t
select abs('x'::text)
select abs(1, 2)
select upper(1)
select substring(1, 2)
select sum(b) from t
select avg(e) from t
select min(e) from t
select count(*) from t where count(*) > 1
select sum(sum(a)) from t
select a, count(*) from t
select a, b, count(*) from t group by a
select a + 1 from t group by a + 2
select * from t group by a
select a from t group by 2
select a from t group by b
select a from t having a > 1
select a from t order by 3
select a from t order by 'x'
select a from t order by foo
select 1 union select 2 order by foo
select 1 as x union select 2 order by x + 1
select distinct a from t order by b
select distinct on (a) a from t order by b
select a from t group by count(*)
select a from t join u on t.a = u.a
select t.a from t join u on b
select t.a from t join u on count(*) > 1
select * from t join u using (b)
select * from t join u using (nope)
select 1 union select 'x'::text
select 1 union select true
select 1, 2 union select 3
select case when 1 then 2 end
select case when true then 1 else 'x' end
select case when true then 1 else true end
select coalesce(1, 'x')
select coalesce(1, true)
select array[1, 'x']
select array[1, true]
select array[]
select greatest(1, true)
select nullif(1, true)
values (1), ('x')
values (1), (true)
values (1, 2), (3)
select (select a, b from t)
select * from t where a in (select a, b from t)
select (1, 2) = (1, 2, 3)
select a[1] from t
select 1::nosuch
select true::date
select 1::date
select 'x'::int
select '2020-13-01'::date
select '1.5'::int
select ''::int
select '99999999999'::int
select 'x'::bool
select 'x'::uuid
select '{1,x}'::int[]
select '{'::jsonb
select 1::numeric(0, 0)
select 'a'::varchar(0)
select 1 limit -1
select 1 limit 'x'
select 1 limit a from t
select a from t limit a
select a from t limit 1.5
select $1
select $1 = $2
select sum(a) over () from t
select a from t for nothing
select a b c from t
select a, from t
select from t
select a from
select a from t where
select a from t group by
selec 1
select (1
select 1)
select 'abc
select "abc
select $x$abc
select 1 /* abc
select ""
select 12abc
select a < 1 < 2 from t
select a = 1 = 2 from t
select * from (select 1)
select * from (values (1))
select 1 as select
select 1 select
select a as from t
select * from t where a == 1
select * from t where a =! 1
insert into nowhere values (1)
insert into t values (1, 2, 3, 4, 5, 6)
insert into t (a, a) values (1, 2)
insert into t (nope) values (1)
insert into t (a, b) values (1)
insert into t (a) values (1, 2)
insert into t (a) values ('x')
insert into t (a) values (true)
insert into t (a) values (1), (1, 2)
insert into t (a) select b from t
insert into t (a, b) select 1
insert into t values (1) returning nope
update t set nope = 1
update t set a = 'x'
update t set a = true
update t set a = 1, a = 2
update t set (a, b) = (1)
update t set a = count(*)
update nowhere set a = 1
delete from t where nope = 1
delete from nowhere
create table z (a int, a int)
create table z (a nosuch)
create table z (a int default 'x')
create table z (a int default b)
select length(d) from t
select extract(nope from d) from t
select a from t where (select a from t)
select exists (select 1 from nowhere)
select t.a from t left join u on t.a = u.nope
with q as (select 1), q as (select 2) select 1
with q(a, b) as (select 1) select * from q
select * from q
select q.* from (select 1 as a, 2 as a) q
select q.a from (select 1 as a, 2 as a) q
select * from t q(x, y, z, w, v, u)
select count(distinct) from t
select count(a, b) from t
select upper(distinct b) from t
select a::int[] from t
select z::text, z::int8[] from u
select s::int, a::varchar(3), c::numeric(5, 1) from t, u
select b collate "C" from t
select a collate "C" from t
select row(1, 2) = row(1, 2), (1, 'x') <> (2, 'y'), row(1, null) is null
select E'a\nb', U&'\0041', $$x$$, $q$y$q$, 'it''s', B'1'
select 1 "x y", 2 as "X", 3 as x from t
select 1 -- comment
select /* a /* nested */ comment */ 1
select a from only t
select all a from t
select t from t
select count(t.*), count(t) from t
select generate_series(1, 2) + a from t
select a from t where generate_series(1, 2) = 1
select max(generate_series(1, 2))
select a from t order by generate_series(1, 2)
select * from upper('x')
select * from now() n
select 'x'::regclass
select 't'::regclass
select pg_typeof(1), pg_typeof(null)
select round(1.5), round(2.5, 1), trunc(1.7), 7 / 2, 7 / 2.0, 7 % 3
select 1 in (select 1 union select 2)
select sum(a) + count(*), avg(a)::int from t
select max(a) - min(a), sum(a * 2)::text from t
select concat(a, b), concat_ws(',', a, b), format('%s', a) from t
select to_char(d, 'YYYY'), to_char(c, '99'), to_date('2020', 'YYYY') from t
select s = 'x', s || 'y', s like 'x%', length(s) from u
select int4(1.5), text(1), float8(1), date('2020-01-01')
select cast(null as int), null::text
select relname from pg_catalog.pg_class where relname operator(pg_catalog.~) '^(t)$' collate pg_catalog.default and pg_catalog.pg_table_is_visible(oid)
select relname::text ~ 'x', relname !~ '^pg_', 'a'::char(3) ~ 'a' from pg_class
select case when e then 'b' else (select 'a'::text) end from t
select case when e then 1 else (select 1) end from t
select a from t group by +1, a
select a from t order by +1
select a from t order by 2147483648
select a from t order by 2147483647
select sum('1')
select avg(null)
select min('1')
select 'a' 'b'
select nextval('')
select nextval('a b')
select @ null::numeric, @ null::int
select @ current_date - 1
