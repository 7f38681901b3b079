"""The engines that run plans in bulk, for hydration and queries: DuckDB and Spark."""
