"""Queries in the spellings of other databases, translated by sqlglot to PostgreSQL's.

    SET sql_dialect = 'spark'       SELECT `a`, nvl(b, 0) FROM t LEFT SEMI JOIN u ON t.a = u.a
    SET sql_dialect = 'snowflake'   SELECT iff(a > 1, 'x', 'y'), * EXCLUDE (a) FROM t

Queries and the queries of views are translated; other statements are PostgreSQL's. sqlglot
passes on what it does not know, and some of what it knows has another meaning here. So only the
syntax of `_EXACT`, of which the meaning is the same, is translated; all else is refused.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, ClassVar

import sqlglot
from sqlglot import exp, transforms
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import SqlglotError
from sqlglot.generators.postgres import PostgresGenerator

from foreshore.errors import DatabaseError, FeatureNotSupported, SyntaxError_
from foreshore.sql.parse.parse import check_length, until_nul

# sqlglot's name. Databricks' casts fail, as Spark's do by default; its `spark` reads them as
# those that return NULL.
_NAMES = {"spark": "databricks", "snowflake": "snowflake"}
_QUERY = r"(?=select\b|with\b|values\b|\()"
_BEGINS = re.compile(rf"\s*+{_QUERY}", re.IGNORECASE)
# These cannot try a text of many words again and again: the first AS before a query decides.
_VIEW = re.compile(
    r"\s*+create\s++(?:or\s++replace\s++)?(?:temp(?:orary)?\s++)?(?:materialized\s++)?view(?=\s)",
    re.IGNORECASE,
)
_AS = re.compile(rf"\sas\s++{_QUERY}", re.IGNORECASE)
_NAMED = re.compile(r"[^()]*+(?:\([^()]*+\)[^()]*+)?")
LONGEST_KEPT = 16_384  # characters; a longer text hardly comes again
_EXACT = frozenset(
    """
    Select From Join Table TableAlias Column Identifier Literal Alias Star Where Group Order Ordered
    Having Limit Offset Fetch Union Except Intersect CTE With Subquery Paren And Or Not EQ NEQ GT
    GTE LT LTE Is In Between Case If Null Boolean Neg Add Sub Mul Mod DPipe Cast
    DataType DataTypeParam Window WindowSpec Exists Distinct Tuple Values Qualify NullSafeEQ
    NullSafeNEQ Coalesce Nullif Filter GroupingSets Cube Rollup Var Count Sum Min Max CountIf
    Parameter TsOrDsToDate LogicalAnd LogicalOr RowNumber Rank DenseRank Lag Lead FirstValue
    LastValue Lower Upper Length
    Trim Abs Concat Nvl2 Year Month Day Like ILike Div CurrentDate CurrentTimestamp
    """.split()
)
_INTEGERS = ("INT", "BIGINT", "SMALLINT", "TINYINT")
_CLAUSES = ("laterals", "hint", "connect", "sort", "cluster", "distribute")
_TYPES = frozenset(
    ("DOUBLE", "DECIMAL", "DATE", "TIMESTAMP", "TIMESTAMPTZ", "BOOLEAN", "TEXT", "VARCHAR")
)


class _Output(Postgres):
    """PostgreSQL's syntax with QUALIFY, which needs no rewriting here."""

    class Generator(PostgresGenerator):
        TRANSFORMS: ClassVar = {
            **PostgresGenerator.TRANSFORMS,
            exp.Select: transforms.preprocess([transforms.eliminate_semi_and_anti_joins]),
        }


@contextmanager
def read_in(dialect: str, text: str) -> Iterator[str]:
    """Give a text in PostgreSQL's syntax to be parsed; positions of errors are not known then.

    Raises FeatureNotSupported for what has no exact translation.
    """
    if dialect == "postgres":
        yield until_nul(text)
        return
    check_length(text)
    translate = translated if len(text) <= LONGEST_KEPT else translated.__wrapped__
    try:
        yield until_nul(translate(text, dialect))
    except DatabaseError as error:
        error.position = None
        raise


@lru_cache(maxsize=256)
def translated(text: str, dialect: str) -> str:
    """Return a text with its queries in PostgreSQL's syntax."""
    pieces = _statements(text, dialect)
    return ";\n".join(_translated(piece, dialect) for piece in pieces)


def _statements(text: str, dialect: str) -> list[str]:
    """Return the statements of a text, by the dialect's tokens."""
    try:
        tokens = sqlglot.tokenize(text, read=_NAMES[dialect])
    except SqlglotError as error:
        raise _syntax_error(error, dialect) from None
    ends = [token.start for token in tokens if token.token_type.name == "SEMICOLON"]
    starts = [0, *(end + 1 for end in ends)]
    pieces = [text[start:end] for start, end in zip(starts, [*ends, len(text)], strict=True)]
    return [piece for piece in pieces if piece.strip()]


def _start_of_query(statement: str) -> tuple[int, int] | None:
    """Return where a view is defined and where its query starts; None if there is no query.

    A query that is a statement by itself has no definition, so both are where it starts.
    """
    if (blanks := _BEGINS.match(statement)) is not None:
        return blanks.end(), blanks.end()
    view = _VIEW.match(statement)
    found = None if view is None else _AS.search(statement, view.end())
    if view is None or found is None:
        return None
    named = _NAMED.fullmatch(statement, view.end(), found.start())
    return None if named is None else (0, found.end())


