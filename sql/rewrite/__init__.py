"""Edits of bound scalars and of kept texts."""
