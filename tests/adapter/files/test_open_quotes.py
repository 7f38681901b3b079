"""A quote of a CSV file that is not closed is an error, and takes no rows into its value."""

import gzip
from pathlib import Path

import pytest

from foreshore.csv_quotes import QuoteCounter
from tests.adapter.harness import TestEnvironment

OPEN = b'1,"x\n2,y\n3,z\n'
WHOLE = b'1,"x\n2,y"\n3,"z ""q"""\n'


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
async def test_copy_of_a_file_with_an_open_quote_fails(
    own_env: TestEnvironment, outside: Path, name: str
) -> None:
    env = own_env
    env.environment.let_copy([str(outside)], env.data_dir)
    await env.ran("a", "CREATE TABLE t (a int, b text)")
    write = gzip.compress if name.endswith(".gz") else bytes
    (outside / name).write_bytes(write(OPEN))
    answer = await env.query("a", f"COPY t FROM '{outside / name}' (FORMAT csv)")
    assert answer.startswith("ERROR 22P04"), answer
    assert "unterminated CSV quoted field" in answer
    assert await env.query("a", "SELECT count(*) FROM t") == "0\nSELECT 1"
    (outside / name).write_bytes(write(WHOLE))
    assert await env.query("a", f"COPY t FROM '{outside / name}' (FORMAT csv)") == "COPY 2"
    assert (await env.query("a", "SELECT b FROM t WHERE a = 3")).startswith('z "q"\n')


async def test_source_tells_of_a_file_with_an_open_quote(
    own_env: TestEnvironment, outside: Path
) -> None:
    env = own_env
    env.environment.let_copy([str(outside)], env.data_dir)
    (outside / "a.csv").write_bytes(OPEN)
    await env.ran("a", f"CREATE SOURCE s (a int, b text) FROM FILES '{outside}/*.csv' (FORMAT csv)")
    await env.ran("b", "BEGIN", "DECLARE c CURSOR FOR SUBSCRIBE (SELECT error FROM s_errors)")
    answer = await env.query("b", "FETCH 1 c")  # waits for a row
    assert "unterminated CSV quoted field" in answer
    assert (await env.query("a", "SELECT count(*) FROM s")).startswith("0\n")


@pytest.mark.parametrize("size", range(1, 8))
@pytest.mark.parametrize(
    ("data", "is_open"),
    [
        (rb'1,"x\"', True),
        (rb'1,"x\\"', False),
        (rb'1,"x\"y"', False),
        (rb"\"", False),
        (b"", False),
    ],
)
def test_escaped_quotes_do_not_count(data: bytes, size: int, is_open: bool) -> None:
    class Stream:
        def __init__(self) -> None:
            self.rest = data

        def read(self, size: int) -> bytes:
            found, self.rest = self.rest[:size], self.rest[size:]
            return found

    counter = QuoteCounter(Stream(), '"', "\\")
    while counter.read(size):
        pass
    assert counter._is_open == is_open