def _translated(statement: str, dialect: str) -> str:
    places = _start_of_query(statement)
    if places is None:
        return statement
    before, query = statement[places[0] : places[1]], statement[places[1] :]
    try:
        trees = sqlglot.parse(query, read=_NAMES[dialect])
    except SqlglotError as error:
        raise _syntax_error(error, dialect) from None
    (tree,) = trees
    if tree is None:
        raise SyntaxError_(f"syntax error in {dialect}")
    refuse = _Refusal(dialect)
    for node in list(tree.walk()):
        _check(node, dialect, refuse)
    tree = tree.transform(_rewritten)
    sql = tree.sql(dialect=_Output, unsupported_level=sqlglot.ErrorLevel.IGNORE, comments=False)
    return before + sql


def _syntax_error(error: SqlglotError, dialect: str) -> SyntaxError_:
    first: dict[str, Any] = next(iter(getattr(error, "errors", ())), {})
    near = first.get("highlight")
    where = f'at or near "{near}"' if near else "at end of input"
    return SyntaxError_(f"syntax error {where}", detail=f"The statement was read as {dialect}'s.")


class _Refusal:
    """The errors for syntax without an exact translation."""

    def __init__(self, dialect: str) -> None:
        self._dialect = dialect

    def __call__(self, what: str) -> FeatureNotSupported:
        return FeatureNotSupported(
            f"{what} of {self._dialect} has no exact translation",
            hint="SET sql_dialect = 'postgres' and write it in PostgreSQL's syntax.",
        )


def _check(node: exp.Expr, dialect: str, refuse: _Refusal) -> None:
    """Raise FeatureNotSupported for a node that may mean something else here."""
    name = type(node).__name__
    if isinstance(node, exp.Anonymous):
        raise refuse(f"function {str(node.this).lower()}")
    if name not in _EXACT:
        raise refuse(name)
    special = _SPECIAL.get(type(node))
    if special is not None and not special(node, dialect):
        raise refuse(name)


def _cast_is_exact(node: Any, dialect: str) -> bool:
    """Whether a cast rounds and writes values as here: not to integers, nor of values to text."""
    to, value = node.to, node.this
    kind = to.this.name if isinstance(to.this, exp.DataType.Type) else ""
    is_string = isinstance(value, exp.Literal) and value.is_string
    if kind in _INTEGERS:
        return isinstance(value, exp.Literal) and str(value.this).isdigit()
    if kind in ("TEXT", "VARCHAR"):
        return is_string
    if kind == "DECIMAL":
        return bool(to.expressions)  # the default digits differ
    if kind == "FLOAT":
        return dialect == "snowflake"
    return kind in _TYPES


def _is_double(node: exp.Expr) -> bool:
    node = node.unnest()
    return isinstance(node, exp.Cast) and node.to.this == exp.DataType.Type.DOUBLE


_SPECIAL: dict[type, Callable[[Any, str], bool]] = {
    exp.Cast: _cast_is_exact,
    # Quotients of decimals have other digits; integers are divided as floats.
    exp.Div: lambda node, dialect: _is_double(node.this) or _is_double(node.expression),
    # Snowflake has no escape character by default.
    exp.Like: lambda node, dialect: (
        isinstance(node.expression, exp.Literal)
        and (dialect == "spark" or "\\" not in str(node.expression.this))
    ),
    exp.ILike: lambda node, dialect: (
        isinstance(node.expression, exp.Literal)
        and (dialect == "spark" or "\\" not in str(node.expression.this))
    ),
    exp.Trim: lambda node, dialect: not node.args.get("expression"),
    exp.Star: lambda node, dialect: not node.args.get("rename"),
    exp.Table: lambda node, dialect: (
        isinstance(node.this, exp.Identifier)
        and not any(
            node.args.get(key) for key in ("pivots", "when", "changes", "version", "sample")
        )
    ),
    exp.Select: lambda node, dialect: not any(map(node.args.get, _CLAUSES)),
    exp.Rollup: lambda node, dialect: bool(node.expressions),  # not WITH ROLLUP
    exp.Cube: lambda node, dialect: bool(node.expressions),
    # $1 is a parameter; of a file's rows, in Snowflake, it is the first column.
    exp.Parameter: lambda node, dialect: dialect == "spark",
    exp.TsOrDsToDate: lambda node, dialect: not node.args.get("format"),
    exp.Concat: lambda node, dialect: len(node.expressions) > 1,
    exp.Count: lambda node, dialect: not node.expressions,
    exp.Join: lambda node, dialect: str(node.args.get("method") or "").upper() in ("", "NATURAL"),
}


def _rewritten(node: exp.Expr) -> exp.Expr:
    """Return a node as it is written here, where sqlglot writes something else."""
    match node:
        case exp.CountIf():
            condition = exp.Where(this=node.this)
            return exp.Filter(this=exp.Count(this=exp.Star()), expression=condition)
        case exp.Concat():
            first, *others = node.expressions
            for other in others:
                first = exp.DPipe(this=first, expression=other)
            return exp.Paren(this=first)
        case exp.Div():
            node.set("safe", False)
            node.set("typed", True)
    return node
