"""The costs of the last steps of a dataflow, as text for EXPLAIN."""

from collections.abc import Iterable

from foreshore.compute.protocol import DataflowStatus, StepStatus
from foreshore.ids import GlobalId
from foreshore.sizes import shown


def last_steps(reported: Iterable[tuple[str, DataflowStatus]], id: GlobalId) -> str:
    """Return a line for each engine of the last steps of an object, of one replica that has it."""
    steps = next((status.last_steps for _, status in reported if status.id == id), ())
    lines = [_line(step) for step in steps]
    return "\n\nLast steps:\n" + "\n".join(lines) if lines else ""


def _line(step: StepStatus) -> str:
    done = f"{step.statements} {'jobs' if step.engine == 'spark' else 'statements'}"
    if step.statements == 1:
        done = done[:-1]
    anew = f", {step.anew} of them anew" if step.anew else ""
    read = f"{step.files:,} of {step.files_there:,} files"
    if step.bytes:
        read += f" of {shown(step.bytes)}"
    why = f" ({step.note})" if step.note else ""
    return (
        f"  {step.step:,}: {step.updates:,} updates, {step.engine}{why}: {done}{anew},"
        f" {read}, {step.rows:,} rows, {step.ms:,} ms"
    )
