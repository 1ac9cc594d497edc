"""Metrics, traces and logs of consumers."""
