"""Compiled loops over rows in words; each also runs as plain Python."""
