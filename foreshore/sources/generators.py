"""Load generators: what they are asked for, and the tables that they make."""

from collections.abc import Mapping
from typing import Literal as OneOf

import msgspec

from foreshore.sources.outputs import OWN_ROWS, Column, Output, without_nulls

GENERATORS = ("counter", "auction", "clock", "key value", "marketing", "tpch")
_MONEY = "numeric(15, 2)"


class LoadGenerator(msgspec.Struct, frozen=True, tag="load generator"):
    """Rows that are made up, one tick after another, and are the same in each run."""

    generator: OneOf["counter", "auction", "clock", "key value", "marketing", "tpch"]
    tick_ms: int = 1000
    up_to: int | None = None  # the number of ticks, after which it rests
    as_of: int = 0  # the number of first ticks that are due at once
    max_cardinality: int | None = None  # of COUNTER: how many numbers stay
    scale_percent: int = 1  # of TPCH: hundredths of its scale factor
    keys: int = 1000  # of KEY VALUE, and the following
    partitions: int = 1
    snapshot_rounds: int = 1  # how often each key is written at once
    value_size: int = 64  # bytes
    batch_size: int = 100  # keys that are written in a tick
    seed: int = 0  # of the values


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
    "clock": {OWN_ROWS: without_nulls(time="timestamptz")},
    "key value": {
        OWN_ROWS: without_nulls(
            ("key",), key="int8", partition="int8", offset="int8", value="bytea"
        ),
    },
    "marketing": {
        "customers": without_nulls(("id",), id="int8", email="text", income="int8"),
        "impressions": without_nulls(
            ("id",), id="int8", customer_id="int8", campaign_id="int8",
            impression_time="timestamptz",
        ),
        "clicks": without_nulls(("impression_id",), impression_id="int8", click_time="timestamptz"),
        "leads": Output(
            (
                Column("id", "int8", False),
                Column("customer_id", "int8", False),
                Column("created_at", "timestamptz", False),
                Column("converted_at", "timestamptz"),
                Column("conversion_amount", "int8"),
            ),
            ("id",),
        ),
        "coupons": without_nulls(
            ("id",), id="int8", lead_id="int8", created_at="timestamptz", amount="int8"
        ),
        "conversion_predictions": without_nulls(
            lead_id="int8", experiment_bucket="text", predicted_at="timestamptz", score="float8"
        ),
    },
    "tpch": {
        "region": without_nulls(
            ("r_regionkey",), r_regionkey="int4", r_name="text", r_comment="text"
        ),
        "nation": without_nulls(
            ("n_nationkey",), n_nationkey="int4", n_name="text", n_regionkey="int4",
            n_comment="text",
        ),
        "supplier": without_nulls(
            ("s_suppkey",), s_suppkey="int4", s_name="text", s_address="text", s_nationkey="int4",
            s_phone="text", s_acctbal=_MONEY, s_comment="text",
        ),
        "part": without_nulls(
            ("p_partkey",), p_partkey="int4", p_name="text", p_mfgr="text", p_brand="text",
            p_type="text", p_size="int4", p_container="text", p_retailprice=_MONEY,
            p_comment="text",
        ),
        "partsupp": without_nulls(
            ("ps_partkey", "ps_suppkey"), ps_partkey="int4", ps_suppkey="int4",
            ps_availqty="int4", ps_supplycost=_MONEY, ps_comment="text",
        ),
        "customer": without_nulls(
            ("c_custkey",), c_custkey="int4", c_name="text", c_address="text", c_nationkey="int4",
            c_phone="text", c_acctbal=_MONEY, c_mktsegment="text", c_comment="text",
        ),
        "orders": without_nulls(
            ("o_orderkey",), o_orderkey="int4", o_custkey="int4", o_orderstatus="text",
            o_totalprice=_MONEY, o_orderdate="date", o_orderpriority="text", o_clerk="text",
            o_shippriority="int4", o_comment="text",
        ),
        "lineitem": without_nulls(
            ("l_orderkey", "l_linenumber"), l_orderkey="int4", l_partkey="int4", l_suppkey="int4",
            l_linenumber="int4", l_quantity=_MONEY, l_extendedprice=_MONEY, l_discount=_MONEY,
            l_tax=_MONEY, l_returnflag="text", l_linestatus="text", l_shipdate="date",
            l_commitdate="date", l_receiptdate="date", l_shipinstruct="text", l_shipmode="text",
            l_comment="text",
        ),
    },
}  # fmt: skip
