"""Transactions on a real Kafka."""
