"""Numbers of sequences: each is given out once, whenever the process ends.

    catalog     the definition of a sequence; each RESTART begins a new *generation*
    here        the position of each generation
    consensus   one register: for each generation a position beyond all numbers given out

A range of numbers is made durable before any of it is given out, so a number costs no I/O while the
range lasts. Each range is twice as long as the one before. When the process is killed, the rest of
the range is lost. A regular end writes the true positions.

Numbers are not part of transactions: a rollback leaves a gap. But a sequence that a transaction has
created or restarted is its own, as a generation that no other transaction knows, until it commits.
So no two transactions begin the same generation. A statement with an older catalog may name a
generation that another has replaced; it gets numbers of the live one.

A write of the register runs to its end, even if the statement that asked for it is cancelled: its
outcome would be unknown otherwise, and the next write is compared with it.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from typing import NamedTuple

import msgspec

from foreshore.catalog.item import Item
from foreshore.errors import DataCorrupted, UndefinedTable
from foreshore.failpoint import reached
from foreshore.ids import GlobalId
from foreshore.sequence import Numbers, Position, Sequence, left, numbers
from foreshore.storage.consensus import Consensus
from foreshore.storage.epoch import Register, State

KEY = "sequences"
FIRST_RANGE = 32
LONGEST_RANGE = 1 << 13


class Generation(NamedTuple):
    """A sequence from one RESTART to the next."""

    id: GlobalId
    number: int

    @property
    def key(self) -> str:
        """Its name in the register."""
        return f"{self.id}/{self.number}"


def generation_of(item: Item) -> Generation:
    """Return the present generation of a sequence."""
    return Generation(item.id, item.generation or 0)


class Positions(State, frozen=True, kw_only=True):
    """The register: for each generation a position at or beyond all numbers given out."""

    reserved: Mapping[str, tuple[int, bool]] = msgspec.field(default_factory=dict)


class Sequences:
    """The positions of all sequences; owned by the event loop."""

    def __init__(self, consensus: Consensus, epoch: int) -> None:
        self._epoch = epoch
        self._register = Register(consensus, KEY, Positions)
        self._positions: dict[Generation, Position] = {}
        self._reserved: dict[str, tuple[int, bool]] = {}
        # How many numbers may be given out without a write, and the definition that they follow.
        self._ready: dict[Generation, tuple[Sequence, int]] = {}
        self._range: dict[Generation, int] = {}
        self.private: dict[Generation, object] = {}  # with the transaction that began each
        self._live: dict[GlobalId, Generation] = {}  # in the catalog
        self._last = 0  # the greatest number of a generation
        self._writing = asyncio.Lock()
        self._under_way: set[asyncio.Task[None]] = set()

    async def open(self, known: Iterable[Generation]) -> None:
        """Take the register over, without the sequences that the catalog does not know."""
        state = await self._register.claim(self._epoch, Positions(epoch=self._epoch))
        assert state is not None
        for each in known:
            found = state.reserved.get(each.key)
            if found is None:
                raise DataCorrupted(f"where sequence {each.key} stands is not written down")
            self._reserved[each.key] = found
            self._positions[each] = Position(*found)
            self._live[each.id] = each
        self._last = max((int(key.partition("/")[2]) for key in state.reserved), default=0)

    def position(self, of: Generation, name: str) -> Position:
        """Return the position of a sequence; raises UndefinedTable if it has been dropped."""
        return self._positions[self._present(of, name)]

    # --- numbers

    async def take(
        self,
        of: Generation,
        sequence: Sequence,
        count: int,
        name: str,
    ) -> Numbers:
        """Give out `count` numbers.

        Raises 2200H if fewer are left, UndefinedTable if the sequence has been dropped.
        """
        while (of := self._present(of, name)) not in self.private:
            if self._left(of, sequence) >= count:
                break
            await self._run_to_end(self._reserve(of, sequence, count, name))
        found, self._positions[of] = numbers(sequence, self._positions[of], count, name)
        if of not in self.private:
            self._ready[of] = sequence, self._left(of, sequence) - count
        return found

    def _left(self, of: Generation, sequence: Sequence) -> int:
        """Return how many numbers of the definition `sequence` are durable."""
        definition, ready = self._ready.get(of, (sequence, 0))
        return ready if definition is sequence or definition == sequence else 0

    async def _reserve(self, of: Generation, sequence: Sequence, count: int, name: str) -> None:
        async with self._writing:
            if self._left(of, sequence) >= count or of not in self._positions:
                return
            at = self._positions[of]
            self._ready.pop(of, None)
            numbers(sequence, at, count, name)  # raises if fewer are left
            length = self._range[of] = min(2 * self._range.get(of, FIRST_RANGE // 2), LONGEST_RANGE)
            if not sequence.cycle:
                length = min(length, left(sequence, at) - count)
            _, end = numbers(sequence, at, count + length)
            await self._write({of: end})
            reached("sequence.reserved")
            if of in self._positions:
                self._ready[of] = sequence, count + length

    def _present(self, of: Generation, name: str) -> Generation:
        """Return `of`, or the generation that has replaced it."""
        found = of if of in self._positions else self._live.get(of.id)
        if found is None:
            raise UndefinedTable(f'relation "{name}" does not exist')
        return found

    async def set(self, of: Generation, to: Position, name: str) -> None:
        """Set the position of a sequence; raises UndefinedTable if it has been dropped."""
        if of in self.private:
            self._positions[of] = to
        else:
            await self._run_to_end(self._set(of, to, name))

    async def _set(self, of: Generation, to: Position, name: str) -> None:
        async with self._writing:
            of = self._present(of, name)
            self._ready.pop(of, None)
            await self._write({of: to})
            if of in self._positions:
                self._positions[of] = to

    async def _run_to_end(self, work: Coroutine[None, None, None]) -> None:
        """Await `work`, which continues if the caller is cancelled."""
        task = asyncio.get_running_loop().create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        await asyncio.shield(task)

    # --- generations

    def another(self, id: GlobalId) -> Generation:
        """Return a new generation of a sequence."""
        self._last += 1
        return Generation(id, self._last)

    def begin(self, of: Generation, at: Position, owner: object) -> None:
        """Begin a generation that belongs to the transaction `owner` until it commits."""
        assert of not in self._positions, of
        self._positions[of] = at
        self.private[of] = owner

    async def publish(self, generations: Iterable[Generation]) -> None:
        """Make durable the positions of generations that are about to be committed.

        They stay in the register until they are forgotten, since the catalog may name them.
        """
        async with self._writing:
            await self._write({each: self._positions[each] for each in generations})
            for each in generations:
                self.private.pop(each, None)

    def published(self, generations: Iterable[Generation]) -> None:
        """Make committed generations the live ones of their sequences."""
        for each in generations:
            self._live[each.id] = each

    def forget(self, generations: Iterable[Generation]) -> None:
        """Forget generations that were rolled back or replaced."""
        for each in generations:
            for kept in (self._positions, self._ready, self._range):
                kept.pop(each, None)
            self._reserved.pop(each.key, None)  # durably with the next write
            self.private.pop(each, None)
            if self._live.get(each.id) == each:
                del self._live[each.id]

    def forget_private(self, owner: object) -> None:
        """Forget the generations that the ended transaction `owner` has not published."""
        self.forget([each for each, other in self.private.items() if other is owner])

    async def close(self) -> None:
        """Write the true position of each sequence."""
        async with self._writing:
            await self._write(
                {each: at for each, at in self._positions.items() if each not in self.private}
            )

    async def _write(self, changed: dict[Generation, Position]) -> None:
        await self._register.settle()
        held = self._register.value
        assert held is not None
        new = {each.key: (at.last, at.called) for each, at in changed.items()}
        reserved = {**self._reserved, **new}
        if reserved != held.reserved:
            state = Positions(epoch=self._epoch, reserved=reserved)
            await self._register.change_with_retry(state)
        self._reserved.update(new)
