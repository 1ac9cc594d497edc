"""Gets Apache Pulsar: one archive through the PySpark wheel's Ivy, unpacked once per user."""

import gzip
import logging
import shutil
import tarfile
import zlib
from pathlib import Path

from consumer_sdk.testing.servers.cache import cache_folder, is_complete, locked, publish
from consumer_sdk.testing.servers.errors import JarResolutionError
from consumer_sdk.testing.servers.ivy import Artifact, JarSet, resolve_jars

__all__ = ["PULSAR", "unpacked"]

_LOG = logging.getLogger(__name__)
_CHUNK = 1 << 20  # bytes

PULSAR = JarSet(
    "pulsar",
    (
        Artifact(
            org="org.apache.pulsar",
            name="pulsar-server-distribution",
            revision="4.0.8",
            conf="default->master",  # the archive holds all that it needs
            classifier="bin",
            extension="tar.gz",
        ),
    ),
)


def unpacked(archive: JarSet, *, cache: Path | None = None, settings: Path | None = None) -> Path:
    """Return the folder with what an archive holds; fetches and unpacks it when it is not there.

    The archive itself is not kept. Blocks, for half a minute at the first call: call it in a thread.

    Args:
        archive: a set of one tar archive.
        cache: the cache folder; `cache_folder()` by default.
        settings: an Ivy settings file, see `resolve_jars`.

    Raises:
        JarResolutionError: it could not be fetched, or what arrived is no such archive.
        JavaNotFoundError: there is no Java to run Ivy with.
        MissingExtraError: PySpark, which ships Ivy, is not installed.
    """
    target = (cache or cache_folder()) / "unpacked" / archive.folder
    if not is_complete(target):
        with locked(target):
            if not is_complete(target):
                _fetch(archive, target, settings)
    # An archive of a release has one folder, which names the version.
    return next(each for each in target.iterdir() if each.is_dir())


def _fetch(archive: JarSet, target: Path, settings: Path | None) -> None:
    work = target.with_name(f"{target.name}.partial")
    fetched = resolve_jars(archive, cache=work, settings=settings)
    files = work / "files"
    shutil.rmtree(files, ignore_errors=True)
    (packed,) = fetched.glob("*.tar.gz")
    _LOG.info("unpacking %s into %s", packed.name, target)
    _unpack(packed, files)
    publish(files, target)
    shutil.rmtree(work)


def _unpack(packed: Path, files: Path) -> None:
    try:
        _read_to_the_end(packed)
        with tarfile.open(packed) as archive:
            # Refuses what would lie outside of the folder; Python 3.12 asks for the choice.
            archive.extractall(files, filter="data")
        if not any(each.is_dir() for each in files.iterdir()):
            raise tarfile.ReadError("no folder in it")
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        packed.unlink()  # else the next try would find it fetched
        raise JarResolutionError(
            f"{packed.name} is damaged: {error}. It will be fetched again; when that changes "
            "nothing, look at what your mirror or proxy gives under this name"
        ) from error


def _read_to_the_end(packed: Path) -> None:
    # tarfile takes an archive that is cut off between two of its files for a whole one.
    with gzip.open(packed) as content:
        while content.read(_CHUNK):
            pass
