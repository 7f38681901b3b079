"""Aggregates over pairs of floats: `regr_slope(y, x)`, `corr(y, x)`, ...

Pairs with a NULL are ignored. `moments.py` has the functions that finish them.
"""

from foreshore.expr.ir import Aggregate, Call, Case, Column, Literal, Scalar
from foreshore.types import BOOL, FLOAT8, INT8

PAIR = (FLOAT8, FLOAT8)
_Y, _X = Column(0, FLOAT8), Column(1, FLOAT8)


def _beside(value: Scalar, other: Scalar) -> Scalar:
    """Return `value` where `other` is not NULL, otherwise NULL."""
    there = Call("is_not_null", (other,), BOOL)
    return Case(((there, value),), Literal(None, FLOAT8), FLOAT8)


def _comoment(x: Scalar, y: Scalar) -> Aggregate:
    return Aggregate("comoment_float", (x, y), FLOAT8)


_PAIRED_Y, _PAIRED_X = _beside(_Y, _X), _beside(_X, _Y)
_CORES = {
    "n": Aggregate("count", (_Y, _X), INT8),
    "sy": Aggregate("sum_float", (_PAIRED_Y,), FLOAT8),
    "sx": Aggregate("sum_float", (_PAIRED_X,), FLOAT8),
    "syy": _comoment(_PAIRED_Y, _PAIRED_Y),
    "sxx": _comoment(_PAIRED_X, _PAIRED_X),
    "sxy": _comoment(_X, _Y),
}
# The finishing function and its core aggregates, in order.
_COMPOSED: dict[str, tuple[str, tuple[str, ...]]] = {
    "covar_pop": ("var_pop(float8,int8)", ("sxy", "n")),
    "covar_samp": ("var_samp(float8,int8)", ("sxy", "n")),
    "corr": ("corr(float8,float8,float8)", ("sxx", "syy", "sxy")),
    "regr_r2": ("regr_r2(float8,float8,float8)", ("sxx", "syy", "sxy")),
    "regr_slope": ("regr_slope(float8,float8)", ("sxx", "sxy")),
    "regr_intercept": (
        "regr_intercept(float8,float8,float8,float8,int8)",
        ("sxx", "sxy", "sx", "sy", "n"),
    ),
    "regr_avgx": ("average(float8,int8)", ("sx", "n")),
    "regr_avgy": ("average(float8,int8)", ("sy", "n")),
    "regr_sxx": ("moment(float8,int8)", ("sxx", "n")),
    "regr_syy": ("moment(float8,int8)", ("syy", "n")),
    "regr_sxy": ("moment(float8,int8)", ("sxy", "n")),
}
NAMES = (*_COMPOSED, "regr_count")


def composed(name: str) -> tuple[tuple[Aggregate, ...], Scalar]:
    """Return the core aggregates of `name`, and the scalar over them that finishes it."""
    if name == "regr_count":
        return (_CORES["n"],), Column(0, INT8, False)
    key, parts = _COMPOSED[name]
    cores = tuple(_CORES[part] for part in parts)
    columns = tuple(Column(i, core.type, core.type != INT8) for i, core in enumerate(cores))
    return cores, Call(key, columns, FLOAT8)
