"""Requests to a URL as a target."""

import msgspec


class WebhookHeader(msgspec.Struct, frozen=True):
    """A header of each request, with a value or the id of a secret that is it."""

    name: str
    value: str = ""
    secret: str = ""


class WebhookTarget(msgspec.Struct, frozen=True, tag="webhook"):
    """A URL that gets the changes as JSON.

    With `body` or `removed_body` each change is a request of its own, whose body is a column's
    value. Without them a request has many changes.
    """

    url: str
    secret: str = ""  # the id of the key with which bodies are signed; empty: they are not
    headers: tuple[WebhookHeader, ...] = ()
    timeout_ms: int = 10_000  # of a request
    most_rows: int = 1000  # of a request
    body: str = ""  # the column that is the body of a request for each row that is added
    removed_body: str = ""  # the same for each row that is removed
    private: bool = False  # whether the URL may be plain HTTP, and of a private address


SECRETS = "webhook"  # the name under which an exporter gets the values of secrets by their ids


def secrets_of_webhook(target: WebhookTarget) -> tuple[str, ...]:
    """Return the ids of the secrets that requests need."""
    found = [target.secret, *(each.secret for each in target.headers)]
    return tuple(dict.fromkeys(filter(None, found)))
