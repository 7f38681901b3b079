"""The next start removes the files of exports that a kill ended, and no other files."""

import os
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from foreshore.storage.lake import iceberg
from foreshore.storage.lake.places import CopyPlaces
from foreshore.storage.lake.reading import CsvForm, Format
from foreshore.storage.lake.tables import TABLES
from foreshore.storage.lake.unfinished import remove_unfinished
from foreshore.storage.lake.writing import Export
from foreshore.types import INT4
from tests.harness import object_store

ROWS = pa.RecordBatch.from_pydict({"x": pa.array([1, 2], pa.int32())})


def begun(places: CopyPlaces, url: str, scratch: Path, format: Format = "csv") -> Export:
    """Return an export with a file that is complete."""
    export = Export(
        places.find(url, is_pattern=False), format, CsvForm(), ["x"], [INT4], 1 << 20, scratch
    )
    writer = export.writer()
    writer.write(ROWS)
    writer.close()
    return export


def test_a_hidden_directory_goes_at_the_next_start(tmp_path: Path) -> None:
    out, data = tmp_path / "out", tmp_path / "data"
    out.mkdir()
    data.mkdir()
    places = CopyPlaces((str(out),), data)
    begun(places, f"{out}/done", tmp_path).finish()
    begun(places, f"{out}/failed", tmp_path).close()
    begun(places, f"{out}/lost", tmp_path)  # its process is killed
    begun(places, f"{out}/ice", tmp_path, "delta")
    (out / ".mine").mkdir()
    assert len([name for name in os.listdir(out) if name.startswith(".")]) == 3
    assert remove_unfinished(places) == 2
    assert sorted(os.listdir(out)) == [".mine", "done"]
    assert remove_unfinished(places) == 0
    moved = begun(places, f"{out}/moved", tmp_path)  # killed when it had been renamed
    moved._finish_directory(moved._written, b"{}")
    assert remove_unfinished(places) == 1
    assert sorted(os.listdir(out)) == [".mine", "done", "moved"]


def test_files_in_a_bucket_go_unless_they_are_complete(tmp_path: Path) -> None:
    with object_store() as store:
        places = CopyPlaces((store.url("allowed"),), tmp_path)
        url = f"s3://{store.bucket}/allowed"
        done = begun(places, f"{url}/done", tmp_path)
        done.finish()
        begun(places, f"{url}/lost", tmp_path)
        assert remove_unfinished(places) == 1
        assert places.find(f"{url}/lost").files() == []
        assert len(places.find(f"{url}/done").files()) == 1
        note = tmp_path / "exports" / done._id  # killed before the note was removed
        note.write_text(f"{url}/done")
        assert remove_unfinished(places) == 1
        assert len(places.find(f"{url}/done").files()) == 1


@pytest.mark.parametrize("format", ["delta", "iceberg"])
@pytest.mark.parametrize("moment", ["moved", "drafted", "named"])
def test_what_no_version_of_a_table_names_goes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    format: Literal["delta", "iceberg"],
    moment: str,
) -> None:
    """A kill of a new version: when its files are in the table, are listed, or it is there."""
    out, data = tmp_path / "out", tmp_path / "data"
    out.mkdir()
    data.mkdir()
    places, table = CopyPlaces((str(out),), data), out / "t"
    begun(places, f"{out}/t", tmp_path, format).finish()
    foreign = table / "part-00000-0123456789ab.parquet"
    foreign.write_bytes(b"of another")
    before = set(table.rglob("*"))
    export = begun(places, f"{out}/t", tmp_path, format)

    class Killed(BaseException):
        pass

    def killed(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        if moment == "named":  # before the note is removed
            patch.setattr(Export, "close", killed)
        elif format == "delta":
            patch.setattr(Path, "unlink", lambda *_, **__: None)
            patch.setattr(DeltaTable, "create_write_transaction", killed)
        else:
            patch.setattr(Path, "unlink", lambda *_, **__: None)
            place = "_publish" if moment == "drafted" else "_commit"
            patch.setattr(iceberg, place, killed)
        with pytest.raises(Killed):
            export.finish()
    if format == "delta" and moment == "drafted":
        (table / "_delta_log" / "_commit_1.json.tmp").write_text(f'"path": "part-{export._id}"')
    assert set(table.rglob("*")) > before
    assert remove_unfinished(places) == 1
    left = set(table.rglob("*"))
    rows = sum(batch.num_rows for batch in TABLES[format].rows_of(table, None, ["x"]))
    assert rows == ROWS.num_rows
    assert (left == before) == (moment != "named")
    assert foreign in left
