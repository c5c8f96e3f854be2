"""All settings: one section per room. Flags win over the environment, that over the file, that over defaults.

A room adds its settings as fields of its section below. The key `worker.slots` is `[worker] slots` in
`shiftboss.toml` (or `[tool.shiftboss.worker]` in `pyproject.toml`) and `SHIFTBOSS_WORKER_SLOTS` outside.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from shiftboss.model.errors import ConfigError
from shiftboss.model.section import Secret, Section
from shiftboss.model.settings_ai import AISettings
from shiftboss.model.sources import Found, from_environment, from_file, nearest


class DatabaseSettings(Section):
    """Which PostgreSQL, and how many connections to it."""

    url: Secret = None
    """None: the embedded server."""
    direct_url: Secret = None
    """For LISTEN, where `url` leads to a transaction pooler."""
    pooled: bool = False
    """True: `url` leads to a transaction pooler, so no statement is prepared; set worker.listen to false as
    well where there is no direct_url."""
    pool_size: int = Field(default=10, ge=1, le=1000)


class WorkerSettings(Section):
    """Workers that run tasks."""

    concurrency: int = Field(default=10, ge=1, le=10_000)
    """Tasks at a time in one process."""
    batch: int = Field(default=500, ge=1, le=10_000)
    """Most tasks to claim at once; how many are claimed ahead follows from how long they take."""
    beat_seconds: float = Field(default=5.0, gt=0)
    lease_seconds: float = Field(default=30.0, gt=0)
    """Without a beat for this long, the worker's tasks go to others; it stops itself before."""
    poll_seconds: float = Field(default=1.0, gt=0)
    grace_seconds: float = Field(default=20.0, ge=0)
    """After a signal to stop: time for running tasks to end before they are given back."""
    listen: bool = True
    """False: poll only, as behind a transaction pooler without a direct_url."""
    region: str | None = None
    ai_providers: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    speed: Literal["fast", "standard", "thorough"] = "standard"
    gpu: bool = False
    max_memory_mb: int | None = Field(default=None, ge=1)
    """Over this the worker claims nothing new until it is below again; a handler's child process is ended."""
    max_cpu_percent: float | None = Field(default=None, gt=0)
    max_abandoned: int = Field(default=100, ge=1)
    """Threads can not be killed: after giving up this many handlers that went on after their time, the worker
    finishes what it has and ends, for a new process to take its place."""


class SupervisorSettings(Section):
    """Slots on this host and their restarts."""

    host: str | None = Field(default=None, min_length=1)
    """This host's name in the fleet; None: what the machine calls itself."""
    queues: dict[str, int] = Field(default_factory=dict)
    """How many slots to keep, by queue."""
    check_seconds: float = Field(default=10.0, gt=0)
    timeout_seconds: float = Field(default=30.0, gt=0)
    """A process without a beat for this long is hung."""
    start_seconds: float = Field(default=30.0, gt=0)
    """Time for the first beat."""
    stop_seconds: float = Field(default=30.0, gt=0)
    """Time to end after SIGTERM, before SIGKILL; more than the worker's own grace."""
    kill_seconds: float = Field(default=5.0, ge=0)
    """The same for a hung process."""
    drain_seconds: float = Field(default=600.0, gt=0)
    """Time for a process that is replaced or no longer wanted to finish what it has."""
    restart_limit: int = Field(default=5, ge=0)
    restart_window_seconds: float = Field(default=300.0, gt=0)
    restart_delay_seconds: float = Field(default=1.0, gt=0)
    restart_delay_max_seconds: float = Field(default=60.0, gt=0)
    max_memory_mb: int | None = Field(default=None, ge=1)
    """A process over this is replaced."""
    max_tasks: int | None = Field(default=None, ge=1)
    max_age_seconds: float | None = Field(default=None, gt=0)


