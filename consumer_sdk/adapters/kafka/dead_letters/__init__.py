"""Dead letters as records of a Kafka topic."""
