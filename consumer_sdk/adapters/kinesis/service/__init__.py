"""Requests to Kinesis, and their responses."""
