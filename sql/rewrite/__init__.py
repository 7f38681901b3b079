"""Rewrite bound scalars and the kept text of definitions."""
