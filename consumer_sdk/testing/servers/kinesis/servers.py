"""Two servers that speak Kinesis: one is faithful at resharding, the other is quick.

========================== ==================== ====================
                           `KinesisServer`      `KinesaliteServer`
========================== ==================== ====================
npm package                kinesis-local 0.6.2  kinesalite 3.3.3
child shards in GetRecords yes                  no
filters of ListShards      yes                  ignored
UpdateShardCount           yes                  no
enhanced fan-out           partly               no
records put a second       hundreds             thousands
memory                     180-250 MB           55-100 MB
========================== ==================== ====================

Neither has Kinesis's limits of calls and bytes a second.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import final

from consumer_sdk.testing.servers.kinesis.endpoint import REGION, KinesisEndpoint
from consumer_sdk.testing.servers.node import NodePackage, NodeServer
from consumer_sdk.testing.servers.ports import HOST, ask

__all__ = ["KINESALITE", "KINESIS_LOCAL", "KinesaliteServer", "KinesisServer"]

KINESIS_LOCAL = NodePackage.shipped("kinesis-local")
KINESALITE = NodePackage.shipped("kinesalite")

_ACCOUNT = "000000000000"
_CHANGES = (
    "CREATE_STREAM",
    "DELETE_STREAM",
    "DEREGISTER_STREAM_CONSUMER",
    "MERGE_SHARDS",
    "REGISTER_STREAM_CONSUMER",
    "SPLIT_SHARD",
    "UPDATE_SHARD_COUNT",
)

# It reads settings from the environment, and its certificate from the working folder.
_RUN_KINESIS_LOCAL = """\
const [settings, folder] = process.argv.slice(1)
delete process.env.INITIALIZE_STREAMS
Object.assign(process.env, JSON.parse(settings))
process.chdir(folder)
require(folder)
"""

_RUN_KINESALITE = """\
const [settings, folder, port] = process.argv.slice(1)
Object.assign(process.env, JSON.parse(settings).environment)
require(folder)(JSON.parse(settings).options).listen(Number(port))
"""


@final
class KinesisServer(NodeServer, KinesisEndpoint):
    """A kinesis-local on 127.0.0.1, ready in about one second.

    Streams live in its memory only: after `kill` or `stop`, `restart` begins empty, on the same
    port. `pause` and `resume` keep them.

    Args:
        directory: where the log lies; a temporary folder by default.
        port: the port for clients; a free one by default.
        settings: kinesis-local's environment variables that add to or replace ours.
        start_timeout: seconds until a server that is not ready counts as failed.
    """

    name = "kinesis-local"
    package = KINESIS_LOCAL
    port_count = 2  # it always opens one for TLS too

    def __init__(
        self,
        *,
        directory: Path | str | None = None,
        port: int | None = None,
        settings: Mapping[str, object] | None = None,
        start_timeout: float = 600.0,
    ) -> None:
        super().__init__(directory=directory, port=port, start_timeout=start_timeout)
        self._settings = dict(settings or {})

    @property
    def endpoint_url(self) -> str:
        """``http://host:port`` for clients."""
        return f"http://{self.address}"

    def _script(self, folder: Path) -> Sequence[str]:
        settings = {key: str(value) for key, value in self._all_settings().items()}
        return [_RUN_KINESIS_LOCAL, json.dumps(settings), str(folder)]

    async def _is_ready(self) -> bool:
        return b" 200 " in await _answer(self.ports[0], "/healthcheck")

    def _all_settings(self) -> dict[str, object]:
        plain, tls = self.ports
        return {
            "KINESIS_MOCK_PLAIN_PORT": plain,
            "KINESIS_MOCK_TLS_PORT": tls,
            "AWS_REGION": REGION,
            "AWS_ACCOUNT_ID": _ACCOUNT,
            "SHARD_LIMIT": 1000,
            "SHOULD_PERSIST_DATA": "false",
            # How long a stream is CREATING, UPDATING or DELETING.
            **{f"{change}_DURATION": "20ms" for change in _CHANGES},
            **self._settings,
        }


@final
class KinesaliteServer(NodeServer, KinesisEndpoint):
    """A kinesalite on 127.0.0.1, ready in about half a second.

    Streams live in its memory only: after `kill` or `stop`, `restart` begins empty, on the same
    port. `pause` and `resume` keep them.

    It dies of a stream that is named like a method of JavaScript's arrays (``keys``, ``values``).

    Args:
        directory: where the log lies; a temporary folder by default.
        port: the port for clients; a free one by default.
        options: kinesalite's options that add to or replace ours, such as ``{"shardLimit": 5}``.
        start_timeout: seconds until a server that is not ready counts as failed.
    """

    name = "kinesalite"
    package = KINESALITE

    def __init__(
        self,
        *,
        directory: Path | str | None = None,
        port: int | None = None,
        options: Mapping[str, object] | None = None,
        start_timeout: float = 600.0,
    ) -> None:
        super().__init__(directory=directory, port=port, start_timeout=start_timeout)
        self._options = dict(options or {})

    @property
    def endpoint_url(self) -> str:
        """``http://host:port`` for clients."""
        return f"http://{self.address}"

    def _script(self, folder: Path) -> Sequence[str]:
        settings = {
            "environment": {"AWS_REGION": REGION, "AWS_ACCOUNT_ID": _ACCOUNT},
            "options": self._all_options(),
        }
        return [_RUN_KINESALITE, json.dumps(settings), str(folder), str(self.ports[0])]

    async def _is_ready(self) -> bool:
        return b"x-amzn-RequestId" in await _answer(self.ports[0], "/")

    def _all_options(self) -> dict[str, object]:
        return {
            # Milliseconds for which a stream is CREATING, UPDATING or DELETING.
            "createStreamMs": 10,
            "updateStreamMs": 20,
            "deleteStreamMs": 10,
            "shardLimit": 1000,
            **self._options,
        }


async def _answer(port: int, path: str) -> bytes:
    """Return the whole answer to a GET, empty when there is none."""
    question = f"GET {path} HTTP/1.1\r\nHost: {HOST}:{port}\r\nConnection: close\r\n\r\n"
    return await ask(HOST, port, question.encode())
