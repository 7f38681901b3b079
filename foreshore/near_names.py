"""Which names are so near to one that is not known that it may have been meant.

The measure is PostgreSQL's: the number of letters to insert, delete or replace, at most 3. Columns
may differ in half of the name's letters, as there. Functions and relations, of which there are many
and of which PostgreSQL names none, may in a third: `order` is not near to `holder`. It is asked for
errors only, and bounded: of many names the first are compared.
"""

from collections.abc import Iterable

MOST_DISTANCE = 3
_MOST_COMPARED = 2_000


def distance(a: str, b: str, most: int) -> int:
    """Return how many letters differ, or `most + 1` if there are more than `most`."""
    from rapidfuzz.distance import Levenshtein  # takes 25 ms, and only errors need it

    return Levenshtein.distance(a, b, score_cutoff=most)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the only name that is nearest to `name`, None if there is none or several."""
    best = min(MOST_DISTANCE, len(name) // 3)
    found: list[str] = []
    compared = 0
    for each in known:
        if abs(len(each) - len(name)) > best:
            continue
        compared += 1
        if compared > _MOST_COMPARED:
            break
        apart = distance(each, name, best)
        if apart > best:
            continue
        if apart < best:
            best, found = apart, []
        found.append(each)
    return found[0] if len(set(found)) == 1 else None
