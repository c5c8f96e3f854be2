"""The `coordinator` section of the settings."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from shiftboss.model.section import Secret, Section


class CoordinatorSettings(Section):
    """The gRPC service, and the connection of workers to it."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(default=50051, ge=0, le=65535)
    """Port to listen on; 0 picks a free one."""
    require_token: bool = True
    """Require a token from workers. `false` is allowed on localhost only."""
    tls_cert: Path | None = None
    """The coordinator's certificate (PEM). Setting it turns TLS on."""
    tls_key: Path | None = None
    """Private key of `tls_cert`."""
    tls_client_ca: Path | None = None
    """Require workers to present a certificate signed by this authority (mTLS)."""
    max_message_bytes: int = Field(default=4 * 1024 * 1024, ge=64 * 1024, le=256 * 1024 * 1024)
    """Maximum size of a message."""
    calls_per_second: float = Field(default=200.0, gt=0)
    """Maximum calls of one worker, including stream messages. Bursts of five times that are allowed."""
    heartbeat_seconds: float = Field(default=5.0, gt=0)
    """Heartbeat interval of workers."""
    lease_seconds: float = Field(default=30.0, gt=0)
    """A worker without a heartbeat for this long loses its tasks, unless it requested another value."""
    accept_seconds: float = Field(default=5.0, gt=0)
    """Time to accept or refuse an assignment before it is withdrawn."""
    poll_seconds: float = Field(default=1.0, gt=0)
    """Polling interval while no notification arrives."""
    scaler: bool = False
    """Serve KEDA's external scaler. It sends no token, so any client can read how many tasks wait."""

    addresses: tuple[str, ...] = ()
    """For workers: receive tasks from these coordinators, as HOST:PORT, instead of the database."""
    token: Secret = None
    """For workers: the token for the coordinator."""
    ca: Path | None = None
    """For workers: the authority of the coordinator's certificate. Setting it turns TLS on."""
    client_cert: Path | None = None
    """For workers: the certificate to present (mTLS)."""
    client_key: Path | None = None
    """Private key of `client_cert`."""
