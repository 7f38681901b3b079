"""The replica's side: a process that runs dataflows and answers peeks."""
