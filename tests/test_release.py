"""`make release`: what it writes, and that a failure leaves the clone as it was."""

from __future__ import annotations

import subprocess
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

SCRIPT: dict[str, Any] = run_path(str(Path(__file__).parent.parent / "scripts" / "release.py"))
ReleaseError = SCRIPT["ReleaseError"]
DATE = "2030-01-31"
CHANGELOG = """\
# Changelog

## Unreleased

See [changes/](changes/README.md).

## 1.0.0 - 2029-12-01

- The first one.
"""
FRAGMENTS = {
    "kafka-late.fixed.md": "A late commit was\nlost. See [Kafka](../docs/kafka.md).\n",
    "stores-s3.added.md": "A store on S3.\n",
}
SECTION = """\
## 1.1.0 - 2030-01-31

### Added

- A store on S3.

### Fixed

- A late commit was
  lost. See [Kafka](docs/kafka.md).
"""
# In the place of the real one: it builds at once, unless a file says not to.
WHEEL_TEST = """\
import sys
from pathlib import Path

if Path("broken").exists():
    sys.exit(1)
text = Path("consumer_sdk/__init__.py").read_text()
Path(sys.argv[2], "consumer_sdk.whl").write_text(text)
"""


def git(root: Path, *arguments: str) -> str:
    """Return what git prints."""
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a package, a changelog and two fragments, all committed."""
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "nobody")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "nobody@localhost")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    files = {f"changes/{name}": text for name, text in FRAGMENTS.items()} | {
        "changes/README.md": "What a fragment is.\n",
        "CHANGELOG.md": CHANGELOG,
        "consumer_sdk/__init__.py": '"""A package."""\n\n__version__ = "1.0.0"\n',
        "scripts/wheel_test.py": WHEEL_TEST,
        ".gitignore": "/dist\n",
    }
    git(tmp_path, "init", "--quiet", "--initial-branch", "main")
    commit(tmp_path, files)
    return tmp_path


def commit(root: Path, files: dict[str, str]) -> None:
    """Write files and commit them."""
    for name, text in files.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "a change")


def state(root: Path) -> tuple[str, ...]:
    """Branch, files and tags."""
    return git(root, "rev-parse", "HEAD"), git(root, "status", "--porcelain"), git(root, "tag")


def test_release_commits_tags_and_keeps_the_distributions(clone: Path) -> None:
    """One commit has changelog, version and the deletions; the wheel is of that version."""
    before = git(clone, "rev-parse", "HEAD")
    told = SCRIPT["release"](clone, "1.1.0", DATE)

    assert "git push origin main v1.1.0" in told
    assert git(clone, "status", "--porcelain") == ""
    assert git(clone, "rev-parse", "v1.1.0^{commit}", "HEAD~1").split() == [
        git(clone, "rev-parse", "HEAD"),
        before,
    ]
    assert git(clone, "log", "-1", "--format=%s") == "packaging: release 1.1.0"
    assert git(clone, "ls-files", "changes") == "changes/README.md"
    assert '__version__ = "1.1.0"' in (clone / "dist/consumer_sdk.whl").read_text()
    head, tail = CHANGELOG.split("## 1.0.0")
    assert (clone / "CHANGELOG.md").read_text() == f"{head}{SECTION}\n## 1.0.0{tail}"


def test_dry_run_prints_the_section(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On any branch, with whatever is in the tree."""
    (clone / "draft.txt").touch()
    before = state(clone)
    monkeypatch.chdir(clone)
    monkeypatch.setattr("sys.argv", ["release.py", "1.1.0", "--dry-run"])

    assert SCRIPT["main"]() == 0
    assert capsys.readouterr().out.splitlines()[1:] == SECTION.splitlines()[1:]
    assert state(clone) == before


