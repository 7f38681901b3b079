"""Sets of keys by table and key."""

import random

from foreshore.compute.keys.key_sets import NO_KEYS, Keys, are_disjoint, covers, joined, keys_of
from foreshore.ids import GlobalId

T, U = GlobalId("u1"), GlobalId("u2")


def plain(keys: Keys) -> set[tuple[object, int]]:
    """Return keys one by one."""
    return {(place, hash) for place, hashes in keys.items() for hash in hashes}


def test_operations_are_those_of_sets_of_single_keys() -> None:
    rng = random.Random(1)

    def some() -> Keys:
        parts = [
            keys_of(table, name, rng.sample(range(6), rng.randrange(4)))
            for table in (T, U)
            for name in ("k", "l")
        ]
        return joined(*parts)

    for _ in range(500):
        a, b = some(), some()
        assert plain(joined(a, b)) == plain(a) | plain(b)
        assert covers(a, b) == (plain(b) <= plain(a))
        assert covers(joined(a, b), a)
        assert are_disjoint(a, b) == plain(a).isdisjoint(plain(b))


def test_no_hashes_are_no_keys() -> None:
    assert keys_of(T, "k", ()) == NO_KEYS
    assert not joined(NO_KEYS, keys_of(U, "k", ()))
