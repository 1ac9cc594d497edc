"""Moves a group's checkpoints from one store to another, by a file. ``python move_checkpoints.py old.db new.db``."""

import asyncio
import io
import sys

from consumer_sdk.stores import (
    CheckpointFile,
    LocalStore,
    export_checkpoints,
    import_checkpoints,
)


async def main(old: LocalStore, new: LocalStore) -> None:
    """Any two stores; both are open meanwhile."""
    await old.open()
    await new.open()
    try:
        lines = [line async for line in export_checkpoints(old, "billing")]
        file = io.BytesIO("".join(lines).encode())  # or a file that is open for reading bytes
        print(await import_checkpoints(new, CheckpointFile(file)))
    finally:
        await old.aclose()
        await new.aclose()


asyncio.run(main(LocalStore(sys.argv[1]), LocalStore(sys.argv[2])))
