"""The live demo: the flights that left New York in 2013, loaded, then replayed as they happened."""
