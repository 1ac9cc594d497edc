"""The application: probes, metrics, the page and its stream, and actions by hand."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from typing import Any

from consumer_sdk.admin.frames import Frames, Viewer
from consumer_sdk.admin.guard import Guard, Key, refusal
from consumer_sdk.admin.options import VIEWERS, AdminOptions
from consumer_sdk.admin.sources import Consumers, LateError, Source
from consumer_sdk.errors import ConsumerSdkError, MissingExtraError
from consumer_sdk.records import Partition
from consumer_sdk.runtime import Consumer, Health, Snapshot
from consumer_sdk.runtime.observing.health import FAILED

try:
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.exposition import CONTENT_TYPE_LATEST
    from starlette.applications import Starlette
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route
    from starlette.types import ASGIApp, Receive, Scope, Send
except ImportError as _error:
    raise MissingExtraError("starlette", "admin") from _error

__all__ = ["FRESH", "Admin", "Rendering", "app"]

PROBES = {"/healthz", "/readyz"}
ASSETS = {
    "page.js": "text/javascript; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "door.js": "text/javascript; charset=utf-8",
}
LONGEST_BODY = 4096
BODY_TIME = 5.0
"""Seconds that a request's body may take to arrive."""
LONGEST_REASON = 200
PATIENCE = 30.0
"""Seconds that a viewer may take to read one frame."""
STREAM_LIFE = 30.0
"""Seconds after which a stream ends in somebody else's application: at its end their server waits for
streams. Browsers connect again."""


def app(
    *consumers: Consumer,
    token: str | None = None,
    view: bool = True,
    actions: bool = False,
    hosts: Collection[str] = (),
    max_viewers: int = VIEWERS,
) -> ASGIApp:
    """Returns an ASGI application, to mount in one that runs in the consumers' event loop.

    ``service.mount("/consumer", admin.app(consumer, token=…))`` of FastAPI or Starlette.

    Args:
        consumers: the consumers that it shows.
        token: the token that requests need, as ``Authorization: Bearer …`` or by a login to the
            page. Probes need none. None: every request is allowed.
        view: the page and its data; without it there are probes and metrics alone.
        actions: viewers may also pause, resume, flush and stop.
        hosts: host names under which it may be asked, beside localhost and addresses. Others are
            refused, because any site can make its name point to this machine.
        max_viewers: most viewers at the same time; another one gets 503 with a Retry-After.

    Raises:
        MissingExtraError: the extra ``admin`` is not installed.
        ConfigurationError: an option that cannot work.
    """
    options = AdminOptions(
        token=token, view=view, actions=actions, hosts=hosts, max_viewers=max_viewers
    )
    return Admin(Consumers(consumers), options, life=STREAM_LIFE).guarded(hosts)


