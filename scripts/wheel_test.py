"""Builds the distributions as a release would, and tries the wheel on every Python that is here.

uv builds the sdist, and the wheel from that sdist. Each Python gets an environment with the wheel
and its base dependencies; `wheel_probe.py` and the command line run in there. Interpreters are
those on PATH, pyenv's and uv's. With ``--install``, or ``CI`` in the environment, uv may download
those that are missing. ``--dist FOLDER`` keeps sdist and wheel there if nothing is wrong with them.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from importlib.metadata import packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
ENOUGH = 2
SECONDS = 30  # for a download of Python, which nothing depends on
BIN = Path(sys.executable).parent
PROBE = Path(__file__).resolve().with_name("wheel_probe.py")
PYENV = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()


class CheckError(Exception):
    """A check failed; the text says which, why, and what to do."""


def run(what: str, *command: str | Path, cwd: Path | None = None) -> str:
    """Return what a command writes to stdout.

    Raises:
        CheckError: the command failed; the text has its output, and ends with `what`.
    """
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=cwd)  # noqa: S603 - commands of this file
    if done.returncode:
        raise CheckError(f"{done.stdout}{done.stderr}\nwheel-test: {what}".strip())
    return done.stdout


def build(folder: Path) -> tuple[Path, Path]:
    """Return an sdist of the working tree, and a wheel of that sdist."""
    options = ("--no-build-isolation", "--python", sys.executable, "--out-dir", folder)
    run("the build failed", BIN / "uv", "build", *options)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


def package_files() -> set[str]:
    """Return the tracked files that belong into a wheel."""
    modules = ":(glob)*_consumer_sdk.py"  # at the root only: some pages' programs are called so too
    listing = run("git lists no files", "git", "ls-files", "-z", "consumer_sdk", modules)
    return {name for name in listing.split("\0") if name}


def compare(wheel: Path) -> int:
    """Return how many files of the package the wheel has.

    Raises:
        CheckError: the package in the repository has others.
    """
    tracked = package_files()
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    wrong = [f"  not in the wheel: {name}" for name in sorted(tracked - packed)]
    wrong += [f"  in the wheel, but not tracked: {name}" for name in sorted(packed - tracked)]
    if wrong:
        advice = "git add what is new, or fix [tool.hatch.build.targets.sdist] in pyproject.toml"
        raise CheckError("\n".join([*wrong, f"wheel-test: the wheel's files differ: {advice}"]))
    return len(packed)


def optional_names() -> list[str]:
    """Return the import names of the packages that the project's extras name."""
    needs = [Requirement(text) for text in requires("consumer-sdk") or ()]
    wanted = {canonicalize_name(need.name) for need in needs if "extra" in str(need.marker)}
    homes = packages_distributions().items()
    return sorted(name for name, owners in homes if wanted & set(map(canonicalize_name, owners)))


def base_packages(wheel: Path, folder: Path) -> Path:
    """Return a folder with the wheel and its base dependencies; pip knows where to get them."""
    advice = "is there a network, and does the package index answer? (see `pip config list`)"
    command = (sys.executable, "-m", "pip", "download", "--quiet", "--dest", folder, wheel)
    run(f"could not download the wheel's dependencies: {advice}", *command)
    return folder


def find(version: str) -> str | None:
    """Return an interpreter that answers; uv passes over pyenv's shims that lead nowhere."""
    return uv_python("find", "--system", "--no-python-downloads", version)


def download(version: str) -> str | None:
    """Return an interpreter that uv has fetched."""
    uv_python("install", "--no-bin", version)
    return find(version)


