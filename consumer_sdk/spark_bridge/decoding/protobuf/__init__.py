"""Protobuf values as columns."""
