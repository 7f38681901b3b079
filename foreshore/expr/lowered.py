"""The lowered form of relations: its check and its encoding."""

from bisect import bisect_right
from itertools import accumulate

import msgspec

from foreshore.expr.columns import columns_of, keeping_columns
from foreshore.expr.ir import (
    AnySubquery,
    Column,
    Exists,
    Join,
    JoinOn,
    OuterColumn,
    Recursive,
    Relation,
    ScalarSubquery,
)
from foreshore.expr.scalars import scalars_of
from foreshore.expr.traversal import walk_relations, walk_scalars

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Relation)


def check_lowered(relation: Relation) -> None:
    """Assert that `relation` is in lowered form and its joins are well formed."""
    bound_only = (OuterColumn, Exists, ScalarSubquery, AnySubquery)
    with keeping_columns():
        for node in walk_relations(relation):
            assert not isinstance(node, JoinOn | Recursive), node
            if isinstance(node, Join):
                _check_join(node)
            for scalar in scalars_of(node):
                assert not any(isinstance(s, bound_only) for s in walk_scalars(scalar)), scalar


def _check_join(join: Join) -> None:
    assert all(0 <= i < len(join.equivalences) for i in join.null_safe), join
    ends = list(accumulate(len(columns_of(input)) for input in join.inputs))
    for scalar in scalars_of(join):
        used = {bisect_right(ends, s.index) for s in walk_scalars(scalar) if isinstance(s, Column)}
        assert len(used) <= 1, f"an equivalence uses the columns of several inputs: {scalar}"


def encode_relation(relation: Relation) -> bytes:
    """Return `relation` as bytes that `decode_relation` reads."""
    return _ENCODER.encode(relation)


def decode_relation(data: bytes) -> Relation:
    """Return the relation that `encode_relation` wrote."""
    relation: Relation = _DECODER.decode(data)
    return relation
