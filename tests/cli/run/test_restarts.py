"""When a worker starts again, and which files have changed."""

from __future__ import annotations

import os
from pathlib import Path

from consumer_sdk.cli.run.supervisor import (
    LONGEST,
    SAME,
    SOUND,
    Restarts,
    Signals,
    changes,
    modified,
)


def test_worker_that_dies_soon_waits_longer_each_time() -> None:
    """Up to a bound; one that has worked for a while begins anew."""
    restarts = Restarts()

    assert [restarts.after(0.1) for _ in range(4)] == [0.5, 1.0, 2.0, 4.0]
    assert [restarts.after(SOUND - 1) for _ in range(5)][-1] == LONGEST
    assert [restarts.after(SOUND), restarts.after(0.1)] == [0.5, 1.0]


def test_signals_within_a_second_of_the_first_are_one() -> None:
    """However many of them come."""
    signals = Signals()

    assert [signals.is_another(5.0 + after) for after in (0, 0.1, SAME / 2)] == [False] * 3
    assert signals.is_another(5.0 + SAME)


def test_changes_are_of_python_files_that_are_the_projects_own(tmp_path: Path) -> None:
    """Hidden directories and virtual environments are none of it; a file can be named."""
    for folder in ("pkg", ".hidden", "venv", "__pycache__"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "module.py").touch()
    (tmp_path / "venv" / "pyvenv.cfg").touch()
    (tmp_path / "consumer.toml").touch()
    (tmp_path / "other.toml").touch()
    own, named = str(tmp_path / "pkg" / "module.py"), str(tmp_path / "consumer.toml")

    before = modified(tmp_path, [named])
    assert before.keys() == {own, named}
    os.utime(named, ns=(1, 1))
    (tmp_path / "new.py").touch()
    Path(own).unlink()
    after = modified(tmp_path, [named])
    assert changes(before, after) == sorted([own, named, str(tmp_path / "new.py")])
    assert changes(after, after) == []
