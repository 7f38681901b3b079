"""Parse SQL text to syntax trees."""
