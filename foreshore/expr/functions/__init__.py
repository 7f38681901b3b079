"""One registry of functions; a file per family, each function with its kernel beside its signature."""