class LeaderSettings(Section):
    """What one elected process does for the whole fleet, and how long history is kept."""

    elect_seconds: float = Field(default=1.0, gt=0)
    """How often to ask whether the leader is still there."""
    crash_check_seconds: float = Field(default=10.0, gt=0)
    crash_timeout_seconds: float = Field(default=30.0, gt=0)
    """A slot without a beat for this long is crashed, if its supervisor is silent as well."""
    rescue_seconds: float = Field(default=2.0, gt=0)
    """How long after the end of its lease a silent worker's tasks may still wait."""
    prune_seconds: float = Field(default=60.0, gt=0)
    keep_tasks_days: float = Field(default=7.0, gt=0)
    """Finished tasks are deleted after this."""
    keep_events_days: float = Field(default=30.0, gt=0)
    """Events, statistics and the rows of forgotten slots."""


class CoordinatorSettings(Section):
    """The gRPC service, how workers reach it, and the leader's duties."""

    host: str = "127.0.0.1"
    port: int = Field(default=50051, ge=0, le=65535)
    require_token: bool = True
    """False: whoever can connect may be a worker; allowed on loopback only."""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    """Workers must show a certificate that this authority signed (mTLS)."""
    max_message_bytes: int = Field(default=4 * 1024 * 1024, ge=64 * 1024, le=256 * 1024 * 1024)
    calls_per_second: float = Field(default=200.0, gt=0)
    """Of one worker, stream messages included; short bursts of five times that are fine."""
    heartbeat_seconds: float = Field(default=5.0, gt=0)
    lease_seconds: float = Field(default=30.0, gt=0)
    accept_seconds: float = Field(default=5.0, gt=0)
    poll_seconds: float = Field(default=1.0, gt=0)

    token: Secret = None
    """What a worker shows to the coordinator."""
    ca: Path | None = None
    """A worker's: the authority that signed the coordinator's certificate. Setting it turns TLS on."""
    client_cert: Path | None = None
    client_key: Path | None = None


class AutoscaleSettings(Section):
    """How many workers there should be."""

    enabled: bool = False
    queue: str = "default"
    min_workers: int = Field(default=1, ge=0)
    max_workers: int = Field(default=10, ge=1, le=10_000)
    target_queue_depth: int = Field(default=10, ge=1)
    """Waiting tasks per worker that are as they should be."""
    scale_up_threshold: float = Field(default=0.8, gt=0)
    """Of the target depth: above it there are too few workers."""
    scale_down_threshold: float = Field(default=0.3, ge=0)
    """Of the target depth: below it there may be too many."""
    cooldown_seconds: float = Field(default=60.0, ge=0)
    max_age_seconds: float = Field(default=60.0, gt=0)
    """A task that waits longer calls for more workers, however few wait."""
    every_seconds: float = Field(default=10.0, gt=0)


class AdminSettings(Section):
    """The HTTP API and the dashboard."""

    host: str = "127.0.0.1"
    port: int = Field(default=8888, ge=0, le=65535)
    auth: Literal["auto", "required"] = "auto"
    """auto: on loopback, nobody is asked for a token until there is one."""
    session_hours: float = Field(default=12.0, gt=0)
    failures_per_minute: int = Field(default=10, ge=1)
    """Wrong tokens from one address before it has to wait."""
    hide_payloads: bool = False
    """Do not show params and results of tasks."""
    tls_cert: Path | None = None
    tls_key: Path | None = None


class JournalSettings(Section):
    """The journal pipeline."""


class BotsSettings(Section):
    """The place bots."""

    config_dir: Path | None = None
    """Where cities.yml and categories.yml are; None: ./config, else the ones in the package."""
    modules: tuple[str, ...] = ()
    """Modules with bots of yours."""
    queue: str = "default"
    source: str = "https://overpass-api.de/api/interpreter"
    """Where discovery looks: an Overpass URL or a GeoJSON file."""
    user_agent: str = "shiftboss"
    http_timeout: float = Field(default=10.0, gt=0)
    host_pause: float = Field(default=1.0, ge=0)
    """Seconds between two requests to one host."""
    private_sites: bool = False
    """Look at websites on addresses inside this network, too."""
    stale_days: float = Field(default=30.0, gt=0)


