"""Errors reported to clients, each with its SQLSTATE, in families by who can act.

`UserError`: change the statement. `Conflict`: run it again. `Unavailable`: wait. Messages are
PostgreSQL's: lower case, no full stop; `detail` and `hint` are sentences. Errors are raised where
they are known and become messages in one place, `server/connection.py`.

An error in the data is stored as data: `data_error` encodes it as text, of which `DataError.parse`
makes an exception when it is read.
"""

import errno
from collections.abc import Mapping
from typing import Literal as OneOf
from typing import Self

Subject = OneOf["schema", "table", "column", "datatype", "constraint"]


class DatabaseError(Exception):
    """An error for the client, with PostgreSQL's error fields."""

    sqlstate = "XX000"
    collection: str | None = None  # the id of the view or index whose data has the error

    def __init__(
        self,
        message: str,
        *,
        sqlstate: str | None = None,
        detail: str | None = None,
        hint: str | None = None,
        position: int | None = None,
        where: str | None = None,
        about: Mapping[Subject, str] | None = None,
        routine: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.sqlstate = sqlstate or type(self).sqlstate
        self.detail = detail
        self.hint = hint
        self.position = position  # of the offending token in the text, in characters from 1
        self.where = where  # the CONTEXT of the error
        self.about = about or {}  # the names of the objects concerned
        self.routine = routine  # PostgreSQL's routine name, for clients that use it


class UserError(DatabaseError):
    """The statement has to change."""


class Conflict(DatabaseError):
    """Another transaction was first; the same statement may succeed when run again."""

    sqlstate = "40001"


class ConcurrentUpdate(Conflict):
    """A row to be changed, or one that was read, has changed since the transaction's time."""

    def __init__(self) -> None:
        super().__init__("could not serialize access due to concurrent update")


class TableAltered(Conflict):
    """A table was replaced by another collection since the statement was planned."""

    def __init__(self) -> None:
        super().__init__("could not serialize access: a table was altered meanwhile")


class NotYetKnown(DatabaseError):
    """The result is not known yet and must not be waited for; an immediate retry is useless."""

    sqlstate = "40001"


class RelationRedefined(TableAltered):
    """A relation got its name or its definition after the transaction's time."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.message = "could not serialize access: a relation was altered or replaced meanwhile"
        self.detail = f'"{name}" is something else now.'


class Unavailable(DatabaseError):
    """The statement is valid but cannot be carried out now."""

    sqlstate = "57P03"


class FeatureNotSupported(UserError):
    sqlstate = "0A000"


class CardinalityViolation(UserError):
    sqlstate = "21000"


class DataError(UserError):
    """A value that is invalid for an operation, class 22."""

    sqlstate = "22000"

    @classmethod
    def parse(cls, text: str, collection: str | None = None) -> Self:
        """Return the error that `data_error` encoded as `text`, in the data of a `collection`."""
        error = cls(text[6:], sqlstate=text[:5])
        error.collection = collection
        return error


class StringDataRightTruncation(DataError):
    sqlstate = "22001"


class NumericValueOutOfRange(DataError):
    sqlstate = "22003"


class InvalidDatetimeFormat(DataError):
    sqlstate = "22007"


class DatetimeFieldOverflow(DataError):
    sqlstate = "22008"


class DivisionByZero(DataError):
    sqlstate = "22012"


class SequenceLimitExceeded(UserError):
    """A sequence is exhausted."""

    sqlstate = "2200H"


class GeneratedAlways(UserError):
    """A value was given for a GENERATED ALWAYS column."""

    sqlstate = "428C9"


class InvalidParameterValue(DataError):
    sqlstate = "22023"


class InvalidForPower(DataError):
    """An operand of a root or a power that is outside of its domain."""

    sqlstate = "2201F"


class InvalidForLogarithm(DataError):
    """An operand of a logarithm that is outside of its domain."""

    sqlstate = "2201E"


class InvalidTextRepresentation(DataError):
    sqlstate = "22P02"


class BadCopyFileFormat(DataError):
    sqlstate = "22P04"


class IntegrityConstraintViolation(UserError):
    sqlstate = "23000"


class NotNullViolation(IntegrityConstraintViolation):
    sqlstate = "23502"


class ForeignKeyViolation(IntegrityConstraintViolation):
    sqlstate = "23503"


class CheckViolation(IntegrityConstraintViolation):
    sqlstate = "23514"


class UniqueViolation(IntegrityConstraintViolation):
    sqlstate = "23505"


class ActiveSqlTransaction(UserError):
    sqlstate = "25001"


class ReadOnlySqlTransaction(UserError):
    sqlstate = "25006"


class InvalidCursorDefinition(UserError):
    sqlstate = "42P11"


class NoActiveSqlTransaction(UserError):
    sqlstate = "25P01"


class InFailedSqlTransaction(UserError):
    sqlstate = "25P02"

    def __init__(self) -> None:
        super().__init__(
            "current transaction is aborted, commands ignored until end of transaction block"
        )


class InvalidSqlStatementName(UserError):
    sqlstate = "26000"


class InvalidAuthorization(UserError):
    sqlstate = "28000"


class InvalidPassword(UserError):
    sqlstate = "28P01"


class DependentObjectsStillExist(UserError):
    sqlstate = "2BP01"


class UntranslatableCharacter(UserError):
    sqlstate = "22P05"


class InvalidCursorState(UserError):
    sqlstate = "24000"


class InvalidCursorName(UserError):
    sqlstate = "34000"


class InvalidGrant(UserError):
    sqlstate = "0LP01"


class InvalidSavepoint(UserError):
    sqlstate = "3B001"


class InvalidCatalogName(UserError):
    sqlstate = "3D000"


class InvalidSchemaName(UserError):
    sqlstate = "3F000"


class SyntaxError_(UserError):
    """A syntax error; the underscore keeps Python's own exception visible."""

    sqlstate = "42601"


class AmbiguousColumn(UserError):
    sqlstate = "42702"


class UndefinedColumn(UserError):
    sqlstate = "42703"


class UndefinedObject(UserError):
    sqlstate = "42704"


class UndefinedFile(UserError):
    sqlstate = "58P01"


class DuplicateFile(UserError):
    sqlstate = "58P02"


class DuplicateAlias(UserError):
    sqlstate = "42712"


class DuplicateColumn(UserError):
    sqlstate = "42701"


class DuplicateObject(UserError):
    sqlstate = "42710"


class DuplicateFunction(UserError):
    sqlstate = "42723"


class InvalidFunctionDefinition(UserError):
    sqlstate = "42P13"


class DuplicateTable(UserError):
    sqlstate = "42P07"


class DuplicateDatabase(UserError):
    sqlstate = "42P04"


class DuplicateSchema(UserError):
    sqlstate = "42P06"


class DuplicateCursor(UserError):
    sqlstate = "42P03"


class DuplicatePreparedStatement(UserError):
    sqlstate = "42P05"


class UndefinedTable(UserError):
    sqlstate = "42P01"


class TableDropped(UndefinedTable):
    """A table was dropped since the statement was planned."""

    def __init__(self, name: str) -> None:
        super().__init__(f'relation "{name}" does not exist')


class UndefinedParameter(UserError):
    sqlstate = "42P02"


class UndefinedFunction(UserError):
    sqlstate = "42883"


class AmbiguousFunction(UserError):
    sqlstate = "42725"


class AmbiguousParameter(UserError):
    sqlstate = "42P08"


class IndeterminateDatatype(UserError):
    sqlstate = "42P18"


class DatatypeMismatch(UserError):
    sqlstate = "42804"


class CannotCoerce(UserError):
    sqlstate = "42846"


class GroupingError(UserError):
    sqlstate = "42803"


class InvalidColumnReference(UserError):
    sqlstate = "42P10"


class WindowingError(UserError):
    sqlstate = "42P20"


class InvalidColumnDefinition(UserError):
    sqlstate = "42611"


class InvalidForeignKey(UserError):
    sqlstate = "42830"


class InvalidTableDefinition(UserError):
    sqlstate = "42P16"


class InvalidObjectDefinition(UserError):
    sqlstate = "42P17"


class WrongObjectType(UserError):
    sqlstate = "42809"


class InvalidName(UserError):
    sqlstate = "42602"


class InsufficientPrivilege(UserError):
    sqlstate = "42501"


class StatementTooComplex(UserError):
    sqlstate = "54001"


class TooManyColumns(UserError):
    sqlstate = "54011"


class TooManyArguments(UserError):
    sqlstate = "54023"


class ObjectNotInPrerequisiteState(UserError):
    sqlstate = "55000"


class ObjectInUse(UserError):
    sqlstate = "55006"


class CantChangeRuntimeParam(UserError):
    sqlstate = "55P02"


class ConfigurationFileError(UserError):
    """A file that the server is configured by cannot be used."""

    sqlstate = "F0000"


class LockNotAvailable(Unavailable):
    sqlstate = "55P03"

    def __init__(self, message: str = "canceling statement due to lock timeout") -> None:
        super().__init__(message)


class ProtocolViolation(DatabaseError):
    """An invalid message, or one that is not allowed in this state."""

    sqlstate = "08P01"


class TooManyConnections(Unavailable):
    sqlstate = "53300"


class TooManyNotifications(Unavailable):
    sqlstate = "54000"

    def __init__(self) -> None:
        super().__init__("too many notifications in the NOTIFY queue")


class OutOfDisk(Unavailable):
    """The disk is full, and nothing was written."""

    sqlstate = "53100"

    def __init__(self, what: str) -> None:
        super().__init__(
            f"could not write {what}: No space left on device", hint="Check free disk space."
        )


class OutOfMemory(Unavailable):
    sqlstate = "53200"

    def __init__(self, detail: str, hint: str | None = None) -> None:
        super().__init__("out of memory", detail=detail, hint=hint)


class QueryCanceled(Unavailable):
    sqlstate = "57014"

    def __init__(self, message: str = "canceling statement due to user request") -> None:
        super().__init__(message)


class AdminShutdown(Unavailable):
    sqlstate = "57P01"

    def __init__(
        self, message: str = "terminating connection due to administrator command"
    ) -> None:
        super().__init__(message)


class IdleSessionTimeout(Unavailable):
    sqlstate = "57P05"

    def __init__(self) -> None:
        super().__init__("terminating connection due to idle-session timeout")


class IdleInTransactionSessionTimeout(Unavailable):
    sqlstate = "25P03"

    def __init__(self) -> None:
        super().__init__("terminating connection due to idle-in-transaction timeout")


class TransactionTimeout(Unavailable):
    sqlstate = "25P04"

    def __init__(self) -> None:
        super().__init__("terminating connection due to transaction timeout")


class Fenced(Unavailable):
    """Another environment has taken over this data directory."""

    sqlstate = "57P01"


class ConnectionFailure(UserError):
    """An external system cannot be reached."""

    sqlstate = "08006"


class LockFileExists(Unavailable):
    """Another running server uses this data directory."""

    sqlstate = "F0001"


class DataCorrupted(DatabaseError):
    """Stored bytes are not as written; names the file and, if known, the offset in bytes."""

    sqlstate = "XX001"

    def __init__(self, message: str, *, offset: int | None = None) -> None:
        super().__init__(message)
        self.offset = offset


class CollectionCorrupted(DataCorrupted):
    """The collection `name` cannot be read or written; `what` gives the reason and the file."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"{name} is damaged: {what}")
        self.hint = (
            "Put back the file as it was and start the server again, or drop what is damaged."
        )


class InternalError(DatabaseError):
    """A bug of Foreshore, detected before it could give a wrong answer."""


def is_disk_full(error: OSError) -> bool:
    """Whether the operating system reported a full disk."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def disk_fault(error: BaseException) -> Unavailable | None:
    """Return the client's error for a disk fault, None for any other error."""
    if not isinstance(error, OSError):
        return None
    if is_disk_full(error):
        return OutOfDisk("a file")
    if error.errno == errno.EIO:
        return Unavailable("could not read or write a file: Input/output error", sqlstate="58030")
    return None


def not_converged(rounds: int) -> DataError:
    """Return the error of a recursion that has reached its limit."""
    text = data_error("54000", f"recursion did not converge within {rounds} iterations")
    return DataError.parse(text)


def append_only_error(table: str) -> ObjectNotInPrerequisiteState:
    """Return the error of a change that would take rows away from an append-only table."""
    return ObjectNotInPrerequisiteState(
        f'cannot update or delete rows of append-only table "{table}"',
        hint="It was created WITH (APPEND ONLY) or a watermark: no row leaves, views keep less.",
    )


def data_error(sqlstate: str, message: str) -> str:
    """Return the encoding of an error in an error collection."""
    assert len(sqlstate) == 5, sqlstate
    return f"{sqlstate} {message}"
