"""Kernels of a wheel are used if they are of the same sources, for processors that can run them."""

import pickle
from pathlib import Path

import pytest
from llvmlite import binding

from foreshore.compute.flow.kernels import compiled, jit, shipped

STAMP, TYPES = (("rows", "1"),), ("int64",)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the folder of this process, below a new one."""
    monkeypatch.setattr(shipped, "FOLDER", tmp_path)
    monkeypatch.setattr(shipped, "folder_name", lambda: "here")
    here = tmp_path / "here"
    here.mkdir()
    return here


def test_code_of_same_sources_and_types_is_loaded(folder: Path) -> None:
    shipped.save(folder, "a", STAMP, TYPES, pickle.dumps("code"))
    assert shipped.has("a", STAMP, TYPES)
    assert shipped.load("a", STAMP, TYPES) == "code"


@pytest.mark.parametrize(
    ("name", "stamp", "types"),
    [("b", STAMP, TYPES), ("a", (("rows", "2"),), TYPES), ("a", STAMP, ("int64", "int64"))],
)
def test_other_code_is_not_loaded(
    folder: Path, name: str, stamp: object, types: tuple[str, ...]
) -> None:
    shipped.save(folder, "a", STAMP, TYPES, b"which nobody reads")
    assert not shipped.has(name, stamp, types)
    assert shipped.load(name, stamp, types) is None


@pytest.mark.parametrize("part", [0.0, 0.3, 0.99])
def test_damaged_code_is_taken_for_missing(folder: Path, part: float) -> None:
    shipped.save(folder, "a", STAMP, TYPES, pickle.dumps("code" * 100))
    contents = (folder / "a").read_bytes()
    (folder / "a").write_bytes(contents[: int(part * len(contents))])
    assert not shipped.has("a", STAMP, TYPES)
    assert shipped.load("a", STAMP, TYPES) is None
    (folder / "a").write_bytes(contents[:-100] + bytes(100))
    assert shipped.load("a", STAMP, TYPES) is None


def test_processor_without_a_feature_uses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    features = dict.fromkeys(shipped.FEATURES, True)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(binding, "get_host_cpu_features", lambda: features)
    folder_name = shipped.folder_name.__wrapped__
    assert folder_name() is not None
    features["avx2"] = False
    assert folder_name() is None
    features["avx2"] = True
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert folder_name() is None


def test_kernel_that_is_shipped_is_not_compiled(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if jit.UNCOMPILED:
        pytest.skip("there are no compiled kernels")
    name = "rows.pick_words"
    types = compiled.signatures()[name]
    kernel = compiled._kernels()[name]
    kernel.compile(types)
    monkeypatch.setattr(compiled, "signatures", lambda: {name: types})
    compiled.ship(folder)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path / "cache"))
    other = jit.Kernel(kernel.py_func, targetoptions=kernel.targetoptions)
    other.enable_caching()
    codegen = other.targetctx.codegen()
    assert other._cache.has(types, codegen)
    other.compile(types)
    assert sum(other.stats.cache_hits.values()) == 1
    monkeypatch.setattr(other._cache, "stamp", ())
    assert not other._cache.has(types, codegen)


def cached_anew(name: str) -> tuple[jit.Kernel, object]:
    """Return a kernel that has nothing in memory, with its types."""
    kernel = compiled._kernels()[name]
    other = jit.Kernel(kernel.py_func, targetoptions=kernel.targetoptions)
    other.enable_caching()
    return other, compiled.signatures()[name]


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
@pytest.mark.parametrize("length", [0, 20, 60, -1, "zeros"])
def test_kernel_with_a_damaged_file_in_the_cache_is_compiled_anew(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    suffix: str,
    length: int | str,
) -> None:
    if jit.UNCOMPILED:
        pytest.skip("there are no compiled kernels")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path / "cache"))
    first, types = cached_anew("rows.pick_words")
    first.compile(types)
    (path,) = (tmp_path / "cache").rglob(f"*{suffix}")
    contents = path.read_bytes()
    if isinstance(length, str):
        path.write_bytes(contents[:100] + bytes(len(contents) - 100))
    else:
        path.write_bytes(contents[:length])
    damaged, _ = cached_anew("rows.pick_words")
    codegen = damaged.targetctx.codegen()
    if length != "zeros":  # which only loading finds
        assert not damaged._cache.has(types, codegen)
    damaged.compile(types)
    assert sum(damaged.stats.cache_hits.values()) == 0
    mended, _ = cached_anew("rows.pick_words")
    assert mended._cache.has(types, codegen)
    mended.compile(types)
    assert sum(mended.stats.cache_hits.values()) == 1
