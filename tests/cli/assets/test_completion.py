"""What shells complete: bash is asked, the others' scripts are read."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.test_checkpoints import run


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


def test_zsh_takes_the_script_of_bash() -> None:
    """By its own function for that."""
    first, rest = script("zsh").split("\n", 1)

    assert first == "autoload -U +X bashcompinit && bashcompinit"
    assert rest == script("bash")


def test_fish_has_a_line_for_each_word() -> None:
    """With its help; an inner command only behind its own topic."""
    lines = script("fish").splitlines()

    when = "__fish_seen_subcommand_from checkpoints; and __fish_seen_subcommand_from reset"
    assert (
        f"complete -c consumer-sdk -n '{when}' -l yes -d 'do it; without this, say what would be done'"
        in lines
    )
    assert any("-l by -x -a 'records seconds'" in line for line in lines)
    assert any(
        line.endswith("-f -a doctor -d 'say what would keep a consumer from running'")
        for line in lines
    )


def test_unknown_shell_is_told_the_nearest() -> None:
    """Status 2."""
    done = run("completion", "fisch", topic="assets")

    assert done.returncode == 2
    assert "unknown shell 'fisch': did you mean fish?" in done.stderr
