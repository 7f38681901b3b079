"""Notes of exports that are not complete, by which the next start removes what a kill has left.

A note is a file in the data directory, `exports/<id>`: the hidden directory of the export, or the
URL in a bucket. It is there before the first file is, and goes when the export has ended, however.
A new version of a table moves its files into the table's directory before its log names them; the
id in their names tells them from the files of others.
"""

import logging
import shutil
from pathlib import Path
from urllib.parse import urlsplit

from foreshore.errors import DatabaseError
from foreshore.storage.blob import sync_directory, sync_file
from foreshore.storage.lake.places import CopyPlaces
from foreshore.storage.lake.tables import TABLES, format_of

logger = logging.getLogger(__name__)
FOLDER = "exports"


class Note:
    """The note of one export with an `id`, which is part of all of its files' names."""

    def __init__(self, data_dir: Path | None, id: str, place: str) -> None:
        """Write it; without a data directory there is none."""
        self._path = None if data_dir is None else data_dir / FOLDER / id
        if self._path is not None:
            self._path.parent.mkdir(exist_ok=True)
            self._path.write_text(place)
            sync_file(self._path)
            sync_directory(self._path.parent)

    def remove(self) -> None:
        """Remove it, once nothing is left of the export but what is complete."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def remove_unfinished(places: CopyPlaces) -> int:
    """Remove what exports have left that a kill has ended; return how many there were."""
    assert places.data_dir is not None
    folder = places.data_dir / FOLDER
    notes = sorted(folder.iterdir()) if folder.is_dir() else []
    for note in notes:
        place = note.read_text()
        try:
            _remove(places, place, note.name)
        except (OSError, DatabaseError) as error:
            logger.warning("an unfinished export stays: %s", error, extra={"place": place})
            continue
        logger.info("an unfinished export was removed", extra={"place": place})
        note.unlink()
    return len(notes)


def _remove(places: CopyPlaces, place: str, id: str) -> None:
    if urlsplit(place).scheme == "s3":
        location = places.find(place, is_pattern=False)
        inside = f"{location.key}/" if location.key else ""
        if location.blob.get(f"{inside}_SUCCESS") is None:
            for key in [key for key, _ in location.blob.list(inside) if id in key]:
                location.blob.delete(key)
        return
    hidden = Path(place)
    if not hidden.name.endswith(f".{id}"):
        return
    if hidden.is_dir():
        shutil.rmtree(hidden)
    target = hidden.with_name(hidden.name.removeprefix(".").removesuffix(f".{id}"))
    format = None if target.is_symlink() else format_of(target)
    if format is not None:
        TABLES[format].remove_unnamed(target, id)
