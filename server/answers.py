"""Answers that were sent before, to be sent again to the same request while they still hold.

A request is what follows the statement's name in its Bind message, up to the end of its Execute.
Together with the statement's plan and the session's style it decides the answer, if the rows are
the same. Whether they are, the adapter tells by a proof that came with them. Sessions share plans,
so they share answers.

The answers have two generations: when the younger one is full, the older one is forgotten, and what
is asked for again becomes young. So at least the last half of `MOST_BYTES` is known.
"""

from collections.abc import Hashable
from typing import NamedTuple, TypeAlias

from foreshore.adapter.client import Proof
from foreshore.output_style import OutputStyle

MOST_BYTES = 16 << 20
LONGEST = 1024  # bytes of an answer that is kept, and of its request
MOST_FORMS = 4096
OVERHEAD = 400  # bytes of an answer beside its own and those of the request

Request: TypeAlias = tuple[int, bytes]  # the number of its form, and the bytes


class Answer(NamedTuple):
    """The messages of an answer, and the proof of its rows."""

    data: bytes
    proof: Proof


class Answers:
    """The answers that all connections of a process have sent."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._young: dict[Request, Answer] = {}
        self._old: dict[Request, Answer] = {}
        self._bytes = 0  # of the younger generation
        # The objects are kept, so that their ids stay unique.
        self._forms: dict[Hashable, tuple[int, object]] = {}
        self._last = 0

    def form(self, plan: object, desc: object, style: OutputStyle) -> int:
        """Return a number for the answers of statements with a plan, columns and a style."""
        key = id(plan), id(desc), style
        found = self._forms.get(key)
        if found is None:
            if len(self._forms) >= MOST_FORMS:
                self._forms.clear()
            self._last += 1
            found = self._forms[key] = self._last, (plan, desc)
        return found[0]

    def get(self, request: Request) -> Answer | None:
        """Return the answer to a request, whose proof is to be checked."""
        found = self._young.get(request)
        if found is None and (found := self._old.get(request)) is not None:
            self.put(request, found)
        return found

    def put(self, request: Request, answer: Answer) -> None:
        """Keep an answer, if it is short."""
        size = len(request[1]) + len(answer.data)
        if size > LONGEST:
            return
        if self._bytes > self._most // 2:
            self._old, self._young, self._bytes = self._young, {}, 0
        self._young[request] = answer
        self._bytes += size + OVERHEAD
