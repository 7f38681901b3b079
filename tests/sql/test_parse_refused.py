"""Texts that sqlglot's parser would take, and PostgreSQL refuses: the token at which, "" at the end."""

import pytest

from foreshore.errors import SyntaxError_
from foreshore.sql.parse.parse import parse

REFUSED = {
    "INSERT INTO q VALUES (1) WHERE false": "WHERE",
    "INSERT INTO q VALUES (1) GROUP BY 1": "GROUP",
    "INSERT INTO q VALUES (1) HAVING true": "HAVING",
    "INSERT INTO q VALUES (1) x": "x",
    "VALUES (1) WHERE false": "WHERE",
    "SELECT * FROM (VALUES (1) WHERE false) x": "WHERE",
    "VALUES ()": ")",
    "UPDATE q SET a = cast(a AS int WHERE a = 1": "WHERE",
    "SELECT cast(1 AS int insert, 2": "insert",
    "SELECT substring('a' from 1 , 2": ",",
    "SELECT position('a' in 'b' , 2": ",",
    "SELECT trim('a' , 2": "",
    "SELECT extract(year from now(), 2": ",",
    "SELECT overlay('a' placing 'b' from 1, 2": ",",
    "SELECT CASE WHEN a = 1 9 ELSE END FROM q": "9",
    "SELECT CASE WHEN a = 1 THEN 9 ELSE END FROM q": "END",
    "SELECT CASE WHEN a = 1 THEN END FROM q": "END",
    "SELECT CASE ELSE 1 END FROM q": "ELSE",
    "SELECT CASE a END FROM q": "END",
    "SELECT CASE WHEN a THEN 1 ELSE 2 FROM q": "FROM",
    "SELECT 1 x JOIN t": "JOIN",
    "SELECT 1 x LEFT JOIN t ON true": "LEFT",
    "SELECT * FROM a JOIN b": "",
    "SELECT * FROM a JOIN b WHERE true": "WHERE",
    "SELECT * FROM a JOIN b ON": "",
    "SELECT * FROM a LEFT JOIN b": "",
    "SELECT * FROM a JOIN b JOIN c ON true": "",
    "SELECT * FROM a CROSS JOIN b ON true": "ON",
    "SELECT * FROM a NATURAL JOIN b USING (c)": "USING",
    "SELECT * FROM a JOIN b USING": "",
    "SELECT * FROM a JOIN b USING c": "c",
    "SELECT * FROM a JOIN b USING ()": ")",
    "SELECT DISTINCT ON a FROM q": "a",
    "SELECT DISTINCT ON () a FROM q": ")",
    "SELECT a FROM q FETCH FIRST": "",
    "SELECT a FROM q FETCH FIRST 5 ROWS": "",
    "CREATE TABLE q (a int, )": ")",
}
TAKEN = (
    "SELECT * FROM a JOIN b JOIN c ON true ON true",
    "SELECT * FROM a JOIN b CROSS JOIN c ON true",
    "SELECT * FROM a NATURAL JOIN b, c CROSS JOIN d",
    "SELECT * FROM a LEFT JOIN LATERAL f(a.x) ON true JOIN (SELECT 1) b USING (x, y)",
    "SELECT CASE a WHEN 1 THEN 2 END, CASE WHEN a THEN CASE WHEN b THEN c END ELSE d END FROM q",
    "VALUES (1), (2) ORDER BY 1 LIMIT 1 OFFSET 1",
    "SELECT a FROM q FETCH FIRST ROW ONLY",
    "SELECT a FROM q ORDER BY a FETCH NEXT 5 ROWS WITH TIES",
    "SELECT DISTINCT ON (a, b) c FROM (VALUES (1)) v",
    "CREATE TABLE q ()",
)


@pytest.mark.parametrize(("text", "near"), REFUSED.items())
def test_refused_where_postgresql_does(text: str, near: str) -> None:
    """The errors are those of PostgreSQL 15."""
    where = f'at or near "{near}"' if near else "at end of input"
    with pytest.raises(SyntaxError_, match=f"^syntax error {where.replace(')', '[)]')}$"):
        parse(text)


@pytest.mark.parametrize("text", TAKEN)
def test_like_them_and_taken(text: str) -> None:
    assert len(parse(text)) == 1
