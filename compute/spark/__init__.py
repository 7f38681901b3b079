"""Spark as a service of this process: its JVM, its session, jobs and their progress."""
