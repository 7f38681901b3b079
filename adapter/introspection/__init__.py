"""What the system shows of itself."""
