"""Builtin relations: the catalog and the system's state as queryable tables."""
