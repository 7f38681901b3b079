"""LISTEN, UNLISTEN and NOTIFY, which take effect when their transaction commits."""

from foreshore import notifications
from foreshore.adapter.client import Completed
from foreshore.adapter.control.conversation import Conversation
from foreshore.adapter.statement.context import StatementContext
from foreshore.notifications import Channel
from foreshore.session_limits import check_room
from foreshore.sql.plan import Listen, Notify


def listen(session: Conversation, context: StatementContext, plan: Listen) -> Completed:
    """Run LISTEN or UNLISTEN."""
    channel = None if plan.channel is None else Channel(session.database, plan.channel)
    transaction = session.transactions.begin()
    if channel is not None and plan.kind == "listen":
        _check_room(session, channel)
    elif not session.news.inbox.channels and not len(transaction.staged.signals):
        return Completed(plan.kind.upper())  # nothing ends
    transaction.add_signal(notifications.Listen(plan.kind, channel))
    return Completed(plan.kind.upper())


def _check_room(session: Conversation, channel: Channel) -> None:
    """Raise SessionLimitExceeded if a session may not listen on one more channel.

    Those count on which it will listen when its transaction commits; UNLISTEN counts afterwards.
    """
    staged = session.transactions.begin().staged.signals
    has, most = session.news.inbox.channels, int(session.variables["max_listens"])
    if 0 < most <= len(has) + len(staged):
        channels = {each.channel for each in staged if isinstance(each, notifications.Listen)}
        if channel not in (channels := channels | has.keys()):
            check_room(session.variables, "max_listens", len(channels), "channels")


def notify(session: Conversation, context: StatementContext, plan: Notify) -> Completed:
    """Run NOTIFY."""
    signal = notifications.notify(session.database, plan.channel, plan.payload)
    session.transactions.begin().add_signal(signal)
    return Completed("NOTIFY")
