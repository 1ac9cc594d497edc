"""Claims about the fixtures of Kinesis servers, in test runs of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.kinesis

INNER = """
def test_inner(kinesis_server, kinesalite_server):
    print("given", kinesis_server, kinesalite_server)

def test_own(own_kinesis_server):
    pass
"""


def run(folder: Path, **environment: str) -> str:
    """Run the inner tests on an empty cache, with no registry in reach; returns what pytest says."""
    (folder / "test_inner.py").write_text(INNER, encoding="utf-8")
    surroundings = {
        "CONSUMER_SDK_CACHE": str(folder / "cache"),
        "NPM_CONFIG_CACHE": str(folder / "npm-cache"),
        "NPM_CONFIG_REGISTRY": "http://127.0.0.1:1/",
        "NPM_CONFIG_FETCH_RETRIES": "0",
    }
    chosen = {"CONSUMER_SDK_REQUIRE_SERVERS": "", "CONSUMER_SDK_KINESIS": "", **environment}
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "--rootdir", str(folder), str(folder)]
    result = subprocess.run(
        command,
        env={**os.environ, **surroundings, **chosen},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return result.stdout


@pytest.mark.campaign
def test_packages_out_of_reach_skip_with_the_reason(tmp_path: Path) -> None:
    """On a developer's machine without a network the tests are skipped, and say why."""
    said = run(tmp_path)
    assert "2 skipped" in said
    assert "npm could not install kinesis-local" in said


@pytest.mark.campaign
def test_packages_out_of_reach_fail_where_servers_are_required(tmp_path: Path) -> None:
    """On a CI machine the same is a failure."""
    said = run(tmp_path, CONSUMER_SDK_REQUIRE_SERVERS="1")
    assert "2 errors" in said
    assert "npm could not install kinesis-local" in said


@pytest.mark.campaign
def test_named_endpoint_is_given_and_never_ended(tmp_path: Path) -> None:
    """Both shared fixtures give the endpoint; the one to be killed is skipped."""
    said = run(tmp_path, CONSUMER_SDK_KINESIS="http://some:4567")
    assert "1 passed, 1 skipped" in said
    given = "<ExternalKinesis http://some:4567>"
    assert f"given {given} {given}" in said
