"""Sinks as SQL describes them and exports run them: data that all layers share."""
