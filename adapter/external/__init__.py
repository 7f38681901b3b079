"""External systems: how they are reached, and what of another database's stays untouched."""
