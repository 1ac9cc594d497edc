"""Makes a release in this clone: ``make release VERSION=1.0.0``; pushes and uploads nothing.

It moves the fragments of ``changes/`` into CHANGELOG.md, sets the version, has `wheel_test.py` build and try the
distributions, commits, tags ``v1.0.0``, and leaves sdist and wheel in ``dist/``. A failure, or Ctrl-C, leaves branch,
files and tags as they were. ``--dry-run`` only prints the section of the changelog.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from packaging.version import InvalidVersion, Version

__all__ = ["ReleaseError", "checked", "fragments", "main", "release", "section", "with_section"]

KINDS = ("added", "changed", "deprecated", "removed", "fixed", "security")
FRAGMENT = re.compile(rf"[a-z0-9][a-z0-9._-]*\.({'|'.join(KINDS)})\.md")
VERSION_FILE = Path("consumer_sdk/__init__.py")
VERSION_LINE = re.compile(r'^__version__ = "(.*)"$', re.MULTILINE)
CHANGELOG = Path("CHANGELOG.md")
WRITTEN = (str(CHANGELOG), str(VERSION_FILE), "changes")
BRANCH = "main"


class ReleaseError(Exception):
    """The release was not made; the text says why, and what to do."""


def checked(text: str, current: str) -> str:
    """Return the new version.

    Raises:
        ReleaseError: it is not newer than `current`, or not spelt as PEP 440 has it.
    """
    try:
        version = Version(text)
    except InvalidVersion as error:
        raise ReleaseError(f"{text!r} is no version of PEP 440; write it like 1.2.0") from error
    if str(version) != text or version.local:
        raise ReleaseError(f"write the version as {version.public}, not {text}")
    if version <= Version(current):
        raise ReleaseError(f"{text} is not newer than {current}, the version in {VERSION_FILE}")
    return text


def fragments(root: Path) -> dict[str, str]:
    """Return the text of each fragment, by file name.

    Raises:
        ReleaseError: there is none, one is empty, or a file has another name than a fragment.
    """
    folder = root / "changes"
    files = sorted(each for each in folder.iterdir() if each.name != "README.md")
    texts = {each.name: each.read_text(encoding="utf-8").strip() for each in files}
    if not texts:
        raise ReleaseError(f"{folder} has no fragment: there is nothing to release")
    for name, text in texts.items():
        if not FRAGMENT.fullmatch(name) or not text:
            raise ReleaseError(
                f"changes/{name} is empty, or not named AREA-what-changes.KIND.md with one of "
                f"{', '.join(KINDS)}; fix it, and commit"
            )
    return texts


def section(version: str, date: str, texts: Mapping[str, str]) -> str:
    """Return the section of the changelog for a release; links lead from the root, not from `changes/`."""
    parts = [f"## {version} - {date}"]
    for kind in KINDS:
        entries = [text for name, text in texts.items() if name.endswith(f".{kind}.md")]
        if entries:
            parts += [f"### {kind.capitalize()}", "\n".join(map(_item, entries))]
    return "\n\n".join(parts) + "\n"


def _item(text: str) -> str:
    lines = text.replace("](../", "](").splitlines()
    return "\n".join(
        f"{'  ' if number else '- '}{line}".rstrip() for number, line in enumerate(lines)
    )


def with_section(changelog: str, added: str) -> str:
    """Return the changelog with a section below "Unreleased", above earlier releases.

    Raises:
        ReleaseError: there is no such heading.
    """
    found = re.search(r"^## Unreleased\n(?:(?!## ).*\n)*", changelog, re.MULTILINE)
    if not found:
        raise ReleaseError(f"{CHANGELOG} has no line '## Unreleased'; write it above the releases")
    head, tail = changelog[: found.end()].rstrip(), changelog[found.end() :]
    return f"{head}\n\n{added}" + (f"\n{tail}" if tail else "")


def git(root: Path, *arguments: str) -> str:
    """Return what git prints.

    Raises:
        ReleaseError: it failed.
    """
    command = ("git", "-C", str(root), *arguments)
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - arguments of this file
    if done.returncode:
        raise ReleaseError(
            f"git {' '.join(arguments)} failed: {done.stderr.strip() or done.stdout}"
        )
    return done.stdout.strip()


def check_clone(root: Path, version: str) -> None:
    """Raise a `ReleaseError` unless the clone is clean, on main, and has no such tag."""
    branch = git(root, "rev-parse", "--abbrev-ref", "HEAD")
    if branch != BRANCH:
        raise ReleaseError(f"this is branch {branch}; release from {BRANCH}: git switch {BRANCH}")
    if changed := git(root, "status", "--porcelain"):
        raise ReleaseError(f"the tree is not clean; commit or stash first:\n{changed}")
    if git(root, "tag", "--list", f"v{version}"):
        raise ReleaseError(
            f"the tag v{version} is there already: {version} was released; take another"
        )


def current_version(root: Path) -> str:
    """Return the version that the package has now."""
    found = VERSION_LINE.search((root / VERSION_FILE).read_text(encoding="utf-8"))
    if not found:
        raise ReleaseError(f'{VERSION_FILE} has no line like __version__ = "1.2.0"')
    return found[1]


@contextmanager
def undone_on_failure(root: Path, version: str) -> Iterator[None]:
    """Put branch, files and tags back if the body fails; `check_clone` saw that nothing else is lost."""
    before = git(root, "rev-parse", "HEAD")
    try:
        yield
    except BaseException:  # Ctrl-C too
        git(root, "reset", "--quiet", before)
        git(
            root, "checkout", "--quiet", before, "--", *WRITTEN
        )  # not what somebody edits meanwhile
        if git(root, "tag", "--list", f"v{version}"):
            git(root, "tag", "--delete", f"v{version}")
        raise


def write(root: Path, version: str, added: str, names: Mapping[str, str]) -> None:
    """Write changelog and version, and delete the fragments."""
    changelog, module = root / CHANGELOG, root / VERSION_FILE
    changelog.write_text(
        with_section(changelog.read_text(encoding="utf-8"), added), encoding="utf-8"
    )
    line = f'__version__ = "{version}"'
    text = VERSION_LINE.sub(line, module.read_text(encoding="utf-8"))
    module.write_text(text, encoding="utf-8")
    for name in names:
        (root / "changes" / name).unlink()


def build(root: Path, folder: Path) -> None:
    """Build sdist and wheel into a folder; twine checks them, and each Python here uses the wheel.

    Raises:
        ReleaseError: anything is wrong with them.
    """
    command = (sys.executable, "scripts/wheel_test.py", "--dist", str(folder))
    if subprocess.run(command, check=False, cwd=root).returncode:  # noqa: S603 - a program of this repository
        raise ReleaseError(
            "the distributions are not good, see above; fix that, commit, and try again"
        )


def release(root: Path, version: str, date: str, *, dry_run: bool = False) -> str:
    """Make a release; return what to tell.

    Raises:
        ReleaseError: it was not made, and nothing has changed.
    """
    if not dry_run:
        check_clone(root, version)
    version = checked(version, current_version(root))
    texts = fragments(root)
    added = section(version, date, texts)
    if dry_run:
        return added
    with tempfile.TemporaryDirectory() as folder, undone_on_failure(root, version):
        write(root, version, added, texts)
        build(root, Path(folder))
        git(root, "add", "--all", *WRITTEN)
        git(root, "commit", "--quiet", "--message", f"packaging: release {version}")
        git(root, "tag", "--annotate", f"v{version}", "--message", f"consumer_sdk {version}")
        shutil.copytree(folder, root / "dist", dirs_exist_ok=True)
    return (
        f"release: committed and tagged v{version}; sdist and wheel are in dist/. Nothing was pushed or "
        f"uploaded.\nTo publish: git push origin {BRANCH} v{version} && twine upload dist/*{version}*\n"
        f"To take it back: git tag --delete v{version} && git reset --hard HEAD~1\n"
    )


def main() -> int:
    """Print what was done; 1 when the release was not made."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version", help="such as 1.0.0")
    parser.add_argument("--dry-run", action="store_true", help="print the changelog's section only")
    given = parser.parse_args()
    today = datetime.now(UTC).date().isoformat()
    try:
        told = release(Path.cwd(), given.version, today, dry_run=given.dry_run)
    except (ReleaseError, OSError) as error:
        print(f"release: {error}\nrelease: nothing has changed", file=sys.stderr)
        return 1
    print(told, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
