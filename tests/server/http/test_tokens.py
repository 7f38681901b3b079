"""Access tokens: made by SQL, and sent by the scheme Bearer."""

import json
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect

from foreshore.clock import ManualClock
from tests.server.http.serving import Http, over_environment, policy_of

WHO = {"query": "SELECT current_user"}
PASSWORD = "host all all 127.0.0.1/32 scram-sha-256\n"


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def new_token(http: Http, rest: str, **options: Any) -> str:
    (result,) = await http.results({"query": f"CREATE TOKEN {rest}"}, **options)
    assert result["tag"] == "CREATE TOKEN", result
    ((token,),) = result["rows"]
    return str(token)


async def code_of(http: Http, headers: dict[str, str]) -> tuple[int, str]:
    answer = await http.post(WHO, headers=headers)
    return answer.status_code, answer.json().get("error", {}).get("code", "")


def test_token_proves_its_role_until_it_is_dropped(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        await http.ran("CREATE ROLE ann LOGIN", "CREATE ROLE bob LOGIN")
        token = await new_token(http, "laptop FOR ann")
        assert (await http.results(WHO, headers=bearer(token)))[0]["rows"] == [["ann"]]
        other = await new_token(http, "laptop FOR bob")
        for wrong in (f"{token[:-1]}{'A' if token[-1] != 'A' else 'B'}", "fst_o1_1_x", "x" * 5000,
                      token.split("_")[0] + "_" + "_".join(other.split("_")[1:3]) + "_" + token[-43:]):  # fmt: skip
            answer = await http.post(WHO, headers=bearer(wrong))
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "28P01")
            assert answer.headers["www-authenticate"] == 'Bearer realm="foreshore"'
        await http.ran("DROP TOKEN laptop FOR ann")
        assert await code_of(http, bearer(token)) == (401, "28P01")
        await http.ran("DROP ROLE bob")
        assert await code_of(http, bearer(other)) == (401, "28P01")

    over_environment(tmp_path, go)


def test_token_outlasts_a_restart_and_is_listed_without_its_secret(tmp_path: Path) -> None:
    kept: list[str] = []

    async def before(http: Http) -> None:
        await http.ran("CREATE ROLE ann LOGIN")
        kept.append(await new_token(http, "ci FOR ann VALID UNTIL 'infinity'"))
        kept.append(await new_token(http, "short FOR ann"))

    async def after(http: Http) -> None:
        assert (await http.results(WHO, headers=bearer(kept[0])))[0]["rows"] == [["ann"]]
        rows = await http.rows(
            "SELECT role, name, valid_until = 'infinity',"
            " valid_until BETWEEN now() + '89 days' AND now() + '91 days' FROM mz_tokens"
        )
        assert rows == [["ann", "ci", True, False], ["ann", "short", False, True]]
        audit = await http.rows("SELECT details FROM mz_catalog.mz_audit_events")
        assert '["tokens"]' in json.dumps(audit).replace("\\", "")
        everything = await http.rows("SELECT sql FROM mz_internal.mz_recent_activity_log")
        shown = json.dumps([everything, audit, await http.rows("SELECT * FROM mz_tokens")])
        assert all(token[-43:] not in shown for token in kept)

    over_environment(tmp_path, before)
    over_environment(tmp_path, after)
    written = b"".join(each.read_bytes() for each in tmp_path.rglob("*") if each.is_file())
    assert written
    assert all(token[-43:].encode() not in written for token in kept)


def test_expired_token_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def go(http: Http) -> None:
        ((soon,),) = await http.rows("SELECT now() + '1 hour'::interval")
        token = await new_token(http, f"brief VALID UNTIL '{soon}'")
        assert await code_of(http, bearer(token)) == (200, "")
        coordinator = http.env.environment.coordinator
        with monkeypatch.context() as patched:
            later = ManualClock(coordinator.clock.now() + 3_600_000)
            patched.setattr(coordinator, "clock", later)
            assert await code_of(http, bearer(token)) == (401, "28P01")
        (past,) = await http.results({"query": "CREATE TOKEN old VALID UNTIL '2020-01-01'"})
        assert past["error"]["code"] == "22023"

    over_environment(tmp_path, go)


def test_rules_and_limits_hold_for_tokens(tmp_path: Path) -> None:
    rules = "host all ann 127.0.0.1/32 reject\nhost all few 127.0.0.1/32 scram-sha-256\n"

    async def go(http: Http) -> None:
        await http.ran("CREATE ROLE ann LOGIN", "CREATE ROLE few LOGIN CONNECTION LIMIT 0",
                       "CREATE ROLE closed NOLOGIN")  # fmt: skip
        for role, expected in (("ann", (403, "28000")), ("few", (503, "53300"))):
            token = await new_token(http, f"t FOR {role}")
            assert await code_of(http, bearer(token)) == expected
        closed = await new_token(http, "t FOR closed")
        assert await code_of(http, bearer(closed)) == (403, "28000")

    policy = policy_of(tmp_path, rules + "host all all 127.0.0.1/32 trust\n")
    over_environment(tmp_path / "data", go, policy=policy)


