"""One plan for each operator, over the tables of `tests.relations`."""

from foreshore.expr.columns import columns_of
from foreshore.expr.ir import (
    IN_STEP,
    Aggregate,
    Column,
    Constant,
    Filter,
    FlatMap,
    Frame,
    FrameBound,
    Join,
    Let,
    Literal,
    LocalGet,
    Map,
    Negate,
    OrderKey,
    Project,
    Reduce,
    Relation,
    Threshold,
    TopK,
    Union,
    Window,
    WindowFunction,
    count_all,
)
from foreshore.expr.ir import Call as Function
from foreshore.types import (
    BOOL,
    FLOAT8,
    INT4,
    INT8,
    TEXT,
    ColumnType,
    SqlType,
    array_of,
    numeric_of_scale,
)
from tests.relations import FLOATS, NUMERIC, TABLES

U1, U2, U3 = TABLES


def column(index: int, type: SqlType = INT4) -> Column:
    """Return a column."""
    return Column(index, type)


def _aggregate(name: str, arg: Column, type: SqlType, **options: object) -> Aggregate:
    return Aggregate(name, (arg,), type, **options)  # type: ignore[arg-type]


_ONE = Literal(1, INT4)
_KEY = (column(0),)
_MULTIPLES = tuple(
    aggregate
    for distinct in (False, True)
    for aggregate in (
        _aggregate("count", column(1), INT8, distinct=distinct),
        _aggregate("sum", column(1), numeric_of_scale(0), distinct=distinct),
        _aggregate("array_agg", column(2, TEXT), array_of(TEXT), distinct=distinct),
        Aggregate("string_agg", (column(2, TEXT), Literal("-", TEXT)), TEXT, distinct),
    )
)
_ORDERED = _aggregate(
    "array_agg",
    column(2, TEXT),
    array_of(TEXT),
    order_by=(OrderKey(column(1), True, True), OrderKey(column(2, TEXT), True, True)),
)
_IS_ONE = Function("eq", (column(1), _ONE), BOOL)
_DIFFERENCE = Union((Project(U1, (0,)), Negate(Project(U2, (1,)))))

