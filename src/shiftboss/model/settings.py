"""All settings, one section per package. Flags override the environment, which overrides the file.

The key `worker.batch` is `[worker] batch` in `shiftboss.toml` (`[tool.shiftboss.worker]` in `pyproject.toml`)
and `SHIFTBOSS_WORKER_BATCH` in the environment. Extensions add their own sections; read one with
`AISettings.of(settings)`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache, reduce
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, ValidationError, create_model
from pydantic.fields import FieldInfo

from shiftboss.extension import load, named
from shiftboss.model.errors import ConfigError
from shiftboss.model.section import Secret, Section
from shiftboss.model.sources import SourcedValue, from_environment, from_file, nearest

M = TypeVar("M", bound=BaseModel)


def _words(value: Any) -> Any:
    """Split a list that is written in one line."""
    return value.replace(",", " ").split() if isinstance(value, str) else value


class DatabaseSettings(Section):
    """The PostgreSQL server and the connections to it."""

    url: Secret = None
    """Connection URL of your PostgreSQL. Not set: the embedded server."""
    direct_url: Secret = None
    """URL that bypasses a transaction pooler, for LISTEN. Without it, processes behind a pooler poll once a
    second."""
    pooled: bool = False
    """Treat `url` as a transaction pooler even if it is not recognised as one."""
    read_url: Secret = None
    """URL of a streaming replica for lists and figures (page, API, metrics). Not set: the primary."""
    read_lag_seconds: float = Field(default=10.0, gt=0)
    """If the replica is further behind than this, the primary is read instead."""
    pool_size: int = Field(default=10, ge=1, le=1000)
    """Maximum number of connections that a process opens."""
    linger_seconds: float = Field(default=600.0, ge=0)
    """How long the embedded server stays up after its last user."""


class WorkerSettings(Section):
    """Workers that run tasks."""

    concurrency: int = Field(default=10, ge=1, le=10_000)
    """Tasks that one process runs at a time."""
    batch: int = Field(default=2000, ge=1, le=10_000)
    """Maximum number of tasks per claim. How many are claimed ahead depends on their duration and size."""
    beat_seconds: float = Field(default=5.0, gt=0)
    """Interval between heartbeats."""
    lease_seconds: float = Field(default=30.0, gt=0)
    """A worker without a heartbeat for this long loses its tasks to other workers. It stops itself before
    that."""
    poll_seconds: float = Field(default=1.0, gt=0)
    """Interval between checks for work while no notification arrives."""
    grace_seconds: float = Field(default=20.0, ge=0)
    """Time for running tasks to finish after a signal to stop; then they return to the queue."""
    listen: bool = True
    """Wake up on notifications. False: poll only."""
    task_logs: bool = True
    """Store what handlers log with their task; `shiftboss logs` shows it."""
    region: str | None = None
    """Where this worker runs. Tasks that name a region prefer workers of that region."""
    ai_providers: tuple[str, ...] = ()
    """AI providers that this worker can reach, for tasks that require one."""
    features: tuple[str, ...] = ()
    """Capabilities that tasks can require, by name."""
    speed: Literal["fast", "standard", "thorough"] = "standard"
    """Tasks of high priority go to fast workers first."""
    gpu: bool = False
    """Whether this worker has a GPU, for tasks that require one."""
    engine: str | None = Field(default=None, min_length=1)
    """NAME or NAME=ADDRESS: connect to this engine and run only the tasks that name it."""
    max_memory_mb: int | None = Field(default=None, ge=1)
    """Above this, the worker claims nothing new, and a handler in a child process is killed."""
    max_cpu_percent: float | None = Field(default=None, gt=0)
    """Above this, the worker claims nothing new."""
    max_tasks: int | None = Field(default=None, ge=1)
    """Run this many tasks, then exit."""
    exit_when_empty: bool = False
    """Exit when no task is ready or running, for jobs that are started when there is work."""
    max_abandoned: int = Field(default=100, ge=1)
    """Threads cannot be killed. After abandoning this many handlers that exceeded their timeout, the worker
    finishes its other tasks and exits; its supervisor starts a new process."""


class TasksSettings(Section):
    """Checks when tasks are enqueued."""

    strict: bool = False
    """Reject a task whose type no worker has published. False: warn."""


class SupervisorSettings(Section):
    """Slots on this host and their restarts."""

    host: str | None = Field(default=None, min_length=1)
    """Name of this host in the fleet. Not set: the machine's host name."""
    queues: dict[str, int] = Field(default_factory=dict)
    """How many worker processes (slots) to keep, by queue."""
    check_seconds: float = Field(default=10.0, gt=0)
    """Interval between checks of the worker processes."""
    timeout_seconds: float = Field(default=30.0, gt=0)
    """A process without a heartbeat for this long is hung and is replaced."""
    start_seconds: float = Field(default=30.0, gt=0)
    """Time until the first heartbeat of a new process."""
    start_max_seconds: float = Field(default=300.0, gt=0)
    """The same for a process that is visibly busy starting: it uses the CPU, or waits for it."""
    stop_seconds: float = Field(default=30.0, gt=0)
    """Time between SIGTERM and SIGKILL. Keep it above `worker.grace_seconds`."""
    kill_seconds: float = Field(default=5.0, ge=0)
    """The same for a hung process."""
    drain_seconds: float = Field(default=600.0, gt=0)
    """Time for a process that is being replaced to finish its tasks."""
    restart_limit: int = Field(default=5, ge=0)
    """Restarts within the window before a slot becomes `failed`."""
    restart_window_seconds: float = Field(default=300.0, gt=0)
    """The window in which restarts are counted."""
    restart_delay_seconds: float = Field(default=1.0, gt=0)
    """Pause before the first restart; it doubles with each further one."""
    restart_delay_max_seconds: float = Field(default=60.0, gt=0)
    """Longest pause before a restart."""
    max_memory_mb: int | None = Field(default=None, ge=1)
    """Replace a process that uses more."""
    max_tasks: int | None = Field(default=None, ge=1)
    """Replace a process after this many tasks."""
    max_age_seconds: float | None = Field(default=None, gt=0)
    """Replace a process that is older."""


