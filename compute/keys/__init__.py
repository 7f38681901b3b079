"""Key indexes: the committed rows of tables by their unique keys, in the environment's process."""
