"""Option `where` of the PySpark data source: what it takes, and how it refuses the rest."""

from __future__ import annotations

import pyarrow as pa
import pytest

from foreshore.errors import InvalidParameterValue
from foreshore.spark.conditions import Condition
from foreshore.spark.where import parse_where

SCHEMA = pa.schema(
    {
        "n": pa.int32(),
        "Name": pa.string(),
        "f": pa.float64(),
        "__time": pa.int64(),
        "__diff": pa.int64(),
    }
)


def test_conditions_are_joined_by_and() -> None:
    found = parse_where(
        "(1 < n AND n BETWEEN -2 AND 9) AND \"Name\" IN ('a', '') AND n = 3", SCHEMA
    )
    assert found == (
        Condition(0, "n", ">", 1),
        Condition(0, "n", ">=", -2),
        Condition(0, "n", "<=", 9),
        Condition(1, "Name", "in", ("a", "")),
        Condition(0, "n", "=", 3),
    )
    assert parse_where("f IS NOT NULL AND n IS NULL", SCHEMA) == (
        Condition(2, "f", "not null"),
        Condition(0, "n", "null"),
    )
    assert parse_where(None, SCHEMA) == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no condition"),
        ("n = (", "has no condition"),
        ("n = 1; n = 2", "cannot have"),
        ("n", 'cannot have "n"'),
        ("n = 1 OR n = 2", "cannot have"),
        ("NOT n = 1", "cannot have"),
        ("n NOT IN (1)", "cannot have"),
        ("n <> 1", "cannot have"),
        ("n = NULL", 'cannot have "NULL"'),
        ("n IN (1, NULL)", 'cannot have "NULL"'),
        ("n IN (SELECT 1)", "cannot have"),
        ("n = 1.5", 'cannot have "1.5"'),
        ("n + 1 = 2", "cannot have"),
        ("t.n = 1", "cannot have"),
        ("n IS TRUE", "cannot have"),
        ("n BETWEEN SYMMETRIC 2 AND 1", "cannot have"),
        ("n = 'a'", "cannot compare column \"n\" with 'a'"),
        ('"Name" = 1', 'cannot compare column "Name" with 1'),
        ("f = 1", 'cannot compare column "f" with 1'),
        ("n < 2147483648", '2147483648 is out of range for column "n"'),
        ("n = 123456789012345678901234567890", "cannot have"),
        ("Name = 'a'", 'column "name" does not exist'),
        ("__time > 1", 'column "__time" does not exist'),
    ],
)
def test_the_rest_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(InvalidParameterValue, match='option "where"') as caught:
        parse_where(text, SCHEMA)
    assert message in caught.value.message
