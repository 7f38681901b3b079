"""Values that are kept for each object are those of that object, however many come and go."""

from foreshore.by_identity import ByIdentity


class Row(list[int]):
    """A list, which has no hash, that can be referred to weakly."""


def test_each_object_has_its_own_value_as_long_as_it_lives() -> None:
    computed: list[int] = []

    def size(each: Row) -> int:
        computed.append(len(each))
        return len(each)

    sizes: ByIdentity[Row, int] = ByIdentity(size)
    kept = Row([1, 2, 3])
    assert [sizes(kept), sizes(kept), sizes(Row([1, 2, 3]))] == [3, 3, 3]
    assert computed == [3, 3]
    for length in range(2000):  # addresses are used again once objects are gone
        assert sizes(Row([0] * length)) == length
    assert sizes(kept) == 3
    assert len(computed) == 2002
    assert len(sizes._kept) == 1
