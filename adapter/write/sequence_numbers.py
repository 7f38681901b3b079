"""Sequences at work: numbers given out to sessions, never one twice, whatever ends the process.

    catalog     what a sequence is; with each RESTART it begins a new *generation*
    here        where each generation stands
    consensus   one register: positions that none of the numbers given out is beyond

A write of the register goes through to its end, also when whoever asked for it has gone: nobody
could tell otherwise whether it took place, and what follows is compared with it.

A range of numbers is made durable before any of it is given out, so a number costs no I/O as long
as the range lasts; each range is twice as long as the one before. What is left of it when the
process is killed is given to nobody. A proper end writes down how far it really went.

Numbers are not part of transactions: who rolls back leaves a gap. But a sequence that a transaction
has made or restarted belongs to it alone, as a generation that nobody else knows, until it commits.
So no two of them begin the same one. Who names a generation that another has followed meanwhile,
as his catalog is of an earlier time, means the one that is live.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
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
        """What the register calls it."""
        return f"{self.id}/{self.number}"


def generation_of(item: Item) -> Generation:
    """Return the generation at which a sequence is."""
    return Generation(item.id, item.generation or 0)


@dataclass(slots=True)
class LastValues:
    """The last value that each sequence gave to one session, for currval() and lastval()."""

    by_sequence: dict[GlobalId, int] = field(default_factory=dict)
    last: GlobalId | None = None  # the sequence that gave the last of all

    def clear(self) -> None:
        """Forget all of them."""
        self.by_sequence.clear()
        self.last = None


class Positions(State, frozen=True, kw_only=True):
    """The register: for each generation a position at or beyond all that it may have given out."""

    reserved: Mapping[str, tuple[int, bool]] = msgspec.field(default_factory=dict)


class Sequences:
    """Where all sequences stand; owned by the event loop."""

    def __init__(self, consensus: Consensus, epoch: int) -> None:
        self._epoch = epoch
        self._register = Register(consensus, KEY, Positions)
        self._positions: dict[Generation, Position] = {}
        self._reserved: dict[str, tuple[int, bool]] = {}
        # How many numbers may be given out without a write, by the rule that they follow.
        self._ready: dict[Generation, tuple[Sequence, int]] = {}
        self._range: dict[Generation, int] = {}
        self._private: dict[Generation, object] = {}  # with the transaction that began each
        self._live: dict[GlobalId, Generation] = {}  # what the catalog says
        self._last = 0  # the greatest number of a generation
        self._writing = asyncio.Lock()
        self._under_way: set[asyncio.Task[None]] = set()

    async def open(self, known: Iterable[Generation]) -> None:
        """Take the register over, and forget the sequences that the catalog does not know."""
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
        """Return where a sequence stands; raises UndefinedTable if it is dropped meanwhile."""
        return self._positions[self._present(of, name)]

    # --- numbers

    async def take(self, of: Generation, sequence: Sequence, count: int, name: str) -> Numbers:
        """Give out `count` numbers.

        Raises 2200H if there are not so many, UndefinedTable if the sequence is dropped meanwhile.
        """
        while (of := self._present(of, name)) not in self._private:
            if self._left(of, sequence) >= count:
                break
            await self._to_the_end(self._reserve(of, sequence, count, name))
        found, self._positions[of] = numbers(sequence, self._positions[of], count, name)
        if of not in self._private:
            self._ready[of] = sequence, self._left(of, sequence) - count
        return found

    def _left(self, of: Generation, sequence: Sequence) -> int:
        """Return how many numbers may be given out that follow the rule of `sequence`."""
        rule, ready = self._ready.get(of, (sequence, 0))
        return ready if rule == sequence else 0

    async def _reserve(self, of: Generation, sequence: Sequence, count: int, name: str) -> None:
        async with self._writing:
            if self._left(of, sequence) >= count or of not in self._positions:
                return
            at = self._positions[of]
            self._ready.pop(of, None)
            numbers(sequence, at, count, name)  # raises if there are not so many
            length = self._range[of] = min(2 * self._range.get(of, FIRST_RANGE // 2), LONGEST_RANGE)
            if not sequence.cycle:
                length = min(length, left(sequence, at) - count)
            _, end = numbers(sequence, at, count + length)
            await self._write({of: end})
            reached("sequence.reserved")
            if of in self._positions:
                self._ready[of] = sequence, count + length

    def _present(self, of: Generation, name: str) -> Generation:
        """Return the generation that is meant by `of`: it, or the one that has followed it."""
        found = of if of in self._positions else self._live.get(of.id)
        if found is None:
            raise UndefinedTable(f'relation "{name}" does not exist')
        return found

    async def set(self, of: Generation, to: Position, name: str) -> None:
        """Let a sequence go on from a position, whatever it has given out.

        Raises UndefinedTable if it is dropped meanwhile.
        """
        if of in self._private:
            self._positions[of] = to
        else:
            await self._to_the_end(self._set(of, to, name))

    async def _set(self, of: Generation, to: Position, name: str) -> None:
        async with self._writing:
            of = self._present(of, name)
            self._ready.pop(of, None)
            await self._write({of: to})
            if of in self._positions:
                self._positions[of] = to

    async def _to_the_end(self, work: Coroutine[None, None, None]) -> None:
        """Await `work`, which goes on if that is cancelled."""
        task = asyncio.get_running_loop().create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        await asyncio.shield(task)

    # --- generations

    def another(self, id: GlobalId) -> Generation:
        """Return a generation of a sequence that nobody has begun."""
        self._last += 1
        return Generation(id, self._last)

    def begin(self, of: Generation, at: Position, owner: object) -> None:
        """Begin a generation that only the transaction `owner` knows until it commits."""
        assert of not in self._positions, of
        self._positions[of] = at
        self._private[of] = owner

    async def publish(self, generations: Iterable[Generation]) -> None:
        """Make durable where generations stand that are about to be known to all.

        They stay written down, as the catalog may name them, until they are forgotten.
        """
        async with self._writing:
            await self._write({each: self._positions[each] for each in generations})
            for each in generations:
                self._private.pop(each, None)

    def published(self, generations: Iterable[Generation]) -> None:
        """Let generations be everybody's, whose positions are durable."""
        for each in generations:
            self._live[each.id] = each

    def forget(self, generations: Iterable[Generation]) -> None:
        """Forget generations that came to nothing, or have been followed by another."""
        for each in generations:
            for kept in (self._positions, self._ready, self._range):
                kept.pop(each, None)
            self._reserved.pop(each.key, None)  # durably so with the next write
            self._private.pop(each, None)
            if self._live.get(each.id) == each:
                del self._live[each.id]

    def forget_private(self, owner: object) -> None:
        """Forget the generations that the ended transaction `owner` has not published."""
        if self._private:
            self.forget([each for each, other in self._private.items() if other is owner])

    async def close(self) -> None:
        """Write down how far each sequence really went."""
        async with self._writing:
            await self._write(
                {each: at for each, at in self._positions.items() if each not in self._private}
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
