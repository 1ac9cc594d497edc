"""What all tests share; the servers come from `consumer_sdk.testing.pytest_plugin`."""

import gc
import os
import signal
from collections.abc import Generator
from pathlib import Path

import hypothesis
import pytest

import consumer_sdk
from consumer_sdk.testing.servers import Server
from tests.distribution import SERVERS, Distribution

# A deadline measures the machine's other work, not ours; so does the check that data are quick to make.
_PATIENT = hypothesis.settings(
    deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.register_profile("few", _PATIENT, max_examples=25)
hypothesis.settings.register_profile(
    "many", _PATIENT, max_examples=500
)  # tests/fuzz/test_properties.py
hypothesis.settings.load_profile("few")

_SUITES = Path(consumer_sdk.__file__).parent / "testing" / "conformance"


def pytest_configure(config: pytest.Config) -> None:
    """Share the tests out among workers, where there are any; hear Ctrl-C, as a test's children do."""
    if (
        signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    ):  # a shell's background job, and children inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each child would compile all that it imports
    config.pluginmanager.register(Distribution(config))
    gc.disable()  # what is collected stays: looking through it takes as long as collecting it


def pytest_collection_finish() -> None:
    """From now on the collector looks at what the tests make, and not at the tests."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Three for each processor: most of the time a test waits for a server."""
    return 3 * (os.cpu_count() or 1)


def pytest_consumer_sdk_server(name: str) -> Server | None:
    """Give all tests one Kafka, with what any of them needs."""
    from tests.adapters.kafka.shared_kafka import shared_kafka

    return shared_kafka() if name == "kafka" else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skipped real-server test into a failure where servers are required (CI).

    But for a case of a suite that needs what this broker cannot do at all.
    """
    report = yield
    marked = any(item.get_closest_marker(mark) for mark in SERVERS)
    is_unable = isinstance(report.longrepr, tuple) and _SUITES in Path(report.longrepr[0]).parents
    is_required = bool(os.environ.get("CONSUMER_SDK_REQUIRE_SERVERS"))
    is_expected = hasattr(report, "wasxfail")
    if report.skipped and marked and is_required and not (is_unable or is_expected):
        report.outcome = "failed"
        report.longrepr = f"skipped although servers are required: {report.longrepr}"
    return report
