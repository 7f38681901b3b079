"""The environment's side: which replicas run what, and what they answered."""
