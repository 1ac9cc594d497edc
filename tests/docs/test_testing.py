"""docs/testing.md: its tests pass in a project of their own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from consumer_sdk.testing.servers import KafkaServer
from tests.docs.pages import Page

FOLDER = Page("testing").snippets


def run(*files: str, **environment: str) -> str:
    """The last line of pytest, which knows nothing of this repository's configuration."""
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull)
    done = subprocess.run(
        [*command, "--rootdir", str(FOLDER), *files],
        cwd=FOLDER,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1]


def test_tests_without_a_broker_pass() -> None:
    """Those of the handler in billing.py, and of a whole consumer."""
    assert run("test_handler.py", "test_consumer.py").startswith("4 passed")


@pytest.mark.kafka
def test_test_of_a_real_kafka_passes(kafka_server: KafkaServer) -> None:
    """The fixture gives the Kafka that the environment names."""
    assert run("test_kafka.py", CONSUMER_SDK_KAFKA=kafka_server.bootstrap_servers).startswith(
        "1 passed"
    )
