"""CREATE CONNECTION: options by kind, secrets by name and never shown, dependencies, rights."""

import pytest

from foreshore.adapter.sources import connections
from foreshore.connection_spec import RULES
from tests.adapter.harness import TestEnvironment

KEY = bytes(range(32))
POSTGRES = "TO POSTGRES (HOST 'db', PORT 5432, DATABASE 'd', USER 'u', PASSWORD = SECRET pw)"


@pytest.fixture
def opened(own_env: TestEnvironment) -> TestEnvironment:
    own_env.environment.unlock_secrets(KEY)
    return own_env


async def test_a_connection_is_kept_shown_and_changed(opened: TestEnvironment) -> None:
    env = opened
    await env.ran("a", "CREATE SECRET pw AS 'hidden'", f"CREATE CONNECTION c {POSTGRES}")
    await env.ran("a", "ALTER SECRET pw RENAME TO pw2", "ALTER CONNECTION c RENAME TO d")
    await env.ran("a", "ALTER CONNECTION d SET (PORT = 5433, SSL MODE 'require')")
    await env.ran("a", "ALTER CONNECTION d DROP (PORT)")
    await env.reopen()
    shown = await env.query("a", "SHOW CREATE CONNECTION d")
    assert shown.splitlines()[0] == (
        "d|CREATE CONNECTION foreshore.public.d TO POSTGRES (HOST = 'db', DATABASE = 'd', "
        "USER = 'u', PASSWORD = SECRET foreshore.public.pw2, SSL MODE = 'require')"
    )
    assert await env.query("a", "SHOW CONNECTIONS") == "d|postgres\nSELECT 1"
    in_use = await env.query("a", "DROP SECRET pw2")
    assert "2BP01" in in_use
    assert "connection d depends on secret pw2" in in_use
    await env.ran("a", "DROP SECRET pw2 CASCADE")
    assert await env.query("a", "SHOW CONNECTIONS") == "SELECT 0"


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        (
            "CREATE CONNECTION c TO POSTGRES (HOST 'x')",
            "22023: connections to POSTGRES need the op",
        ),
        ("CREATE CONNECTION c TO KAFKA (HOST 'x')", "22023: connections to KAFKA have no option"),
        (
            "CREATE CONNECTION c TO MYSQL (HOST 'x')",
            "0A000: connections to MYSQL are not supported",
        ),
        (
            "CREATE CONNECTION c TO AWS (SECRET ACCESS KEY 'x')",
            '22023: the option "secret access k',
        ),
        (
            "CREATE CONNECTION c TO CONFLUENT SCHEMA REGISTRY (URL 'https://u:p@x/a')",
            '22023: the option "url" must not have a password',
        ),
        ("CREATE CONNECTION c TO AWS (REGION SECRET pw)", '22023: the option "region" cannot be a'),
        ("CREATE CONNECTION c TO AWS (SESSION TOKEN SECRET no)", '42704: secret "no" does not'),
        ("CREATE CONNECTION c TO AWS (REGION 'x', REGION 'y')", '42601: option "region" is given'),
        ("CREATE CONNECTION a TO AWS (REGION 'x')", '42710: connection "a" already exists'),
        (
            "CREATE CONNECTION c TO KAFKA (BROKERS ('a:1' USING AWS PRIVATELINK p (PORT 2)))",
            "0A000: AWS PRIVATELINK is not supported",
        ),
        (
            "CREATE CONNECTION c TO POSTGRES (HOST 'x', AWS PRIVATELINK p)",
            "0A000: AWS PRIVATELINK is not supported",
        ),
        (
            "CREATE CONNECTION c TO AWS PRIVATELINK (AVAILABILITY ZONES ('a', 'b'))",
            "0A000: AWS PRIVATELINK is not supported",
        ),
        (
            "CREATE CONNECTION c TO KAFKA (BROKER 'a:1', AWS CONNECTION = a)",
            "0A000: AWS CONNECTION is not supported",
        ),
        (
            "CREATE CONNECTION c TO KAFKA (BROKER 'a', PROGRESS TOPIC REPLICATION FACTOR 40000)",
            '22023: the option "progress topic replication factor" must be at most 32767',
        ),
        ("ALTER CONNECTION no SET (REGION = 'x')", '42704: connection "no" does not exist'),
    ],
)
async def test_wrong_options_are_refused(env: TestEnvironment, statement: str, error: str) -> None:
    env.environment.unlock_secrets(KEY)
    if "a|aws" not in await env.query("a", "SHOW CONNECTIONS"):
        await env.ran("a", "CREATE SECRET pw AS 'x'", "CREATE CONNECTION a TO AWS (REGION 'x')")
    assert f"ERROR {error}" in await env.query("a", statement)


async def test_a_value_with_underscores_is_the_one_with_hyphens(opened: TestEnvironment) -> None:
    env = opened
    await env.ran("a", "CREATE SECRET pw AS 'hidden'", f"CREATE CONNECTION c {POSTGRES}")
    await env.ran("a", "ALTER CONNECTION c SET (SSL MODE 'VERIFY_FULL')")
    assert "SSL MODE = 'verify-full'" in await env.query("a", "SHOW CREATE CONNECTION c")
    await env.ran("a", "CREATE CONNECTION k TO KAFKA (BROKER 'b', SECURITY PROTOCOL 'SASL_SSL')")
    assert "'sasl_ssl'" in await env.query("a", "SHOW CREATE CONNECTION k")


