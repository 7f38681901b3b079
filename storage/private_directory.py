"""The data directory and local stores before a start: they are there, and nobody else's to read."""

from pathlib import Path

from foreshore.processes import file_modes
from foreshore.storage.directory import check_restored, local_places


def prepare(
    data_dir: Path, stores: tuple[str | None, str | None], key_name: str, *, group: bool
) -> None:
    """Make the data directory if it is not there, and take all away from other users.

    `stores` are the URIs of blob and consensus outside of it; `key_name` is the file of a key that
    may be in it before its first start. Raises ObjectNotInPrerequisiteState if it is another
    user's, or half restored.
    """
    data_dir.mkdir(parents=True, exist_ok=True)
    if (data_dir / "log").is_dir():
        file_modes.secure(data_dir, group=group)
    else:
        file_modes.secure_new(data_dir, key_name, group=group)
    for store in local_places(*stores):
        file_modes.secure_own(store, group=group)
    check_restored(data_dir)
