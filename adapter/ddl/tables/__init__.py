"""ALTER TABLE: constraints are verified, and tables rewritten."""
