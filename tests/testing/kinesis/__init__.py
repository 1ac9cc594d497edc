"""Tests of the fake Kinesis."""
