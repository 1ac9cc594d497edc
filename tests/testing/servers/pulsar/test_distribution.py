"""Claims about unpacking an archive: the real Ivy, a repository in a folder, no network."""

import asyncio
import io
import logging
import tarfile
from pathlib import Path

import pytest

from consumer_sdk.testing.servers import Artifact, JarResolutionError, JarSet
from consumer_sdk.testing.servers.pulsar.server import unpacked

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
ARCHIVE = JarSet(
    "some", (Artifact(org="org.example", name="some", revision="1.0", extension="tar.gz"),)
)


class Repository:
    """A repository that has one archive, and a cache of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.archive = folder / "some-1.0.tar.gz"
        self.cache = folder / "cache"
        self._settings = folder / "settings.xml"
        self._settings.write_text(SETTINGS.format(folder=folder), encoding="utf-8")

    def hold(self, *names: str) -> None:
        """Give the archive these files."""
        with tarfile.open(self.archive, "w:gz") as archive:
            for name in names:
                file = tarfile.TarInfo(name)
                file.size = len(name)
                archive.addfile(file, io.BytesIO(name.encode()))

    def unpacked(self) -> Path:
        """Return the folder of the archive's content."""
        return unpacked(ARCHIVE, cache=self.cache, settings=self._settings)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Give a repository whose archive is in order."""
    found = Repository(tmp_path)
    found.hold("some-1.0/lib/one.jar", "some-1.0/conf/some.conf")
    return found


def test_archive_is_unpacked_once_and_not_kept(repository: Repository) -> None:
    """The second call needs no repository; nothing but the content takes room."""
    folder = repository.unpacked()
    assert folder.name == "some-1.0"
    assert (folder / "conf" / "some.conf").is_file()
    repository.archive.unlink()
    assert repository.unpacked() == folder
    assert not list(repository.cache.rglob("*.tar.gz"))
    assert not list(repository.cache.rglob("*.partial"))


@pytest.mark.campaign
def test_missing_file_is_unpacked_again(repository: Repository) -> None:
    """A file that somebody removed from the cache is noticed before a server needs it."""
    (repository.unpacked() / "lib" / "one.jar").unlink()
    assert (repository.unpacked() / "lib" / "one.jar").is_file()


@pytest.mark.campaign
@pytest.mark.parametrize("size", [0.5, 0.9])
def test_archive_cut_short_is_refused_and_fetched_again(
    repository: Repository, size: float
) -> None:
    """A broken download is no reason to fail for ever."""
    whole = repository.archive.read_bytes()
    repository.archive.write_bytes(whole[: int(len(whole) * size)])
    with pytest.raises(JarResolutionError, match="damaged"):
        repository.unpacked()
    repository.archive.write_bytes(whole)
    assert repository.unpacked().is_dir()


@pytest.mark.campaign
def test_page_under_the_archives_name_is_refused(repository: Repository) -> None:
    """A proxy's error page is no archive."""
    repository.archive.write_text("<html>denied</html>", encoding="utf-8")
    with pytest.raises(JarResolutionError, match=r"damaged: Not a gzipped file.*mirror or proxy"):
        repository.unpacked()


@pytest.mark.parametrize(
    "name", [pytest.param("../outside", marks=pytest.mark.campaign), "some-1.0/../../outside"]
)
def test_file_outside_of_the_folder_is_refused(repository: Repository, name: str) -> None:
    """An archive writes nothing beside its folder."""
    repository.hold("some-1.0/conf/some.conf", name)
    with pytest.raises(JarResolutionError, match="outside"):
        repository.unpacked()
    assert not list(repository.cache.parent.rglob("outside"))


@pytest.mark.campaign
def test_archive_without_a_folder_is_refused(repository: Repository) -> None:
    """Something else under the name of the release is not published."""
    repository.hold("loose")
    with pytest.raises(JarResolutionError, match="no folder"):
        repository.unpacked()


async def test_two_callers_at_once_unpack_once(
    repository: Repository, caplog: pytest.LogCaptureFixture
) -> None:
    """The second caller waits for the first one's files."""
    caplog.set_level(logging.INFO, logger="consumer_sdk")
    one, other = await asyncio.gather(*(asyncio.to_thread(repository.unpacked) for _ in range(2)))
    assert one == other
    assert len([line for line in caplog.messages if "unpacking" in line]) == 1
