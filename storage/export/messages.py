"""The protocol between the environment and its export processes."""

from typing import TypeAlias

import msgspec

from foreshore.expr.ir import Scalar
from foreshore.ids import GlobalId
from foreshore.processes.messages import Hello, Message
from foreshore.sinks.spec import SinkSpec
from foreshore.storage.external.access import Accesses
from foreshore.storage.external.answers import Done, Refused
from foreshore.types import RelationDesc
from foreshore.update import Timestamp


class Export(msgspec.Struct, frozen=True):
    """What an exporter has to know: the sink, its relation's columns, and how to reach the target.

    `name` is unique to the sink, also among several databases that write to one system. `hash` is
    PARTITION BY of a topic, over the relation's columns, of type uint8.
    """

    name: str
    spec: SinkSpec
    desc: RelationDesc
    accesses: Accesses
    hash: Scalar | None = None


# --- to a process ----------------------------------------------------------------------------


class StartSink(Message, frozen=True):
    """Run a sink."""

    id: GlobalId
    export: Export


class StopSink(Message, frozen=True):
    """Stop to run a sink."""

    id: GlobalId


class TryNow(Message, frozen=True):
    """Try a sink at once that pauses after a failure, as somebody waits for it."""

    id: GlobalId


class Changes(Message, frozen=True):
    """A part of the updates with lower <= time < upper, as a table with `__time` and `__diff`.

    The last part is `complete`. `run` is that of the `Resumes` which it answers.
    """

    id: GlobalId
    run: int
    lower: Timestamp
    upper: Timestamp
    complete: bool


class CheckSink(Message, frozen=True):
    """Find out whether a sink could write to its target; make what it needs there."""

    export: Export


class DisposeSink(Message, frozen=True):
    """Remove what a sink that was dropped has left in its target beside its rows."""

    export: Export


# --- from a process --------------------------------------------------------------------------


class Resumes(Message, frozen=True):
    """A sink asks for the changes from the frontier of its target on; None: for everything."""

    id: GlobalId
    run: int
    frontier: Timestamp | None


class Taken(Message, frozen=True):
    """The exporter has taken a table of the changes, so another one may be sent."""

    id: GlobalId
    run: int


class Exported(Message, frozen=True):
    """The target has all changes before `upper`."""

    id: GlobalId
    run: int
    upper: Timestamp


class SinkState(Message, frozen=True):
    """The state of a sink: `starting`, `running`, or `stalled` with an error.

    `starting` begins each try. `is_lasting`: the next ones fail until somebody acts.
    `is_lost`: all do, as the sink has to be created anew.
    """

    id: GlobalId
    state: str
    error: str | None = None
    is_lasting: bool = False
    is_lost: bool = False


class NextTry(Message, frozen=True):
    """A sink that has stalled is tried again in so many seconds."""

    id: GlobalId
    seconds: float


Request: TypeAlias = CheckSink | DisposeSink
Answer: TypeAlias = Done | Refused
Command: TypeAlias = Hello | StartSink | StopSink | TryNow | Changes | Request
Response: TypeAlias = Resumes | Taken | Exported | SinkState | NextTry
