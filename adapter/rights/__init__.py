"""Whether a role may run a statement."""
