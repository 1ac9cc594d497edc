"""Folders that are fetched once per user and checked at each use.

A folder appears by one rename when all of it is there, so a reader sees all or nothing. A lock file
keeps two processes from fetching the same one. What somebody removed or cut short later is noticed,
since a list of names and sizes lies beside the files.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["cache_folder", "is_complete", "locked", "publish"]

_LISTING = "FILES"  # size and name of each file, written last


def cache_folder() -> Path:
    """Return the folder for what was fetched: CONSUMER_SDK_CACHE, else the user's cache folder."""
    if chosen := os.environ.get("CONSUMER_SDK_CACHE"):
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "consumer_sdk"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from fetching the same folder; makes the folder that it lies in."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Not with_suffix: the folder's name may end with a version.
    with folder.with_name(f"{folder.name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)  # let go when the handle closes, or the process dies
        yield


def publish(files: Path, target: Path) -> None:
    """Make the fetched files appear as `target`, with their list; replaces what is there."""
    found = sorted(file for file in files.rglob("*") if file.is_file() and not file.is_symlink())
    lines = (f"{file.stat().st_size} {file.relative_to(files)}\n" for file in found)
    (files / _LISTING).write_text("".join(lines), encoding="utf-8")
    shutil.rmtree(target, ignore_errors=True)
    files.rename(target)


def is_complete(folder: Path) -> bool:
    """Return whether the folder was published and each of its files still has its size."""
    try:
        lines = (folder / _LISTING).read_text(encoding="utf-8").splitlines()
        sizes = (line.split(" ", 1) for line in lines)
        return all((folder / name).stat().st_size == int(size) for size, name in sizes)
    except FileNotFoundError:
        return False
