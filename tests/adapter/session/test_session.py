"""Sessions as conversations: golden scripts against an environment with its replica."""

import asyncio
from pathlib import Path

import pytest

from tests.adapter.harness import TestEnvironment
from tests.golden import run_golden

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("script", sorted(GOLDEN.glob("*.golden")), ids=lambda path: path.stem)
def test_conversation(runner: asyncio.Runner, env: TestEnvironment, script: Path) -> None:
    schema = script.stem

    def handle(session: str, _: dict[str, str], text: str) -> str:
        name = f"{schema}.{session}"
        if name not in env.sessions:
            setup = f"CREATE SCHEMA IF NOT EXISTS {schema}; SET search_path = {schema}"
            runner.run(env.query(name, setup))
            runner.run(env.query(name, "SELECT 1"))  # drains the notice
        return runner.run(env.query(name, text))

    run_golden(script, handle)
