"""Python source that is written line by line, and the function that it becomes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

MOST_BLOCKS = 18  # nested loops: Python allows 20
MOST_DEPTH = 80  # indentations: Python allows 100
MOST_LINES = 4_000


class NotCompiled(Exception):
    """The plan has a part that is not known here, or is too large; columns compute it."""


class TooMany(Exception):
    """More rows than a function over tuples should handle."""


class Source:
    """The body of a function in the making; its constants are names of their own."""

    def __init__(self) -> None:
        self.constants: dict[str, Any] = {}
        self._known: dict[int, str] = {}  # names of constants by the identity of their values
        self._lines: list[str] = []
        self._depth = 1
        self._blocks = 0
        self._names = 0

    def name(self) -> str:
        """Return a new name for a variable."""
        self._names += 1
        return f"v{self._names}"

    def line(self, text: str) -> None:
        """Add a line."""
        if len(self._lines) == MOST_LINES:
            raise NotCompiled("too many lines")
        self._lines.append("    " * self._depth + text)

    def assign(self, text: str) -> str:
        """Add an assignment of an expression to a new name, and return that."""
        name = self.name()
        self.line(f"{name} = {text}")
        return name

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Indent the lines of the body below `head`, which has a colon."""
        is_loop = head.startswith("for ")
        self.line(head)
        self._depth += 1
        self._blocks += is_loop
        if self._depth > MOST_DEPTH or self._blocks > MOST_BLOCKS:
            raise NotCompiled("too deep")
        before = len(self._lines)
        yield
        if len(self._lines) == before:
            self.line("pass")
        self._depth -= 1
        self._blocks -= is_loop

    def constant(self, value: Any) -> str:
        """Return a name that stands for `value`."""
        name = self._known.get(id(value))
        if name is None:
            name = self._known[id(value)] = f"k{len(self.constants)}"
            self.constants[name] = value
        return name

    def function(self, parameters: str) -> Callable[..., Any]:
        """Return the function of these parameters that has the lines as its body."""
        text = "\n".join((f"def run({parameters}):", *self._lines))
        space = dict(self.constants)
        exec(compile(text, "<row program>", "exec"), space)
        run: Callable[..., Any] = space["run"]
        return run
