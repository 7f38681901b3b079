"""Rules that rewrite relational expressions to cheaper equivalents; one rule per file."""
