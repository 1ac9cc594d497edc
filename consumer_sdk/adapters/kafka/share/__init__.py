"""Share groups (KIP-932): Kafka as a queue."""
