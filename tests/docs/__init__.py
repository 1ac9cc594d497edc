"""Tests of the pages: what they show is what their programs print."""
