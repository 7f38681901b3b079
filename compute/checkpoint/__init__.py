"""Checkpoints: the state of a replica's dataflows in open files, from which another one begins."""
