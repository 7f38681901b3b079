"""How the kept statement of a materialized view ends, where it says more than its query."""

SKIP_ERRORS = " CONSTRAINT ON ERROR SKIP"  # the last part


def skips_errors(create_sql: str) -> bool:
    """Return whether a materialized view leaves out the rows whose expressions fail."""
    return create_sql.endswith(SKIP_ERRORS)
