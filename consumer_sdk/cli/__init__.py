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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

from consumer_sdk.cli.arguments import parse
from consumer_sdk.cli.terminal import clean
from consumer_sdk.errors import ConfigurationError, ConsumerSdkError
from consumer_sdk.stores.exchange.exchange import ImportRefusedError

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Does what the arguments say; returns the exit status."""
    arguments = parse(argv)
    try:
        with _quiet() if arguments.is_quiet(arguments) else nullcontext():
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


@contextmanager
def _quiet() -> Iterator[None]:
    """What clients, and the SDK, have to say in logs is in the error that ends the command."""
    loggers = [logging.getLogger(name) for name in ("aiokafka", "consumer_sdk", "kazoo")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _status(error: Exception) -> int:
    if isinstance(error, ImportRefusedError):
        return 3
    return 2 if isinstance(error, ConfigurationError) else 1
