"""The `admin` section of the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, IPvAnyNetwork, SecretStr

from shiftboss.model.section import Section


class AdminSettings(Section):
    """The HTTP API and the dashboard."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(default=8888, ge=0, le=65535)
    """Port to listen on; 0 picks a free one."""
    auth: Literal["auto", "required"] = "auto"
    """`auto`: on localhost, no token is required until one exists. `required`: always require a token."""
    session_hours: float = Field(default=12.0, gt=0)
    """How long a browser stays logged in."""
    failures_per_minute: int = Field(default=10, ge=1)
    """Wrong tokens per minute before an address must wait. A valid token is never refused."""
    trusted_proxies: tuple[IPvAnyNetwork, ...] = ()
    """Addresses or networks of reverse proxies whose X-Forwarded-For header is trusted."""
    hide_payloads: bool = False
    """Do not show or search params and results of tasks."""
    webhook_secret: SecretStr | None = Field(None, repr=False)
    """Secret for signed POSTs to /hooks/KEY, as `whsec_` and base64. Webhooks are off without it."""
    tls_cert: Path | None = None
    """Certificate (PEM). Setting it turns HTTPS on."""
    tls_key: Path | None = None
    """Private key of `tls_cert`."""
