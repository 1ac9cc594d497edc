"""Tests of the in-memory broker and its adapter."""
