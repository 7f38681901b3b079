"""The last values that sequences gave to a session."""

from dataclasses import dataclass, field

from foreshore.ids import GlobalId


@dataclass(slots=True)
class LastValues:
    """The last value that each sequence gave to one session, for currval() and lastval()."""

    by_sequence: dict[GlobalId, int] = field(default_factory=dict)
    last: GlobalId | None = None  # the sequence that was used last

    def clear(self) -> None:
        """Forget all of them."""
        self.by_sequence.clear()
        self.last = None
