"""Functions and classes of Python modules as targets of sinks."""
