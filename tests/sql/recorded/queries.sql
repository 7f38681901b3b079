select a, b from t where a = 1
select * from t
select * from u
select a, count(*), sum(c), avg(a), min(b), max(d) from t group by a order by a
select a + 1 as k, count(*) from t group by 1 having count(*) > 1 order by k
select t.a, x from t join u on t.a = u.a
select t.a, x from t left join u on t.a = u.a
select * from t left join u using (a)
select a, t.a, u.a, b, x from t full join u using (a)
select a, b, x from t right join u using (a)
select t.a, u.a from t full join u on t.a = u.a and u.x > 0
select a from t where exists (select 1 from u where u.a = t.a)
select a from t where not exists (select 1 from u where u.a = t.a)
select a from t where a in (select a from u)
select a from t where a not in (select a from u)
select a from t where a not in (select nullif(a, 5) from u)
select a from t where a > all (select a from u where x > 0)
select a from t where a = any (select a from u)
select a, (select count(*) from u where u.a = t.a) from t
select a, (select max(x) from u where u.a = t.a) from t
select a, (select u.a from u where u.a >= t.a order by u.a limit 1) from t
select a, (select a from u where u.a = t.a) from t
select t.a, q.x from t, lateral (select x from u where u.a = t.a order by x limit 1) q
select t.a, q.x from t left join lateral (select x from u where u.a = t.a order by x limit 1) q on true
select t.a, g from t, generate_series(1, t.a) g
select t.a, g from t left join lateral generate_series(1, t.a) g on true
select a, e, n from u, unnest(z) with ordinality as q(e, n)
select unnest(z), a from u
select a, generate_series(1, 2), generate_series(1, 3) from u where a = 5
select 1 union select 2 union select 1
select a from t union all select a from u
select a from t except select a from u
select a from t except all select a from u
select a from t intersect select a from u
select a from t intersect all select a from u
select a, b from t union select a, s from u order by 1, 2
values (1, 'a'), (2, null)
select * from (values (1), (2), (2)) v(x) where x = 2
with q as (select a, count(*) n from t group by a) select * from q q1 join q q2 on q1.a = q2.n
select distinct a, b from t
select distinct on (a) a, b, c from t order by a, c desc
select a from t order by a desc nulls last limit 2 offset 1
select a from t order by a limit 3
select a, c from t order by c desc, a
select count(*), count(a), count(distinct a), sum(a), avg(a), avg(c), sum(c), bool_and(e), bool_or(e) from t
select sum(x), avg(x), min(x), max(x) from u
select count(*), sum(a), max(b), array_agg(a), string_agg(b, ',') from t where false
select string_agg(b, ',' order by b desc), array_agg(a order by a), array_agg(distinct a) from t
select count(*) filter (where a > 1), sum(a) filter (where e) from t
select a, string_agg(distinct b, '-') from t group by a
select case when a = 1 then 'one' when a is null then 'none' else b end from t
select coalesce(a, 0), coalesce(b, 'x'), nullif(a, 1), greatest(a, 2), least(a, 2, null) from t
select a between 1 and 2, a not between 2 and 3, a between symmetric 3 and 2 from t
select a in (1, 2), a in (1, null), a not in (1, null) from t
select a is distinct from 1, a is not distinct from null, e is true, e is not false, e is unknown from t
select (a, b) = (1, 'x'), (a, b) < (2, 'a'), (a, c) >= (2, 2.25), row(a, b) is null, row(a, b) is not null from t
select a from t where (a, b) in (select a, s from u)
select a from t where (a, b) in ((1, 'x'), (2, 'z'))
select a, b from t where b like 'x%' or b ~ '^y' or b ilike 'Z'
select a / 2, a % 2, -a / 2, a * 1.5, c / 3, a ^ 2 from t
select a + c, c * c, c - 1, round(c, 1), abs(c) from t
select x + a, x / 2, x * 2 from u
select 1 / 0
select a / (a - 1) from t where a is not null
select case when a = 1 then 0 else 10 / (a - 1) end from t
select a from t where a <> 1 and 10 / (a - 1) > 0
select (select a from t)
select d + 1, d - date '2020-01-01', d + interval '1 month', extract(year from d), date_trunc('month', d::timestamp) from t
select y at time zone 'UTC', y + interval '1 day', extract(epoch from y), y::date from u where y < '2030-01-01'
select j -> 'a', j ->> 'a', j -> 'b' -> 0, j @> '{"a":1}', jsonb_typeof(j) from u
select z[1], z[1:1], array_length(z, 1), cardinality(z), 1 = any(z), 2 <> all(z), z || 9 from u
select array(select a from u where u.a >= t.a order by a desc), a from t
select array[a, 2], array[b, 'k'] from t
select a::text || '!', c::int, b::varchar(2), a::numeric(5,1), d::text, e::text, e::int from t
select 'abc'::char(5) || 'x', 'abc'::char(5) = 'abc', 'a'::text = 'a  ', length('ab '::char(5))
select upper(b), length(b), substring(b from 1 for 1), position('y' in b), trim(b), replace(b, 'x', 'z'), b || a from t
select s, s || 'z', s = 'q' from u
select count(*) from t, u
select count(*) from t t1, t t2 where t1.a = t2.a
select t.a, count(u.a) from t left join u on t.a = u.a group by t.a order by 1
select b, sum(a) from t group by b having sum(a) > (select min(a) from u) order by b
select a, sum(sum_c) from (select a, b, sum(c) as sum_c from t group by a, b) q group by a
select sum(a) + count(*), max(a) - min(a) from t
select a from t group by a having max(c) > 2
select a + 1, a + 1 + 1 from t group by a + 1
select count(*) from (select distinct a from t) q
select * from (select a from t order by a limit 2) q
select * from t t1 where c = (select max(c) from t t2 where t2.a = t1.a)
select * from t where a = (select max(a) from t)
select a, (select string_agg(s, ',' order by s) from u where u.a = t.a) from t group by a
select exists (select 1 from t where a = 99), not exists (select 1 from t)
select t1.a, t2.b from t t1 join t t2 on t1.a = t2.a and t1.b = t2.b
select a from t where a::text = '1' and b = 'x' or a = 3
select -2147483648, 2147483647 + 1
select 9223372036854775807 + 1
select 2147483647::int4 + 1::int2
select 1.10 + 2.2, 1.5 * 2, 10.0 / 4, 7 / 2, 7 / 2.0, 2 ^ 10
select 'NaN'::float8 = 'NaN'::float8, 'NaN'::float8 > 1
select a from t where null
select null is null, null = null, not null
select true and null, false and null, true or null
select interval '1 day' * 2, interval '1 month' + interval '1 day', interval '90 minutes'
select date '2020-01-31' + interval '1 month', timestamp '2020-01-01' - timestamp '2019-01-01'
select 'a' < 'B', 'a' || null, concat('a', null, 1)
select '{1,2}'::int[] = array[1,2], array[1,2] || 3, array[1,2] @> array[1]
select 5 in (select a from u), 6 in (select a from u), null in (select a from u)
select (select 1 where false), coalesce((select 1 where false), 2)
select t.a from t where t.a > (select avg(a) from u where u.a <> t.a)
select q.n, q.a from (select a, (select count(*) from u where u.a = t.a) n from t) q where n > 0
select a from t where a in (select u.a from u where u.s = t.b or u.a in (select t2.a from t t2 where t2.b = t.b))
select t.a, v.k from t, lateral (values (t.a), (t.a + 1)) v(k)
select t.a, w.m from t, lateral (select max(g) as m from generate_series(1, t.a) g) w
select a from t where a = 1 union all select u.a from u, lateral (select 1 where u.a = 1) q
select max(a) filter (where b = 'x'), count(distinct b), count(distinct (a + 1)) from t
select u.a, t.b from u left join t on t.a = u.a and t.b <> 'x' order by 1, 2
select a.b, b.a from (select 1 as b) a, (select 2 as a) b
select count(t.*), count(t) from t
select length(''), ''::text is null, 'x' = 'x '
select * from t t1 left join (t t2 join u on t2.a = u.a) on t1.a = t2.a order by 1, 2, 6
select t1.a, t2.a, q.n from t t1 join t t2 on t1.a < t2.a, lateral (select t1.a + t2.a as n) q
select t.a, (select count(*) from (select u.a from u where u.a > t.a union select 1) q) from t
select t.a, (select sum(n) from (select u.a + t.a as n from u) q) from t
select a, (select array_agg(u.a order by u.x) from u where u.a >= t.a) from t where a < 3
select a, count(*) from t group by a having exists (select 1 from u where u.a = t.a) order by 1
select a, (select max(u.a) from u where u.a <= t.a) m, count(*) from t group by a order by a
select b, count(*) as n from t group by b order by count(*) desc, b limit 2
select sum(a), b from t group by b order by sum(a) desc nulls last
select b, sum(a) s from t group by b order by s + 1
select distinct b from t order by b desc
select distinct count(*) from t group by a
select count(distinct a), count(distinct b) from t where e
select a, b, sum(c) over_all from t group by b, a order by 1, 2
select upper(b) from t group by upper(b) order by 1
select case when a > 1 then 'big' else 'small' end as size, count(*) from t group by size order by size
select a + 1 as a from t group by a order by a
select -a as a from t order by a
select a as b, b as a from t order by a
select (select count(*) from t), * from u where a = 5
select u.*, t.b from u join t using (a) where t.b = 'x'
select * from (select 1 as x) a natural join (select 1 as x, 2 as y) b
select * from (select 1 as x) a natural join (select 2 as y) b
select * from (values (1, 2)) a(x, y) join (values (1, 3)) b(x, z) using (x)
select x from (values (1, 2)) a(x, y) full join (values (4, 3)) b(x, z) using (x) order by x
select a.x, b.x, x from (values (1)) a(x) full join (values (2)) b(x) using (x)
select x from (values (1)) a(x) left join (values (2)) b(x) using (x)
select x from (values (1)) a(x) right join (values (2)) b(x) using (x)
select * from (values (1)) a(x) left join (values (1, 5)) b(x, y) using (x) left join (values (5, 7)) c(y, z) using (y)
select * from t where (select count(*) from u where u.a = t.a) = 2
select a from t where a = (select 1) and b = (select 'x')
select a from t where exists (select 1 from u where u.a = t.a and exists (select 1 from t t2 where t2.a = u.a and t2.b = t.b))
select a from t where (a, c) in (select a, max(c) from t group by a)
select a from t where (a, c) not in (select a, c from t where a = 1)
select a from t where a not in (1, 2) or a is null
select a from t where not (a in (1, 2))
select a = any(array[1, 2]), a <> all(array[1, null]), a = any('{1,3}'::int[]) from t
select 2 = any(z), 2 = all(z), 5 > any(z) from u
select a from t where b like any (array['x%', 'z'])
select array_agg(distinct b order by b) from t
select string_agg(b || '!', ', ' order by a, b) filter (where a < 3) from t
select min(d), max(d), min(y), max(y) from t, u
select avg(a)::numeric(5,2), sum(a)::int, round(avg(c), 3) from t
select sum(a / 2.0), sum(1), avg(1), count(1) from t
select stddev(a), variance(a), stddev_pop(a) from t
select bool_and(a > 0), every(e), bool_or(a > 3) from t
select max(b), min(b) from t where b > 'x'
select sum(c) filter (where a = 1) - sum(c) filter (where a = 2) from t
select a, sum(count(*)) from t group by a
select greatest(a, c), least(a, c), coalesce(a, c) from t
select nullif(b, 'x'), coalesce(nullif(b, 'x'), 'none') from t
select case b when 'x' then 1 when 'y' then 2.5 end from t
select case when true then 1 else 1/0 end
select coalesce(1, 1/0)
select a from t where false and 1/0 = 1
select 10 / nullif(a - 1, 0) from t
select 1.0 / 3, 2.0 / 3 * 3, 1 / 3.0::float8, 100 * 1.1
select 5 % 3, -5 % 3, 5 % -3, 5.5 % 2, mod(7, 4)
select 2 ^ 3, 2 ^ 0.5, |/ 16, @ -5, 5 & 3, 5 | 2, 5 # 1, ~ 5, 1 << 3, 16 >> 2
select round(-2.5), round(2.5::float8), trunc(-1.5), ceil(1.2), floor(-1.2), sign(-3)
select '1.5'::numeric + 1, '1e3'::float8, 'Infinity'::float8, '-1'::int
select 3000000000, 3000000000 * 2, 1::int8 + 1, 1::int2 + 1::int2
select 'abc' like 'a%', 'abc' like '_b_', 'a%c' like 'a\%c', 'abc' not like 'b%', 'ABC' ilike 'abc'
select 'abc' similar to '(a|b)%', 'abc' ~ '^a.c$', 'abc' !~ 'x', 'ABC' ~* 'b'
select 'a' || 1, 1 || 'a', 'a' || 1.50, 'a' || true, 'x' || date '2020-01-01'
select length('héé'), left('abc', 2), right('abc', -1), lpad('a', 3, '*'), repeat('ab', 2)
select substring('abcdef' from 2 for 3), substring('abcdef', 4), substring('foobar' from 'o(.)b'), overlay('abc' placing 'X' from 2)
select trim('  a '), ltrim('xxa', 'x'), rtrim('axx', 'x'), btrim('xax', 'x'), trim(leading 'x' from 'xa')
select split_part('a,b,c', ',', 2), strpos('abc', 'c'), position('b' in 'abc'), reverse('abc'), md5('a')
select date '2020-02-29' + interval '1 year', date '2020-01-01' - 1, date '2020-03-01' - date '2020-02-01'
select timestamp '2020-01-01 10:00' + interval '90 minutes', timestamp '2020-01-02' > date '2020-01-01'
select timestamptz '2020-01-01 00:00+02', timestamptz '2020-01-01 00:00+00' at time zone 'America/New_York'
select timestamp '2020-01-01 00:00' at time zone 'Europe/Berlin'
select extract(day from interval '3 days 2 hours'), extract(hour from timestamp '2020-01-01 13:45'), date_part('week', date '2020-01-01')
select interval '1 year 2 months 3 days 04:05:06', - interval '1 day', interval '1 day' + interval '1 hour', interval '2 days' / 2
select interval '1' day, interval '2' hour, interval '1-2' year to month
select date_trunc('week', timestamp '2020-01-01'), date_trunc('year', date '2020-05-05'), age(timestamp '2020-01-01', timestamp '2019-06-01')
select time '10:00' + interval '1 hour', time '10:00' - time '09:00', date '2020-01-01' + time '10:00'
select '{"a": {"b": [1, 2]}}'::jsonb #> '{a,b}', '{"a": 1}'::jsonb || '{"b": 2}', '{"a": 1, "b": 2}'::jsonb - 'a', '[1,2]'::jsonb -> 1
select '{"a": 1}'::jsonb ? 'a', '{"a": null}'::jsonb -> 'a' is null, '{"a": null}'::jsonb ->> 'a' is null, '"x"'::jsonb #>> '{}'
select * from jsonb_each('{"a": 1, "b": "x"}')
select * from jsonb_array_elements_text('["a", 1]')
select value ->> 'k' from jsonb_array_elements('[{"k": 1}, {"k": 2}]')
select key, t.a from t, jsonb_object_keys('{"p": 1}') key where a = 1
select array_to_string(array[1, null, 3], ',', '*'), string_to_array('a,b', ','), array_position(array['a', 'b'], 'b'), array_length(array[]::int[], 1)
select array[1, 2] = array[1, 2], array[1] < array[2], array[1, 2] && array[2], array[1] <@ array[1, 2]
select generate_series(3, 1, -1)
select * from generate_series(1, 10, 4)
select * from generate_series(date '2020-01-01', date '2020-01-03', interval '1 day')
select count(*) from generate_series(1, 1000) a, generate_series(1, 3) b
select x, y from unnest(array[1, 2]) x, unnest(array['a', 'b']) y
select unnest(array[1, 2]), unnest(array['a', 'b', 'c'])
select unnest(z) + 1, sum(a) from u group by z
select i, t.b from generate_series(1, 3) i left join t on t.a = i order by 1, 2
select 1 where false
select 1 where null
select count(*) where false
select sum(a) from t where a > 100
select all 1, distinct_col from (select 2 as distinct_col) q
select q.* from (select t.*, a + 1 as n from t where a = 2) q
select "a" as "A b", 'it''s' from t where a = 2
select a from t where a >= all (select a from t where a is not null)
select a from t where a < any (select u.a from u where u.a > t.a + 2)
select t.a from t where t.a in (select u.a from u where u.s in (select b from t t2 where t2.a = t.a)) order by 1
with a as (select 1 as x), b as (select x + 1 as x from a), c as (select * from a union all select * from b) select * from c order by x desc
with q as (select a from t where a = 1) select (select count(*) from q), (select max(a) from q) from u
with q as (select * from t) select q1.a from q q1 where exists (select 1 from q q2 where q2.a > q1.a)
select * from (with q as (select 5 as n) select n from q) w
select 'a'::text collate "C" < 'B'
select row(1, 2) < row(1, 3), (1, null) = (1, 2), (1, null) = (2, null)
select a is null = false from t where a is null
select 1 < 2 = true, not true = false, not (1 = 2) and true
select 1::text || 2, (1 + 2)::text, -1::int2
select null::int + 1, null || 'a', coalesce(null, null, 3)
select 'x' in ('x', null), 'y' in ('x', null), 'y' not in ('x', null)
select 0.1 + 0.2 = 0.3, 0.1::float8 + 0.2::float8 = 0.3::float8
select 1 = 1.0, 1 = '1', '01' = 1
select a, c from t order by c nulls first, a limit 2
select a from t order by a nulls first offset 1 limit 1
select lower(b) as l from t where b is not null order by l desc limit 1
select (z)[1], (array[4,5,6])[2:3], z[5] from u
select exists (select * from t where a = t.a), (select b from t where a = 2)
select interval '1 day 02:03:04' day, interval '1 year 5 days' month, interval '10:20:30' hour to minute, interval '-3' month
select t1.a, x.m from t t1, lateral (select max(t2.a) m from t t2 where t2.a < t1.a) x where x.m is not null
select a, (select (select count(*) from u u2 where u2.a = u1.a and u2.a = t.a) from u u1 where u1.a = t.a limit 1) from t
select t.a, s.k from t left join lateral (select u.a + t.a as k from u where u.a > t.a) s on s.k > 4
select t.a, g1, g2 from t, generate_series(1, t.a) g1, generate_series(g1, t.a) g2 where t.a = 2
select t.a from t, (values (1), (2)) v(x) where v.x = t.a group by t.a having count(*) >= (select count(*) from u where u.a = t.a)
select a from t where a in (select a from u where u.a = t.a and u.x in (select x from u u2 where u2.a = t.a))
select count(*) from t where (select b from u where u.a = t.a limit 1) = b
select sum(a) filter (where exists (select 1 from u where u.a = t.a)) from t
select array(select array_length(z, 1) from u order by a, x)
select b, array(select distinct t2.a from t t2 where t2.b = t.b) from t group by b
select * from (select a, count(*) over_n from t group by a) q where over_n > 1
select t.a + u.a as s, count(*) from t, u group by s order by s nulls first
select coalesce(t.a, u.a) as k, count(*) from t full join u using (a) group by 1 order by 1 nulls last
select a, count(*) from t join u using (a) group by a
select u.a, count(*) from t right join u using (a) group by u.a
select a.x, b.x from (select 1 x) a cross join lateral (select a.x + 1 as x) b
select * from t natural left join u where a = 3
select (select a from t where false) is null, (select count(*) from t where false)
select 1 from t having true
select 1 from t having count(*) > 100
select a, b from t group by a, b having max(c) = min(c) and a < 3
select string_agg(x::text, '' order by x desc) from (values (1), (3), (2)) v(x)
select max(x) from (select count(*) as x from t group by b) q
select (select a from (values (1), (2)) v(a) order by a desc limit 1)
select x from (values (1), (2), (3), (4)) v(x) order by x desc offset 1 limit 2
(select a from t order by a desc nulls last limit 1) union all (select a from u order by a limit 1)
select * from ((select 1 as a) union (select 2)) q order by a
select 1 as a, 2 as b union all select 3, 4 order by b desc, a
select a from t union select 'NaN'::float8
select null as n union all select 1
select case when a > 2 then null else a end from t
select x = any (select a from u) from (values (1), (9), (null)) v(x)
select x <> all (select a from u) from (values (1), (9), (null)) v(x)
select (x, 'q') in (select a, s from u) from (values (1), (9), (null)) v(x)
select exists (select 1 from u where u.a = v.x) from (values (1), (9), (null)) v(x)
select t.a, case when exists (select 1 from u where u.a = t.a) then 'yes' else 'no' end from t
select a from t order by (select count(*) from u where u.a = t.a) desc, a nulls last
select a from t group by a order by (select count(*) from u where u.a = t.a) desc, a
select a, b from t where (a is null) = (b = 'z')
select 'a' = any('{a,b}'), 1 = any('{1,2}'), 3 = all('{3}')
select (array['x','y'])[a] from t
select a from t where b in (select unnest(array['x', 'y']))
select extract(epoch from timestamp '2020-01-01 00:00:01.5'), extract(isodow from date '2024-05-19')
select count(distinct a + 1), sum(distinct a), avg(distinct a), min(distinct a) from t
select a, sum(a) + 1 as s from t group by a having sum(a) + 1 > 2
select least(a, 2) l, count(*) from t group by l order by l
select upper(s) || lower(s) u2 from u order by u2
select sum(a), sum(a) + 1, sum(a) * 2 from t
select avg(a) from t group by b = 'x'
select not e, e = true, e <> false, e::int + 1 from t
select max(a), b from t where b is not null group by b order by max(a) desc, b
select t.* from t join (select max(a) m from t) q on t.a = q.m
select 1 / (select count(*) from t)
select c::int8, c::float8, x::int, x::numeric(5,1) from t join u using (a) where x > 0 and x < 100
select z || array[9], array_append(z, 1), array_cat(z, z) from u
select d, d + a, d - a from t
select (d + 1)::text, to_timestamp(1.5) from t where a = 1