async def test_a_connection_needs_usage_of_its_secrets(opened: TestEnvironment) -> None:
    env = opened
    await env.ran("a", "CREATE SECRET pw AS 'hidden'", "CREATE ROLE r")
    await env.ran("a", "GRANT CREATE ON SCHEMA public TO r", "SET ROLE r")
    assert "ERROR 42501" in await env.query("a", f"CREATE CONNECTION c {POSTGRES}")
    await env.ran("a", "RESET ROLE", "GRANT USAGE ON SECRET pw TO r", "SET ROLE r")
    await env.ran("a", f"CREATE CONNECTION c {POSTGRES}", "RESET ROLE", "CREATE ROLE s")
    await env.ran("a", "GRANT USAGE ON CONNECTION c TO s", "SET ROLE s")
    assert "ERROR 42501" in await env.query("a", "ALTER CONNECTION c DROP (PORT)")
    assert "ERROR 42501" in await env.query("a", "DROP CONNECTION c")


async def test_options_that_tokens_need_are_asked_for(opened: TestEnvironment) -> None:
    found = await opened.query(
        "a", "CREATE CONNECTION k TO KAFKA (BROKER 'b:1', SASL MECHANISMS 'oauthbearer')"
    )
    assert 'ERROR 22023: connections to KAFKA need the option "oauth2 server url"' in found


async def test_brokers_may_be_a_list_and_behind_a_tunnel(opened: TestEnvironment) -> None:
    await opened.ran(
        "a",
        "CREATE CONNECTION b TO SSH TUNNEL (HOST 'h', USER 'u')",
        "CREATE CONNECTION c TO SSH TUNNEL (HOST 'h', USER 'u')",
        "CREATE CONNECTION k TO KAFKA (BROKERS ('x:1', 'y:2'))",
        "CREATE CONNECTION l TO KAFKA (BROKER 'x:1' USING SSH TUNNEL b)",
        "CREATE CONNECTION m TO KAFKA (BROKERS ('x:1' USING SSH TUNNEL b, 'y:2' USING SSH TUNNEL b))",
    )
    assert "(BROKER = 'x:1, y:2')" in await opened.query("a", "SHOW CREATE CONNECTION k")
    through = "SSH TUNNEL = foreshore.public.b"
    assert f"(BROKER = 'x:1', {through})" in await opened.query("a", "SHOW CREATE CONNECTION l")
    assert f"'x:1, y:2', {through})" in await opened.query("a", "SHOW CREATE CONNECTION m")
    two = "BROKERS ('x:1' USING SSH TUNNEL b, 'y:2' USING SSH TUNNEL c)"
    assert "0A000: brokers behind diff" in await opened.query(
        "a", f"CREATE CONNECTION n TO KAFKA ({two})"
    )
    twice = "BROKER 'x:1' USING SSH TUNNEL b, SSH TUNNEL c"
    assert '42601: option "ssh tunnel"' in await opened.query(
        "a", f"CREATE CONNECTION n TO KAFKA ({twice})"
    )


NO_URLS = (
    "file:///etc/passwd",
    "unix:///tmp/x",
    "ftp://host/",
    "//host/",
    "host",
    "host:80",
    "http:",
    "https://",
    "http:///path",
    "http://host:port/",
    "http://host:99999/",
    "http://[::1/",
    "http://a b/",
    "http://host/\r\nX: y",
    "",
)
URL_OPTIONS = [
    (kind, name) for kind, rules in RULES.items() for name, rule in rules.items() if rule.is_url
]


def test_each_option_that_names_a_url_is_checked() -> None:
    named = {
        (kind, name)
        for kind, rules in RULES.items()
        for name in rules
        if name.endswith("url") or name == "endpoint"
    }
    assert named == set(URL_OPTIONS)


@pytest.mark.parametrize(("kind", "option"), URL_OPTIONS, ids=lambda each: each.replace(" ", "-"))
async def test_option_that_is_no_url_is_refused_when_it_is_given(
    opened: TestEnvironment, monkeypatch: pytest.MonkeyPatch, kind: str, option: str
) -> None:
    env = opened
    await env.ran("a", "CREATE SECRET s AS 'x'")
    given = {
        name: "SECRET s" if rule.secret == "must" else f"'{(rule.choices or ('v',))[0]}'"
        for name, rule in RULES[kind].items()  # type: ignore[index]
        if rule.required
    }

    def create(name: str, url: str) -> str:
        options = {**given, option: "'" + url + "'"}
        written = ", ".join(f"{key.upper()} = {value}" for key, value in options.items())
        return f"CREATE CONNECTION {name} TO {kind.upper()} ({written})"

    for number, url in enumerate(
        ("http://h", "HTTPS://h:8443/a?b=c", "http://[::1]:1/", "http://h/%20")
    ):
        await env.ran("a", create(f"right{number}", url))
    for url in NO_URLS:
        for statement in (
            create("wrong", url),
            f"ALTER CONNECTION right0 SET ({option.upper()} = '{url}')",
        ):
            assert (await env.query("a", statement)).startswith("ERROR 22023"), statement
    with monkeypatch.context() as patched:  # of a version that did not check
        patched.setattr(connections, "check_url", lambda name, url: None)
        await env.ran("a", create("kept", "file:///etc/passwd"))
    answer = await env.query("a", "VALIDATE CONNECTION kept")
    assert answer.startswith(f'ERROR 22023: invalid value for option "{option}"')
