"""The demo's tables and views, as SQL; each view twice, on the embedded engine and on Spark."""

TABLES = {
    "airlines": "carrier text NOT NULL, name text NOT NULL",
    "airports": (
        "faa text NOT NULL, name text NOT NULL, lat double precision, lon double precision,"
        " alt integer, tz integer, tzone text"
    ),
    "planes": (
        "tailnum text NOT NULL, year integer, type text, manufacturer text, model text,"
        " engines integer, seats integer, engine text"
    ),
    "weather": (
        "origin text NOT NULL, time_hour timestamptz NOT NULL, temp double precision,"
        " wind_speed double precision, precip double precision, visib double precision"
    ),
    "flights": (
        "id bigint NOT NULL, carrier text NOT NULL, flight integer NOT NULL, tailnum text,"
        " origin text NOT NULL, dest text NOT NULL, distance integer NOT NULL,"
        " sched_dep timestamp NOT NULL, time_hour timestamptz NOT NULL, dep timestamp,"
        " arr timestamp, dep_delay integer, arr_delay integer, air_time integer"
    ),
    "demo_clock": "moment timestamp NOT NULL",
}

VIEWS = {
    "delay_by_airline": """
        SELECT a.name AS airline, f.origin, count(*) AS flights,
               round(avg(f.dep_delay), 2) AS departure_delay,
               round(avg(f.arr_delay), 2) AS arrival_delay
        FROM flights f JOIN airlines a ON a.carrier = f.carrier
        WHERE f.dep IS NOT NULL
        GROUP BY a.name, f.origin""",
    "worst_routes": """
        SELECT origin, dest, count(*) AS flights, round(avg(arr_delay), 2) AS arrival_delay
        FROM flights
        WHERE arr_delay IS NOT NULL
        GROUP BY origin, dest
        HAVING count(*) >= 20
        ORDER BY arrival_delay DESC, origin, dest
        LIMIT 10""",
    "delay_by_weather": """
        SELECT f.origin,
               CASE WHEN w.visib IS NULL THEN 'unknown' WHEN w.precip > 0 THEN 'rain or snow'
                    WHEN w.visib < 5 THEN 'fog' WHEN w.wind_speed >= 20 THEN 'wind'
                    ELSE 'fair' END AS weather,
               count(*) AS flights, round(avg(f.dep_delay), 2) AS departure_delay
        FROM flights f
        LEFT JOIN weather w ON w.origin = f.origin AND w.time_hour = f.time_hour
        WHERE f.dep IS NOT NULL
        GROUP BY 1, 2""",
    "in_the_air": """
        SELECT f.tailnum, f.carrier, f.flight, f.origin, f.dest, f.dep, p.manufacturer, p.model
        FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum
        WHERE f.dep IS NOT NULL AND f.arr IS NULL""",
    "delay_by_month": """
        SELECT extract(month FROM sched_dep)::integer AS month, count(*) AS flights,
               min(dep_delay) AS least_delay, max(dep_delay) AS greatest_delay
        FROM flights
        WHERE dep IS NOT NULL
        GROUP BY 1""",
}

# These views are materialized, in a shard of their own; the others have an index.
MATERIALIZED = frozenset({"in_the_air"})


def embedded_views() -> list[str]:
    """Return the statements that create the views on the session's cluster."""
    statements = []
    for name, query in VIEWS.items():
        if name in MATERIALIZED:
            statements.append(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        else:
            statements.append(f"CREATE VIEW {name} AS {query}")
            statements.append(f"CREATE DEFAULT INDEX ON {name}")
    return statements


def spark_views(tick_interval: str) -> list[str]:
    """Return the statements that create the same views on a Spark cluster, in schema `spark`."""
    return [
        f"CREATE CLUSTER spark (SIZE = 'spark', TICK INTERVAL = '{tick_interval}')",
        "CREATE SCHEMA spark",
        *(
            f"CREATE MATERIALIZED VIEW spark.{name} IN CLUSTER spark AS {query}"
            for name, query in VIEWS.items()
        ),
    ]
