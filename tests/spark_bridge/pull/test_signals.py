"""Claims about the last word of a process that is told to end."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import signal, sys, time
from consumer_sdk.spark_bridge.pull.run import before_end

def say(*_):
    print("theirs", flush=True)
    sys.exit(7)

if "chained" in sys.argv:
    signal.signal(signal.SIGTERM, say)
before_end(lambda: print("last word", flush=True))
print("ready", flush=True)
if "ends" not in sys.argv:
    time.sleep(60)
"""


def run(directory: Path, *arguments: str, name: str) -> tuple[list[str], int]:
    """Run the program, end it by SIGTERM unless it ends; return what it said, and its status."""
    program = directory / name
    program.write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, str(program), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        if "ends" not in arguments:
            process.send_signal(signal.SIGTERM)
        said = process.stdout.read()
    return said.split("\n")[:-1], process.returncode


RUNNER = "python_streaming_source_runner.py"


def test_a_terminated_source_runner_has_its_last_word(tmp_path: Path) -> None:
    """Trap 5: and it dies by the signal, as it would have anyway."""
    assert run(tmp_path, name=RUNNER) == (["last word"], -signal.SIGTERM)


def test_a_handler_that_was_there_before_is_called_afterwards(tmp_path: Path) -> None:
    """What it does then is its own affair."""
    said, status = run(tmp_path, "chained", name=RUNNER)
    assert said[:2] == ["last word", "theirs"]
    assert status == 7


def test_a_source_runner_that_ends_has_its_last_word_too(tmp_path: Path) -> None:
    """Without any signal."""
    assert run(tmp_path, "ends", name=RUNNER) == (["last word"], 0)


@pytest.mark.parametrize("arguments", [(), ("ends",)], ids=["terminated", "ended"])
def test_the_signals_of_other_programs_are_left_alone(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """Workers, and programs that read ranges themselves."""
    said, _ = run(tmp_path, *arguments, name="program.py")
    assert said == []
