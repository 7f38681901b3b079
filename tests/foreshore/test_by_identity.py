"""Values that are kept for each object are those of that object, however many come and go."""

from foreshore.by_identity import ByIdentity


def test_each_object_has_its_own_value_and_few_are_kept() -> None:
    computed: list[int] = []

    def size(each: list[int]) -> int:
        computed.append(len(each))
        return len(each)

    sizes: ByIdentity[list[int], int] = ByIdentity(size, 8)
    kept = [1, 2, 3]  # a list has no hash
    assert [sizes(kept), sizes(kept), sizes([1, 2, 3])] == [3, 3, 3]
    assert computed == [3, 3]
    for length in range(100):  # addresses are used again once objects are gone
        assert sizes([0] * length) == length
    assert sizes(kept) == 3
    assert len(computed) == 103
