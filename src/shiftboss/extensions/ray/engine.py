"""The Ray engine submits tasks to a cluster, receives their messages, and cancels them there."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import ray
from ray.exceptions import RayError

from shiftboss.extensions.ray import remote
from shiftboss.extensions.ray.line import SocketLine
from shiftboss.extensions.ray.room import demand, less, room
from shiftboss.extensions.ray.settings import RaySettings
from shiftboss.log import get_logger
from shiftboss.model.errors import ConfigError, Defer
from shiftboss.worker.messages import (
    MOST_IN_FLIGHT,
    Callbacks,
    ChildDied,
    MachineLost,
    outcome_of,
    start_request,
)

if TYPE_CHECKING:
    from shiftboss.db import Database
    from shiftboss.model.settings import Settings
    from shiftboss.model.task import Claimed, Outcome
    from shiftboss.worker.handlers import Handler, Handlers

log = get_logger(__name__)

TOKEN: Final = 32
LOOK_SECONDS: Final = 0.5
GROW_SECONDS: Final = 5.0
_WAITING = """SELECT task_type, count(*) AS n FROM (SELECT task_type FROM public.tasks
    WHERE status = 'Queued' AND hold IS NULL AND coalesce(run_at, created_at) <= shiftboss.now()
      AND task_type = ANY (%s) LIMIT %s) t GROUP BY 1"""


def connect(address: str | None, settings: Settings) -> RayEngine:
    chosen = RaySettings.of(settings)
    return RayEngine(chosen.model_copy(update={"address": address}) if address else chosen)


class _Run:
    """A task that was submitted to Ray."""

    def __init__(self, needs: dict[str, float]) -> None:
        self.needs = needs
        self.line: asyncio.Future[SocketLine] = asyncio.get_running_loop().create_future()
        self.began: float | None = None


class RayEngine:
    """A connection to a Ray cluster, and the port to which its tasks connect."""

    name = "ray"

    def __init__(self, settings: RaySettings) -> None:
        self._settings = settings
        self.on_room: Callable[[], None] = lambda: None
        self._runs: dict[bytes, _Run] = {}
        self._free: dict[str, float] = {}
        self._looked = 0.0
        self._demands: dict[str, dict[str, float]] = {}
        self._server: asyncio.Server | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._where = ("", 0)
        self._call: Any = None
        self._db: Database | None = None

    async def open(self, handlers: Handlers, db: Database | None) -> None:
        self._db = db
        self._demands = {handler.name: demand(handler) for handler in handlers.of_engine(self.name)}
        if not self._demands:
            log.warning("no task of this app has engine='ray', so this worker will run no tasks")
        await asyncio.to_thread(self._connect)
        host = self._settings.host or ray.util.get_node_ip_address()
        # Listen on every interface, because nodes connect from outside. Each connection needs a token.
        self._server = await asyncio.start_server(
            self._accept, None, self._settings.port, limit=MOST_IN_FLIGHT
        )
        self._where = (host, self._server.sockets[0].getsockname()[1])
        await self._look()
        self._keeper = asyncio.create_task(self._keep_looking(), name="look at Ray")
        log.info("connected to Ray", address=self._settings.address, resources=self._free)

    def _connect(self) -> None:
        chosen = self._settings
        try:
            ray.init(chosen.address, runtime_env=chosen.runtime_env or None, log_to_driver=False)
        except (ConnectionError, RayError, ValueError, RuntimeError) as error:
            hint = "start one with `ray start --head`, or set ray.address to HOST:PORT of its head"
            raise ConfigError(f"cannot connect to Ray at {chosen.address}: {error}", hint=hint) from error
        self._call = ray.remote(remote.run)

    def room(self, held: int) -> int:
        return room(self._left(), self._demands.values()) - max(held - len(self._runs), 0)

    def _left(self) -> dict[str, float]:
        """Return the free resources of the last check, less those of tasks submitted or started since."""
        unseen = (one.needs for one in self._runs.values() if one.began is None or one.began >= self._looked)
        return less(self._free, unseen)

    def full(self) -> str:
        free = {
            name: max(round(value, 2), 0.0)
            for name, value in self._left().items()
            if name in ("CPU", "GPU", "memory")
        }
        return f"ray: the cluster is full with {len(self._runs)} tasks; free: {free}"

    async def run(
        self, handler: Handler, task: Claimed, seconds: float | None, callbacks: Callbacks
    ) -> Outcome:
        token, run = secrets.token_bytes(TOKEN), _Run(self._demands[handler.name])
        self._runs[token] = run
        ref = None
        try:
            ref = await asyncio.to_thread(self._submit, handler, token)
            line = await self._begun(run, ref)
            with line:
                await line.send(start_request(handler, task, seconds))
                await line.receive(task.lease)
                return await outcome_of(line, task, callbacks)
        except BaseException as error:
            # Do not cancel a task that has already ended: Ray has crashed in this case.
            if ref is not None and not isinstance(error, ChildDied):
                asyncio.get_running_loop().run_in_executor(None, _cancel, ref)
            raise
        finally:
            del self._runs[token]
            self.on_room()

    def _submit(self, handler: Handler, token: bytes) -> Any:
        needs = self._demands[handler.name]
        return self._call.options(
            num_cpus=needs.get("CPU", 0),
            num_gpus=needs.get("GPU", 0),
            memory=int(needs["memory"]) if "memory" in needs else None,
            name=handler.name,
            max_retries=0,
        ).remote(*self._where, token)

    async def _begun(self, run: _Run, ref: Any) -> SocketLine:
        """Return the connection to the task when Ray has started it."""
        end = asyncio.ensure_future(_ended(ref))
        try:
            waits: set[asyncio.Future[Any]] = {run.line, end}
            done, _ = await asyncio.wait(
                waits, timeout=self._settings.start_seconds, return_when=asyncio.FIRST_COMPLETED
            )
        except BaseException:
            end.cancel()
            raise
        if run.line in done:
            line = run.line.result()
            line.end = end
            return line
        if not done:
            end.cancel()
            raise Defer(f"Ray did not start the task within {self._settings.start_seconds:g} s", 0.0)
        reason = end.result()
        if isinstance(reason, MachineLost):
            raise Defer("the Ray node was lost before the task started", 0.0)
        raise Defer(f"Ray could not start the task: {reason}", 5.0)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Accept the connection of a Ray task that sends the token of a submitted task."""
        token = b""
        with suppress(asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            token = await asyncio.wait_for(reader.readexactly(TOKEN), 30)
        run = self._runs.get(token)
        if run is None or run.line.done():
            writer.close()
            return
        run.began = asyncio.get_running_loop().time()
        run.line.set_result(SocketLine(reader, writer))

    async def _keep_looking(self) -> None:
        grown = 0.0
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                before = self.room(0)
                await self._look()
                if self.room(0) > before:
                    self.on_room()
                if self._settings.grow and self._looked - grown >= GROW_SECONDS:
                    await self._grow()
                    grown = self._looked
            except Exception as error:
                log.warning("cannot read the state of the Ray cluster", reason=str(error))

    async def _look(self) -> None:
        began = asyncio.get_running_loop().time()
        self._free = await asyncio.to_thread(ray.available_resources)
        self._looked = began

    async def _grow(self) -> None:
        """Request resources for all running and waiting tasks from the autoscaler."""
        from ray.autoscaler.sdk import request_resources

        bundles = [run.needs for run in self._runs.values()]
        if self._db is not None:
            for row in await self._db.fetch(_WAITING, [list(self._demands), self._settings.grow]):
                bundles += [self._demands[row["task_type"]]] * row["n"]
        await asyncio.to_thread(request_resources, bundles=bundles[: self._settings.grow])

    async def close(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
        if self._server is not None:
            self._server.close()
            await asyncio.to_thread(ray.shutdown)


async def _ended(ref: Any) -> Exception:
    """Return why a task ended in Ray, as one of our errors."""
    from shiftboss.extensions.ray.line import death

    try:
        await ref
    except Exception as error:
        return death(error)
    return death(None)


def _cancel(ref: Any) -> None:
    with suppress(Exception):
        ray.cancel(ref, force=True)
