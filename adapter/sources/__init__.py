"""Sources: their creation, and their rows on the way into the database."""