class VectorizerSettings(Section):
    """Embeddings that follow tables."""

    lease: float = Field(default=180.0, gt=0)
    """Seconds after which a row claimed by a worker that died is claimed again."""
    poll: float = Field(default=5.0, gt=0)
    """Seconds between looks for work that no notification told of."""
    run_seconds: float = Field(default=60.0, gt=0)
    """How long one task of the fleet works at one vectorizer before it makes room for others."""


class Settings(BaseModel):
    """Everything Shiftboss can be told. Use `Settings.load()`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    data_dir: Path | None = None
    database: DatabaseSettings = DatabaseSettings()
    worker: WorkerSettings = WorkerSettings()
    supervisor: SupervisorSettings = SupervisorSettings()
    leader: LeaderSettings = LeaderSettings()
    coordinator: CoordinatorSettings = CoordinatorSettings()
    autoscale: AutoscaleSettings = AutoscaleSettings()
    admin: AdminSettings = AdminSettings()
    ai: AISettings = AISettings()
    journal: JournalSettings = JournalSettings()
    bots: BotsSettings = BotsSettings()
    vectorizer: VectorizerSettings = VectorizerSettings()

    _sources: dict[str, str] = PrivateAttr(default_factory=dict)

    @classmethod
    def load(cls, environ: Mapping[str, str] | None = None, folder: Path | None = None) -> Self:
        """Read file and environment; every unknown key is an error that names the nearest right one."""
        environ = os.environ if environ is None else environ
        keys = cls.keys()
        found = from_file(environ, folder or Path.cwd(), keys) | from_environment(environ, keys)
        try:
            settings = cls.model_validate(_nested(found))
        except ValidationError as error:
            raise _explain(error, found) from error
        settings._sources = {key: entry.source for key, entry in found.items()}
        return settings

    @classmethod
    def keys(cls) -> list[str]:
        """Every key, dotted: `data_dir`, `database.url` and so on."""
        return _keys(cls)

    def value_of(self, key: str) -> Any:
        value: Any = self
        for part in self._known(key).split("."):
            value = getattr(value, part)
        return value

    def source_of(self, key: str) -> str:
        """Where the value comes from: a flag, a variable, a file, or `default`."""
        return self._sources.get(self._known(key), "default")

    @classmethod
    def is_secret(cls, key: str) -> bool:
        model: type[BaseModel] = cls
        *sections, name = key.split(".")
        for section in sections:
            model = _section(model, section) or model
        return not model.model_fields[name].repr

    def _known(self, key: str) -> str:
        keys = self.keys()
        if key not in keys:
            raise ConfigError(f"there is no setting {key!r}", hint=nearest(key, keys))
        return key


def _section(model: type[BaseModel], name: str) -> type[Section] | None:
    kind = model.model_fields[name].annotation
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


def _keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    keys: list[str] = []
    for name in model.model_fields:
        inner = _section(model, name)
        keys += _keys(inner, f"{prefix}{name}.") if inner else [prefix + name]
    return keys


def _nested(found: Mapping[str, Found]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, entry in found.items():
        *sections, name = key.split(".")
        branch = tree
        for section in sections:
            branch = branch.setdefault(section, {})
        branch[name] = entry.value
    return tree


def _explain(error: ValidationError, found: Mapping[str, Found]) -> ConfigError:
    first = error.errors(include_url=False, include_input=False)[0]
    path = [str(part) for part in first["loc"]]
    tries = (".".join(path[:n]) for n in range(len(path), 0, -1))
    key = next((name for name in tries if name in found), ".".join(path))
    source = found[key].source if key in found else "the settings"
    return ConfigError(f"{key} from {source}: {first['msg']}", hint="`shiftboss config` shows all settings")
