"""Tests of the trackers."""

import pytest

pytest.register_assert_rewrite(
    "tests.trackers.driver", "tests.trackers.log_driver", "tests.trackers.queue_driver"
)
