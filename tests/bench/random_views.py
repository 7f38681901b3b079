"""Random views through random changes: `python -m tests.bench.random_views [2000] [--seed N]`.

Each view is a random plan of all operators (`tests/relations.py`), maintained through random contents
of its tables, some windows with several times. At every time its rows and errors must be those of
the model (`tests/model.py`). The views are shared among the ways to run them:

- by operators only, and hydrated in bulk wherever that is possible;
- with arrangements of so few rows in a run that runs are merged all the time;
- on two and on three workers.

A case that fails is printed as small as it can be made. The operators met are counted at the end.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from hypothesis import HealthCheck, reject, seed, settings
from hypothesis import given as drawn
from hypothesis import strategies as st

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.engine import Engine
from foreshore.compute.flow import hydration, ordered, spine
from foreshore.compute.flow.operators import reduce
from foreshore.compute.flow.unsupported import Unsupported
from foreshore.expr.ir import LetRec
from foreshore.expr.traversal import walk_relations
from tests.compute.cases import START, Case, check_maintained
from tests.compute.without_bulk import WithoutBulk
from tests.compute.workers.in_threads import workers
from tests.relations import histories, lowered_relations

TIMES = 7  # versions of the tables' contents
NO_BULK: dict[tuple[Any, str], int] = {(hydration, "BULK_ROWS"): 1 << 60}
ALL_BULK = {
    (hydration, "BULK_ROWS"): 0,
    (spine, "SORTED_BY_BLOCKS"): 0,
    (reduce, "SORTED_GROUPS"): 0,
}
SMALL_RUNS = {**NO_BULK, (spine, "TAIL_ROWS"): 3, (ordered, "EAGER"): 4}


@contextmanager
def in_process() -> Iterator[Engine]:
    """Yield an engine of this process that leaves no plan to DuckDB."""
    bulk = DuckDbEngine(threads=1)
    try:
        yield WithoutBulk(bulk)
    finally:
        bulk.close()


# name: the engine, the module's constants, and the share of the views in twentieths
WAYS: dict[str, tuple[Callable[[], Any], dict[tuple[Any, str], int], int]] = {
    "operators": (in_process, NO_BULK, 6),
    "in bulk": (in_process, ALL_BULK, 5),
    "small runs": (in_process, SMALL_RUNS, 5),
    "2 workers": (lambda: workers(2), {}, 2),
    "3 workers": (lambda: workers(3), {}, 2),
}


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw a plan, one of three that may fail, versions of the tables, and where windows end."""
    size, failing = draw(st.integers(1, 7)), draw(st.sampled_from((False, False, True)))
    times = range(START - 1, START + TIMES + 1) if draw(st.booleans()) else ()
    rounds = draw(st.sampled_from((0, 0, 3)))
    relation = draw(lowered_relations(size, failing, times, rounds))
    cuts = draw(st.sets(st.integers(2, TIMES - 1)))
    return Case(relation, draw(histories(TIMES, max_size=5)), frozenset(cuts))


def recursive(case: Case) -> bool:
    """Whether the plan has a recursion; of its errors only which there are is defined."""
    return any(isinstance(node, LetRec) for node in walk_relations(case.relation))


def check(way: str, count: int, number: int) -> tuple[int, int, Counter[str]]:
    """Return how many views were checked in one way, how many it does not do, and the operators."""
    opened, constants, _ = WAYS[way]
    met: Counter[str] = Counter()
    checked = unsupported = 0
    with ExitStack() as stack:
        for (module, name), value in constants.items():
            stack.enter_context(patch.object(module, name, value))
        engine = stack.enter_context(opened())

        @seed(number)
        @settings(
            max_examples=count, deadline=None, database=None, suppress_health_check=[*HealthCheck]
        )
        @drawn(cases())
        def equals_the_model(case: Case) -> None:
            nonlocal checked, unsupported
            try:
                check_maintained(engine, case, counts_errors=not recursive(case))
            except Unsupported:
                unsupported += 1
                reject()
            checked += 1
            met.update({type(node).__name__ for node in walk_relations(case.relation)})

        equals_the_model()
    return checked, unsupported, met


def main() -> None:
    """Check so many views; end with the case that is wrong, if there is one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", nargs="?", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=[*WAYS])
    options = parser.parse_args()
    parts = sum(WAYS[way][2] for way in options.ways)
    operators: Counter[str] = Counter()
    for way in options.ways:
        cpu = time.process_time()
        share = options.count * WAYS[way][2] // parts
        checked, unsupported, met = check(way, share, options.seed)
        operators += met
        print(
            f"{way:10} | {checked:5} views equal the model | {unsupported} without operators"
            f" | {time.process_time() - cpu:.0f} s CPU",
            flush=True,
        )
    print(", ".join(f"{name} {count}" for name, count in operators.most_common()))


if __name__ == "__main__":
    main()
