"""The arrangement engine: incremental operators over shared arrangements of rows in words."""