def test_token_is_accepted_as_the_password_of_its_role(tmp_path: Path) -> None:
    kept: list[str] = []

    async def make(http: Http) -> None:
        await http.ran("CREATE ROLE ann LOGIN", "CREATE ROLE bob LOGIN")
        kept.append(await new_token(http, "t FOR ann"))

    async def use(http: Http) -> None:
        assert (await http.results(WHO, auth=("ann", kept[0])))[0]["rows"] == [["ann"]]
        assert (await http.post(WHO, auth=("bob", kept[0]))).status_code == 401
        assert (await http.post(WHO)).status_code == 401

    over_environment(tmp_path / "data", make)
    over_environment(tmp_path / "data", use, policy=policy_of(tmp_path, PASSWORD))


def test_roles_make_and_see_tokens_of_their_own(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        await http.ran(
            "CREATE ROLE ann LOGIN",
            "CREATE ROLE boss LOGIN CREATEROLE",
            "CREATE ROLE root SUPERUSER",
        )
        await new_token(http, "mine", auth=("ann", ""))
        await new_token(http, "given FOR ann", auth=("boss", ""))
        for role, statement, code in (
            ("ann", "CREATE TOKEN t FOR boss", "42501"),
            ("ann", "DROP TOKEN t FOR boss", "42501"),
            ("boss", "CREATE TOKEN t FOR root", "42501"),
            ("boss", "CREATE TOKEN t FOR foreshore", "42501"),
            ("ann", "CREATE TOKEN mine", "42710"),
            ("ann", "DROP TOKEN none", "42704"),
            ("ann", "CREATE TOKEN t FOR nobody", "42704"),
            ("ann", "CREATE TOKEN t FOR PUBLIC", "42939"),
        ):
            (result,) = await http.results({"query": statement}, auth=(role, ""))
            assert result["error"]["code"] == code, statement
        listed = {"query": "SELECT name FROM mz_tokens ORDER BY name"}
        assert (await http.results(listed, auth=("ann", "")))[0]["rows"] == [["given"], ["mine"]]
        await new_token(http, "own FOR root")
        assert (await http.results(listed, auth=("ann", "")))[0]["rows"] == [["given"], ["mine"]]
        await http.ran("DROP TOKEN IF EXISTS none FOR ann")

    over_environment(tmp_path, go)


@pytest.mark.parametrize("path", ["/api/subscribe?query=SELECT a FROM t", "/api/mcp/agent"])
def test_other_paths_take_tokens(tmp_path: Path, path: str) -> None:
    async def go(http: Http) -> None:
        await http.ran("CREATE ROLE ann LOGIN", "CREATE TABLE t (a int)")
        headers = bearer(await new_token(http, "t FOR ann"))
        if "mcp" in path:
            call = {"name": "query", "arguments": {"query": WHO["query"]}}
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
            text = (await http.client.post(path, json=body, headers=headers)).text
        else:
            assert (await http.client.get(path, headers=headers)).json()["error"]["code"] == "42501"
            await http.ran("GRANT SELECT ON t TO ann", "INSERT INTO t VALUES (77)")
            async with http.client.stream("GET", path, headers=headers) as answer:
                async for text in answer.aiter_lines():
                    if "[[1,[77]]]" in text:
                        return
        assert '"ann"' in text

    over_environment(tmp_path, go)


def test_first_message_of_a_websocket_may_have_a_token(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        await http.ran("CREATE ROLE ann LOGIN")
        token = await new_token(http, "t FOR ann")
        url = f"ws://127.0.0.1:{http.port}/api/sql/ws"
        async with connect(url) as socket:
            await socket.send(json.dumps({"token": token}))
            await socket.send(json.dumps(WHO))
            async for message in socket:
                found = json.loads(message)
                if found["type"] == "Row":
                    assert found["payload"] == ["ann"]
                    return

    over_environment(tmp_path, go)


def test_failed_transaction_leaves_no_token(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        found = await http.results({"query": "CREATE TOKEN t; SELECT 1 / 0"})
        ((token,),) = found[0]["rows"]
        assert found[1]["error"]["code"] == "22012"
        assert await code_of(http, bearer(token)) == (401, "28P01")

    over_environment(tmp_path, go)
