"""Rows of functions that give times, at the ends of what dates and timestamps hold.

The first date and timestamp are PostgreSQL's, and the last date. Timestamps end in 294247 here and in
294276 there, so what is beyond the end is beyond both.
"""

DATES = ("4714-11-24 BC", "294247-01-10", "294277-01-01", "300000-01-01", "5874897-12-31")
FIRST, SECOND = "4714-11-24 00:00:00 BC", "4714-11-25 00:00:00 BC"
LAST = "294247-01-10 04:00:54.775806"
UNITS = (
    *("second", "hour", "day", "week", "month", "quarter", "year", "decade"),
    *("century", "millennium"),
)
MOVED = (
    *((FIRST, by) for by in ("0", "-1 microsecond", "-1 day", "-1 month", "1 month -31 days")),
    *((FIRST, by) for by in ("-178000000 years", "-2147483648 days")),
    *((LAST, by) for by in ("0", "30 years", "178000000 years", "2147483647 days")),
    *((LAST, by) for by in ("-1 day", "-298000 years", "2562047788:00:54.775807")),
    ("infinity", "178000000 years"),
    ("-infinity", "-178000000 years"),
)

ROWS: dict[tuple[str, str], tuple[tuple[str, ...], ...]] = {
    ("cast timestamp", "date"): tuple((each,) for each in DATES),
    ("cast timestamptz", "date"): tuple((each,) for each in DATES),
    ("cast date", "timestamp"): ((FIRST,), (LAST,)),
    ("cast date", "text"): tuple(
        (each,) for each in (*DATES, "4714-11-23 BC", "5874898-01-01", "2024-02-30")
    ),
    ("cast timestamp", "text"): (
        *((each,) for each in (*DATES, "4714-11-23 BC", "294277-01-01 00:00:00", FIRST, LAST)),
    ),
    ("cast timestamp(0)", "timestamp"): (
        (FIRST,),
        ("294247-01-10 04:00:54.4",),
        ("1990-01-01 00:00:00.5",),
        ("1960-01-01 00:00:00.5",),
    ),
    ("cast timestamp(0)", "text"): (
        ("294247-01-10 04:00:54.4",),
        ("1990-01-01 00:00:00.5",),
        ("1960-01-01 00:00:00.5",),
        ("2001-01-01 00:00:00.5",),
        ("-infinity",),
    ),
    ("+", "timestamp / interval"): MOVED,
    ("+", "timestamptz / interval"): MOVED,
    ("-", "timestamp / interval"): tuple((a, b) for a, b in MOVED if " 00:00:00 " in a),
    ("+", "date / interval"): (
        *((each, "1 day") for each in DATES if each != "294247-01-10"),
        *((each, "-1 day") for each in DATES),
    ),
    ("-", "date / interval"): tuple((each, "300000 years") for each in DATES),
    ("+", "date / time"): tuple((each, "03:00") for each in DATES),
    ("+", "time / date"): tuple(("03:00", each) for each in DATES),
    ("+", "date / int4"): (
        *((each, "0") for each in DATES),
        ("5874897-12-30", "1"),
        ("5874897-12-31", "1"),
        ("4714-11-24 BC", "-1"),
        ("4714-11-25 BC", "-1"),
    ),
    ("-", "date / int4"): (("4714-11-24 BC", "1"), ("5874897-12-30", "-1")),
    ("-", "date / date"): (("5874897-12-31", "4714-11-24 BC"), ("4714-11-24 BC", "5874897-12-31")),
    ("make_date", "int4 / int4 / int4"): (
        ("5874897", "12", "31"),
        ("5874898", "1", "1"),
        ("-4714", "11", "24"),
        ("-4714", "11", "23"),
    ),
    ("make_timestamp", "int4 / int4 / int4 / int4 / int4 / float8"): (
        ("294247", "1", "10", "4", "0", "54"),
        ("-4714", "11", "24", "0", "0", "0"),
        ("-4714", "11", "23", "23", "59", "59"),
        ("294277", "1", "1", "0", "0", "0"),
    ),
    ("to_timestamp", "float8"): (
        *((each,) for each in ("9224318016001", "1e13", "-1e13", "1e300")),
        *((each,) for each in ("-210866803200", "-210866803201")),
    ),
    ("date_bin", "interval / timestamp / timestamp"): (
        ("100 days", SECOND, "4714-11-26 00:00:00 BC"),
        ("100 days", SECOND, SECOND),
        ("1 day", LAST, "2000-01-01"),
    ),
    ("timezone", "text / timestamptz"): (
        ("America/New_York", f"{FIRST}+00"),
        ("Asia/Tokyo", f"{FIRST}+00"),
    ),
    ("timezone", "text / timestamp"): (("Asia/Tokyo", FIRST), ("America/New_York", FIRST)),
    ("timezone", "interval / timestamptz"): (("-01:00", f"{FIRST}+00"), ("01:00", f"{FIRST}+00")),
    ("age", "timestamp / timestamp"): ((LAST, FIRST), (FIRST, LAST)),
    **{
        ("date_trunc", f"=text / {type}"): tuple(
            (unit, f"{each}{zone}")
            for unit in UNITS
            for each in (FIRST, SECOND, "4713-01-01 00:00:00 BC", "4001-01-01 00:00:00 BC", LAST)
            for zone in ("+00" if type == "timestamptz" else "",)
        )
        + tuple((unit, each) for unit in UNITS for each in ("infinity", "-infinity"))
        for type in ("timestamp", "timestamptz")
    },
}
