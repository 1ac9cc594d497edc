"""What all tests share; the servers come from `consumer_sdk.testing.pytest_plugin`."""

import os
from collections.abc import Generator

import hypothesis
import pytest

# A deadline measures the machine's other work, not ours.
hypothesis.settings.register_profile("consumer_sdk", deadline=None)
hypothesis.settings.load_profile("consumer_sdk")

_SERVER_MARKS = ("kafka", "kinesis", "pulsar", "zookeeper")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skipped real-server test into a failure where servers are required (CI)."""
    report = yield
    marked = any(item.get_closest_marker(mark) for mark in _SERVER_MARKS)
    if report.skipped and marked and os.environ.get("CONSUMER_SDK_REQUIRE_SERVERS"):
        report.outcome = "failed"
        report.longrepr = f"skipped although servers are required: {report.longrepr}"
    return report
