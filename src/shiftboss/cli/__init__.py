"""The command `shiftboss`: one file per noun, loaded when it is called. May call everything.

To add a command, write `cli/<noun>.py` with a typer `app` and give it one line in `COMMANDS`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module

from shiftboss import __version__
from shiftboss.model.errors import ShiftbossError, UsageError

NAME = "shiftboss"


@dataclass(frozen=True)
class Command:
    """Where a command lives, what `--help` says about it, and the extra whose packages it needs."""

    target: str
    help: str
    extra: str | None = None


COMMANDS: dict[str, Command] = {
    "up": Command("shiftboss.cli.up:app", "everything in one terminal: shiftboss up module:app"),
    "init": Command("shiftboss.cli.init:app", "write a small example project that runs"),
    "submit": Command("shiftboss.cli.submit:app", "enqueue a task: shiftboss submit NAME key=value"),
    "status": Command("shiftboss.cli.status:app", "the whole fleet on one screen; --watch stays"),
    "top": Command("shiftboss.cli.top:app", "the fleet live, with keys to pause, drain and retry"),
    "tasks": Command("shiftboss.cli.tasks:app", "tasks: list, show, retry, cancel, tail"),
    "why": Command("shiftboss.cli.why:app", "what a task waits for, and what to do about it"),
    "queues": Command("shiftboss.cli.queues:app", "queues: list, pause, resume, limit"),
    "doctor": Command("shiftboss.cli.doctor:app", "look for trouble, and say what to do about it"),
    "db": Command("shiftboss.cli.db:app", "the database: url, status, stop, shell, migrate, reset"),
    "worker": Command("shiftboss.cli.worker:app", "run one worker process: shiftboss worker module:app"),
    "journal": Command("shiftboss.cli.journal:app", "journals: import, show, search, insights, export", "ai"),
    "providers": Command("shiftboss.cli.providers:app", "AI providers: circuit, limits, spend, budget", "ai"),
    "vectorizer": Command("shiftboss.cli.vectorizer:app", "embeddings that follow your tables", "ai"),
    "supervise": Command("shiftboss.cli.supervise:app", "keep worker processes alive on this host"),
    "slots": Command("shiftboss.cli.fleet:slots", "supervised workers: state, process, restarts"),
    "pause": Command("shiftboss.cli.fleet:pause", "let supervised workers finish and claim nothing new"),
    "resume": Command("shiftboss.cli.fleet:resume", "let paused workers claim again"),
    "restart": Command("shiftboss.cli.fleet:restart", "restart supervised workers, failed ones as well"),
    "scale": Command("shiftboss.cli.scale:app", "how many workers there should be, now or by a simulation"),
    "coordinator": Command(
        "shiftboss.cli.coordinator:app",
        "feed workers over gRPC; rescue, schedules, scaling",
        "coordinator",
    ),
    "health": Command("shiftboss.cli.health:app", "how each worker is, with its figures of today"),
    "schedule": Command("shiftboss.cli.schedule:app", "cron: list, add, remove, pause, resume"),
    "events": Command("shiftboss.cli.events:app", "what happened to which worker, when and why"),
    "admin": Command("shiftboss.cli.admin:app", "the HTTP service: API, dashboard, metrics", "admin"),
    "token": Command("shiftboss.cli.token:app", "tokens for the API: create, list, revoke, login", "admin"),
    "runs": Command(
        "shiftboss.cli.runs:app", "runs of bots: start, list, show, watch, cancel, retry", "admin"
    ),
    "bot": Command("shiftboss.cli.bot:app", "carry out a bot here and now: shiftboss bot discovery", "admin"),
    "config": Command("shiftboss.cli.config:app", "every setting, its value and where it comes from"),
    "completion": Command("shiftboss.cli.completion:app", "words for the Tab key: bash, zsh, fish"),
}

# Understood anywhere on the command line, and handed on to child processes through the environment.
FLAGS: dict[str, tuple[str, str]] = {
    "--database-url": ("SHIFTBOSS_DATABASE_URL", "use this PostgreSQL instead of the embedded one"),
    "--data-dir": ("SHIFTBOSS_DATA_DIR", "where the embedded PostgreSQL keeps its data"),
    "--config": ("SHIFTBOSS_CONFIG", "read this shiftboss.toml"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; the exit code. Errors of ours are one line and a hint, never a traceback."""
    args = list(sys.argv[1:] if argv is None else argv)
    debug = _take_switch(args, "--debug")
    try:
        _require_text(args)
        _take_flags(args)
        return _run(args)
    except ShiftbossError as error:
        if debug:
            raise
        _complain(error)
        return error.exit_code