class LeaderSettings(Section):
    """Duties of the one elected process, and how long history is kept."""

    elect_seconds: float = Field(default=1.0, gt=0)
    """How often a process checks whether the leader is alive."""
    lease_seconds: float = Field(default=6.0, gt=0)
    """A leader that does not renew its lease for this long is replaced."""
    crash_check_seconds: float = Field(default=10.0, gt=0)
    """Interval between checks for crashed slots."""
    crash_timeout_seconds: float = Field(default=30.0, gt=0)
    """A slot without a heartbeat for this long is crashed, if its supervisor is silent as well."""
    rescue_seconds: float = Field(default=2.0, gt=0)
    """How often tasks of workers whose lease has ended are returned to the queue."""
    prune_seconds: float = Field(default=5.0, gt=0)
    """Interval between deletions of old rows."""
    keep_tasks_days: float = Field(default=7.0, gt=0)
    """Finished tasks are deleted after this."""
    keep_events_days: float = Field(default=30.0, gt=0)
    """Events, statistics and rows of former slots are deleted after this."""


class AutoscaleSettings(Section):
    """Automatic scaling of the number of workers."""

    enabled: bool = False
    """Adapt the number of workers to the load."""
    queue: str = "default"
    """The queue to watch."""
    min_workers: int = Field(default=1, ge=0)
    """Minimum number of workers."""
    max_workers: int = Field(default=10, ge=1, le=10_000)
    """Maximum number of workers."""
    target_queue_depth: int = Field(default=10, ge=1)
    """Waiting tasks per worker to aim for."""
    scale_up_threshold: float = Field(default=0.8, gt=0)
    """Add workers above this fraction of the target depth."""
    scale_down_threshold: float = Field(default=0.3, ge=0)
    """Remove workers below this fraction of the target depth."""
    cooldown_seconds: float = Field(default=60.0, ge=0)
    """Time between two changes."""
    max_age_seconds: float = Field(default=60.0, gt=0)
    """Add workers when a task waits longer than this, however few tasks wait."""
    every_seconds: float = Field(default=10.0, gt=0)
    """Interval between decisions."""


