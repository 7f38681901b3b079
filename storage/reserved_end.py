"""The durable end of the numbers that may have been given out, as a register of consensus."""

from foreshore.storage.consensus import Consensus
from foreshore.storage.epoch import Register, State


class Reserved(State, frozen=True, kw_only=True):
    """The end of the range: numbers before it may have been given out."""

    end: int


class ReservedEnd:
    """The end of the range under `key`, which one epoch at a time may move."""

    def __init__(self, consensus: Consensus, key: str, epoch: int) -> None:
        self._epoch = epoch
        self._register = Register(consensus, key, Reserved)

    async def load(self) -> int:
        """Return the last stored end, and take the register over from earlier epochs."""
        state = await self._register.claim(self._epoch, Reserved(epoch=self._epoch, end=0))
        assert state is not None
        return state.end

    async def store(self, end: int) -> None:
        """Make `end` durable; raises Fenced if a later epoch has taken over."""
        await self._register.change_with_retry(Reserved(epoch=self._epoch, end=end))
