"""Collections derived from collections: dataflows, the replicas that run them, and peeks."""
