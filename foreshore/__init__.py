"""The vocabulary that all layers share: times, updates, ids, types, expressions, errors."""
