"""Tests of stores.sqlite."""
