"""The columns of relations that are kept while a plan is made are those of the relations."""

from hypothesis import given, settings

from foreshore.expr.columns import columns_of, keeping_columns
from foreshore.expr.ir import Relation
from foreshore.expr.traversal import walk_relations
from tests.effort import examples
from tests.relations import bound_relations


@settings(max_examples=examples(30), deadline=None)
@given(bound_relations())
def test_kept_columns_are_those_of_the_relations(relation: Relation) -> None:
    found = list(walk_relations(relation))
    plain = [columns_of(each) for each in found]
    with keeping_columns():
        for _ in range(2):
            assert [columns_of(each) for each in found] == plain
        with keeping_columns():
            assert columns_of(relation) is columns_of(relation)
        assert columns_of(relation) == plain[0]
    assert [columns_of(each) for each in found] == plain
