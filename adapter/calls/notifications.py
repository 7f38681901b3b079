"""LISTEN, UNLISTEN and NOTIFY, which take effect when their transaction commits."""

from collections.abc import Sequence

from foreshore import notifications
from foreshore.adapter.transaction.transaction import Transaction
from foreshore.types import Datum


def value(transaction: Transaction, database: str, args: Sequence[Datum]) -> str:
    """Run pg_notify; a NULL is an empty text."""
    channel, payload = ("" if each is None else str(each) for each in args)
    transaction.add_signal(notifications.notify(database, channel, payload))
    return ""
