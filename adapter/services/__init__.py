"""What statements may need of the environment: a protocol for each of its parts."""
