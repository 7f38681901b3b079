"""Tables that rest have the since that they would have if each advanced on its own."""

from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.ids import GlobalId
from foreshore.storage import read_holds
from foreshore.storage.read_holds import Hold, ReadHolds
from tests.effort import examples

LAG = 10
IDS = [GlobalId(f"u{n}") for n in range(1, 7)]

Step = tuple[str, int, int]


class Model:
    """The since of each collection, advanced one by one; holds are pairs of ids and a time."""

    def __init__(self) -> None:
        self.since: dict[GlobalId, int] = {}
        self.inputs: dict[GlobalId, list[GlobalId]] = {}
        self.held: dict[Hold, set[GlobalId]] = {}

    def due(self, now: int) -> None:
        for id, since in self.since.items():
            bounds = [now - LAG]
            bounds += [hold.time for hold, ids in self.held.items() if id in ids]
            bounds += [now for above, inputs in self.inputs.items() if id in inputs]
            self.since[id] = max(since, min(bounds))


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(("table", "view", "drop", "write", "hold", "all", "release", "due")),
            st.integers(0, len(IDS) - 1),
            st.integers(0, 30),
        ),
        max_size=60,
    )
)
def test_since_is_never_later_than_one_by_one_and_equal_without_holds(steps: list[Step]) -> None:
    holds, model = ReadHolds(LAG), Model()
    now = 0
    written: dict[GlobalId, int] = {}
    stored: dict[GlobalId, int] = {}  # what storage was told
    unseen: set[GlobalId] = set()

    def upper() -> int:
        return now + 1

    def advance() -> None:
        advanced = holds.due(set(unseen), now + 1)
        unseen.clear()
        stored.update(advanced)
        model.due(now)

    for kind, at, number in steps:
        id = IDS[at]
        now += number % 7
        match kind:
            case "table" if id not in model.since:
                written[id] = 0
                holds.add(id, now, upper, written=partial(written.__getitem__, id))
                model.since[id] = stored[id] = now
            case "view" if id not in model.since:
                inputs = [each for each in written if each in model.since]
                holds.add(id, now, upper, inputs)
                model.since[id] = stored[id] = now
                model.inputs[id] = inputs
            case "drop":
                holds.remove(id)
                model.since.pop(id, None)
                model.inputs.pop(id, None)
            case "write" if id in written and id in model.since:
                now += 1
                written[id] = now
                unseen.add(id)
            case "hold" if id in model.since:
                time = max(holds.since(id), now - number)
                hold = holds.acquire([id], time)
                model.held[hold] = {id} if time >= model.since[id] else set()
            case "all":
                holds.hold_all_for(object(), now)
                (hold,) = list(holds.owned.values())[-1]
                model.held[hold] = {each for each, since in model.since.items() if since <= now}
            case "release" if model.held:
                hold = list(model.held)[number % len(model.held)]
                hold.release()
                del model.held[hold]
            case "due":
                advance()
        holds.check()
        for each, since in model.since.items():
            assert holds.since(each) <= since
            assert stored[each] <= holds.since(each)
    for hold in list(model.held):
        hold.release()
        del model.held[hold]
    advance()
    advance()
    assert {each: holds.since(each) for each in model.since} == model.since
    for each in model.since.keys() & written.keys():  # nothing is left that could be forgotten
        assert stored[each] >= min(written[each], holds.since(each))


def test_many_are_advanced_in_several_steps() -> None:
    now = 100
    holds = ReadHolds(LAG)
    ids = [GlobalId(f"u{n}") for n in range(2 * read_holds.AT_ONCE + 5)]
    for id in ids:
        holds.add(id, 0, lambda: now + 1, written=lambda: 50)
    found = [holds.due((), now + 1) for _ in range(4)]
    assert [len(each) for each in found] == [read_holds.AT_ONCE] * 2 + [5, 0]
    assert set().union(*found) == set(ids)
    now = 200
    assert not holds.due((), now + 1)  # they rest
    assert {holds.since(id) for id in ids} == {190}
    assert holds.due(ids[:1], now + 1) == {}
    now = 300
    assert holds.due(ids[:1], now + 1) == {ids[0]: 290}
