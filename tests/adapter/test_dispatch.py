"""Each plan has one function that runs it."""

from collections import Counter
from typing import get_args

from foreshore.adapter.dispatch import DEFINITIONS, NO_QUERY, ROWS, SESSION
from foreshore.adapter.rights.rules import RULES
from foreshore.sql.plan import Plan


def test_each_plan_is_in_one_table() -> None:
    assert Counter([*ROWS, *DEFINITIONS, *SESSION]) == Counter(get_args(Plan))
    assert set(SESSION) >= NO_QUERY


def test_each_plan_has_a_rule_of_rights() -> None:
    assert set(RULES) == set(get_args(Plan))
