"""Parsed statements to bound ones: names resolved, every expression typed."""
