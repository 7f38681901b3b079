"""HTTP beside the SQL port: health and metrics, from the first moment on."""
