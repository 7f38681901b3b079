"""Files, and tables of a lake, as external systems."""
