"""One process: a consumer, the user's code around it, and its end."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from consumer_sdk import Consumer, Hooks, Ordering, Reject, Retry
from consumer_sdk.abc import CheckpointStore
from consumer_sdk.errors import ConsumerClosedError, PartitionLostError
from consumer_sdk.records import Assignment, Batch, Branch, Message
from consumer_sdk.testing import Faults
from tests.sim.fakes import SimDeadLetters
from tests.sim.ledger import Ledger
from tests.sim.plan import Life

if TYPE_CHECKING:
    from tests.sim.scene import Scene

AMPLE = 4096
"""Characters of commit metadata that hold any checkpoint of a simulation."""

SLACK = 5.0
"""Virtual seconds that closing may take beyond its own budgets: delays of calls on their way."""


class UserError(Exception):
    """What a failing handler raises."""


class Witness(Hooks):
    """Every record of an assignment ends once, as what the ledger knows that it is."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._ended: set[tuple[Assignment, int]] = set()

    def settled(self, message: Message) -> None:
        self._end(message, is_so=self._ledger.of(message).is_settled)

    def dead_lettered(self, message: Message, error: BaseException | str) -> None:
        self._end(message, is_so=self._ledger.of(message).is_buried)

    def _end(self, message: Message, *, is_so: bool) -> None:
        end = (message.assignment, message.position)
        if end in self._ended or not is_so:
            self._ledger.breaks(f"{message} was told as ended: {is_so=}, {end in self._ended=}")
        self._ended.add(end)


