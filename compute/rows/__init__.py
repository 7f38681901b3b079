"""Plans over few rows, compiled to Python functions over tuples."""
