"""The registry of functions: one file per family, each kernel beside its signature."""
