"""Bytes that are kept for clients have a bound for each connection and for all."""

from foreshore.server.shared_bytes import KeptBytes, SharedBytes


def test_one_connection_has_a_bound() -> None:
    kept = KeptBytes(SharedBytes(all=100, always=5, each=20))
    assert kept.change(20)
    assert not kept.change(21)
    kept.clear()
    assert kept.change(20)


def test_connection_that_would_have_too_much_of_all_is_refused_and_others_keep_a_little() -> None:
    shared = SharedBytes(all=100, always=5, each=20)
    full = [KeptBytes(shared) for _ in range(5)]
    assert all(each.change(20) for each in full)
    other = KeptBytes(shared)
    assert other.change(5)
    assert not other.change(6)
    full[0].clear()
    assert other.change(20)
    assert shared.bytes == sum(each.bytes for each in (*full, other)) == 100
