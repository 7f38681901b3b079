"""PostgreSQL servers as targets of sinks."""
