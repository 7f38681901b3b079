"""PostgreSQL servers as external systems: their tables by logical replication."""
