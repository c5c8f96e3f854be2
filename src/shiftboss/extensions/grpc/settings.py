"""The `coordinator` section of the settings."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from shiftboss.model.section import Secret, Section


class CoordinatorSettings(Section):
    """The gRPC service, how workers reach it, and the leader's duties."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(default=50051, ge=0, le=65535)
    """Port to listen on; 0 picks a free one."""
    require_token: bool = True
    """False: any client that can connect may be a worker. Allowed on loopback only."""
    tls_cert: Path | None = None
    """The coordinator's certificate (PEM). Setting it turns TLS on."""
    tls_key: Path | None = None
    """Private key of `tls_cert`."""
    tls_client_ca: Path | None = None
    """Require workers to show a certificate signed by this authority (mTLS)."""
    max_message_bytes: int = Field(default=4 * 1024 * 1024, ge=64 * 1024, le=256 * 1024 * 1024)
    """Largest message that is accepted."""
    calls_per_second: float = Field(default=200.0, gt=0)
    """Calls that one worker may make, stream messages included; bursts of five times that are allowed."""
    heartbeat_seconds: float = Field(default=5.0, gt=0)
    """Heartbeat interval that workers are told."""
    lease_seconds: float = Field(default=30.0, gt=0)
    """A worker that is silent for this long loses its tasks, unless it asked for another value."""
    accept_seconds: float = Field(default=5.0, gt=0)
    """Time to accept or refuse an assignment before it is withdrawn."""
    poll_seconds: float = Field(default=1.0, gt=0)
    """Interval between looks for work while no notification arrives."""
    scaler: bool = False
    """Answer KEDA's external scaler. It sends no token: any client of the port sees how much work waits."""

    token: Secret = None
    """For workers: the token to show to the coordinator."""
    ca: Path | None = None
    """For workers: the authority that signed the coordinator's certificate. Setting it turns TLS on."""
    client_cert: Path | None = None
    """For workers: the certificate to show (mTLS)."""
    client_key: Path | None = None
    """Private key of `client_cert`."""
