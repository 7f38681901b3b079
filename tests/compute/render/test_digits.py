"""Plans narrowed by the digits of numbers have the same answers and the same errors."""

from collections.abc import Iterator
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.engine import Input
from foreshore.compute.render.digits import digits_in, split_by_digits
from foreshore.datum import to_array
from foreshore.errors import DataError
from foreshore.expr.bounds import bound_of, never_overflows
from foreshore.expr.columns import columns_of
from foreshore.expr.evaluate import outcome
from foreshore.expr.ir import (
    Aggregate,
    Call,
    Column,
    Get,
    Literal,
    Map,
    Reduce,
    Relation,
    Scalar,
    count_all,
)
from foreshore.expr.narrow import narrowed
from foreshore.expr.split import split_errors
from foreshore.expr.traversal import sources_of, walk_relations
from foreshore.ids import GlobalId
from foreshore.sql.optimize.pipeline import optimize
from foreshore.sql.parse.parse import parse
from foreshore.sql.plan import Select
from foreshore.sql.planner import plan_statement
from foreshore.types import INT8, ColumnType, arrow_type, format_type, numeric_of_scale
from foreshore.update import update_schema
from tests.effort import examples
from tests.sql.catalog import TestCatalog

CATALOG = TestCatalog(
    "CREATE TABLE t (g int, a numeric(15, 2) NOT NULL, b numeric(38, 2), c numeric, k int)"
)
DESC = CATALOG.resolve_item(("t",)).desc
SCHEMA = DESC.stored_schema()
QUERIES = (
    "SELECT g, sum(a * (1 - b)), sum(a), count(b), avg(b) FROM t GROUP BY g",
    "SELECT sum(a * b * b), max(b), count(*) FROM t",
    "SELECT a * b - c, -b, abs(b) + k FROM t",
    "SELECT sum(a * b) FILTER (WHERE k > 0), sum(k * b) FROM t",
    "SELECT g, sum(x) FROM (SELECT g, a * b AS x FROM t UNION ALL SELECT k, b FROM t) y GROUP BY g",
    "SELECT coalesce(b, a) * CASE WHEN k > 0 THEN b ELSE a END FROM t",
    "SELECT x.a * y.b FROM t x JOIN t y ON x.g = y.g",
    "WITH w AS (SELECT g, b * b AS s FROM t) SELECT v.s + w.s, v.g FROM w v JOIN w ON v.g = w.g",
    "SELECT sum(b), sum(c), sum(b * 10) FROM t",
    "SELECT (b + 1) * a AS x FROM t ORDER BY b * a LIMIT 2",
    "SELECT k, sum(x), avg(x + k) FROM (SELECT k, a * (1 - b) - b * k AS x FROM t) y GROUP BY k",
)


EXACT = Context(prec=100)


def numbers(scale: int, most: int) -> st.SearchStrategy[Decimal]:
    """Return a strategy for numbers of up to so many digits, of which few are usual."""
    digits = st.one_of(st.integers(1, 6), st.integers(1, most))
    return digits.flatmap(
        lambda n: st.integers(-(10**n) + 1, 10**n - 1).map(lambda i: EXACT.scaleb(i, -scale))
    )


ROWS = st.tuples(
    st.integers(0, 2),
    numbers(2, 15),
    st.none() | numbers(2, 38),
    st.none() | numbers(3, 20),
    st.integers(-3, 3),
)


def planned(sql: str) -> Relation:
    (statement,) = parse(sql)
    plan = plan_statement(statement, CATALOG)
    assert isinstance(plan, Select)
    return optimize(plan.query.relation)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("digits")


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[DuckDbEngine]:
    engine = DuckDbEngine(threads=1, directories=[str(folder)])
    yield engine
    engine.close()


def table_of(rows: list[tuple[Any, ...]], diffs: list[int]) -> pa.Table:
    schema = update_schema(SCHEMA)
    columns = [*zip(*rows, strict=True)] or [()] * 5
    arrays = [
        to_array(values, column.type) for values, column in zip(columns, DESC.columns, strict=True)
    ]
    arrays += [pa.array([1] * len(rows), pa.int64()), pa.array(diffs, pa.int64())]
    return pa.Table.from_arrays(arrays, schema=schema)


def answer(engine: DuckDbEngine, relation: Relation, input: Input) -> object:
    """Return the rows, or the error."""
    try:
        rows = engine.evaluate(relation, dict.fromkeys(sources_of(relation), input), 1)
    except DataError as error:
        return error.sqlstate, error.message
    return sorted(map(repr, rows.to_pylist()))


@settings(max_examples=examples(150), suppress_health_check=list(HealthCheck))
@given(st.sampled_from(QUERIES), st.lists(ROWS, max_size=6), st.data())
def test_files_answer_as_rows_of_unknown_digits_do(
    engine: DuckDbEngine, folder: Path, sql: str, rows: list[tuple[Any, ...]], data: st.DataObject
) -> None:
    relation = planned(sql)
    diffs = data.draw(st.sampled_from([[1] * len(rows), [2] * len(rows)]))
    table = table_of(rows, diffs)
    cut = data.draw(st.integers(0, len(rows)))
    path = folder / f"{data.draw(st.uuids())}.parquet"
    input = Input(SCHEMA, (str(path),), (table.slice(cut),))
    first = table.slice(0, cut)
    pq.write_table(first.rename_columns([*input.file_names, *table.column_names[-2:]]), path)
    assert answer(engine, relation, input) == answer(engine, relation, Input(SCHEMA, (), (table,)))


