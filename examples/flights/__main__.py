"""Produces a year of flights to Kafka, reads them, kills the reader, and counts.

With ``--source feed`` a consumer checks the flights and feeds Spark; it is killed. With ``--source
pull`` Spark reads Kafka itself and sends bad flights to the dead letters; Spark is killed.

It exits with 0 when every flight was either processed exactly once or dead-lettered.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from consumer_sdk.errors import ConsumerSdkError
from examples.flights.data import ROWS
from examples.flights.demo import Demo
from examples.flights.picture import draw
from examples.flights.progress import Progress

INTERRUPTED = 130


def command_line() -> argparse.Namespace:
    """The options, checked."""
    parser = argparse.ArgumentParser(prog="examples.flights", description=__doc__)
    parser.add_argument(
        "--source", choices=("feed", "pull"), default="feed", help="how Spark gets the flights"
    )
    parser.add_argument(
        "--kafka", metavar="HOST:PORT", help="use this Kafka; without it, start one"
    )
    parser.add_argument(
        "--keep", metavar="DIR", type=Path, help="keep all data and logs in this folder"
    )
    parser.add_argument("--limit", metavar="N", type=int, default=ROWS, help="produce N flights")
    parser.add_argument(
        "--kill-at",
        metavar="SHARE",
        type=float,
        default=0.5,
        help="kill the reader after this share of the flights (default 0.5)",
    )
    parser.add_argument(
        "--stay", action="store_true", help="afterwards, keep the consumer's page up until Ctrl-C"
    )
    parser.add_argument(
        "--picture", type=Path, default=Path("build/flights.png"), help="where to write the PNG"
    )
    options = parser.parse_args()
    if not 0 < options.limit <= ROWS:
        parser.error(f"--limit must be between 1 and {ROWS}")
    if not 0 <= options.kill_at < 1:
        parser.error("--kill-at must be at least 0 and less than 1")
    if options.keep and options.keep.exists() and any(options.keep.iterdir()):
        parser.error(f"--keep: {options.keep} is not empty")
    return options


@contextlib.contextmanager
def folder(keep: Path | None) -> Iterator[Path]:
    """Where the run's data lives: ``keep``, or a folder that is removed at the end."""
    if keep:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
    else:
        with tempfile.TemporaryDirectory(prefix="flights-", ignore_cleanup_errors=True) as path:
            yield Path(path)


def cancel_on_signals() -> None:
    """Makes Ctrl-C and the like cancel this task once; its clean-up is not disturbed."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def interrupt() -> None:
        for number in signals:
            loop.add_signal_handler(number, lambda: None)
        if task:
            task.cancel()

    for number in signals:
        loop.add_signal_handler(number, interrupt)


async def run(options: argparse.Namespace) -> int:
    """Runs the demo; returns the exit status."""
    cancel_on_signals()
    progress = Progress()
    try:
        with folder(options.keep) as place:
            demo = Demo(options, place, progress)
            result = await demo.run()
    except asyncio.CancelledError:
        progress.say("interrupted; everything is stopped")
        return INTERRUPTED
    delays = demo.ledger.delays
    if delays.cells:
        draw(delays, options.picture)
        progress.say("\n".join(delays.table()))
        progress.say(f"The picture: {options.picture.resolve()}")
    progress.say(str(result))
    return 0 if result.adds_up else 1


def main() -> int:
    """Reads the command line and runs the demo."""
    options = command_line()
    try:
        return asyncio.run(run(options))
    except (ConsumerSdkError, RuntimeError) as error:
        print(f"flights: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
