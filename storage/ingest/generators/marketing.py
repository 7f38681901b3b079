"""MARKETING: customers see advertisements, click, and become leads, of which some buy.

Tick 0 makes the customers. Each later one makes impressions, perhaps clicks on them, and a lead
with a prediction and a coupon; LATER ticks after it, a lead in four has bought something.
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from foreshore.storage.ingest.generators.drawn import (
    BEGIN_US,
    Numbers,
    drawn,
    numbered,
    picked,
    rows,
    times,
)

CUSTOMERS = 1_000
CAMPAIGNS = 10
IMPRESSIONS = 5  # of each tick
LATER = 10


def ticks(begin: int, end: int) -> Mapping[str, pa.Table]:
    """Return the rows of ticks `begin` to `end`, exclusive."""
    found = {} if begin else {"customers": _customers()}
    numbers = np.arange(max(begin, 1), end, dtype=np.int64)
    if len(numbers):
        found |= _traffic(numbers) | _sales(numbers)
    return found


def _customers() -> pa.Table:
    ids = np.arange(1, CUSTOMERS + 1, dtype=np.int64)
    return rows(
        id=ids, email=numbered("customer.", ids, 4), income=20_000 + drawn(ids, 1) % 180_000
    )


def _traffic(numbers: Numbers) -> dict[str, pa.Table]:
    """Return impressions, and the clicks on a third of them."""
    shown = np.repeat(BEGIN_US + numbers * 1_000_000, IMPRESSIONS)
    ids = ((numbers - 1)[:, None] * IMPRESSIONS + np.arange(1, IMPRESSIONS + 1)).reshape(-1)
    clicked = drawn(ids, 4) % 3 == 0
    return {
        "impressions": rows(
            id=ids,
            customer_id=drawn(ids, 2) % CUSTOMERS + 1,
            campaign_id=drawn(ids, 3) % CAMPAIGNS + 1,
            impression_time=times(shown),
        ),
        "clicks": rows(
            impression_id=ids[clicked],
            click_time=times(shown[clicked] + drawn(ids, 5)[clicked] % 900_000),
        ),
    }


def _sales(numbers: Numbers) -> dict[str, pa.Table]:
    created = BEGIN_US + numbers * 1_000_000
    return {
        "leads": _leads(numbers),
        "coupons": rows(
            id=numbers,
            lead_id=numbers,
            created_at=times(created),
            amount=drawn(numbers, 8) % 50 + 1,
        ),
        "conversion_predictions": rows(
            lead_id=numbers,
            experiment_bucket=picked(("baseline", "experiment"), drawn(numbers, 9)),
            predicted_at=times(created),
            score=(drawn(numbers, 10) % 1_000) / 1_000,
        ),
    }


def _leads(numbers: Numbers) -> pa.Table:
    """Return in each tick its lead, and the change of an earlier one that has bought."""
    bought = numbers - LATER
    bought = np.where((bought > 0) & (drawn(bought, 7) % 4 == 0), bought, 0)
    ids = np.stack([numbers, bought, bought], axis=1).reshape(-1)
    diffs = np.tile(np.array([1, -1, 1], dtype=np.int64), len(numbers))
    converted = np.tile(np.array([False, False, True]), len(numbers))
    kept = ids > 0
    ids, diffs, converted = ids[kept], diffs[kept], converted[kept]
    created = BEGIN_US + ids * 1_000_000
    return rows(
        diffs,
        id=ids,
        customer_id=drawn(ids, 6) % CUSTOMERS + 1,
        created_at=times(created),
        converted_at=_only(times(created + LATER * 1_000_000), converted),
        conversion_amount=_only(pa.array(drawn(ids, 11) % 5_000 + 1), converted),
    )


def _only(values: pa.Array, where: np.ndarray) -> pa.Array:
    """Return values with NULLs elsewhere."""
    numbers = np.where(where, np.arange(len(where)), -1)
    return values.take(pa.array(numbers, mask=numbers < 0))
