"""The work of a dataflow's operators: CPU time, and the rows that went through."""

from collections.abc import Iterator, Sequence
from time import thread_time_ns

from foreshore.compute.flow.operators.closing import Closing
from foreshore.compute.flow.operators.exchange import Broadcast, Exchange
from foreshore.compute.flow.operators.fixpoint import Fixpoint
from foreshore.compute.flow.operators.flat_map import FlatMap
from foreshore.compute.flow.operators.join import Join
from foreshore.compute.flow.operators.loop import Loop, LoopValue
from foreshore.compute.flow.operators.operator import Constant, Linear, Operator, Source, Union
from foreshore.compute.flow.operators.reduce import Reduce
from foreshore.compute.flow.operators.spread_join import SpreadJoin
from foreshore.compute.flow.operators.temporal import TemporalFilter
from foreshore.compute.flow.operators.topk import Threshold, TopK
from foreshore.compute.flow.operators.window import WindowFunctions
from foreshore.compute.protocol import OperatorWork

NAMES: dict[type, str] = {
    Source: "Get",
    Constant: "Constant",
    Linear: "Linear",
    Union: "Union",
    Join: "Delta join",
    SpreadJoin: "Delta join",
    Broadcast: "Exchange",
    Exchange: "Exchange",
    Reduce: "Reduce",
    TopK: "TopK",
    Threshold: "Threshold",
    WindowFunctions: "Window",
    TemporalFilter: "Temporal filter",
    Closing: "Closing",
    FlatMap: "FlatMap",
    Loop: "Recursion",
    Fixpoint: "Recursion by ranks",
    LoopValue: "Value of recursion",
}


class Work:
    """Counters of operators, by their numbers; times are nanoseconds of CPU of the caller's thread.

    The dataflow adds to them in place, because a call costs as much as the clock (0.3 us).
    """

    def __init__(self, operators: Sequence[Operator]) -> None:
        count = len(operators)
        self._operators = [(NAMES[type(each)], each.inputs) for each in operators]
        self.hydration_ns = [0] * count
        self.step_ns = [0] * count
        self.merge_ns = [0] * count
        self.steps = 0
        self.rows = [0] * count  # put out

    @staticmethod
    def passed(spent: list[int], number: int | None, began: int) -> int:
        """Count the time since `began` as an operator's, if any; return the present time."""
        ended = thread_time_ns()
        if number is not None:
            spent[number] += ended - began
        return ended

    def operators(self) -> Iterator[OperatorWork]:
        """Yield the counters of each operator. Any thread may call it."""
        for number, (name, inputs) in enumerate(self._operators):
            yield OperatorWork(
                number,
                name,
                inputs,
                self.hydration_ns[number],
                self.step_ns[number],
                self.merge_ns[number],
                self.steps,
                sum(self.rows[input] for input in inputs),
                self.rows[number],
            )
