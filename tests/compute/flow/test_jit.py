"""A kernel is compiled anew when a file changes from which it calls functions."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from foreshore.compute.flow.kernels import jit, rows

SCRIPT = """
import numpy as np
from foreshore.compute.flow.kernels import groups

groups.find_slot(
    np.zeros(2, np.uint64), np.zeros((2, 1), np.int64), np.zeros(2, np.bool_), np.uint64(1),
    np.zeros((1, 1), np.int64), 0, 1,
)
print(sum(groups.find_slot.stats.cache_hits.values()))
"""

WAITING = """
from foreshore.compute.flow.kernels.jit import GATE
GATE.close(lambda name: print("waits for", name))
"""


def test_stamp_follows_imports() -> None:
    assert {"groups", "rows", "sorting", "float_sums", "wide", "jit"} <= jit.imported("groups")
    assert {name for name, _ in jit.stamp("groups")} == jit.imported("groups")
    assert "groups" not in jit.imported("wide")


def test_first_call_passes_through_the_gate() -> None:
    if jit.UNCOMPILED:
        pytest.skip("there are no compiled kernels")
    called: list[str] = []
    gate = jit.Gate()
    gate.pass_through("a")
    assert gate.close(called.append)
    assert not gate.close(called.append)
    assert not gate.is_open
    gate.pass_through("b")
    gate.open()
    gate.pass_through("c")
    assert called == ["b"]
    output = subprocess.run(
        [sys.executable, "-c", WAITING + SCRIPT + SCRIPT],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert output.split("\n")[0] == "waits for groups.find_slot"
    assert output.count("waits") == 1


def test_changed_import_compiles_anew(tmp_path: Path) -> None:
    changed = "from foreshore.compute.flow.kernels import jit\njit.stamp = lambda module: ()\n"
    hits = [
        subprocess.run(
            [sys.executable, "-c", before + SCRIPT],
            env={"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": ":".join(sys.path)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for before in ("", "", changed)
    ]
    assert [each.strip() for each in hits] == ["0", "1", "0"]


@pytest.mark.skipif(jit.UNCOMPILED, reason="there are no compiled kernels")
def test_code_of_other_sources_is_not_found_after_an_unfinished_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cache_at(digest: str) -> Any:
        monkeypatch.setattr(jit, "stamp", lambda _: (("rows", digest),))
        made = jit.KernelCache(rows.pick_words.py_func)
        made._cache_file._cache_path = str(tmp_path)
        made._cache_file._index_path = str(tmp_path / "pick_words.nbi")
        return made._cache_file

    cache_at("old").save("types", "old code")
    new = cache_at("new")
    monkeypatch.setattr(new, "_save_data", lambda *_: None)  # killed after the index
    new.save("types", "new code")
    assert cache_at("new").load("types") is None
    assert cache_at("old").load("types") is None