def _run(args: list[str]) -> int:
    if not args or args[0] in ("--help", "-h", "help"):
        print(_overview())
        return 0
    if args[0] in ("--version", "version"):
        print(f"{NAME} {__version__}")
        return 0
    name = args[0]
    command = COMMANDS.get(name)
    if command is None:
        raise _unknown(name)
    try:
        return _invoke(name, command, args[1:])
    except ModuleNotFoundError as error:
        if command.extra is None or (error.name or "").startswith(NAME):
            raise
        raise UsageError(
            f"`{NAME} {name}` needs packages that are not installed ({error.name})",
            hint=f"pip install '{NAME}[{command.extra}]'",
        ) from error


def _invoke(name: str, command: Command, args: list[str]) -> int:
    from typer.main import get_command

    module, _, attribute = command.target.partition(":")
    app = getattr(import_module(module), attribute)
    try:
        get_command(app).main(args=args, prog_name=f"{NAME} {name}")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(bool(end.code))
    return 0


def _require_text(args: list[str]) -> None:
    """Bytes that are no UTF-8 come as half characters, which no database, JSON or terminal takes."""
    for word in args:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{word!a} is not UTF-8 text", hint="check the terminal's encoding") from None


def _take_switch(args: list[str], switch: str) -> bool:
    """Remove `switch` from before any `--`; whether it was there."""
    if switch not in args[: _end_of_options(args)]:
        return False
    args.remove(switch)
    return True


def _take_flags(args: list[str]) -> None:
    for flag, (variable, _) in FLAGS.items():
        while (value := _take_value(args, flag)) is not None:
            os.environ[variable] = value
            os.environ[f"{variable}__FLAG"] = flag


def _take_value(args: list[str], flag: str) -> str | None:
    for index, word in enumerate(args[: _end_of_options(args)]):
        if word.startswith(f"{flag}="):
            return args.pop(index).partition("=")[2]
        if word == flag:
            if index + 1 == len(args):
                raise UsageError(f"{flag} needs a value", hint=f"{NAME} {flag} VALUE ...")
            args.pop(index)
            return args.pop(index)
    return None


def _end_of_options(args: list[str]) -> int:
    return args.index("--") if "--" in args else len(args)


def _unknown(name: str) -> UsageError:
    near = get_close_matches(name, COMMANDS, n=1)
    hint = f"did you mean `{NAME} {near[0]}`?" if near else f"`{NAME} --help` lists the commands"
    what = "option" if name.startswith("-") else "command"
    return UsageError(f"there is no {what} {name!r}", hint=hint)


def _overview() -> str:
    switches = {flag: text for flag, (_, text) in FLAGS.items()}
    switches |= {"--debug": "show the traceback of an error", "--version": "show the version"}
    return "\n".join(
        [
            f"Usage: {NAME} COMMAND [ARGS]...",
            "",
            "Runs your worker fleet on the PostgreSQL you already have.",
            "",
            "Commands:",
            *_table({name: command.help for name, command in COMMANDS.items()}),
            "",
            "Options, anywhere on the line:",
            *_table(switches),
            "",
            f"`{NAME} COMMAND --help` tells more about one command.",
        ]
    )


def _table(rows: dict[str, str]) -> list[str]:
    width = max(map(len, rows))
    return [f"  {name:<{width}}  {text}" for name, text in rows.items()]


def _complain(error: ShiftbossError) -> None:
    print(f"error: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"hint: {error.hint}", file=sys.stderr)
