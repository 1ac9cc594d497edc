"""What ``module:name`` means, and what is said where it means nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from consumer_sdk.cli.run.apps import load_app
from consumer_sdk.errors import ConfigurationError

HERE = "tests.cli.run.apps"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory; what is imported of it is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    monkeypatch.setattr("sys.modules", sys.modules.copy())
    return tmp_path


@pytest.mark.parametrize(
    "name, kind",
    [
        ("handle", "handler"),
        ("partial", "handler"),
        ("instance", "handler"),
        ("make", "factory"),
        ("make_group", "factory"),
        ("make_with", "factory"),
        ("make_later", "factory"),
        ("wrapped", "handler"),
        ("consumer", "consumer"),
        ("group", "group"),
        ("Handler.__call__", "handler"),
    ],
)
def test_name_is_told_by_what_it_takes(name: str, kind: str) -> None:
    """A coroutine function that takes a message is a handler; what takes nothing makes a consumer."""
    assert load_app(f"{HERE}:{name}")[1] == kind


@pytest.mark.parametrize(
    "app, words",
    [
        ("service", "write module:name"),
        (":handle", "write module:name"),
        ("service.py:handle", "write service:handle"),
        ("a/b.py:handle", "write a.b:handle"),
        ("/a/b.py:handle", "write module:name"),
        (f"{HERE}:handel", "has no 'handel': did you mean handle?"),
        (f"{HERE}:broker", "is MemoryBroker: give an async handler"),
        (f"{HERE}:Handler", "is type: give an async handler"),
        ("servise:handle", "no module 'servise': did you mean service?"),
        ("tests.cli.run.aps:handle", "did you mean apps?"),
        ("nothing_like_it:handle", "no module 'nothing_like_it'; looked in"),
    ],
)
def test_name_of_nothing_is_told_the_nearest(app: str, words: str, folder: Path) -> None:
    """In one line."""
    (folder / "service.py").touch()

    with pytest.raises(ConfigurationError) as found:
        load_app(app)
    assert words in str(found.value)


def test_module_that_fails_shows_its_own_traceback_once(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From its first frame on, also where it is a module that it imports which is missing."""
    (folder / "failing.py").write_text("import no_such_package\n")

    with pytest.raises(ConfigurationError, match="failing cannot be imported: ModuleNotFoundError"):
        load_app("failing:handle")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1] == f'  File "{folder}/failing.py", line 1, in <module>'
    assert lines[-1] == "ModuleNotFoundError: No module named 'no_such_package'"
