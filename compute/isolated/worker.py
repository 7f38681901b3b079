"""The process of an `IsolatedEngine`, which evaluates one relation at a time."""

import logging
import os
import pickle
import sys
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

import pyarrow as pa

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.isolated.engine import as_failure, receive, send
from foreshore.compute.local.linear import evaluate_linear, is_linear, multiplies_rows
from foreshore.errors import DatabaseError, InternalError, OutOfMemory, StatementTooComplex

logger = logging.getLogger(__name__)


def main() -> None:
    """Answer requests from standard input on standard output, until the input ends."""
    with suppress(OSError):  # the kernel kills this process first when memory runs out
        Path("/proc/self/oom_score_adj").write_text("1000")
    engine = DuckDbEngine(directories=sys.argv[1:], memory_limit="1GB", threads=2)
    questions: SimpleQueue[bytearray] = SimpleQueue()
    Thread(target=_listen, args=(questions,), daemon=True).start()
    while True:
        kind, answer = _answer(engine, questions.get())
        send(sys.stdout.buffer, kind, answer)


def _listen(questions: "SimpleQueue[bytearray]") -> None:
    """Receive requests; end the process, even if it is busy, when the input ends."""
    try:
        while True:
            questions.put(receive(sys.stdin.buffer)[1])
    except (EOFError, OSError):
        os._exit(0)


def _answer(engine: DuckDbEngine, question: bytearray) -> "tuple[bytes, bytes | pa.Buffer]":
    try:
        relation, inputs, as_of, max_bytes = pickle.loads(question)
        if inputs or not is_linear(relation) or multiplies_rows(relation):
            rows = engine.evaluate(relation, inputs, as_of, None, max_bytes)
        else:  # without an engine, which is given constants as SQL
            rows = evaluate_linear(relation)
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, rows.schema) as writer:
            writer.write_table(rows)
        return b"T", out.getvalue()
    except DatabaseError as error:
        return b"E", as_failure(error)
    except MemoryError:
        return b"E", as_failure(OutOfMemory("The query needs more memory than there is for it."))
    except RecursionError:
        return b"E", as_failure(StatementTooComplex("stack depth limit exceeded"))
    except Exception:
        logger.exception("an evaluation failed")
        return b"E", as_failure(InternalError("an evaluation failed"))


if __name__ == "__main__":
    main()
