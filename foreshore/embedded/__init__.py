"""Foreshore for Python programs: a database of one's own in a directory, or one at an address."""
