"""Rows by keys: lookups in key indexes and mirrors, and row locks."""
