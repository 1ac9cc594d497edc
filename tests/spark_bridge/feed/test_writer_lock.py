"""Live and dead writers."""

from __future__ import annotations

from pathlib import Path

from consumer_sdk.spark_bridge.feed.writer import DeadWriters, WriterLock


def crash(lock: WriterLock) -> str:
    """Ends a writer as the kernel does: the lock goes, its file stays."""
    name, path = lock.name, lock._path
    data = path.read_bytes()
    lock.release()
    path.write_bytes(data)
    return name


def test_what_the_dead_left_uncommitted_is_deleted(tmp_path: Path) -> None:
    """Only uncommitted files of dead writers go; a live one's, and strangers', stay."""
    dead, live = crash(WriterLock(tmp_path)), WriterLock(tmp_path)
    litter = tmp_path / "segments"
    litter.mkdir()
    for name in (f"{dead}-0.arrow", f"{dead}-1.arrow", f"{live.name}-0.arrow", "README"):
        (litter / name).touch()
    found = DeadWriters(tmp_path, [litter])
    found.keep(f"{dead}-0.arrow")
    found.delete_litter()
    found.release()
    left = {path.name for path in litter.iterdir()}
    assert left == {f"{dead}-0.arrow", f"{live.name}-0.arrow", "README"}
    assert [path.stem for path in tmp_path.glob("*.lock")] == [live.name]
    live.release()


def test_a_dead_writer_is_cleared_up_by_one_only(tmp_path: Path) -> None:
    """While one clears up, another one leaves that writer alone."""
    dead = crash(WriterLock(tmp_path))
    (tmp_path / f"{dead}-0.arrow").touch()
    first = DeadWriters(tmp_path, [tmp_path])
    second = DeadWriters(tmp_path, [tmp_path])
    second.delete_litter()
    second.release()
    assert (tmp_path / f"{dead}-0.arrow").exists()
    first.delete_litter()
    first.release()
    assert list(tmp_path.iterdir()) == []


def test_a_released_name_leaves_nothing(tmp_path: Path) -> None:
    """A clean end leaves no lock file."""
    WriterLock(tmp_path).release()
    assert list(tmp_path.iterdir()) == []
