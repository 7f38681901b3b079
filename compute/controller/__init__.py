"""The environment's side of compute: which replicas run what, and their responses."""
