"""Text to a typed, optimised plan; pure, no input or output."""
