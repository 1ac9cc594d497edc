"""Rows of Spark as records of Kafka and Pulsar."""
