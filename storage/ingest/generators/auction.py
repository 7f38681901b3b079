"""AUCTION: organizations and their users sell items to each other.

Tick 0 makes organizations, users and accounts. Each later one makes an auction of an item by one of
the users, and bids for auctions that are open.
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from foreshore.update import DIFF

ORGANIZATIONS = 20
USERS = 200
BIDS = 10  # of each tick
OPEN = 5  # how many of the last auctions are bid for
LASTS_US = 10_000_000
BEGIN_US = 1_700_000_000_000_000  # the time of tick 0; each is a second after the one before
ITEMS = ("Best Pizza in Town", "City Bar Crawl", "Custom Art", "Gift Basket", "Signed Memorabilia")

_TIME = pa.timestamp("us", "UTC")


def ticks(begin: int, end: int) -> Mapping[str, pa.Table]:
    """Return the rows of ticks `begin` to `end`, exclusive."""
    rows = {} if begin else _people()
    numbers = np.arange(max(begin, 1), end, dtype=np.int64)
    if len(numbers):
        rows |= _trade(numbers)
    return rows


def _people() -> dict[str, pa.Table]:
    organizations, users = np.arange(1, ORGANIZATIONS + 1), np.arange(1, USERS + 1)
    belongs = users % ORGANIZATIONS + 1
    return {
        "organizations": _rows(id=organizations, name=[f"Org {i}" for i in organizations]),
        "users": _rows(id=users, org_id=belongs, name=[f"User {i}" for i in users]),
        "accounts": _rows(
            id=organizations, org_id=organizations, balance=np.full(ORGANIZATIONS, 10_000)
        ),
    }


def _trade(numbers: np.ndarray) -> dict[str, pa.Table]:
    """Return the auctions of ticks, one for each, and their bids."""
    times = BEGIN_US + numbers * 1_000_000
    drawn = _drawn(numbers, 0)
    auctions = _rows(
        id=numbers,
        seller=drawn % USERS + 1,
        item=[ITEMS[i] for i in drawn % len(ITEMS)],
        end_time=pa.array(times + LASTS_US, _TIME),
    )
    of_tick = np.repeat(numbers, BIDS)
    ids = (of_tick - 1) * BIDS + np.tile(np.arange(1, BIDS + 1), len(numbers))
    bids = _rows(
        id=ids,
        buyer=_drawn(ids, 1) % USERS + 1,
        auction_id=np.maximum(of_tick - _drawn(ids, 2) % OPEN, 1),
        amount=pa.array((_drawn(ids, 3) % 1_000 + 1).astype(np.int32)),
        bid_time=pa.array(np.repeat(times, BIDS), _TIME),
    )
    return {"auctions": auctions, "bids": bids}


def _drawn(numbers: np.ndarray, purpose: int) -> np.ndarray:
    """Return a number below 2^31 for each of `numbers`, by the mixer of splitmix64."""
    with np.errstate(over="ignore"):
        z = (numbers.astype(np.uint64) * np.uint64(4) + np.uint64(purpose)) * np.uint64(
            0x9E3779B97F4A7C15
        )
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z >> np.uint64(33)).astype(np.int64)


def _rows(**columns: object) -> pa.Table:
    """Return rows, each with multiplicity one."""
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    return table.append_column(DIFF, pa.array(np.ones(table.num_rows, dtype=np.int64)))
