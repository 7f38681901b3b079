"""Sources as SQL describes them and ingestion runs them: data that all layers share."""
