"""Identity: consensus, log and blob store belong to one database, and none of them serves another.

A start removes files that no state names. Over the blob store of another database, or over its own
with a consensus that was lost, that would be everything. So a database has an id, drawn when it is
made. Consensus has it under `database`, the log's directory and the blob store in a blob of that
name, and whoever opens a database compares the three before anything else, also before it takes an
epoch: a server started in the wrong place does not disturb the one that runs in the right one.

    blob store  ──►  log  ──►  consensus       is the order of marking; a start that died between
                                               is continued by the next one, under the same id

A database that is made of a backup begins its own ids of collections behind any that the one which
was backed up has given out, or will: at `first_id`, the microseconds since 1970 of its making. No
database comes that far by counting, nor counts on as fast as microseconds pass.
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
    """Make sure that the three are parts of one database, which they become if they are new.

    `log` is the log's directory as a blob store. Raises ObjectNotInPrerequisiteState, or
    DataCorrupted where a part says nothing that could be an id.
    """
    head = await consensus.head(NAME)
    if head is None:
        # One that has taken epochs was made before databases had ids.
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
    """Return the database's id; "" if it has none yet."""
    head = await consensus.head(NAME)
    return "" if head is None else head.data.decode()


async def first_id(consensus: Consensus) -> int:
    """Return the number from which on ids are this database's own."""
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
