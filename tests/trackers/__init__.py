"""Tests of the trackers."""

import pytest

pytest.register_assert_rewrite("tests.trackers.driver")
