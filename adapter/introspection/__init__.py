"""System relations, EXPLAIN and freshness."""
