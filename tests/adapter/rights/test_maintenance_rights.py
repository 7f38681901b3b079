"""VACUUM and ANALYZE say which tables they skip, for lack of rights as well."""

import pytest

from foreshore.adapter.client import Startup
from tests.adapter.harness import TestEnvironment


@pytest.mark.parametrize("verb", ["VACUUM", "ANALYZE"])
async def test_tables_of_others_are_skipped_with_a_warning(
    own_env: TestEnvironment, verb: str
) -> None:
    env = own_env
    await env.ran("a", "CREATE TABLE t (x int)", "CREATE ROLE ann LOGIN", "CREATE ROLE db")
    await env.ran("a", "CREATE TABLE own (x int)", "ALTER TABLE own OWNER TO ann")
    env.sessions["ann"] = await env.environment.connect(Startup("ann", "foreshore", {}))
    refused = f'WARNING: skipping "t" --- only table or database owner can {verb.lower()} it'
    assert await env.query("ann", f"{verb} t") == f"{verb}\n{refused}"
    assert await env.query("ann", f"{verb} own, t") == f"{verb}\n{refused}"
    assert await env.query("ann", f"{verb} own") == verb
    assert await env.query("a", f"{verb} t, own") == verb
    await env.ran("a", "ALTER DATABASE foreshore OWNER TO db", "GRANT db TO ann")
    assert await env.query("ann", f"{verb} t") == verb
