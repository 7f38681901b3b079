"""HTTP beside the SQL port: health and metrics, available before the data is opened."""
