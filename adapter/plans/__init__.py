"""Plans of statements, compiled: what does not depend on one run."""
