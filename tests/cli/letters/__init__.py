"""Tests of cli.letters."""
