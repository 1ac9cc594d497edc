"""Claims about the fixtures of Pulsar servers, in test runs of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.pulsar

INNER = """
def test_inner(pulsar_server):
    print("given", pulsar_server, pulsar_server.service_url, pulsar_server.admin_url)

def test_own(own_pulsar_server):
    pass
"""

NO_REPOSITORY = """
<ivysettings>
  <settings defaultResolver="nothing"/>
  <resolvers>
    <filesystem name="nothing"><artifact pattern="{folder}/[artifact].[ext]"/></filesystem>
  </resolvers>
</ivysettings>
"""


def run(folder: Path, **environment: str) -> str:
    """Run the inner tests on an empty cache, with no repository; returns what pytest says."""
    (folder / "test_inner.py").write_text(INNER, encoding="utf-8")
    settings = folder / "settings.xml"
    settings.write_text(NO_REPOSITORY.format(folder=folder), encoding="utf-8")
    chosen = {
        "CONSUMER_SDK_CACHE": str(folder / "cache"),
        "CONSUMER_SDK_IVY_SETTINGS": str(settings),
        "CONSUMER_SDK_REQUIRE_SERVERS": "",
        "CONSUMER_SDK_PULSAR": "",
        "CONSUMER_SDK_PULSAR_ADMIN": "",
        **environment,
    }
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "--rootdir", str(folder), str(folder)]
    result = subprocess.run(
        command,
        env={**os.environ, **chosen},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return result.stdout


@pytest.mark.campaign
def test_archive_out_of_reach_skips_with_the_reason(tmp_path: Path) -> None:
    """On a developer's machine without a network the tests are skipped, and say why."""
    said = run(tmp_path)
    assert "2 skipped" in said
    assert "the jars of pulsar could not be fetched" in said


@pytest.mark.campaign
def test_archive_out_of_reach_fails_where_servers_are_required(tmp_path: Path) -> None:
    """On a CI machine the same is a failure."""
    said = run(tmp_path, CONSUMER_SDK_REQUIRE_SERVERS="1")
    assert "2 errors" in said
    assert "the jars of pulsar could not be fetched" in said


@pytest.mark.campaign
def test_named_pulsar_is_given_and_never_ended(tmp_path: Path) -> None:
    """The shared fixture gives the named one; the one to be killed is skipped."""
    said = run(
        tmp_path, CONSUMER_SDK_PULSAR="some:6650", CONSUMER_SDK_PULSAR_ADMIN="http://some:8080/"
    )
    assert "1 passed, 1 skipped" in said
    assert "given <ExternalPulsar some:6650> pulsar://some:6650 http://some:8080" in said


def test_half_a_name_is_refused(tmp_path: Path) -> None:
    """A broker without its admin interface is told, not looked for on some port."""
    said = run(tmp_path, CONSUMER_SDK_PULSAR="some:6650")
    assert "CONSUMER_SDK_PULSAR_ADMIN=http://host:port belong together" in said
