"""Why a connection was not made is told once, however many addresses were tried."""

import pytest

from foreshore.storage.external.reasons import reasons

SERVER = 'connection to server at "localhost" ({}), port 5432 failed: '
RUNNING = "\n\tIs the server running on that host and accepting TCP/IP connections?\n"
ALL = "Multiple connection attempts failed. All failures were:\n"
PLACE = "- host: 'localhost', port: '5432', hostaddr: '{}': connection failed: "


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "".join(f"{SERVER.format(each)}Connection refused{RUNNING}" for each in ("::1", "::2")),
            "Connection refused",
        ),
        (
            f"connection failed: {SERVER.format('::1')}Network is unreachable{RUNNING}{ALL}"
            f"{PLACE.format('::1')}{SERVER.format('::1')}Network is unreachable{RUNNING}"
            f"{PLACE.format('1.2.3.4')}{SERVER.format('1.2.3.4')}Connection refused{RUNNING}",
            "Network is unreachable; Connection refused",
        ),
        ("[Errno 111] Connect call failed ('127.0.0.1', 5432)", "Connection refused"),
        (
            "Multiple exceptions: [Errno 111] Connect call failed ('::1', 5432, 0, 0),"
            " [Errno 101] Connect call failed ('127.0.0.1', 5432)",
            "Connection refused; Network is unreachable",
        ),
        ("[Errno -2] Name or service not known", "Name or service not known"),
        (
            f'{SERVER.format("::1")}FATAL:  password authentication failed for user "u"',
            'password authentication failed for user "u"',
        ),
        (
            "consuming input failed: server closed the connection unexpectedly\n\tThis probably means"
            " the server terminated abnormally\n\tbefore or while processing the request.\n",
            "server closed the connection unexpectedly",
        ),
        ("something else", "something else"),
        ("", ""),
    ],
)
def test_reason_is_told_once_without_addresses(said: str, told: str) -> None:
    assert reasons(said) == told
