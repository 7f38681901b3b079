"""A layered map is the dictionary that it stands for, and no later change reaches it."""

from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.layered_map import LEAST_TOP, LayeredMap
from tests.effort import examples

CHANGES = st.dictionaries(
    st.integers(0, 3 * LEAST_TOP), st.none() | st.text(max_size=2), max_size=LEAST_TOP
)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(CHANGES, max_size=12), st.integers(0, 12))
def test_versions_are_dictionaries(changes: list[dict[int, str | None]], back: int) -> None:
    versions: list[tuple[LayeredMap[int, str], dict[int, str]]] = [(LayeredMap(), {})]
    for each in changes:
        layered, plain = versions[-1]
        plain = dict(plain)
        for key, value in each.items():
            plain.pop(key, None)
            if value is not None:
                plain[key] = value
        versions.append((layered.changed(each), plain))
    for layered, plain in versions:
        assert list(layered.items()) == list(plain.items())
        assert len(layered) == len(plain)
        assert layered == plain
        for key in range(3 * LEAST_TOP + 2):
            assert (key in layered) == (key in plain)
            assert layered.get(key, "none") == plain.get(key, "none")
    (new, new_plain), (old, old_plain) = versions[-1], versions[-1 - back % len(versions)]
    found = new.keys_changed_since(old)
    assert len(set(found)) == len(found)
    differ = {
        key
        for key in new_plain.keys() | old_plain.keys()
        if new_plain.get(key) != old_plain.get(key)
    }
    assert differ <= set(found) <= new_plain.keys() | old_plain.keys()
    gone = [key for key in found if key not in new_plain]
    assert found[len(found) - len(gone) :] == gone


def test_change_of_few_entries_of_many_shares_the_others() -> None:
    many = LayeredMap({number: str(number) for number in range(10_000)})
    few = many.changed({3: "three", 4: None, 20_000: "new"})
    assert few.keys_changed_since(many) == [3, 20_000, 4]
    assert few._base is many._base
