"""Tests of cli.groups."""
