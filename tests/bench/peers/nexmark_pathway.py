"""Views of Nexmark in Pathway: `PYTHON -m tests.bench.peers.nexmark_pathway VIEW FOLDER ROWS`.

Reads CSV files of rows (`run.py`) as a stream, with a commit every 100 ms.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pathway as pw  # type: ignore[import-not-found]

from tests.bench.peers.pathway_run import run

FORMAT = "%Y-%m-%d %H:%M:%S.%f"
TEN = timedelta(seconds=10)


class Person(pw.Schema):  # type: ignore[misc]
    """A row of person."""

    number: int  # `id` is taken
    name: str
    city: str
    state: str
    date_time: str


class Auction(pw.Schema):  # type: ignore[misc]
    """A row of auction."""

    number: int  # `id` is taken
    item_name: str
    initial_bid: int
    reserve: int
    expires: str
    seller: int
    category: int
    date_time: str


class Bid(pw.Schema):  # type: ignore[misc]
    """A row of bid."""

    auction: int
    bidder: int
    price: int
    channel: str
    date_time: str


SCHEMAS = {"person": Person, "auction": Auction, "bid": Bid}


def read(folder: Path, name: str) -> pw.Table:
    """Return a table of a folder of CSV files, with its times parsed."""
    table = pw.io.csv.read(
        str(folder / name), schema=SCHEMAS[name], mode="streaming", autocommit_duration_ms=100
    )
    table = table.with_columns(date_time=table.date_time.dt.strptime(FORMAT))
    if name == "auction":
        table = table.with_columns(expires=table.expires.dt.strptime(FORMAT))
    return table


def q4(auction: pw.Table, bid: pw.Table) -> pw.Table:
    """Return the average price at which auctions of a category were sold."""
    joined = auction.join(bid, auction.number == bid.auction).select(
        auction=auction.number, category=auction.category, price=bid.price,
        opened=auction.date_time, expires=auction.expires, at=bid.date_time,
    )  # fmt: skip
    sold = joined.filter((pw.this.at >= pw.this.opened) & (pw.this.at <= pw.this.expires))
    final = sold.groupby(pw.this.auction, pw.this.category).reduce(
        pw.this.category, final=pw.reducers.max(pw.this.price)
    )
    return final.groupby(pw.this.category).reduce(
        pw.this.category, price=pw.reducers.avg(pw.this.final)
    )


def q5(bid: pw.Table) -> pw.Table:
    """Return the auctions with the most bids in the last ten seconds, every two seconds."""
    hops = pw.temporal.sliding(hop=timedelta(seconds=2), duration=TEN)
    counts = bid.windowby(bid.date_time, window=hops, instance=bid.auction).reduce(
        start=pw.this._pw_window_start, auction=pw.this._pw_instance, bids=pw.reducers.count()
    )
    most = counts.groupby(counts.start).reduce(counts.start, bids=pw.reducers.max(counts.bids))
    return counts.join(most, counts.start == most.start, counts.bids == most.bids).select(
        counts.start, counts.auction, counts.bids
    )


def q7(bid: pw.Table) -> pw.Table:
    """Return the highest bid of each ten seconds."""
    binned = bid.with_columns(start=bid.date_time.dt.floor(TEN))
    highest = binned.groupby(binned.start).reduce(binned.start, price=pw.reducers.max(binned.price))
    return binned.join(
        highest, binned.start == highest.start, binned.price == highest.price
    ).select(binned.auction, binned.price, binned.bidder, binned.date_time)


def q8(person: pw.Table, auction: pw.Table) -> pw.Table:
    """Return who came and opened an auction in the same ten seconds."""
    came = person.with_columns(start=person.date_time.dt.floor(TEN))
    opened = auction.with_columns(start=auction.date_time.dt.floor(TEN))
    both = came.join(opened, came.number == opened.seller, came.start == opened.start).select(
        came.number, came.name, came.start
    )
    return both.groupby(both.number, both.name, both.start).reduce(
        both.number, both.name, both.start
    )


def q16(bid: pw.Table) -> pw.Table:
    """Return bids, bidders and auctions of each channel and day, by price."""
    day = bid.with_columns(day=bid.date_time.dt.floor(timedelta(days=1)))
    classed = day.with_columns(
        rank=pw.if_else(day.price < 10_000, 0, pw.if_else(day.price < 1_000_000, 1, 2))
    )
    bids = classed.groupby(classed.channel, classed.day).reduce(
        classed.channel, classed.day,
        **{"bids": pw.reducers.count()},
        **{f"bids_{i}": pw.reducers.sum(pw.cast(int, classed.rank == i)) for i in range(3)},
    )  # fmt: skip
    result = bids
    for column in ("bidder", "auction"):
        each = classed.groupby(classed.channel, classed.day, classed[column]).reduce(
            classed.channel, classed.day,
            **{f"in_{i}": pw.reducers.max(pw.cast(int, classed.rank == i)) for i in range(3)},
        )  # fmt: skip
        counts = each.groupby(each.channel, each.day).reduce(
            each.channel, each.day, **{f"{column}s": pw.reducers.count()},
            **{f"{column}s_{i}": pw.reducers.sum(each[f"in_{i}"]) for i in range(3)},
        )  # fmt: skip
        names = [f"{column}s", *(f"{column}s_{i}" for i in range(3))]
        result = result.join(
            counts, pw.left.channel == pw.right.channel, pw.left.day == pw.right.day
        ).select(
            *(pw.left[name] for name in result.column_names()),
            *(pw.right[name] for name in names),
        )
    return result


VIEWS: dict[str, Callable[..., pw.Table]] = {"q4": q4, "q5": q5, "q7": q7, "q8": q8, "q16": q16}


def main() -> None:
    """Run a view."""
    view, folder, rows = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    inputs = [read(folder, name) for name in SCHEMAS if (folder / name).exists()]
    run(inputs, VIEWS[view](*inputs), rows)


if __name__ == "__main__":
    main()
