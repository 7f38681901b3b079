"""The live demo: load the flights that left New York in 2013, then replay them in real order."""
