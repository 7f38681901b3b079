"""The wires: bytes to messages and back, and the commands that start the system."""
