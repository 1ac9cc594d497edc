"""Tests of stores.exchange."""
