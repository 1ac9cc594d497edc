"""The command line: ``python -m consumer_sdk``, or ``consumer-sdk``.

============  =============================================================================
exit status   means
============  =============================================================================
0             done
1             it failed; the last line on stderr says what, where, and what to do
2             the command line or a URL cannot work
3             an import was refused: a checkpoint in the store is ahead, or consumers run
130           interrupted
============  =============================================================================
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import nullcontext

from consumer_sdk.cli.arguments import parse
from consumer_sdk.cli.terminal import clean
from consumer_sdk.errors import ConfigurationError, ConsumerSdkError
from consumer_sdk.stores.exchange.exchange import ImportRefusedError

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Does what the arguments say; returns the exit status."""
    arguments = parse(argv)
    try:
        with _quiet if arguments.is_quiet(arguments) else nullcontext():
            status: int | None = arguments.command(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read us has gone; the interpreter would complain once more when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ConsumerSdkError, OSError) as error:
        sys.stderr.write(f"consumer-sdk: {clean(' '.join(str(error).split()), sys.stderr)}\n")
        return _status(error)
    except KeyboardInterrupt:
        sys.stderr.write("consumer-sdk: interrupted\n")
        return 130
    return status or 0


class _Quiet:
    """What clients, and the SDK, have to say in logs is in the error that ends the command.

    Several commands may run in one process, in threads: the last one to end restores the levels.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._commands = 0
        self._levels: dict[logging.Logger, int] = {}

    def __enter__(self) -> None:
        with self._lock:
            if not self._commands:
                loggers = map(logging.getLogger, ("aiokafka", "consumer_sdk", "kazoo"))
                self._levels = {logger: logger.level for logger in loggers}
            self._commands += 1
            for logger in self._levels:
                logger.setLevel(logging.CRITICAL)

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._commands -= 1
            if not self._commands:
                for logger, level in self._levels.items():
                    logger.setLevel(level)


_quiet = _Quiet()


def _status(error: Exception) -> int:
    if isinstance(error, ImportRefusedError):
        return 3
    return 2 if isinstance(error, ConfigurationError) else 1
