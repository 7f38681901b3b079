"""The replica's side of compute: a process that runs dataflows and answers peeks."""
