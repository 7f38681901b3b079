"""Hydration of dataflows, and other bulk work: by DuckDB of this process, or by Spark."""
