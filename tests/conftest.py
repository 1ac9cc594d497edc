"""What all tests share; the servers come from `consumer_sdk.testing.pytest_plugin`."""

import os
from collections.abc import Generator
from pathlib import Path

import hypothesis
import pytest

import consumer_sdk

# A deadline measures the machine's other work, not ours.
hypothesis.settings.register_profile("consumer_sdk", deadline=None)
hypothesis.settings.load_profile("consumer_sdk")

_SERVER_MARKS = ("kafka", "kinesis", "pulsar", "zookeeper")
_SUITES = Path(consumer_sdk.__file__).parent / "testing" / "conformance"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skipped real-server test into a failure where servers are required (CI).

    But for a case of a suite that needs what this broker cannot do at all.
    """
    report = yield
    marked = any(item.get_closest_marker(mark) for mark in _SERVER_MARKS)
    is_unable = isinstance(report.longrepr, tuple) and Path(report.longrepr[0]).parent == _SUITES
    is_required = bool(os.environ.get("CONSUMER_SDK_REQUIRE_SERVERS"))
    if report.skipped and marked and is_required and not is_unable:
        report.outcome = "failed"
        report.longrepr = f"skipped although servers are required: {report.longrepr}"
    return report
