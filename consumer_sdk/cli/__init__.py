"""The command line: ``python -m consumer_sdk``, or ``consumer-sdk``.

============  =============================================================================
exit status   means
============  =============================================================================
0             done
1             it failed; the last line on stderr says what, where, and what to do
2             the command line or a URL cannot work
3             an import was refused: the store knows better, or consumers run
130           interrupted
============  =============================================================================
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

from consumer_sdk.cli.arguments import parse
from consumer_sdk.errors import ConfigurationError, ConsumerSdkError
from consumer_sdk.stores.exchange import ImportRefusedError

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Does what the arguments say; returns the exit status."""
    arguments = parse(argv)
    # What a client's log has to say is in the error that ends the command.
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    try:
        arguments.command(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read us has gone; the interpreter would complain once more when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ConsumerSdkError, OSError) as error:
        sys.stderr.write(f"consumer-sdk: {' '.join(str(error).split())}\n")
        return _status(error)
    except KeyboardInterrupt:
        return 130
    return 0


def _status(error: Exception) -> int:
    if isinstance(error, ImportRefusedError):
        return 3
    return 2 if isinstance(error, ConfigurationError) else 1