class Process(ABC):
    """A consumer with its user.

    Args:
        world: the broker, the store and the ledger.
        name: for the trace.
        life: how it lives and ends.
        is_new: it is an application that is to start anew.
    """

    def __init__(
        self,
        world: Scene,
        name: str,
        life: Life,
        chance: random.Random,
        *,
        is_new: bool = False,
    ) -> None:
        self.name = name
        self.life = life
        self._world = world
        self._ledger = world.ledger
        self._plan = world.plan
        self._chance = chance
        self._is_ending = False
        self._limit = world.plan.retry.max_attempts
        subscribing = world.plan.subscribing
        self._is_queue = subscribing is not None and subscribing.is_queue
        self.faults = self._make_faults()
        self.adapter = self._make_adapter()
        self.consumer = Consumer(
            self.adapter,
            store=self._make_store(),
            dead_letters=SimDeadLetters(world.ledger, self.faults),
            start=world.plan.start,
            clock=world.clock,
            retry=world.plan.retry,
            ack_timeout=world.plan.ack_timeout,
            out_of_range=world.plan.out_of_range,
            application_id="new" if is_new else None,
            restart="from_start" if is_new else "resume",
            hooks=Witness(world.ledger) if chance.random() < 0.5 else None,
            **(life.options | {"hole_policy": self._hole_policy()}),
        )
        self.has_opened = asyncio.Event()
        self.task = asyncio.create_task(self._live(), name=name)

    def _make_faults(self) -> Faults:
        plan, trace = self._plan, self._world.trace
        return Faults(self._chance, plan.rates, until=plan.faults_end, trace=trace)

    @abstractmethod
    def _make_adapter(self) -> Any:
        """The adapter, with the faults at its seams."""

    @abstractmethod
    def _make_store(self) -> CheckpointStore | None:
        """The same of the store."""

    @abstractmethod
    def _crash(self) -> None:
        """Nothing of the adapter goes on; its calls hang already."""

    def _hole_policy(self) -> str:
        """The ledger cannot see that a lane goes on because its head was given up."""
        policy: str = self.life.options["hole_policy"]
        has_lanes = self.life.style.startswith("run") and self.life.ordering is not Ordering.NONE
        return "pause" if has_lanes and policy == "dead_letter" else policy

    # -- life and death -----------------------------------------------------------------

    async def _live(self) -> None:
        self._world.trace(f"{self.name} starts: {self.life.style} {self.life.ordering}")
        try:
            await self.consumer.__aenter__()
        finally:
            self.has_opened.set()
        try:
            await getattr(self, f"_{self.life.style}")()
        except ConsumerClosedError:
            if not self._is_ending:
                raise
        finally:
            await self._close()

    async def _close(self) -> None:
        started = self._world.clock.monotonic()
        try:
            await self.consumer.aclose()
        finally:
            took = self._world.clock.monotonic() - started
            limit = self._closing_limit()
            if took > limit:
                self._ledger.breaks(f"{self.name} took {took} s to close, not {limit}")
            self._world.trace(f"{self.name} closed")

    def _closing_limit(self) -> float:
        return float(self.life.options["drain_timeout"] + self._world.close_limit + SLACK)

    async def end(self) -> None:
        """Ends it as planned."""
        ending = self.life.ending
        self._world.trace(f"{self.name} ends: {ending}")
        await self.has_opened.wait()
        self._is_ending = True
        if ending == "crash":
            self.faults.die()
            self._crash()
            self.task.cancel()
        elif ending == "cancel":
            self.task.cancel()
        elif ending == "close" and not self.task.done():
            await self._close()
        else:
            self.consumer.stop()
        await self._ended()

    async def _ended(self) -> None:
        await asyncio.wait({self.task})
        error = None if self.task.cancelled() else self.task.exception()
        if error is not None:
            raise error

    async def _alive(self) -> None:
        """A killed process does nothing any more."""
        if self.faults.is_dead:
            await asyncio.get_running_loop().create_future()

    # -- run ----------------------------------------------------------------------------

    async def _run(self) -> None:
        life = self.life

        async def handler(message: Message) -> None:
            await self._handle([message])

        await self.consumer.run(
            handler, concurrency=life.concurrency, ordering=life.ordering, handle_signals=False
        )

    async def _run_batches(self) -> None:
        life = self.life
        await self.consumer.run(
            self._handle,
            concurrency=life.concurrency,
            ordering=life.ordering,
            batch_size=life.batch,
            batch_wait=0.2,
            handle_signals=False,
        )

    async def _handle(self, messages: list[Message]) -> None:
        await self._alive()
        ordering = self.life.ordering
        self._check_memory()
        token = self._ledger.begin(self.name, messages, ordering)
        try:
            await self._work()
            await self._finish(messages)
        finally:
            if not self.faults.is_dead:
                self._ledger.end(messages, token)

    async def _finish(self, messages: list[Message]) -> None:
        """The handler's outcome, for all messages that it does not settle one by one."""
        if self._chance.random() < 0.1:
            messages = [message for message in messages if not await self._settle(message)]
        if any(self._world.is_poison(message) for message in messages):
            self._fail_all(messages)
        if messages and self._fails():
            for message in messages:
                self._ledger.failed(message, self._limit)
            raise Retry(delay=0.3) if self._chance.random() < 0.3 else UserError
        for message in messages:
            # The lane goes on while a tree is open, so that there is no order to keep.
            if self.life.ordering is Ordering.NONE and self._chance.random() < 0.2:
                self._fan_out(message)
            else:
                self._ledger.processed(message)
                self._ledger.settled(message)

    def _fan_out(self, message: Message) -> None:
        """Branches that are acked when the handler is gone."""
        with message.tree() as tree:
            branches = [tree.branch() for _ in range(self._chance.randint(1, 3))]
        for branch in branches:
            delay = self._chance.uniform(0.0, 2.0)
            asyncio.get_running_loop().call_later(delay, self._ack_one, message, branch, branches)

    def _ack_one(self, message: Message, branch: Branch, branches: list[Branch]) -> None:
        if self.faults.is_dead:
            return
        is_last = sum(not each.is_settled for each in branches) == 1
        if is_last:
            self._ledger.processed(message)
        if branch.ack() and is_last:
            self._ledger.settled(message)

    def _ack(self, message: Message) -> bool:
        """At once, or through a tree."""
        if self._chance.random() < 0.8:
            return message.ack()
        with message.tree() as tree:
            branches = [tree.branch(), tree.branch()]
        branches.append(branches[0].branch())
        self._chance.shuffle(branches)
        return [branch.ack() for branch in branches][-1]

    def _nack(self, message: Message, delay: float | None) -> bool:
        """The same."""
        if self._chance.random() < 0.8:
            return message.nack(delay)
        return message.tree().branch().fail(delay=delay)

    def _fail_all(self, messages: list[Message]) -> None:
        """What a poison record does to its batch."""
        if self._chance.random() < 0.5:
            for message in messages:
                self._ledger.given_up(message)
            raise Reject("poison")
        for message in messages:
            self._ledger.failed(message, self._limit)
        raise UserError

    # -- pull ---------------------------------------------------------------------------

    async def _messages(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            room = asyncio.Semaphore(self.life.concurrency)
            while True:
                await room.acquire()
                message = await self._next()
                if message is None:
                    return
                self._check_memory()
                self._ledger.begin(self.name, [message], None)
                task = tasks.create_task(self._pulled([message]))
                task.add_done_callback(lambda _: room.release())
                if self.life.concurrency == 1:
                    await asyncio.wait({task})

    async def _next(self) -> Message | None:
        """The next message; the await is cancelled now and then."""
        while True:
            await self._alive()
            try:
                async with asyncio.timeout(self._patience()):
                    return await anext(self.consumer)
            except TimeoutError:
                continue
            except StopAsyncIteration:
                return None

    async def _batches(self) -> None:
        while (batch := await self._next_batch()) is not None:
            self._check_memory()
            self._ledger.begin(self.name, batch, None)
            await self._pulled(batch)

    async def _next_batch(self) -> Batch | None:
        while True:
            await self._alive()
            batches = self.consumer.batches(max_messages=self.life.batch, max_wait=0.2)
            try:
                async with asyncio.timeout(self._patience()):
                    return await anext(batches)
            except TimeoutError:
                continue
            except StopAsyncIteration:
                return None

    def _patience(self) -> float | None:
        return self._chance.choice((None, 0.001, 0.1, 1.0))

    async def _pulled(self, messages: list[Message]) -> None:
        """Settles what was pulled, each message in its own way or all at once."""
        await self._work()
        is_quiet = not any(self._world.is_poison(m) for m in messages) and not self._fails()
        if isinstance(messages, Batch) and is_quiet and self._chance.random() < 0.5:
            for message in messages:
                self._ledger.processed(message)
            if messages.ack() == len(messages):
                for message in messages:
                    self._ledger.settled(message)
        else:
            for message in messages:
                if not await self._settle(message):
                    self._settle_at_last(message)
        if self._chance.random() < 0.2:
            await self._check_receipt(messages)

    def _settle_at_last(self, message: Message) -> None:
        self._ledger.processed(message)
        is_inline = self.life.style == "batches" or self.life.concurrency == 1
        if is_inline and not self._is_queue and self._chance.random() < 0.3:
            self._ledger.processed_up_to(message)
            message.ack_cumulative()
        elif self._ack(message):
            self._ledger.settled(message)

    async def _settle(self, message: Message) -> bool:
        """Settles it by hand if chance wants so: nack, reject, or ack; else False."""
        await self._alive()
        if self._world.is_poison(message) and self._chance.random() < 0.5:
            # A late one changes nothing: the ack timeout has passed, or another was first.
            if message.reject("poison"):
                self._ledger.given_up(message)
        elif self._world.is_poison(message) or self._fails():
            if self._nack(message, self._chance.choice((None, 0.0, 0.7))):
                self._ledger.failed(message, self._limit)
        elif self._chance.random() < 0.5:
            self._ledger.processed(message)
            if self._ack(message):
                self._ledger.settled(message)
        else:
            return False
        return True

    async def _check_receipt(self, messages: list[Message]) -> None:
        """What a receipt or `Consumer.flush` promises is really there."""
        # Where a commit cannot carry what is settled above a hole, a receipt waits for records
        # that only this code can settle, and a flush promises nothing about it.
        plan = self._plan
        is_ample = plan.has_store or plan.metadata_size >= AMPLE or plan.subscribing is not None
        is_one = self._chance.random() < 0.5
        wanted = self._ledger.settled_under(self.name)
        if is_one:
            wanted = [(a, at) for a, at in wanted if a is messages[0].assignment]
        try:
            async with asyncio.timeout(self._patience() if is_ample else 1.0):
                await (messages[0].durable() if is_one else self.consumer.flush())
        except (TimeoutError, PartitionLostError):
            return
        if plan.subscribing is not None and not plan.has_store:
            return  # it was sent: whether it has arrived, nobody can say
        for assignment, at in wanted if is_one or is_ample else ():
            if not self._ledger.is_durable(assignment.partition, at):
                where = f"{assignment.partition}@{at}"
                self._ledger.breaks(f"{self.name} was told that {where} is durable: it is not")

    def _check_memory(self) -> None:
        """No more is in flight than allowed, but for the fetch that was on its way.

        What waited behind a retry is in flight again when the retry is due.
        """
        options, stats = self.life.options, self.consumer.stats()
        limit = options["max_in_flight"] + options["max_retrying"] + options["fetch_records"]
        if len(set(stats.partitions)) < len(stats.partitions):
            self._ledger.breaks(f"{self.name} holds a partition twice: {stats.partitions}")
        if stats.in_flight > limit:
            self._ledger.breaks(f"{self.name} has more than {limit} in flight: {stats}")

    # -- chance -------------------------------------------------------------------------

    def _fails(self) -> bool:
        return not self._world.is_quiet and self._chance.random() < self._plan.failure

    async def _work(self) -> None:
        """User code takes its time; some of it hangs until the faults end."""
        draw = self._chance.random()
        if draw < self._plan.slowness:
            now = self._world.clock.monotonic()
            hang = max(self._plan.faults_end - now, 0.0) if draw < self._plan.slowness / 5 else 3.0
            await asyncio.sleep(hang * self._chance.random())
        elif draw < 0.7:
            await asyncio.sleep(self._chance.random() * 0.1)
        await self._alive()
