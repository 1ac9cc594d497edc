"""Claims about fetching jars: the real Ivy, a repository in a folder, no network."""

import asyncio
import logging
import zipfile
from pathlib import Path

import pytest

from consumer_sdk.testing.servers import Artifact, JarResolutionError, JarSet, resolve_jars

SETTINGS = """
<ivysettings>
  <settings defaultResolver="folder"/>
  <resolvers>
    <filesystem name="folder">
      <artifact pattern="{folder}/[artifact]-[revision].[ext]"/>
    </filesystem>
  </resolvers>
</ivysettings>
"""
PRESENT = Artifact(org="org.example", name="present", revision="1.0")
ABSENT = Artifact(org="org.example", name="absent", revision="9.9")


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """Give a settings file for a repository that holds one jar."""
    with zipfile.ZipFile(tmp_path / "present-1.0.jar", "w") as jar:
        jar.writestr("hello", "world")
    file = tmp_path / "settings.xml"
    file.write_text(SETTINGS.format(folder=tmp_path), encoding="utf-8")
    return file


def resolve(tmp_path: Path, settings: Path, *artifacts: Artifact) -> Path:
    """Resolve into a cache of the test's own."""
    return resolve_jars(JarSet("some", artifacts), cache=tmp_path / "cache", settings=settings)


def test_resolved_set_is_fetched_once(
    tmp_path: Path, settings: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The second call finds the first one's files."""
    caplog.set_level(logging.INFO)
    first = resolve(tmp_path, settings, PRESENT)
    assert [file.name for file in first.glob("*.jar")] == ["present-1.0.jar"]
    assert resolve(tmp_path, settings, PRESENT) == first
    assert len(caplog.messages) == 1


@pytest.mark.campaign
def test_settings_file_can_come_from_the_environment(
    tmp_path: Path, settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONSUMER_SDK_IVY_SETTINGS and CONSUMER_SDK_CACHE do what the arguments do."""
    monkeypatch.setenv("CONSUMER_SDK_IVY_SETTINGS", str(settings))
    monkeypatch.setenv("CONSUMER_SDK_CACHE", str(tmp_path / "chosen"))
    folder = resolve_jars(JarSet("some", (PRESENT,)))
    assert folder.is_relative_to(tmp_path / "chosen")


@pytest.mark.campaign
def test_missing_jar_is_fetched_again(tmp_path: Path, settings: Path) -> None:
    """A jar that somebody removed from the cache is noticed before a server needs it."""
    folder = resolve(tmp_path, settings, PRESENT)
    (folder / "present-1.0.jar").unlink()
    assert (resolve(tmp_path, settings, PRESENT) / "present-1.0.jar").is_file()


@pytest.mark.campaign
def test_unresolvable_artefact_is_named_and_nothing_is_cached(
    tmp_path: Path, settings: Path
) -> None:
    """The error names the artefact, the settings and the remedy; the next call tries again."""
    for _ in range(2):
        with pytest.raises(JarResolutionError) as caught:
            resolve(tmp_path, settings, PRESENT, ABSENT)
        for part in ("absent", "9.9", str(settings), "CONSUMER_SDK_IVY_SETTINGS", "not found"):
            assert part in str(caught.value)


@pytest.mark.campaign
def test_damaged_jar_is_refused(tmp_path: Path, settings: Path) -> None:
    """A proxy's error page under a jar's name is no jar."""
    (tmp_path / "present-1.0.jar").write_text("<html>denied</html>", encoding="utf-8")
    with pytest.raises(JarResolutionError, match="damaged"):
        resolve(tmp_path, settings, PRESENT)


async def test_two_callers_at_once_fetch_once(
    tmp_path: Path, settings: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The second caller waits for the first one's files."""
    caplog.set_level(logging.INFO, logger="consumer_sdk")
    calls = (asyncio.to_thread(resolve, tmp_path, settings, PRESENT) for _ in range(2))
    one, other = await asyncio.gather(*calls)
    assert one == other
    assert len([line for line in caplog.messages if "fetching" in line]) == 1
