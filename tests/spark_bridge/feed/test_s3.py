"""A feed on S3: moto's server, s3fs, writers in processes of their own, and Spark."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from consumer_sdk.testing.servers.ports import HOST, free_ports
from consumer_sdk.testing.servers.server import ServerProcess
from tests.environments import environment, output, start

pytest.importorskip("pyspark")

PROGRAM = "tests.spark_bridge.feed.s3_program"
WRITERS = 3


@pytest.fixture(scope="module")
def python() -> Path:
    """Give a Python with s3fs and moto's server."""
    return environment("s3", "moto[server]==5.2.5", "s3fs==2026.9.0")


@pytest.fixture
def s3(python: Path, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Give the variables by which clients find an S3 that has the bucket ``feeds``."""
    [port] = free_ports(1)
    url = f"http://{HOST}:{port}"
    command = [str(python), "-m", "moto.server", "-H", HOST, "-p", str(port)]
    server = ServerProcess(command, log=tmp_path / "s3.log", directory=tmp_path)
    try:
        make_bucket(f"{url}/feeds", server)
        yield {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
    finally:
        server.kill()


def make_bucket(url: str, server: ServerProcess) -> None:
    """As soon as the server answers."""
    while not server.has_ended:
        try:
            urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=60).close()  # noqa: S310 - http
        except (ConnectionError, urllib.error.URLError):
            time.sleep(0.1)
        else:
            return
    pytest.fail("moto's server has ended")


@pytest.mark.campaign
@pytest.mark.spark
@pytest.mark.timeout(3600)
def test_three_writers_at_once_keep_each_record_once_on_s3(
    python: Path, s3: dict[str, str], tmp_path: Path
) -> None:
    """And a query reads each once, in order, across a restart."""
    for first, last in ((0, 59), (60, 89)):
        writers = [
            start(python, PROGRAM, "write", "feeds", str(last), variables=s3)
            for _ in range(WRITERS)
        ]
        written = 0
        for writer in writers:
            printed, errors = writer.communicate(timeout=1800)
            assert writer.returncode == 0, errors[-5000:]
            written += json.loads(printed.splitlines()[-1])
        assert written == last + 1 - first
        found = json.loads(output(python, PROGRAM, "read", "feeds", str(tmp_path), **s3))
        assert found == [f"0:{offset}" for offset in range(first, last + 1)]
