"""Load generators: what they are asked for, and the tables that they make."""

from collections.abc import Mapping
from typing import Literal as OneOf

import msgspec

from foreshore.sources.outputs import OWN_ROWS, Output, without_nulls

GENERATORS = ("counter", "auction")


class LoadGenerator(msgspec.Struct, frozen=True, tag="load generator"):
    """Rows that are made up, one tick after another, and are the same in each run."""

    generator: OneOf["counter", "auction"]
    tick_ms: int = 1000
    up_to: int | None = None  # the number of ticks, after which it rests


OUTPUTS: Mapping[str, Mapping[str, Output]] = {
    "counter": {OWN_ROWS: without_nulls(counter="int8")},
    "auction": {
        "organizations": without_nulls(id="int8", name="text"),
        "users": without_nulls(id="int8", org_id="int8", name="text"),
        "accounts": without_nulls(id="int8", org_id="int8", balance="int8"),
        "auctions": without_nulls(id="int8", seller="int8", item="text", end_time="timestamptz"),
        "bids": without_nulls(
            id="int8", buyer="int8", auction_id="int8", amount="int4", bid_time="timestamptz"
        ),
    },
}
