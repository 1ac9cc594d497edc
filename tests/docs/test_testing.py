"""docs/testing.md: its tests pass in a project of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from consumer_sdk.testing.servers import KafkaServer
from tests.docs.pages import Page

FOLDER = Page("testing").snippets


def run_tests(folder: Path, *files: str, **environment: str) -> str:
    """The last line of pytest, which knows nothing of this repository's configuration."""
    plugins = ("no:cacheprovider", "pytest_asyncio.plugin", "consumer_sdk.testing.pytest_plugin")
    options = ("-q", "-c", os.devnull, "--rootdir", str(folder), *(f"-p{each}" for each in plugins))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *files],
        cwd=folder,
        # The plugins that other packages bring take a second.
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1]


def test_tests_without_a_broker_pass() -> None:
    """Those of the handler in billing.py, and of a whole consumer."""
    assert run_tests(FOLDER, "test_handler.py", "test_consumer.py").startswith("4 passed")


@pytest.mark.kafka
def test_test_of_a_real_kafka_passes(kafka_server: KafkaServer) -> None:
    """The fixture gives the Kafka that the environment names."""
    assert run_tests(
        FOLDER, "test_kafka.py", CONSUMER_SDK_KAFKA=kafka_server.bootstrap_servers
    ).startswith("1 passed")
