"""What a dump says of objects: their options and definitions."""
