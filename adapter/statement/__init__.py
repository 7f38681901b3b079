"""What one run of a statement has: its context, its roles, its result."""
