"""URLs as targets of sinks, which get the changes as requests."""