class AlertSettings(Section):
    """Alerts and where they are sent. The settings of the leader's process apply."""

    webhooks: tuple[Annotated[str, Field(pattern=r"^https?://")], ...] = Field(default=(), repr=False)
    """URLs that receive a POST when an alert starts and ends. Compatible with Slack's incoming webhooks."""
    secret: Secret = None
    """Key that signs deliveries as standardwebhooks.com describes: `whsec_` and base64."""
    task: str | None = None
    """Type of a task to enqueue when an alert starts or ends; its params have `alert`."""
    thresholds: dict[str, float] = Field(default_factory=dict)
    """Thresholds by rule name; `shiftboss alerts rules` lists the rules."""
    off: tuple[str, ...] = ()
    """Names of rules to switch off."""
    every_seconds: float = Field(default=15.0, gt=0)
    """Interval between evaluations."""


class EncryptionSettings(Section):
    """Encryption of task payloads before they leave the process."""

    keys: Annotated[tuple[str, ...], Field(repr=False), BeforeValidator(_words)] = ()
    """Keys of 32 bytes in base64: the first encrypts, all decrypt. Separate them with spaces or commas."""
    hmac_key: Secret = None
    """Key that hides dedup keys. Not set: the last of `keys`, which must stay while tasks with dedup keys
    wait."""


