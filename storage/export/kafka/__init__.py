"""Topics of Kafka as targets of sinks."""
