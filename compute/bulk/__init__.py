"""Plans as single statements of a bulk engine, for hydration and one-off queries."""
