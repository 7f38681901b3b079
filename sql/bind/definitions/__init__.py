"""Bind statements that create, alter, drop and show objects."""