class Admin:
    """Answers the requests.

    Args:
        life: seconds after which a stream ends; None for as long as the viewer stays.

    Attributes:
        frames: for the viewers; close them before the server.
    """

    def __init__(self, source: Source, options: AdminOptions, *, life: float | None = None) -> None:
        self._source = source
        self._options = options
        self._life = life
        self._key = None if options.token is None else Key(options.token)
        self.frames = Frames(source, most=options.max_viewers, actions=options.actions)
        threads = ThreadPoolExecutor(1, "consumer-sdk-admin")
        registry = CollectorRegistry()
        registry.register(source.collector())
        self._metrics_text = Rendering(lambda: generate_latest(registry), threads)
        self._snapshots: Sequence[Snapshot] = ()
        self._health: Sequence[Health] = ()
        self._states: Sequence[str] = ()
        self._examined = 0.0
        self._snapshot_text = Rendering(self._all_snapshots, threads)
        self._threads = threads

    def guarded(self, hosts: Collection[str] | None) -> ASGIApp:
        """The application behind its rules (`guard`); ``hosts`` None: a request may name any host."""
        page = files("consumer_sdk.admin") / "page"
        door = Response((page / "door.html").read_bytes(), 401, media_type="text/html")
        starlette = Starlette(
            routes=self._routes(),
            exception_handlers={
                ConsumerSdkError: _failed,
                ClientDisconnect: _cut,
                TimeoutError: _late,
            },
        )
        is_open = {*PROBES, "/login", "/favicon.ico", *(f"/{name}" for name in ASSETS)}
        return Guard(
            starlette, key=self._key, hosts=hosts, is_open=is_open, probes=PROBES, door=door
        )

    def close(self) -> None:
        """Ends the viewers' streams."""
        self.frames.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _routes(self) -> list[Route]:
        routes = [
            Route("/healthz", self._healthz),
            Route("/readyz", self._readyz),
            Route("/metrics", self._metrics),
        ]
        if not self._options.view:
            return routes
        page = files("consumer_sdk.admin") / "page"
        shown = {"": "text/html; charset=utf-8", **ASSETS}
        routes += [
            Route(f"/{name}", _file((page / (name or "page.html")).read_bytes(), kind))
            for name, kind in shown.items()
        ]
        return [
            *routes,
            Route("/favicon.ico", lambda _request: Response(status_code=204)),
            Route("/login", self._login, methods=["POST"]),
            Route("/api/snapshot", self._snapshot),
            Route("/api/view", self._look),
            Route("/api/events", self._events),
            Route("/api/partitions/{stream:path}/{id}/{action}", self._partition, methods=["POST"]),
            Route("/api/{action}", self._all, methods=["POST"]),
        ]

    # -- probes and metrics ---------------------------------------------------------------

    async def _healthz(self, _request: Request) -> Response:
        return await self._probe("live")

    async def _readyz(self, _request: Request) -> Response:
        return await self._probe("ready")

    async def _probe(self, which: str) -> Response:
        await self._source.refresh()
        try:
            found = self._healths()
        except ConsumerSdkError as error:
            return JSONResponse({which: False, "reasons": [str(error)]}, 503)
        is_well = all(getattr(each, which) for each in found)
        reasons = list(dict.fromkeys(_without_text(why) for each in found for why in each.reasons))
        return JSONResponse({which: is_well, "reasons": reasons}, 200 if is_well else 503)

    def _healths(self) -> Sequence[Health]:
        """The health of each consumer: no older than a second, nor than its state. It needs no token."""
        now, states = asyncio.get_running_loop().time(), self._source.states()
        if states != self._states or now - self._examined >= FRESH:
            self._health = self._source.healths()
            self._states, self._examined = states, now
        return self._health

    async def _metrics(self, _request: Request) -> Response:
        await self._source.refresh()
        return Response(await self._metrics_text.get(), media_type=CONTENT_TYPE_LATEST)

    # -- looking --------------------------------------------------------------------------

    async def _login(self, request: Request) -> Response:
        given = (await _body(request)).decode("utf-8", "replace").strip()
        if self._key is None:
            return Response(status_code=204)
        if not self._key.is_token(given):
            return refusal(401, "this is not the token")
        response = Response(status_code=204)
        response.set_cookie(
            self._key.name,
            self._key.cookie,
            path=request.scope.get("root_path") or "/",
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )
        return response

    async def _snapshot(self, _request: Request) -> Response:
        await self._source.refresh()
        self._snapshots = self.frames.snapshots()
        return Response(await self._snapshot_text.get(), media_type="application/json")

    def _all_snapshots(self) -> bytes:
        """Runs in a thread, which it may: snapshots do not change."""
        return f'{{"consumers": [{", ".join(s.to_json() for s in self._snapshots)}]}}'.encode()

    async def _look(self, _request: Request) -> Response:
        await self._source.refresh()
        return Response(self.frames.look(), media_type="application/json")

    async def _events(self, _request: Request) -> Response:
        await self._source.refresh()
        return _Stream(self.frames, self._options.max_viewers, self._life)

    # -- acting ---------------------------------------------------------------------------

    async def _partition(self, request: Request) -> Response:
        consumer = await self._allowed(request)
        if isinstance(consumer, Response):
            return consumer
        at = Partition(request.path_params["stream"], request.path_params["id"])
        action = request.path_params["action"]
        if action not in {"pause", "resume"}:
            return refusal(
                404, f"{action!r} cannot be done to a partition; there are pause, resume"
            )
        found = self._source.snapshots()[consumer]
        known = {each.partition: each.is_held for each in found.partitions}
        if at not in known:
            return refusal(404, f"this consumer has never held {at.stream}/{at.id}")
        reason = await _reason(request)
        await self._source.set_paused(consumer, at, reason if action == "pause" else None)
        self.frames.forget()
        return JSONResponse({action: f"{at.stream}/{at.id}", "is_held": known[at]})

    async def _all(self, request: Request) -> Response:
        consumer = await self._allowed(request)
        if isinstance(consumer, Response):
            return consumer
        action = request.path_params["action"]
        if action in {"pause", "resume"}:
            reason = await _reason(request)
            await self._source.set_paused(consumer, None, reason if action == "pause" else None)
        elif action == "flush":
            await self._source.flush(consumer)
        elif action == "stop":
            await self._source.stop(consumer)
        else:
            return refusal(404, f"{action!r} cannot be done; there are pause, resume, flush, stop")
        self.frames.forget()
        return JSONResponse({action: "all"})

    async def _allowed(self, request: Request) -> int | Response:
        """The consumer that a request means, or a refusal."""
        if not self._options.actions:
            return refusal(403, "actions are off here; the admin server takes actions=True")
        await self._source.refresh()  # before the first look there is one
        number = request.query_params.get("consumer", "0")
        known = {str(place): place for place in range(len(self._source.states()))}
        if number not in known:
            return refusal(404, f"there is no consumer {number[:20]!r}; they count from 0")
        return known[number]


