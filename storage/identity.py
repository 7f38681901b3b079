"""Identity: ties consensus, the log and the blob store to one database.

A start removes files that no state names. With the blob store of another database, or with a lost
consensus, that would remove everything. So a database gets an id when it is created. Consensus
stores it under `database`; the log's directory and the blob store have it in a blob of that name.
Opening a database compares the three before anything else, also before taking an epoch, so a server
started in the wrong place does not disturb the running one.

    blob store  ──►  log  ──►  consensus       is the order of marking; if a start dies in between,
                                               the next one continues with the same id

A database restored from a backup numbers its collections from `first_id`, the microseconds from
1970 to its creation. The original database never reaches such a number by counting, so its ids and
those of other copies are all different.
"""

import secrets

from foreshore import blocking
from foreshore.errors import DataCorrupted, ObjectNotInPrerequisiteState
from foreshore.storage.blob import Blob
from foreshore.storage.consensus import Committed, Consensus
from foreshore.storage.epoch import EPOCH_KEY

NAME = "database"
FIRST_ID = "first_id"
ID_BYTES = 16


async def identify(consensus: Consensus, blob: Blob, log: Blob) -> None:
    """Check that the three services belong to one database, marking them if they are new.

    `log` is the log's directory as a blob store. Raises ObjectNotInPrerequisiteState if they do
    not, or DataCorrupted if an id is unreadable.
    """
    head = await consensus.head(NAME)
    if head is None:
        # A database that has taken epochs was created before databases had ids.
        made = await consensus.head(EPOCH_KEY) is not None
        id = await blocking.run(None, _mark, blob, log, made)
        match await consensus.compare_and_set(NAME, None, id):
            case Committed():
                return
        head = await consensus.head(NAME)
        assert head is not None
    for what, part in (("the blob store", blob), ("the log", log)):
        mark = await blocking.run(None, part.get, NAME)
        if mark not in (None, head.data) and not _is_id(mark):
            raise DataCorrupted(
                f'"{NAME}" of {what} is damaged: it says {_shown(mark)},'
                f" and consensus has the database {_shown(head.data)}"
            )
        if mark != head.data:
            holds = "is not there" if mark is None else "is of another database"
            raise ObjectNotInPrerequisiteState(
                f"{what} that consensus knows of {holds}",
                detail=f"Consensus has the database {_shown(head.data)},"
                f' {what} {"none" if mark is None else _shown(mark)}, in its file "{NAME}".',
                hint="Give the --data-dir, --blob and --consensus that the database was made with.",
            )


async def identity(consensus: Consensus) -> str:
    """Return the database's id, "" if it has none yet."""
    head = await consensus.head(NAME)
    return "" if head is None else head.data.decode()


async def first_id(consensus: Consensus) -> int:
    """Return the number from which ids are unique to this database."""
    head = await consensus.head(FIRST_ID)
    return 1 if head is None else int(head.data)


def _is_id(mark: bytes) -> bool:
    return len(mark) == 2 * ID_BYTES and all(letter in b"0123456789abcdef" for letter in mark)


def _shown(mark: bytes) -> str:
    return mark.decode(errors="backslashreplace")


def _mark(blob: Blob, log: Blob, made: bool) -> bytes:
    """Mark the parts of a new database, and return its id."""
    if not made:
        for what, part, end in (("blob store", blob, ".parquet"), ("log", log, ".log")):
            if any(key.endswith(end) for key, _ in part.list("")):
                raise ObjectNotInPrerequisiteState(
                    f"the {what} holds a database that consensus does not know",
                    hint="Give the --consensus that the database was made with.",
                )
    id = log.get(NAME) or secrets.token_hex(ID_BYTES).encode()
    blob.create(NAME, id)
    id = blob.get(NAME) or id
    log.create(NAME, id)
    if log.get(NAME) != id:
        raise ObjectNotInPrerequisiteState("the log and the blob store are of different databases")
    return id
