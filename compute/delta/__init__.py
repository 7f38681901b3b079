"""The plan of a plan's changes, run window by window."""
