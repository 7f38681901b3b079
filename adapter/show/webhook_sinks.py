"""WEBHOOK in SHOW CREATE SINK."""

from foreshore.adapter.show.connections import full_name
from foreshore.catalog.item import Secret
from foreshore.catalog.state import State
from foreshore.sinks.webhook import WebhookTarget
from foreshore.sql.parse.keywords import quote_string
from foreshore.sql.rewrite.full_names import dotted


def shown_webhook(state: State, target: WebhookTarget) -> str:
    """Return the target as CREATE SINK has it."""
    options = [f"URL = {quote_string(target.url)}"]
    if target.secret:
        options.append(_secret(state, target.secret))
    for each in target.headers:
        value = _secret(state, each.secret) if each.secret else quote_string(each.value)
        options.append(f"HEADER {quote_string(each.name)} = {value}")
    options.append(f"TIMEOUT = '{target.timeout_ms} ms'")
    for name, column in (("BODY", target.body), ("REMOVED BODY", target.removed_body)):
        if column:
            options.append(f"{name} = {quote_string(column)}")
    if not (target.body or target.removed_body):
        options.append(f"MAX ROWS = {target.most_rows}")
    if target.private:
        options.append("PRIVATE = true")
    return f"WEBHOOK ({', '.join(options)})"


def _secret(state: State, id: str) -> str:
    secret = state.objects[id]
    assert isinstance(secret, Secret), secret
    return f"SECRET {dotted(full_name(state, secret))}"
