"""Ranges of Kafka topics."""