class Settings(BaseModel):
    """All settings of Shiftboss. Use `Settings.load()`."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    data_dir: Path | None = None
    """Directory of the embedded server and of undelivered results. Not set: a directory of the user that all
    projects share."""
    database: DatabaseSettings = Field(default_factory=DatabaseSettings.model_construct)
    tasks: TasksSettings = Field(default_factory=TasksSettings.model_construct)
    worker: WorkerSettings = Field(default_factory=WorkerSettings.model_construct)
    supervisor: SupervisorSettings = Field(default_factory=SupervisorSettings.model_construct)
    leader: LeaderSettings = Field(default_factory=LeaderSettings.model_construct)
    autoscale: AutoscaleSettings = Field(default_factory=AutoscaleSettings.model_construct)
    alerts: AlertSettings = Field(default_factory=AlertSettings.model_construct)
    encryption: EncryptionSettings = Field(default_factory=EncryptionSettings.model_construct)

    _sources: dict[str, str] = PrivateAttr(default_factory=dict)

    @classmethod
    def load(cls, environ: Mapping[str, str] | None = None, folder: Path | None = None) -> Self:
        """Read the file and the environment. An unknown key is an error that suggests the nearest key."""
        environ = os.environ if environ is None else environ
        complete = cls.complete()
        keys = cls.keys()
        paths = {key for key, field in _leaves(complete).items() if Path in get_args(field.annotation)}
        found = from_file(environ, folder or Path.cwd(), keys, paths) | from_environment(environ, keys)
        try:
            settings = _made(complete, _nested(found))
        except ValidationError as error:
            raise _explain(error, found) from error
        settings._sources = {key: entry.source for key, entry in found.items()}
        return settings

    @classmethod
    @cache
    def complete(cls) -> type[Self]:
        """Return this class with the sections of all extensions."""
        kinds = {name: load(target) for name, target in named("settings").items()}
        sections: dict[str, Any] = {
            name: (kind, Field(default_factory=kind.model_construct)) for name, kind in kinds.items()
        }
        return create_model("Settings", __base__=cls, **sections)

    @classmethod
    def keys(cls) -> list[str]:
        """Return every key in dotted form: `data_dir`, `database.url` and so on."""
        return list(_leaves(cls.complete()))

    def value_of(self, key: str) -> Any:
        value: Any = self
        for part in self._known(key).split("."):
            value = getattr(value, part)
        return value

    def source_of(self, key: str) -> str:
        """Return where the value comes from: a flag, a variable, a file, or `default`."""
        return self._sources.get(self._known(key), "default")

    def variable_of(self, key: str) -> str | None:
        """Return the variable of another program that is read instead, because the setting has no value."""
        path, _, field = self._known(key).rpartition(".")
        if not path or self.value_of(key) is not None:
            return None
        section: Section = reduce(getattr, path.split("."), self)  # type: ignore[assignment]
        name = section.variable(field)
        return name if name is not None and os.environ.get(name) else None

    def changed(self, section: str, **values: Any) -> Self:
        """Return a copy with the given values in one section, such as the options of a command.

        None leaves a value as it is.
        """
        given = {name: value for name, value in values.items() if value is not None}
        for name in given:
            self._known(f"{section}.{name}")
        before: BaseModel = getattr(self, section)
        try:
            after = type(before).model_validate(before.model_dump() | given)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise ConfigError(f"{section}.{first['loc'][0]}: {first['msg']}") from None
        return self.model_copy(update={section: after})

    @classmethod
    def is_secret(cls, key: str) -> bool:
        return not _leaves(cls.complete())[key].repr

    def _known(self, key: str) -> str:
        keys = self.keys()
        if key not in keys:
            raise ConfigError(f"there is no setting {key!r}", hint=nearest(key, keys))
        return key


@cache
def _leaves(model: type[BaseModel], prefix: str = "") -> dict[str, FieldInfo]:
    """Return the fields of a model and of its sections, by their dotted keys."""
    found: dict[str, FieldInfo] = {}
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            found |= _leaves(kind, f"{prefix}{name}.")
        else:
            found[prefix + name] = field
    return found


def _nested(found: Mapping[str, SourcedValue]) -> dict[str, Any]:
    """What was found, as a tree of sections."""
    tree: dict[str, Any] = {}
    for key, entry in found.items():
        *sections, name = key.split(".")
        branch = tree
        for section in sections:
            branch = branch.setdefault(section, {})
        branch[name] = entry.value
    return tree


def _made(model: type[M], tree: dict[str, Any]) -> M:
    """Return the settings, with the defaults of sections that are not given.

    Only the given sections are validated: building a validator for each section costs time and memory.
    """
    fields = model.model_fields
    given: dict[str, Any] = {name: (fields[name].annotation, fields[name]) for name in tree}
    return model.model_construct(**dict(create_model("Given", **given).model_validate(tree)))


def _explain(error: ValidationError, found: Mapping[str, SourcedValue]) -> ConfigError:
    problems = error.errors(include_url=False, include_input=False)
    # A misspelt key comes first: it may be the reason why another one is missing.
    first = next((each for each in problems if each["type"] == "extra_forbidden"), problems[0])
    path = [str(part) for part in first["loc"]]
    tries = (".".join(path[:n]) for n in range(len(path), 0, -1))
    key = next((name for name in tries if name in found), ".".join(path))
    source = found[key].source if key in found else "the settings"
    message, hint = first["msg"], "`shiftboss config` shows all settings"
    if first["type"] == "extra_forbidden":
        message, hint = "there is no such key", nearest(path[-1], _fields(Settings.complete(), path[:-1]))
    return ConfigError(f"{'.'.join(path)} from {source}: {message}", hint=hint)


def _fields(kind: Any, path: list[str]) -> list[str]:
    """Return the keys of the section at this path, which may lead through lists and tables of sections."""
    for part in path:
        field = getattr(kind, "model_fields", {}).get(part)
        kind = (get_args(kind) or [None])[-1] if field is None else field.annotation
    return list(getattr(kind, "model_fields", ()))
