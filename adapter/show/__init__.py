"""The text of definitions: SHOW CREATE."""
