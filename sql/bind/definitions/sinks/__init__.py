"""Bind CREATE SINK: a file for each kind of external system, and `create.py` for all."""
