"""The `bots` section of the settings."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from shiftboss.model.section import Section


class BotsSettings(Section):
    """Bots and their directory of places."""

    config_dir: Path | None = None
    """Folder with cities.yml and categories.yml. Default: ./config, or the files in the package."""
    modules: tuple[str, ...] = ()
    """Modules that define your own bots."""
    queue: str = "default"
    """Queue of the bots."""
    source: str = "https://overpass-api.de/api/interpreter"
    """Where discovery reads places from: an Overpass URL or a GeoJSON file."""
    source_dir: Path | None = None
    """Folder of GeoJSON files that a run may use as its source. Default: only URLs."""
    source_max_mb: int = Field(default=50, ge=1, le=1000)
    """Maximum size of a source, in megabytes."""
    source_timeout: float = Field(default=300.0, gt=0)
    """Seconds to read one source, including the waits it requests with Retry-After."""
    user_agent: str = "shiftboss"
    """User-Agent of requests."""
    http_timeout: float = Field(default=10.0, gt=0)
    """Seconds for one request."""
    host_pause: float = Field(default=1.0, ge=0)
    """Seconds between two requests to one host."""
    private_sites: bool = False
    """Allow requests to private addresses."""
    stale_days: float = Field(default=30.0, gt=0)
    """Verify a place again after this many days."""