def _without_text(reason: str) -> str:
    """The type of an error, without its text: that may name what only those with the token may see."""
    before, failed, text = reason.partition(FAILED)
    kind = re.match(r"[\w.]+(?=:|$)", text)
    return f"{before}{failed}{kind[0] if kind else 'an error'}" if failed else reason


def _file(content: bytes, kind: str) -> Any:
    async def endpoint(_request: Request) -> Response:
        return Response(content, media_type=kind)

    return endpoint


async def _failed(_request: Request, error: Exception) -> Response:
    return refusal(504 if isinstance(error, LateError) else 409, str(error))


async def _cut(_request: Request, _error: Exception) -> Response:
    return refusal(400, "the request ended within its body")


async def _late(_request: Request, _error: Exception) -> Response:
    return refusal(
        408, f"the request's body has not come within {BODY_TIME:g} s", connection="close"
    )


async def _body(request: Request) -> bytes:
    """The beginning of a request's body; what is longer than anybody needs is cut.

    Raises:
        ClientDisconnect: the other side has gone.
        TimeoutError: it does not send the rest.
    """
    body = b""
    async with asyncio.timeout(BODY_TIME):
        async for part in request.stream():
            body += part
            if len(body) > LONGEST_BODY:
                break
    return body[:LONGEST_BODY]


async def _reason(request: Request) -> str:
    """The reason in a body, ``{"reason": …}``; None where none is given."""
    try:
        given = json.loads(await _body(request) or b"{}")
        reason = given.get("reason")
    except (ValueError, AttributeError):
        reason = None
    text = reason.strip() if isinstance(reason, str) else ""
    return text[:LONGEST_REASON] or "by hand"


# -- the stream -----------------------------------------------------------------------------


class _Stream(Response):
    """Server-sent events: a frame each second, until the viewer or the consumer goes."""

    def __init__(self, frames: Frames, most: int, life: float | None) -> None:
        super().__init__()
        self._frames = frames
        self._most = most
        self._life = life

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends frames to a viewer, which is counted only while this runs."""
        viewer = self._frames.join()
        if viewer is None:
            why = f"{self._most} viewers are here already; come again later"
            await refusal(503, why, retry_after="5")(scope, receive, send)
            return
        loop = asyncio.get_running_loop()
        timer = None if self._life is None else loop.call_later(self._life, viewer.end)
        gone = loop.create_task(_ended(receive, viewer))
        try:
            async with asyncio.timeout(None) as patience:
                await _show(viewer, send, patience)
        except TimeoutError:
            return  # it takes nothing any more; the server closes the connection
        finally:
            self._frames.leave(viewer)
            gone.cancel()
            if timer is not None:
                timer.cancel()


async def _ended(receive: Receive, viewer: Viewer) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    viewer.end()


async def _show(viewer: Viewer, send: Send, patience: asyncio.Timeout) -> None:
    headers = [(b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    part, loop = b"retry: 2000\n\n", asyncio.get_running_loop()
    while True:
        patience.reschedule(loop.time() + PATIENCE)
        await send({"type": "http.response.body", "body": part, "more_body": True})
        patience.reschedule(None)
        frame = await viewer.next()
        if frame is None:
            break
        part = b"data: " + frame + b"\n\n"
    await send({"type": "http.response.body", "body": b"", "more_body": False})


# -- long texts, made in a thread of their own -----------------------------------------------------

FRESH = 1.0
"""Seconds for which one text serves whoever asks."""


class Rendering:
    """One text for all that ask within a second, made once at a time.

    Args:
        make: called in a thread.
    """

    def __init__(self, make: Callable[[], bytes], threads: ThreadPoolExecutor) -> None:
        self._make = make
        self._threads = threads
        self._made = 0.0
        self._future: asyncio.Future[bytes] | None = None

    async def get(self) -> bytes:
        """The text.

        Cancellation: others that wait for it get it all the same.
        """
        loop = asyncio.get_running_loop()
        is_stale = self._future is None or (
            self._future.done() and loop.time() - self._made >= FRESH
        )
        if is_stale:
            self._future = loop.run_in_executor(self._threads, self._make)
            self._future.add_done_callback(lambda _: self._done(loop.time()))
        assert self._future is not None  # noqa: S101 - made above
        return await asyncio.shield(self._future)

    def _done(self, at: float) -> None:
        self._made = at
        future = self._future
        if future is not None and (future.cancelled() or future.exception() is not None):
            self._future = None  # the next one tries again
