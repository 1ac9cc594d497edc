"""Tests of ``consumer-sdk doctor``."""
