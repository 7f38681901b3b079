"""A short literal that means a long number is not written out while a statement is planned."""

import pytest

from foreshore.sql.parse.parse import parse
from foreshore.sql.planner import plan_statement
from tests.sql.catalog import TestCatalog


@pytest.mark.parametrize(
    "constant",
    [
        "'1e130000'::numeric",
        "numeric '-1e-16000'",
        "'{1e130000,1e130000}'::numeric[]",
        "numrange '[1,1e130000]'",
        "'{[1,1e130000]}'::nummultirange",
    ],
)
def test_long_number_is_cast_at_execution(constant: str) -> None:
    (statement,) = parse(f"SELECT {constant}")
    assert len(repr(plan_statement(statement, TestCatalog()))) < 5_000