def test_wheel_that_does_not_work_leaves_all_as_it_was(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The fragments are back, and the version is the old one."""
    commit(clone, {"broken": ""})
    before = state(clone)
    monkeypatch.chdir(clone)
    monkeypatch.setattr("sys.argv", ["release.py", "1.1.0"])

    assert SCRIPT["main"]() == 1
    assert "the distributions are not good" in capsys.readouterr().err
    assert state(clone) == before
    assert (clone / "CHANGELOG.md").read_text() == CHANGELOG
    assert not (clone / "dist").exists()


def test_commit_that_is_refused_leaves_all_as_it_was(clone: Path) -> None:
    """A hook may say no."""
    hook = clone / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    before = state(clone)

    with pytest.raises(ReleaseError, match=r"git commit .* failed"):
        SCRIPT["release"](clone, "1.1.0", DATE)
    assert state(clone) == before


def test_distributions_that_cannot_be_kept_leave_all_as_it_was(clone: Path) -> None:
    """The commit and the tag were made, and are taken back."""
    (clone / "dist").write_text("a file where a folder has to be")
    before = state(clone)

    with pytest.raises(OSError, match="dist"):
        SCRIPT["release"](clone, "1.1.0", DATE)
    assert state(clone) == before


def test_tree_that_is_not_clean_is_refused(clone: Path) -> None:
    """A new file too: it might belong into the wheel."""
    (clone / "consumer_sdk/new.py").touch()
    with pytest.raises(ReleaseError, match=r"not clean; commit or stash first:\n.*new\.py"):
        SCRIPT["release"](clone, "1.1.0", DATE)


def test_other_branch_is_refused(clone: Path) -> None:
    """With the command that leads back."""
    git(clone, "switch", "--quiet", "--create", "work")
    with pytest.raises(ReleaseError, match=r"branch work; .* git switch main"):
        SCRIPT["release"](clone, "1.1.0", DATE)


def test_tag_that_is_there_is_refused(clone: Path) -> None:
    """It stays: a release is made once."""
    git(clone, "tag", "v1.1.0")
    with pytest.raises(ReleaseError, match=r"v1\.1\.0 is there already"):
        SCRIPT["release"](clone, "1.1.0", DATE)
    assert git(clone, "tag") == "v1.1.0"


@pytest.mark.parametrize(
    "text, problem",
    [
        ("next", "'next' is no version"),
        ("v1.1.0", r"write the version as 1\.1\.0"),
        ("1.1.0+mine", r"write the version as 1\.1\.0"),
        ("1.0.0", r"not newer than 1\.0\.0"),
        ("1.0.0rc1", r"not newer than 1\.0\.0"),
    ],
)
def test_version_that_cannot_be_next_is_refused(text: str, problem: str) -> None:
    """It is spelt as PEP 440 has it, and is higher than the last one."""
    with pytest.raises(ReleaseError, match=problem):
        SCRIPT["checked"](text, "1.0.0")


@pytest.mark.parametrize("text", ["1.0.1", "1.1.0rc1", "2.0.0"])
def test_newer_version_is_taken(text: str) -> None:
    """A candidate too."""
    assert SCRIPT["checked"](text, "1.0.0") == text


@pytest.mark.parametrize(
    "files, problem",
    [
        ({}, "no fragment"),
        ({"kafka-late.mended.md": "x"}, r"kafka-late\.mended\.md .* added, changed"),
        ({"kafka-late.fixed.md": "\n"}, "is empty"),
    ],
)
def test_fragments_that_say_nothing_are_refused(
    tmp_path: Path, files: dict[str, str], problem: str
) -> None:
    """None may be lost on the way into the changelog."""
    (tmp_path / "changes").mkdir()
    for name, text in files.items():
        (tmp_path / "changes" / name).write_text(text)
    with pytest.raises(ReleaseError, match=problem):
        SCRIPT["fragments"](tmp_path)


def test_fragments_of_this_repository_can_be_released() -> None:
    """Each has a kind and a text; right after a release there is none."""
    root = Path(__file__).parent.parent
    if len(list((root / "changes").iterdir())) > 1:
        SCRIPT["section"]("9.0.0", DATE, SCRIPT["fragments"](root))


def test_changelog_of_this_repository_has_a_place_for_a_release() -> None:
    """The section stands last in a changelog without releases."""
    text = (Path(__file__).parent.parent / "CHANGELOG.md").read_text(encoding="utf-8")
    assert SCRIPT["with_section"](text, SECTION).count(SECTION) == 1


def test_changelog_without_the_heading_is_refused() -> None:
    """Rather than that the section goes anywhere."""
    with pytest.raises(ReleaseError, match="## Unreleased"):
        SCRIPT["with_section"]("# Changelog\n", SECTION)
