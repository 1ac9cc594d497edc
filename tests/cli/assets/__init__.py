"""Tests of ``consumer-sdk assets``."""
