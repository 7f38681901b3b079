"""Replicas of several worker processes, each with a share of every dataflow's rows."""
