"""Tests of ``consumer-sdk run``."""
