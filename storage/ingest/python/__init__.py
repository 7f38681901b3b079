"""Functions of Python modules as external systems."""
