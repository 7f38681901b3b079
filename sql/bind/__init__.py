"""Bind parsed statements: resolve names and type every expression."""
