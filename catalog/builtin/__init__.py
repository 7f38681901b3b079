"""Builtin relations: the catalog and the system's state, as tables to query like any other."""
