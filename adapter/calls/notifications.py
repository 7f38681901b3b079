"""LISTEN, UNLISTEN and NOTIFY, which take effect when their transaction commits."""

from collections.abc import Sequence

from foreshore import notifications
from foreshore.adapter.statement.context import StatementContext
from foreshore.types import Datum


def value(context: StatementContext, args: Sequence[Datum]) -> str:
    """Run pg_notify; a NULL is an empty text."""
    channel, payload = ("" if each is None else str(each) for each in args)
    context.transaction.add_signal(notifications.notify(context.database, channel, payload))
    return ""
