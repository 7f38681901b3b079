"""The process of an `IsolatedEngine`, which evaluates one relation at a time."""

import logging
import os
import pickle
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

import pyarrow as pa

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.engine import Cancellation
from foreshore.compute.isolated.engine import (
    CALL,
    DONE,
    FAILED,
    FORGET,
    PART,
    QUESTION,
    Answer,
    as_failure,
    receive,
    send,
)
from foreshore.compute.local.linear import evaluate_linear, is_linear, multiplies_rows
from foreshore.deep_trees import run_on_deep_stack
from foreshore.errors import DatabaseError, InternalError, OutOfMemory, StatementTooComplex
from foreshore.memory import at_most_more, give_back
from foreshore.query_memory import QUERY_MEMORY, limit_all_room

logger = logging.getLogger(__name__)


def main() -> None:
    """Answer requests from standard input on standard output, until the input ends."""
    run_on_deep_stack(_answer_requests)  # they hold plans


def _answer_requests() -> None:
    with suppress(OSError):  # the kernel kills this process first when memory runs out
        Path("/proc/self/oom_score_adj").write_text("1000")
    scratch, memory, *directories = sys.argv[1:]
    engine = DuckDbEngine(
        directories=directories, memory_limit=f"{memory}B", threads=2, scratch=scratch
    )
    requests: SimpleQueue[tuple[bytes, Answer]] = SimpleQueue()
    Thread(target=_listen, args=(requests,), daemon=True).start()
    limit_all_room()
    parts: Iterator[pa.Table] = iter(())
    while True:
        kind, question = requests.get()
        if kind == QUESTION:
            parts = _parts(engine, question)
        elif kind == CALL:
            parts = _called(question)
        elif kind == FORGET:
            parts = iter(())
        kind, answer = _next_answer(parts)
        send(sys.stdout.buffer, kind, answer)
        del answer
        if kind != PART:
            parts = iter(())
            give_back()


def _listen(requests: "SimpleQueue[tuple[bytes, Answer]]") -> None:
    """Receive requests; end the process, even if it is busy, when the input ends."""
    try:
        while True:
            requests.put(receive(sys.stdin.buffer))
    except (EOFError, OSError):
        os._exit(0)


def _parts(engine: DuckDbEngine, question: Answer) -> Iterator[pa.Table]:
    """Yield the rows that a question asks for, in parts."""
    relation, inputs, as_of, max_bytes, extent, memory, most, budget = pickle.loads(question)
    QUERY_MEMORY.configure(budget if memory is None else min(budget, 2 * memory))
    with ExitStack() as limits:
        if memory is not None:
            engine = limits.enter_context(engine.limited(memory))
        limits.enter_context(at_most_more(most if memory is None else memory))
        if inputs or extent.order or not is_linear(relation) or multiplies_rows(relation):
            with engine.evaluations(Cancellation()) as evaluations:
                yield from evaluations.parts(relation, inputs, as_of, max_bytes, extent)
        else:  # without an engine, which is given constants as SQL
            yield evaluate_linear(relation)


def _called(question: Answer) -> Iterator[pa.Table]:
    """Yield what a function yields that takes at most so much memory."""
    function, arguments, memory = pickle.loads(question)
    with at_most_more(memory):
        for batch in function(*arguments):
            yield pa.Table.from_batches([batch])


def _next_answer(parts: Iterator[pa.Table]) -> "tuple[bytes, bytes | pa.Buffer]":
    """Return the kind and the bytes of the answer: the next part, the end, or an error."""
    try:
        part = next(parts, None)
        if part is None:
            return DONE, b""
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, part.schema) as writer:
            writer.write_table(part)
        return PART, out.getvalue()
    except DatabaseError as error:
        return FAILED, as_failure(error)
    except MemoryError:
        return FAILED, as_failure(OutOfMemory("The query needs more memory than there is for it."))
    except RecursionError:
        return FAILED, as_failure(StatementTooComplex("stack depth limit exceeded"))
    except Exception:
        logger.exception("an evaluation failed")
        return FAILED, as_failure(InternalError("an evaluation failed"))


if __name__ == "__main__":
    main()