def test_few_digits_leave_no_errors_to_look_for(folder: Path) -> None:
    relation = planned(QUERIES[0])
    assert split_errors(relation)[1] is not None
    reduce = next(n for n in walk_relations(relation) if type(n).__name__ == "Reduce")
    for most, fails in ((Decimal("99.99"), False), (Decimal(10) ** 35, True)):
        table = table_of([(1, Decimal(1), most, None, 1)], [1])
        path = folder / f"{fails}.parquet"
        input = Input(SCHEMA, (str(path),))
        pq.write_table(table.rename_columns([*input.file_names, *table.column_names[-2:]]), path)
        digits = digits_in(reduce, dict.fromkeys(sources_of(reduce), input))
        rows, errors = split_by_digits(reduce, digits)
        assert (errors is not None) == fails
        assert [c.type for c in columns_of(rows)] == [c.type for c in columns_of(reduce)]


@pytest.mark.parametrize(("most", "whole"), [("99.99", True), ("1" + 35 * "0", False)])
def test_sums_of_few_digits_are_not_taken_apart(folder: Path, most: str, whole: bool) -> None:
    """The digits of a computed column follow from those of its operands."""
    relation = planned(QUERIES[-1])
    table = table_of([(1, Decimal(1), Decimal(most), None, 1)], [1])
    path = folder / f"apart{whole}.parquet"
    input = Input(SCHEMA, (str(path),))
    pq.write_table(table.rename_columns([*input.file_names, *table.column_names[-2:]]), path)
    found = narrowed(
        relation, dict(digits_in(relation, dict.fromkeys(sources_of(relation), input)))
    )
    assert ("high_part" in repr(found)) != whole
    assert "high_part" in repr(relation)


@settings(max_examples=examples(200))
@given(
    st.sampled_from(
        ["a * b", "a * a * a", "a - k", "(a + k) * b", "-a + abs(b)", "coalesce(b, a) * a * 1.5"]
    ),
    st.lists(st.sampled_from([-1, 0, 1]), min_size=3, max_size=3),
)
def test_bounds_hold_for_extreme_values(expression: str, signs: list[int]) -> None:
    catalog = TestCatalog("CREATE TABLE t (a numeric(9, 2), b numeric(20, 4), k int)")
    (statement,) = parse(f"SELECT {expression} FROM t")
    plan = plan_statement(statement, catalog)
    assert isinstance(plan, Select)
    map = next(node for node in walk_relations(plan.query.relation) if isinstance(node, Map))
    (scalar,) = map.scalars
    extremes: dict[str, Any] = {
        "numeric(9,2)": Decimal("9999999.99"),
        "numeric(20,4)": Decimal("9999999999999999.9999"),
        "integer": 2**31 - 1,
    }
    arrays = [
        pa.array([extremes[format_type(column.type)] * sign], arrow_type(column.type))
        for column, sign in zip(columns_of(map.input), signs, strict=False)
    ]
    values, errors = outcome(scalar, arrays, 1)
    bound = bound_of(scalar)
    assert bound is not None
    scale = values.type.scale
    assert errors is None
    assert abs(values[0].as_py().scaleb(scale)) <= bound
    assert isinstance(scalar, Call)
    assert never_overflows(scalar) or not scalar.function.startswith(("add", "sub", "mul"))


def test_bound_of_a_long_literal_is_not_rounded() -> None:
    digits = "99999999999999999999999999994999999999"
    assert bound_of(Literal(digits, numeric_of_scale(0))) == int(digits)


def test_elements_of_an_array_are_not_a_column_of_their_name(
    engine: DuckDbEngine, folder: Path
) -> None:
    catalog = TestCatalog("CREATE TABLE e (tags int[], element numeric(38, 0))")
    (statement,) = parse("SELECT element * element FROM e")
    plan = plan_statement(statement, catalog)
    assert isinstance(plan, Select)
    relation = optimize(plan.query.relation)
    schema = catalog.resolve_item(("e",)).desc.stored_schema()
    arrays = [[[1, 2]], [Decimal(10) ** 30], [1], [1]]
    fields = update_schema(schema)
    table = pa.Table.from_arrays(
        [pa.array(a, f.type) for a, f in zip(arrays, fields, strict=True)], schema=fields
    )
    path = folder / "elements.parquet"
    pq.write_table(table, path)
    input = Input(schema, (str(path),))
    with pytest.raises(DataError, match="overflows"):
        engine.evaluate(relation, dict.fromkeys(sources_of(relation), input), 1)


def test_columns_without_declared_digits_have_no_bound() -> None:
    column = planned("SELECT c FROM t")
    wide = next(node for node in walk_relations(column))
    assert bound_of(Column(3, columns_of(wide)[0].type)) is None


def test_what_is_never_null_is_counted_by_rows() -> None:
    digits = {GlobalId("u1"): (9, 9)}
    price = ColumnType(numeric_of_scale(2), False)
    table = Get(GlobalId("u1"), (price, ColumnType(numeric_of_scale(2))))
    certain, perhaps = Column(0, price.type, False), Column(1, price.type)

    def counted(*args: Scalar) -> Relation:
        count = Aggregate("count", args, INT8)
        return narrowed(Reduce(table, (), (count,)), digits)

    def product(one: Scalar, other: Scalar) -> Scalar:
        return Call("multiply(numeric,numeric)", (one, other), numeric_of_scale(4))

    for scalar, is_certain in (
        (certain, True),
        (product(certain, certain), True),
        (perhaps, False),
        (product(certain, perhaps), False),
    ):
        found = counted(scalar)
        assert isinstance(found, Reduce)
        assert (found.aggregates == (count_all(),)) == is_certain, scalar
    many = {GlobalId("u1"): (30, 30)}  # the product may overflow
    count = Aggregate("count", (product(certain, certain),), INT8)
    found = narrowed(Reduce(table, (), (count,)), many)
    assert isinstance(found, Reduce)
    assert found.aggregates != (count_all(),)
