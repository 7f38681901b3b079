"""docs/reference/settings.md lists all settings; `GOLDEN=rewrite` writes it."""

import textwrap

from foreshore.settings import NO_EFFECT, VARIABLES, Variable
from tests.adapter.reference.generated import check_generated, table


def setter(variable: Variable) -> str:
    """Return who sets a variable."""
    if variable.server:
        return "ALTER SYSTEM"
    if variable.fixed:
        return "nobody"
    return "superusers" if variable.superuser else "anybody"


def test_settings_with_an_effect_have_a_row() -> None:
    rows = [
        (
            f"`{each.name}`",
            f"`{each.default}`" if each.default else "",
            setter(each),
            each.description,
        )
        for each in sorted(VARIABLES.values(), key=lambda each: each.name.lower())
        if not each.description.startswith("Has no effect")
    ]
    check_generated("settings.md", "settings", table(("setting", "default", "set by", ""), rows))


def test_settings_that_only_differ_in_effect_have_a_row() -> None:
    rows = [
        (f"`{each.name}`", each.description)
        for each in sorted(VARIABLES.values(), key=lambda each: each.name.lower())
        if each.description.startswith("Has no effect") and each.description != NO_EFFECT
    ]
    check_generated("settings.md", "without", table(("setting", ""), rows))


def test_settings_that_tune_postgresql_are_named() -> None:
    names = sorted(each.name for each in VARIABLES.values() if each.description == NO_EFFECT)
    text = ", ".join(f"`{name}`" for name in names) + "."
    check_generated("settings.md", "tuning", textwrap.wrap(text, 120, break_on_hyphens=False))
