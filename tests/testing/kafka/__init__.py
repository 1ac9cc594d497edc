"""Tests of `consumer_sdk.testing.kafka`."""
