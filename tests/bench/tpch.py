"""Data and views in the shape of TPC-H, made from a seed: `tables(scale)`, `SCHEMA`, `VIEWS`.

Columns that no view reads are left out. Sizes, keys, ranges and the selectivity of the views'
conditions are those of the benchmark; texts are shorter.
"""

import duckdb
import pyarrow as pa

SCHEMA = {
    "region": "CREATE TABLE region (r_regionkey int PRIMARY KEY, r_name text NOT NULL)",
    "nation": "CREATE TABLE nation (n_nationkey int PRIMARY KEY, n_name text NOT NULL,"
    " n_regionkey int NOT NULL)",
    "supplier": "CREATE TABLE supplier (s_suppkey int PRIMARY KEY, s_name text NOT NULL,"
    " s_nationkey int NOT NULL)",
    "part": "CREATE TABLE part (p_partkey int PRIMARY KEY, p_name text NOT NULL)",
    "partsupp": "CREATE TABLE partsupp (ps_partkey int NOT NULL, ps_suppkey int NOT NULL,"
    " ps_supplycost numeric(15, 2) NOT NULL)",
    "customer": "CREATE TABLE customer (c_custkey int PRIMARY KEY, c_name text NOT NULL,"
    " c_nationkey int NOT NULL, c_mktsegment text NOT NULL)",
    "orders": "CREATE TABLE orders (o_orderkey int PRIMARY KEY, o_custkey int NOT NULL,"
    " o_totalprice numeric(15, 2) NOT NULL, o_orderdate date NOT NULL,"
    " o_shippriority int NOT NULL)",
    "lineitem": "CREATE TABLE lineitem (l_orderkey int NOT NULL, l_linenumber int NOT NULL,"
    " l_partkey int NOT NULL, l_suppkey int NOT NULL, l_quantity numeric(15, 2) NOT NULL,"
    " l_extendedprice numeric(15, 2) NOT NULL, l_discount numeric(15, 2) NOT NULL,"
    " l_tax numeric(15, 2) NOT NULL, l_returnflag text NOT NULL, l_linestatus text NOT NULL,"
    " l_shipdate date NOT NULL)",
}

REVENUE = "sum(l_extendedprice * (1 - l_discount))"
VIEWS = {
    "q1": f"""
        SELECT l_returnflag, l_linestatus, sum(l_quantity) AS sum_qty,
            sum(l_extendedprice) AS sum_base_price, {REVENUE} AS sum_disc_price,
            sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge,
            avg(l_quantity) AS avg_qty, avg(l_extendedprice) AS avg_price,
            avg(l_discount) AS avg_disc, count(*) AS count_order
        FROM lineitem WHERE l_shipdate <= DATE '1998-09-02' GROUP BY l_returnflag, l_linestatus""",
    "q3": f"""
        SELECT l_orderkey, {REVENUE} AS revenue, o_orderdate, o_shippriority
        FROM customer, orders, lineitem
        WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey
            AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15'
        GROUP BY l_orderkey, o_orderdate, o_shippriority""",
    "q5": f"""
        SELECT n_name, {REVENUE} AS revenue
        FROM customer, orders, lineitem, supplier, nation, region
        WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey
            AND c_nationkey = s_nationkey AND s_nationkey = n_nationkey
            AND n_regionkey = r_regionkey AND r_name = 'ASIA'
            AND o_orderdate >= DATE '1994-01-01' AND o_orderdate < DATE '1995-01-01'
        GROUP BY n_name""",
    "q9": """
        SELECT nation, o_year, sum(amount) AS sum_profit FROM (
            SELECT n_name AS nation, extract(year FROM o_orderdate) AS o_year,
                l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity AS amount
            FROM part, supplier, lineitem, partsupp, orders, nation
            WHERE s_suppkey = l_suppkey AND ps_suppkey = l_suppkey AND ps_partkey = l_partkey
                AND p_partkey = l_partkey AND o_orderkey = l_orderkey
                AND s_nationkey = n_nationkey AND p_name LIKE '%green%') AS profit
        GROUP BY nation, o_year""",
    "q15": f"""
        SELECT s_suppkey, s_name, total_revenue
        FROM supplier, (SELECT l_suppkey AS supplier_no, {REVENUE} AS total_revenue FROM lineitem
            WHERE l_shipdate >= DATE '1996-01-01' AND l_shipdate < DATE '1996-04-01'
            GROUP BY l_suppkey) AS revenue
        WHERE s_suppkey = supplier_no AND total_revenue = (
            SELECT max(total_revenue) FROM (SELECT {REVENUE} AS total_revenue FROM lineitem
                WHERE l_shipdate >= DATE '1996-01-01' AND l_shipdate < DATE '1996-04-01'
                GROUP BY l_suppkey) AS all_revenue)""",
    "q18": """
        SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity) AS quantity
        FROM customer, orders, lineitem
        WHERE o_orderkey IN (
                SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING sum(l_quantity) > 300)
            AND c_custkey = o_custkey AND o_orderkey = l_orderkey
        GROUP BY c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice""",
}

