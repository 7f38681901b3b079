"""Events and views in the shape of Nexmark, made from a seed: `events`, `SCHEMA`, `VIEWS`.

Of 50 events one is a new person, three are new auctions and 46 are bids, as in the benchmark. Bids
go mostly to auctions that are open and by persons that came last. Columns that no view reads are
left out. Event time advances by one second for each `RATE` events.
"""

import numpy as np
import pyarrow as pa

RATE = 10_000  # events for each second of event time
EPOCH = np.datetime64("2026-01-01T00:00:00", "us")
CHANNELS = ("Google", "Facebook", "Baidu", "Apple")

SCHEMA = {
    "person": "CREATE TABLE person (id bigint NOT NULL, name text NOT NULL, city text NOT NULL,"
    " state text NOT NULL, date_time timestamp NOT NULL)",
    "auction": "CREATE TABLE auction (id bigint NOT NULL, item_name text NOT NULL,"
    " initial_bid bigint NOT NULL, reserve bigint NOT NULL, expires timestamp NOT NULL,"
    " seller bigint NOT NULL, category bigint NOT NULL, date_time timestamp NOT NULL)",
    "bid": "CREATE TABLE bid (auction bigint NOT NULL, bidder bigint NOT NULL,"
    " price bigint NOT NULL, channel text NOT NULL, date_time timestamp NOT NULL)",
}

_TEN = "date_bin('10 s', {}, TIMESTAMP '2026-01-01')"
_PRICES = ("price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000")
_COUNTS = ", ".join(
    f"count({what}) AS {name}, "
    + ", ".join(f"count({what}) FILTER (WHERE {p}) AS {name}_{i}" for i, p in enumerate(_PRICES))
    for what, name in (
        ("*", "bids"),
        ("DISTINCT bidder", "bidders"),
        ("DISTINCT auction", "auctions"),
    )
)

VIEWS = {
    # the average price at which auctions of a category were sold
    "q4": """
        SELECT category, avg(final) AS price FROM (
            SELECT max(b.price) AS final, a.category FROM auction a JOIN bid b ON a.id = b.auction
            WHERE b.date_time BETWEEN a.date_time AND a.expires GROUP BY a.id, a.category) AS sold
        GROUP BY category""",
    # the auctions with the most bids in the last ten seconds, every two seconds
    "q5": """
        WITH counts AS (
            SELECT auction, date_bin('2 s', date_time, TIMESTAMP '2026-01-01')
                - hop * INTERVAL '2 s' AS start, count(*) AS bids
            FROM bid CROSS JOIN generate_series(0, 4) AS hop GROUP BY 1, 2)
        SELECT start, auction, bids FROM counts
        JOIN (SELECT start, max(bids) AS bids FROM counts GROUP BY start) AS most
            USING (start, bids)""",
    # the highest bid of each ten seconds
    "q7": f"""
        SELECT b.auction, b.price, b.bidder, b.date_time
        FROM bid b JOIN (SELECT max(price) AS price, {_TEN.format("date_time")} AS start
            FROM bid GROUP BY 2) AS highest
        ON b.price = highest.price AND {_TEN.format("b.date_time")} = highest.start""",
    # who came and opened an auction in the same ten seconds
    "q8": f"""
        SELECT DISTINCT p.id, p.name, {_TEN.format("p.date_time")} AS start
        FROM person p JOIN auction a ON p.id = a.seller
            AND {_TEN.format("p.date_time")} = {_TEN.format("a.date_time")}""",
    # bids, bidders and auctions of each channel and day, by price
    "q16": f"""
        SELECT channel, date_bin('1 day', date_time, TIMESTAMP '2026-01-01') AS day, {_COUNTS}
        FROM bid GROUP BY 1, 2""",
}  # fmt: skip

INPUTS = {
    "q4": ("auction", "bid"),
    "q5": ("bid",),
    "q7": ("bid",),
    "q8": ("person", "auction"),
    "q16": ("bid",),
}


def events(first: int, count: int) -> dict[str, pa.Table]:
    """Return the rows of the events with the numbers from `first` on, by table.

    The same numbers give the same events, if `first` and `count` are multiples of 50.
    """
    assert first % 50 == count % 50 == 0
    random = np.random.default_rng(first)
    number = np.arange(first, first + count, dtype=np.int64)
    time = EPOCH + (number * (1_000_000 // RATE)).astype("timedelta64[us]")
    place, fifty = number % 50, number // 50
    persons, auctions, bids = place == 0, (place > 0) & (place < 4), place >= 4
    return {
        "person": _persons(fifty[persons], time[persons]),
        "auction": _auctions(fifty[auctions] * 3 + place[auctions] - 1, time[auctions], random),
        "bid": _bids(fifty[bids], time[bids], random),
    }


def _persons(id: np.ndarray, time: np.ndarray) -> pa.Table:
    names = [f"person {i}" for i in id.tolist()]
    cities = pa.array(["Portland", "Boise", "Phoenix", "Seattle"]).take(pa.array(id % 4))
    states = pa.array(["OR", "ID", "AZ", "WA"]).take(pa.array(id % 4))
    return pa.table([id, names, cities, states, time], ["id", "name", "city", "state", "date_time"])


def _auctions(id: np.ndarray, time: np.ndarray, random: np.random.Generator) -> pa.Table:
    names = [f"item {i}" for i in id.tolist()]
    first = _prices(len(id), random)
    length = (random.integers(1, 21, len(id)) * 1_000_000).astype("timedelta64[us]")
    seller = _recent(id // 3, 100, random)
    category = random.integers(10, 15, len(id))
    columns = [id, names, first, first * 2, time + length, seller, category, time]
    return pa.table(
        columns,
        ["id", "item_name", "initial_bid", "reserve", "expires", "seller", "category", "date_time"],
    )


def _bids(fifty: np.ndarray, time: np.ndarray, random: np.random.Generator) -> pa.Table:
    # half of the bids go to one auction of each hundred
    hot = random.integers(0, 2, len(fifty)) == 0
    newest = fifty * 3
    auction = np.where(hot, newest // 100 * 100, _recent(newest, 300, random))
    bidder = _recent(fifty, 1_000, random)
    channel = pa.array(CHANNELS).take(pa.array(random.integers(0, len(CHANNELS), len(fifty))))
    return pa.table(
        [auction, bidder, _prices(len(fifty), random), channel, time],
        ["auction", "bidder", "price", "channel", "date_time"],
    )


def _recent(newest: np.ndarray, reach: int, random: np.random.Generator) -> np.ndarray:
    """Return for each number one of the `reach` numbers up to it."""
    return np.maximum(newest - random.integers(0, reach, len(newest)), 0)


def _prices(count: int, random: np.random.Generator) -> np.ndarray:
    """Return prices between 1 and 10^8 cents, evenly over their logarithms."""
    return np.round(10 ** (random.random(count) * 6) * 100).astype(np.int64)
