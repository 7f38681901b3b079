"""A signal for all who wait at a moment."""

import asyncio


class Signal:
    """Wakes all waiters each time; nothing is kept for later ones."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        """Wake all who wait."""
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self) -> None:
        """Wait for the next `set`."""
        await self._event.wait()
