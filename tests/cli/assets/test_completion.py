"""What shells complete: each is asked, where it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.groups.test_checkpoints import run


def script(shell: str) -> str:
    """As the command writes it."""
    done = run("completion", shell, topic="assets")
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize(
    "words, completed",
    [
        (["che"], ["checkpoints"]),
        (["checkpoints", "imp"], ["import", "import-storm", "import-kinesis-spout", "import-kcl"]),
        (["run", "app:handle", "--rel"], ["--reload"]),
        (["run", "app:handle", "--ordering", ""], ["none", "key", "partition"]),
        (["lag", "kafka://h/t?group=g", "--by", "s"], ["seconds"]),
        (["assets", "completion", ""], ["bash", "zsh", "fish", "-h", "--help", "--json"]),
        (["checkpoints", "list", "sqlite:run", "--j"], ["--json"]),
        (["nothing", "--j"], []),
        (["run", "--config", ""], []),
    ],
)
def test_bash_completes_what_may_follow(
    tmp_path: Path, words: list[str], completed: list[str]
) -> None:
    """Commands, options, and the choices of an option."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("needs bash")
    (tmp_path / "script").write_text(script("bash"))
    line = " ".join(f"'{word}'" for word in ["consumer-sdk", *words])
    code = (
        f". ./script; COMP_WORDS=({line}); COMP_CWORD={len(words)}; _consumer_sdk; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        [bash, "-u", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == completed


ZSH = """
compdef() { } # what the shell loads for its own completion, and shows nothing by
_describe() { [ "$1" = -o ] && shift; local each; for each in "${(@P)2}"; do print -- "${each%%:*}"; done }
compadd() { shift; print -l -- "$@" }
_files() { print files }
source ./script
"""


@pytest.mark.parametrize(
    "words, offered",
    [
        (["leases"], ["list", "release", "reopen", "remove", "-h", "--help"]),
        (["assets", "completion"], ["bash", "zsh", "fish", "-h", "--help", "--json"]),
        (["run", "app:handle", "--ordering"], ["none", "key", "partition"]),
        (["run", "--config"], ["files"]),
        (["leases", "list", "lag", "run"], ["-h", "--help", "--stream", "--json", "files"]),
    ],
)
def test_zsh_offers_what_may_follow(tmp_path: Path, words: list[str], offered: list[str]) -> None:
    """By its own functions, which narrow it down to what was typed; files where one may stand."""
    zsh = shutil.which("zsh")
    if zsh is None:
        pytest.skip("needs zsh")
    (tmp_path / "script").write_text(script("zsh"))
    line = " ".join(f"'{word}'" for word in ["consumer-sdk", *words, ""])
    code = f"{ZSH}\nwords=({line}); CURRENT={len(words) + 2}; _consumer_sdk"
    done = subprocess.run(
        [zsh, "-f", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.stdout.split(), done.stderr) == (offered, "")


@pytest.mark.parametrize(
    "words, completed",
    [
        (["che"], ["checkpoints"]),
        (["checkpoints", "import-k"], ["import-kcl", "import-kinesis-spout"]),
        (["run", "app:handle", "--ordering", ""], ["key", "none", "partition"]),
        (["lag", "u", "--by=s"], ["--by=seconds"]),
        (["run", "--config", "scr"], ["script"]),
        (["leases", "list", "lag", "run", "--st"], ["--stream"]),
        (["dead-letters", "show", "u", "lag", "--wat"], []),
    ],
)
def test_fish_completes_what_may_follow(
    tmp_path: Path, words: list[str], completed: list[str]
) -> None:
    """Commands by their place alone: a group may be called like one."""
    fish = shutil.which("fish")
    if fish is None:
        pytest.skip("needs fish")
    (tmp_path / "script").write_text(script("fish"))
    line = " ".join(["consumer-sdk", *words])
    done = subprocess.run(
        [fish, "--no-config", "-c", f"source ./script; complete -C '{line}'"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)},
    )
    assert [each.split("\t")[0] for each in done.stdout.splitlines()] == completed
    assert done.stderr == ""


def test_fish_has_a_line_for_each_word() -> None:
    """With its help; an inner command only behind its own topic."""
    lines = script("fish").splitlines()

    when = """'__consumer_sdk_at " checkpoints reset"'"""
    assert (
        f"complete -c consumer-sdk -n {when} -l yes -d 'do it; without --yes, only show what would be done'"
        in lines
    )
    assert any("-l by -x -a 'records seconds'" in line for line in lines)
    assert any(
        line.endswith("-f -a doctor -d 'check what a consumer needs to run'") for line in lines
    )


def test_unknown_shell_is_told_the_nearest() -> None:
    """Status 2."""
    done = run("completion", "fisch", topic="assets")

    assert done.returncode == 2
    assert "unknown shell 'fisch': did you mean fish?" in done.stderr