# Views of other kinds over the same tables.
MORE_VIEWS = {
    "top": """
        SELECT o_custkey, o_orderkey, o_totalprice FROM (
            SELECT o_custkey, o_orderkey, o_totalprice,
                row_number() OVER (PARTITION BY o_custkey ORDER BY o_totalprice DESC) AS place
            FROM orders) AS ranked
        WHERE place <= 3""",
    "outer": """
        SELECT c_custkey, count(o_orderkey) AS orders, sum(o_totalprice) AS total
        FROM customer LEFT JOIN orders ON c_custkey = o_custkey GROUP BY c_custkey""",
    "extremes": """
        SELECT l_suppkey, min(l_extendedprice) AS least, max(l_extendedprice) AS most
        FROM lineitem GROUP BY l_suppkey""",
    "window": """
        SELECT l_orderkey, l_linenumber, sum(l_quantity) OVER (
            PARTITION BY l_orderkey ORDER BY l_linenumber) AS so_far FROM lineitem""",
    "share": """
        SELECT o_orderkey, o_totalprice, sum(o_totalprice) OVER (PARTITION BY o_orderdate) AS day
        FROM orders""",
    "groups": """
        SELECT o_orderkey, o_orderdate, sum(l_quantity) AS quantity
        FROM orders, lineitem WHERE l_orderkey = o_orderkey GROUP BY o_orderkey, o_orderdate""",
}

COLOURS = (
    "almond azure beige black blue brown coral cyan forest green grey ivory khaki lime".split()
)
NATIONS = (
    "ALGERIA ARGENTINA BRAZIL CANADA EGYPT ETHIOPIA FRANCE GERMANY INDIA INDONESIA IRAN IRAQ JAPAN"
    " JORDAN KENYA MOROCCO MOZAMBIQUE PERU CHINA ROMANIA SAUDI VIETNAM RUSSIA KINGDOM STATES"
).split()
REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
SEGMENTS = ("AUTOMOBILE", "BUILDING", "FURNITURE", "MACHINERY", "HOUSEHOLD")


def _pick(seed: int, modulus: str) -> str:
    """Return SQL for a number of a row below `modulus`."""
    return f"(hash(i * 31 + {seed}) % ({modulus}))::int"


def _one_of(seed: int, words: tuple[str, ...] | list[str]) -> str:
    listed = ", ".join(f"'{word}'" for word in words)
    return f"([{listed}])[1 + {_pick(seed, str(len(words)))}]"


def tables(scale: float) -> dict[str, pa.Table]:
    """Return the tables; `lineitem` has some six million rows at scale 1."""
    customers, orders, parts, suppliers = (
        int(n * scale) for n in (150_000, 1_500_000, 200_000, 10_000)
    )
    regions, nations = list(REGIONS), list(NATIONS)
    date = f"DATE '1992-01-01' + {_pick(3, '2406')}"
    supplier_of = f"(({{part}} + {{n}} * {max(suppliers // 4, 1)}) % {suppliers} + 1)::int"
    price = "(900 + p % 1000)::decimal(15, 2)"
    of_part = supplier_of.format(part="i", n="n")
    of_line = supplier_of.format(part="p", n=_pick(14, "4"))
    queries = {
        "region": f"SELECT i::int, ({regions})[i + 1] FROM range(5) t(i)",
        "nation": f"SELECT i::int, ({nations})[i + 1], (i % 5)::int FROM range(25) t(i)",
        "supplier": f"SELECT i::int, 'Supplier#' || i, {_pick(1, '25')}"
        f" FROM range(1, {suppliers + 1}) t(i)",
        "part": f"SELECT i::int, {_one_of(4, COLOURS)} || ' ' || {_one_of(5, COLOURS)}"
        f" FROM range(1, {parts + 1}) t(i)",
        "partsupp": f"SELECT i::int, {of_part}, ({_pick(6, '99900')} / 100 + 1)::decimal(15, 2)"
        f" FROM range(1, {parts + 1}) t(i), range(4) s(n)",
        "customer": f"SELECT i::int, 'Customer#' || i, {_pick(7, '25')}, {_one_of(8, SEGMENTS)}"
        f" FROM range(1, {customers + 1}) t(i)",
        "orders": f"SELECT i::int, {_pick(9, str(customers))} + 1,"
        f" ({_pick(10, '45000000')} / 100)::decimal(15, 2), {date}, 0"
        f" FROM range(1, {orders + 1}) t(i)",
        "lineitem": f"""
            SELECT o, n, p, {of_line}, q::decimal(15, 2), (q * {price})::decimal(15, 2),
                ({_pick(15, "11")} / 100)::decimal(15, 2), ({_pick(16, "9")} / 100)::decimal(15, 2),
                CASE WHEN s > DATE '1995-06-17' THEN 'N' ELSE {_one_of(17, ["A", "R"])} END,
                CASE WHEN s > DATE '1995-06-17' THEN 'O' ELSE 'F' END, s
            FROM (SELECT o, n, i, {_pick(11, str(parts))} + 1 AS p, {_pick(12, "50")} + 1 AS q,
                    d + 1 + {_pick(13, "121")} AS s
                FROM (SELECT i::int AS o, (n + 1)::int AS n, i * 8 + n AS i, {date} AS d
                    FROM range(1, {orders + 1}) t(i), range(7) s(n)
                    WHERE n < 1 + {_pick(18, "7")}) AS lines) AS drawn""",
    }
    found = {}
    with duckdb.connect() as connection:
        for name, query in queries.items():
            names = ", ".join(_columns(name))
            rows = connection.execute(f"SELECT * FROM ({query}) AS t({names})")
            found[name] = rows.to_arrow_table()
    return found


def _columns(table: str) -> list[str]:
    inside = SCHEMA[table].partition("(")[2].rpartition(")")[0].replace("(15, 2)", "")
    return [column.split()[0] for column in inside.split(",")]
