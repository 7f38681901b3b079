"""The kinds of hostile inputs: each a small async function that does one hostile thing.

A file of this folder holds a family of them:

    @kind("messages: Parse without a Sync")
    async def parse(target: Target, chance: Random) -> None: ...

It is called again and again, some at a time, by the role `hostile`, which may only log in. It ends
within some seconds, bounds what it sends, closes what it opens, and raises only what a client gets:
errors of connections and of statements do not matter.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from random import Random


@dataclass(frozen=True, slots=True)
class Target:
    """The server to be attacked, on the loopback."""

    port: int
    http_port: int
    user: str = "hostile"

    @property
    def url(self) -> str:
        """Return the address to connect to."""
        return f"postgres://{self.user}@127.0.0.1:{self.port}/foreshore"


Attack = Callable[[Target, Random], Awaitable[None]]

KINDS: dict[str, Attack] = {}


def kind(name: str) -> Callable[[Attack], Attack]:
    """Register a kind of hostile input."""

    def register(attack: Attack) -> Attack:
        assert name not in KINDS, name
        KINDS[name] = attack
        return attack

    return register


def every_kind() -> dict[str, Attack]:
    """Return all kinds, of all files of this folder."""
    for file in sorted(Path(__file__).parent.glob("*.py")):
        import_module(f"tests.hostile.kinds.{file.stem}")
    return KINDS
