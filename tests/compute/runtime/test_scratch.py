"""Scratch directories are removed when their owners end, and only then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from foreshore.processes.scratch import PREFIX, Scratch, remove_abandoned

HOLDER = """
import sys, time
from foreshore.processes.scratch import Scratch
scratch = Scratch()
(scratch.path / "spilled").write_bytes(b"some")
print(scratch.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a directory of the test as the system's directory for temporary files."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def holder() -> tuple[subprocess.Popen[str], Path]:
    """Start a process that holds a scratch directory."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_scratch_directory_is_private_and_removable(temporary: Path) -> None:
    scratch = Scratch()
    assert scratch.path.stat().st_mode & 0o777 == 0o700
    (scratch.path / "spilled").write_bytes(b"some")
    assert remove_abandoned() == 0
    scratch.remove()
    assert list(temporary.iterdir()) == []


def test_scratch_directory_of_killed_owner_is_removed(temporary: Path) -> None:
    victim, abandoned = holder()
    other, held = holder()
    assert remove_abandoned() == 0
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    assert remove_abandoned() == 1
    assert not abandoned.exists()
    assert (held / "spilled").read_bytes() == b"some"
    other.kill()
    other.wait()


def test_similar_directory_is_kept(temporary: Path) -> None:
    target = temporary / "precious"
    target.mkdir()
    (temporary / f"{PREFIX}link").symlink_to(target)
    (temporary / f"{PREFIX}file").touch()
    assert remove_abandoned() == 0
    assert len(list(temporary.iterdir())) == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_scratch_directory_of_other_user_is_kept(temporary: Path) -> None:
    theirs = temporary / f"{PREFIX}theirs"
    theirs.mkdir()
    os.chown(theirs, 12345, 12345)
    assert remove_abandoned() == 0
    assert theirs.exists()


def test_cleanup_keeps_directory_being_created(temporary: Path) -> None:
    over = threading.Event()

    def clean() -> None:
        while not over.is_set():
            remove_abandoned()

    threads = [threading.Thread(target=clean) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(300):
            scratch = Scratch()
            (scratch.path / "spilled").touch()
            assert (scratch.path / "spilled").exists()
            scratch.remove()
    finally:
        over.set()
        for thread in threads:
            thread.join()
    remove_abandoned()
    assert list(temporary.iterdir()) == []
