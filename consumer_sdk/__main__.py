"""``python -m consumer_sdk``; see `consumer_sdk.cli`."""

import sys

from consumer_sdk.cli import main

if __name__ == "__main__":
    sys.exit(main())
