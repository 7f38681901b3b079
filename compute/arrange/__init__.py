"""Arrangements: collections indexed by key, readable at several times."""
