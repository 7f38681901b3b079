"""A plan as one statement of a bulk engine: hydration and one-off queries."""