def uv_python(*arguments: str) -> str | None:
    """Return what ``uv python`` says, None where it fails or takes long; it sees pyenv's versions."""
    folders = map(str, PYENV.glob("versions/3.1*/bin"))
    search = os.pathsep.join([*folders, os.environ.get("PATH", "")])
    environment = os.environ | {"PATH": search, "UV_HTTP_RETRIES": "0"}
    command = [str(BIN / "uv"), "python", *arguments]
    try:
        output = subprocess.check_output(  # noqa: S603 - as above
            command, stderr=subprocess.DEVNULL, text=True, env=environment, timeout=SECONDS
        )
    except subprocess.SubprocessError:
        return None
    return output.strip()


def try_wheel(python: str, wheel: Path, packages: Path, folder: Path) -> None:
    """Install the wheel for an interpreter, and use it, away from the checkout.

    Raises:
        CheckError: it does not work there.
    """
    run("uv made no environment", BIN / "uv", "venv", "--python", python, folder)
    options = ("--offline", "--no-index", "--find-links", packages, "--python", folder)
    run("the wheel was not installed", BIN / "uv", "pip", "install", *options, wheel)
    program, inside = folder / "bin/consumer-sdk", folder / "bin/python"
    problem = f"the wheel does not work with {python}"
    run(problem, inside, "-I", "-W", "error", PROBE, *optional_names(), cwd=folder)
    for command in ((program,), (inside, "-m", "consumer_sdk")):
        for option in ("--help", "--version"):
            run(problem, *command, option, cwd=folder)


def outcome(version: str, python: str | None, wheel: Path, packages: Path) -> str:
    """Return what came of one Python; what is wrong with it goes to stderr."""
    if python is None:
        return "not to be had here"
    try:
        try_wheel(python, wheel, packages, packages.parent / version)
    except CheckError as error:
        print(error, file=sys.stderr)
        return "failed"
    return "passed"


def interpreters(*, may_download: bool) -> dict[str, str | None]:
    """Return an interpreter for each version of Python, or None.

    Raises:
        CheckError: there are too few.
    """
    found = {version: find(version) for version in PYTHONS}
    if may_download:
        found = {version: python or download(version) for version, python in found.items()}
    if sum(map(bool, found.values())) < ENOUGH:
        raise CheckError(
            f"wheel-test: {ENOUGH} of Python {', '.join(PYTHONS)} are needed, and there are "
            f"{[*filter(None, found.values())]} on PATH, in {PYENV}/versions and among uv's; "
            f"install another, or let uv do so: make wheel-test ARGS=--install"
        )
    return found


def check(folder: Path, *, may_download: bool) -> dict[str, str]:
    """Return what came of each version of Python.

    Raises:
        CheckError: the distributions are wrong on any.
    """
    pythons = interpreters(may_download=may_download)
    sdist, wheel = build(folder / "dist")
    count = compare(wheel)
    run("twine finds fault", BIN / "twine", "check", "--strict", sdist, wheel)
    print(f"wheel-test: the wheel has all {count} files of the package; twine finds no fault")
    packages = base_packages(wheel, folder / "packages")
    return {each: outcome(each, found, wheel, packages) for each, found in pythons.items()}


def keep(built: Path, folder: Path) -> None:
    """Copy sdist and wheel, the very files that were tried."""
    folder.mkdir(parents=True, exist_ok=True)
    for each in (*built.glob("*.tar.gz"), *built.glob("*.whl")):
        shutil.copy2(each, folder)


def main() -> int:
    """Print what came of each Python; 1 when something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--install", action="store_true", help="let uv download missing Pythons")
    parser.add_argument("--dist", type=Path, help="keep sdist and wheel in this folder")
    given = parser.parse_args()
    may_download = given.install or "CI" in os.environ
    try:
        with tempfile.TemporaryDirectory() as folder:
            outcomes = check(Path(folder), may_download=may_download)
            if given.dist and "failed" not in outcomes.values():
                keep(Path(folder) / "dist", given.dist)
    except CheckError as error:
        print(error, file=sys.stderr)
        return 1
    for version, text in outcomes.items():
        print(f"wheel-test: Python {version}: {text}")
    return "failed" in outcomes.values()


if __name__ == "__main__":
    sys.exit(main())
