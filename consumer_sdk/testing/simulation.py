"""An event loop on virtual time: hours pass in milliseconds, and a seed reproduces exactly.

The loop never waits. When nothing is ready, its selector moves the loop's time to the next
timer; when there is no timer either, nobody can ever wake up, and that is an error which names
where each task stands. What makes a run repeat:

- time is a number that only the selector moves;
- tasks hash by their number instead of their address, because asyncio keeps them in sets
  (`TaskGroup` cancels its children in the set's order);
- the cycle collector rests while the simulation runs, for finalizers call into the loop;
- `random` itself is seeded, for code that draws from it, and put back afterwards.

Sets of strings and bytes follow ``PYTHONHASHSEED``: set it to replay a seed in another process.
Work in threads is real: virtual time stands still while an executor job runs.
"""

from __future__ import annotations

import asyncio
import gc
import math
import random
import selectors
import threading
import time
from collections.abc import Callable, Coroutine, Generator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Self, TypeVar

__all__ = [
    "Simulation",
    "SimulationClock",
    "SimulationDeadlockError",
    "SimulationError",
    "SimulationLeakError",
    "SimulationLoop",
    "SimulationTimeoutError",
    "simulate",
]

T = TypeVar("T")

CLOCK_RESOLUTION = time.get_clock_info("monotonic").resolution
LIVELOCK_TURNS = 200_000
"""Turns of the loop without any progress of time after which it is taken to spin."""

JOB_PATIENCE = 30.0
"""Real seconds that an executor job may take."""

THREAD_PATIENCE = 1.0
"""Real seconds given to unknown threads to call in, before a deadlock is stated."""


class SimulationError(AssertionError):
    """The simulated program broke a rule that the loop can see.

    Cause:
        that of one of the errors that derive from it; or the program asked the loop for what
        virtual time cannot give, such as a socket.

    What to do:
        read the text: it names the rule. The same seed fails in the same way.
    """


class SimulationDeadlockError(SimulationError):
    """Every task waits and no timer is set; or the loop turns without any time passing.

    Cause:
        every task waits for something that no task will do, and no timer is set.

    What to do:
        the text shows where each task waits.
    """


class SimulationTimeoutError(SimulationError):
    """The virtual time limit has passed.

    Cause:
        something is repeated without an end, or a record is never settled.

    What to do:
        see what the tasks in the text do; raise ``time_limit`` only if the scenario is long.
    """


class SimulationLeakError(SimulationError):
    """Tasks were left running, or an error reached the loop's exception handler.

    Cause:
        the code under test has started a task, and neither awaited nor cancelled it.

    What to do:
        keep the task, and await it at the end.
    """


