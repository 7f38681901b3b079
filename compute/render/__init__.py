"""Plans as single SQL statements, in the dialects of DuckDB and Spark, and what they call."""
