"""Records written to Kafka."""
