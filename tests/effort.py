"""How many examples a test over random input runs: few in `make test`, all in `make test-full`.

Hypothesis's profile says which: `dev`, unless `--hypothesis-profile` is given with `full`, or with
`landing`, a fifth of it, for what lands within half an hour. A test that sets its own number, of
examples or of seeds, says what it is in full and lets it scale with the profile:

    @settings(max_examples=examples(300))

`full` draws others in each run. `dev` and `landing` draw the same as long as the test is the same, so
that what they find is due to the change that they try.
"""

from hypothesis import HealthCheck, settings

FULL_EXAMPLES = 100
LANDING_EXAMPLES = 20
DEV_EXAMPLES = 6
FEWEST = 3


def register_profiles() -> None:
    """Register the profiles, and load `dev`; pytest's option loads another one."""
    # A property holds or not, however slow the machine is that finds out, and whatever was drawn.
    # A test with a list of its own names these too, as its list is in place of this one.
    unhealthy = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
    common = settings(deadline=None, suppress_health_check=unhealthy)
    fixed = settings(common, derandomize=True)
    settings.register_profile("dev", fixed, max_examples=DEV_EXAMPLES)
    settings.register_profile("full", common, max_examples=FULL_EXAMPLES)
    settings.register_profile("landing", fixed, max_examples=LANDING_EXAMPLES)
    settings.load_profile("dev")


def examples(full: int) -> int:
    """Return how many of `full` examples or seeds to run under the profile that is loaded."""
    share = settings().max_examples / FULL_EXAMPLES
    return min(full, max(FEWEST, round(full * share)))
