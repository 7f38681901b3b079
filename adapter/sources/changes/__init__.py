"""Changes of tables in the external systems of sources."""
