"""Rows of mz_internal.mz_recent_activity_log: the statements that have ended lately.

To hide secrets and constants takes up to a millisecond for a statement, so the rows are made on
a thread (`relations.builtin_tables`).
"""

from collections.abc import Iterator

from foreshore.adapter.statement.context import StatementContext
from foreshore.catalog.builtin.relation import Row
from foreshore.catalog.rights import may_act_as, owns
from foreshore.redaction import redacted, redacted_message, without_literals


def recent_statements(context: StatementContext) -> Iterator[Row]:
    """Yield the statements of roles whose rights the role has; all to pg_read_all_stats."""
    state, role = context.planner.state, context.role
    sees_all = may_act_as(state, role, "pg_read_all_stats")
    for each in list(context.process.statement_history.entries):  # others are added meanwhile
        who = each.who
        if not (sees_all or (who.role in state.objects and owns(state, role, who.role))):
            continue
        sql = redacted(each.text, each.sqlstate)
        message = each.message
        if message is not None:
            message = redacted_message(message, each.text, each.sqlstate)
        rows = each.result if isinstance(each.result, int) else None
        tag = each.result if isinstance(each.result, str) else None
        yield {
            "execution_id": each.number,
            "sample_rate": each.rate,
            "application_name": who.application,
            "database_name": who.database,
            "authenticated_user": who.name,
            "connection_id": who.pid,
            "began_at": each.began,
            "finished_at": each.ended,
            "finished_status": each.status,
            "sqlstate": each.sqlstate,
            "error_message": message,
            "rows_returned": rows,
            "command_tag": tag,
            "statement_type": next(iter(sql.lower().split(None, 1)), "").rstrip(";"),
            "sql": sql,
            "redacted_sql": without_literals(sql),
        }
