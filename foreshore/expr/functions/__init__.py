"""One registry of functions: a file per family, each function's kernel beside its signature."""