class _Task(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address."""

    number: int

    def __new__(cls, _coro: Any, *, loop: SimulationLoop, **_options: Any) -> Self:
        # Not in __init__: asyncio's own __init__ already puts the task into a set.
        task = super().__new__(cls)
        task.number = loop.next_task_number()
        return task

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other


class _JumpingSelector(selectors.DefaultSelector):
    """Moves virtual time instead of waiting."""

    loop: SimulationLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(self._patience(timeout))
        if not events:
            self.loop.jump(timeout)
        return events

    def _patience(self, timeout: float | None) -> float:
        """Real seconds to wait for other threads."""
        if timeout == 0:
            return 0
        if self.loop.jobs:
            return JOB_PATIENCE
        return THREAD_PATIENCE if timeout is None and threading.active_count() > 1 else 0


class SimulationLoop(asyncio.SelectorEventLoop):
    """A loop whose time is virtual, starts at 0 and only moves when nothing is ready.

    Args:
        time_limit: virtual seconds after which `SimulationTimeoutError` is raised.
    """

    def __init__(self, *, time_limit: float = 86_400.0) -> None:
        selector = _JumpingSelector()
        selector.loop = self
        self.jobs = 0
        self._now = 0.0
        self._turns = 0
        self._tasks_made = 0
        self._time_limit = time_limit
        super().__init__(selector)
        self.set_task_factory(_make_task)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now

    def call_at(  # type: ignore[override]  # typeshed's type variables do not allow a plain one
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Lets the time pass by which the loop may run a timer too early.

        asyncio runs a timer that is due within the clock's resolution. Who waits again for what
        is left of it would do so for ever where time stands still.
        """
        if when < self._now + CLOCK_RESOLUTION:
            self._now = max(self._now, when)
        return super().call_at(when, callback, *args, context=context)

    def jump(self, timeout: float | None) -> None:
        """Moves time forward by ``timeout``, as if it had been waited for.

        Raises:
            SimulationDeadlockError: there is nothing to wait for.
            SimulationTimeoutError: the time limit has passed.
        """
        if timeout is None:
            raise SimulationDeadlockError(f"no timer is set and every task waits:{self._stacks()}")
        if timeout > 0:
            self._now += timeout
            self._turns = 0
        self._turns += 1
        if self._turns > LIVELOCK_TURNS:
            raise SimulationDeadlockError(f"the loop spins at {self._now} s:{self._stacks()}")
        if self._now > self._time_limit:
            self._time_limit = math.inf  # the clean-up after this may take time
            raise SimulationTimeoutError(f"still running at {self._now} s:{self._stacks()}")

    def next_task_number(self) -> int:
        """Counts the tasks made on this loop."""
        self._tasks_made += 1
        return self._tasks_made

    def run_in_executor(  # type: ignore[override]  # typeshed's generics do not allow a plain one
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Runs ``func`` in a real thread; virtual time stands still until it is done."""
        future = super().run_in_executor(executor, func, *args)
        self.jobs += 1
        future.add_done_callback(self._job_done)
        return future

    def _job_done(self, _: asyncio.Future[Any]) -> None:
        self.jobs -= 1

    def _stacks(self) -> str:
        return "".join(f"\n  {_where(task)}" for task in _pending(self))


def _make_task(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> _Task:
    assert isinstance(loop, SimulationLoop)
    task = _Task(coro, loop=loop, **options)
    if options.get("name") is None:
        task.set_name(f"Task-{task.number}")
    return task


def _pending(loop: asyncio.AbstractEventLoop) -> list[asyncio.Task[Any]]:
    return sorted(asyncio.all_tasks(loop), key=hash)


def _where(task: asyncio.Task[Any]) -> str:
    """The innermost lines at which a task waits."""
    lines = []
    awaited: Any = task.get_coro()
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is not None:
            code = frame.f_code
            lines.append(f"{code.co_filename.rsplit('/', 1)[-1]}:{frame.f_lineno} {code.co_name}")
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return f"{task.get_name()}: {' > '.join(lines[-4:])}"


class SimulationClock:
    """The loop's virtual time as a `consumer_sdk.abc.Clock`.

    Args:
        loop: whose time; the running loop by default.
        epoch: the wall clock at the loop's time 0, in seconds since 1970.

    Attributes:
        skew: seconds added to the wall clock; change it to simulate a clock that was set.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop | None = None, *, epoch: float = 1_700_000_000.0
    ) -> None:
        self._loop = loop or asyncio.get_running_loop()
        self._epoch = epoch
        self.skew = 0.0

    def monotonic(self) -> float:
        """The loop's time."""
        return self._loop.time()

    def wall(self) -> float:
        """Seconds since 1970."""
        return self._epoch + self.skew + self._loop.time()


@dataclass(frozen=True, slots=True)
class Simulation:
    """What a simulated program draws on.

    Attributes:
        seed: everything random comes from it.
        random: seeded with it.
        clock: virtual time.
    """

    seed: int
    random: random.Random
    clock: SimulationClock


def simulate(
    main: Callable[[Simulation], Coroutine[Any, Any, T]],
    *,
    seed: int = 0,
    time_limit: float = 86_400.0,
    epoch: float = 1_700_000_000.0,
) -> T:
    """Runs ``main(simulation)`` to its end on virtual time and returns its result.

    Args:
        main: a coroutine function.
        seed: of ``simulation.random``; the same seed gives the same run.
        time_limit: virtual seconds that the run may take.
        epoch: the wall clock at the start, in seconds since 1970.

    Raises:
        SimulationDeadlockError: nobody can ever wake up, or time stands still.
        SimulationTimeoutError: the time limit has passed.
        SimulationLeakError: ``main`` left tasks running, or an error reached the loop's
            exception handler (a task's exception that nobody looked at, for one).
    """
    errors: list[Mapping[str, Any]] = []
    with (
        _repeatable(seed),
        asyncio.Runner(loop_factory=lambda: SimulationLoop(time_limit=time_limit)) as runner,
    ):
        loop = runner.get_loop()
        loop.set_exception_handler(lambda _, context: errors.append(context))
        simulation = Simulation(seed, random.Random(seed), SimulationClock(loop, epoch=epoch))
        result = runner.run(main(simulation))
        leaked = _settle(loop)
        # Only what the simulation made is in the youngest generation, so this is quick.
        gc.collect(0)
    if leaked:
        raise SimulationLeakError(f"tasks left running: {'; '.join(leaked)}")
    if errors:
        raise _unhandled(errors)
    return result


def _settle(loop: asyncio.AbstractEventLoop) -> list[str]:
    """Lets callbacks that are ready run; says which tasks are still pending after that."""
    loop.run_until_complete(asyncio.sleep(0))
    loop.run_until_complete(asyncio.sleep(0))
    return [_where(task) for task in _pending(loop)]


def _unhandled(errors: list[Mapping[str, Any]]) -> SimulationLeakError:
    error = SimulationLeakError("; ".join(f"{context['message']}" for context in errors))
    error.__cause__ = next((e for e in (c.get("exception") for c in errors) if e), None)
    return error


@contextmanager
def _repeatable(seed: int) -> Generator[None, None, None]:
    """No cycle collection, and a seed for who draws from `random` itself; undone afterwards."""
    was_enabled, state = gc.isenabled(), random.getstate()
    gc.disable()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)
        if was_enabled:
            gc.enable()
