"""Functions with side effects: what calls of them do."""