PLANS: dict[str, Relation] = {
    "all of a table": U1,
    "filter": Filter(U1, (_IS_ONE,)),
    "map": Map(U1, (_IS_ONE, Function("is_null", (column(3, BOOL),), BOOL))),
    "project": Project(U1, (2, 0, 2)),
    "flat map": FlatMap(
        U1, "generate_series(int4,int4)", (_ONE, column(0)), (ColumnType(INT4, False),)
    ),
    "flat map with ordinality": FlatMap(
        U1,
        "generate_series(int4,int4)",
        (_ONE, column(0)),
        (ColumnType(INT4, False), ColumnType(INT8, False)),
    ),
    "arrays in step": FlatMap(
        U1,
        IN_STEP,
        (
            Function("generate_series(int4,int4)", (_ONE, column(0)), array_of(INT4)),
            Function("generate_series(int4,int4)", (column(0), _ONE), array_of(INT4)),
        ),
        (ColumnType(INT4), ColumnType(INT4), ColumnType(INT8, False)),
    ),
    "a constant beside a table": Union(
        (Constant((((1, "x"), 2),), (ColumnType(INT4), ColumnType(TEXT))), Project(U1, (0, 2)))
    ),
    "a long constant in a join": Join(
        (
            U1,
            Constant(
                tuple(((i % 4, "ab"[i % 2]), i % 3 + 1) for i in range(9)),
                (ColumnType(INT4), ColumnType(TEXT)),
            ),
        ),
        ((column(0), column(3)),),
    ),
    "join": Join((U1, U2), ((column(0), column(3)),)),
    "join in which null equals null": Join((U1, U2), ((column(0), column(4)),), (0,)),
    "join of three": Join(
        (U1, U2, U3), ((column(0), column(3)), (column(2, TEXT), column(5, TEXT)))
    ),
    "self-join": Join((U1, U1), ((column(0), column(4)),)),
    "product": Join((Project(U1, (0,)), Project(U2, (0,)))),
    "distinct": Reduce(U1, (column(0), column(2, TEXT)), ()),
    "count and sum by key": Reduce(
        U1,
        _KEY,
        (
            count_all(),
            _aggregate("count", column(1), INT8, filter=_IS_ONE),
            _aggregate("sum", column(1), numeric_of_scale(0), filter=_IS_ONE),
        ),
    ),
    "sums of numerics by key": Reduce(
        U3, (column(0, TEXT),), (_aggregate("sum", column(1, NUMERIC), numeric_of_scale(2)),)
    ),
    "sums of floats by key": Reduce(
        U3, (column(0, TEXT),), (_aggregate("sum_float", column(2, FLOAT8), FLOAT8),)
    ),
    "comoments of floats by key": Reduce(
        U3,
        (column(0, TEXT),),
        (Aggregate("comoment_float", (column(2, FLOAT8), column(2, FLOAT8)), FLOAT8),),
    ),
    "floats as they are": Project(U3, (2, 3)),
    "floats as keys": Reduce(U3, (column(2, FLOAT8),), (count_all(),)),
    "lists of floats as keys": Reduce(U3, (column(3, FLOATS),), (count_all(),)),
    "floats in lists, and the least of them": Reduce(
        U3,
        (column(0, TEXT),),
        (
            _aggregate("array_agg", column(2, FLOAT8), FLOATS),
            _aggregate("array_agg", column(2, FLOAT8), FLOATS, distinct=True),
            _aggregate("min", column(2, FLOAT8), FLOAT8),
            _aggregate("max", column(3, FLOATS), FLOATS),
        ),
    ),
    "join on floats": Join(
        (Project(U3, (2, 3)), Project(U3, (2, 3))),
        ((column(0, FLOAT8), column(2, FLOAT8)), (column(1, FLOATS), column(3, FLOATS))),
    ),
    "top by a float": TopK(
        Project(U3, (2, 3)), (), (OrderKey(column(0, FLOAT8), True),), Literal(2, INT8)
    ),
    "except of floats": Threshold(
        Union(
            (
                Project(U3, (2, 3)),
                Negate(Constant((((0.0, (-0.0,)), 1),), (ColumnType(FLOAT8), ColumnType(FLOATS)))),
            )
        )
    ),
    "minimum and maximum by key": Reduce(
        U1, _KEY, (_aggregate("min", column(1), INT4), _aggregate("max", column(2, TEXT), TEXT))
    ),
    "lists by key": Reduce(U1, _KEY, (*_MULTIPLES, _ORDERED)),
    "sums without a key": Reduce(
        U1, (), (count_all(), _aggregate("sum", column(1), numeric_of_scale(0)))
    ),
    "minimum without a key": Reduce(U1, (), (count_all(), _aggregate("min", column(1), INT4))),
    "top two by key": TopK(U1, (0,), (OrderKey(column(1), True),), Literal(2, INT8)),
    "top without a key, from the second": TopK(
        U1, (), (OrderKey(column(2, TEXT)),), Literal(2, INT8), Literal(1, INT8)
    ),
    "numbered by key": Window(
        U1, (0,), (OrderKey(column(1), True),), (WindowFunction("row_number", (), INT8),)
    ),
    "ranked without a key": Window(
        U1,
        (),
        (OrderKey(column(1)),),
        (WindowFunction("rank", (), INT8), WindowFunction("dense_rank", (), INT8)),
    ),
    "the rows before and after": Window(
        U1,
        (0,),
        (OrderKey(column(1)),),
        (
            WindowFunction("lag", (column(1), Literal(1, INT8), Literal(-1, INT4)), INT4),
            WindowFunction("lead", (column(1), Literal(2, INT8), column(1)), INT4),
        ),
    ),
    "running sums": Window(
        U1,
        (0,),
        (OrderKey(column(1)),),
        (
            WindowFunction("sum", (column(1),), numeric_of_scale(0)),
            WindowFunction("count", (), INT8, Frame("rows")),
            WindowFunction("max", (column(1),), INT4, Frame("range", None, None)),
        ),
    ),
    "running sums of floats": Window(
        U3,
        (),
        (OrderKey(column(0, TEXT)),),
        (
            WindowFunction("sum_float", (column(2, FLOAT8),), FLOAT8),
            WindowFunction(
                "comoment_float", (column(2, FLOAT8), column(2, FLOAT8)), FLOAT8, Frame("rows")
            ),
            WindowFunction("last_value", (column(2, FLOAT8),), FLOAT8),
            WindowFunction("last_known", (column(2, FLOAT8),), FLOAT8),
        ),
    ),
    "frames without peers": Window(
        U1,
        (),
        (OrderKey(column(1)),),
        (
            WindowFunction(
                "array_agg",
                (column(1),),
                array_of(INT4),
                Frame(
                    "rows",
                    FrameBound("preceding", Literal(1, INT8)),
                    FrameBound("following", Literal(1, INT8)),
                    "ties",
                ),
            ),
        ),
    ),
    "all but the first by key": TopK(U1, (1,), (), None, Literal(1, INT8)),
    "except": Threshold(_DIFFERENCE),
    "negative multiplicities": _DIFFERENCE,
    "a left join": Let(
        0,
        Join((U1, U2), ((column(0), column(3)),)),
        Union(
            (
                LocalGet(0, columns_of(Join((U1, U2)))),
                Map(
                    Threshold(
                        Union(
                            (
                                U1,
                                Negate(Project(LocalGet(0, columns_of(Join((U1, U2)))), (0, 1, 2))),
                            )
                        )
                    ),
                    (Literal(None, INT4), Literal(None, INT4)),
                ),
            )
        ),
    ),
    "group of a group of a join": Reduce(
        Reduce(Join((U1, U2), ((column(0), column(3)),)), (column(1), column(4)), (count_all(),)),
        (column(0),),
        (_aggregate("max", column(2, INT8), INT8),),
    ),
    "top of a group": TopK(
        Reduce(U1, (column(2, TEXT),), (_aggregate("sum", column(1), numeric_of_scale(0)),)),
        (),
        (OrderKey(column(1, numeric_of_scale(0)), True),),
        Literal(1, INT8),
    ),
}
