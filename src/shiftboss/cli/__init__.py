"""The `shiftboss` command: one file per noun, loaded on demand.

To add a command, write `cli/<noun>.py` with a typer `app` and add a line to `COMMANDS`. Extensions add
commands through `Extension.commands`.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Sequence
from typing import Any

from shiftboss import __version__
from shiftboss.extension import Command, Option, extensions, load, missing
from shiftboss.model.errors import ShiftbossError, UsageError
from shiftboss.model.sources import set_by_flag, similar

NAME = "shiftboss"
# Settings for a command that accepts undeclared options.
OPEN: dict[str, Any] = {"context_settings": {"allow_extra_args": True, "ignore_unknown_options": True}}


COMMANDS: dict[str, Command] = {
    "up": Command("shiftboss.cli.up:app", "run everything in one terminal: shiftboss up module:app"),
    "init": Command("shiftboss.cli.init:app", "create a small example project"),
    "submit": Command("shiftboss.cli.submit:app", "enqueue a task: shiftboss submit NAME key=value"),
    "status": Command("shiftboss.cli.status:app", "show the whole fleet on one screen; --watch updates it"),
    "top": Command("shiftboss.cli.top:app", "watch the fleet live; keys pause, drain and retry"),
    "tasks": Command("shiftboss.cli.tasks:app", "tasks: list, show, steps, retry, cancel, tail"),
    "logs": Command("shiftboss.cli.logs:app", "show the log of a task; --follow streams it"),
    "errors": Command("shiftboss.cli.errors:app", "failures grouped by cause: list, show, retry"),
    "alerts": Command("shiftboss.cli.alerts:app", "firing alerts; rules for Prometheus and Grafana"),
    "why": Command("shiftboss.cli.why:app", "explain why a task waits, and what to do about it"),
    "queues": Command("shiftboss.cli.queues:app", "queues: list, pause, resume, limit, age"),
    "tenants": Command("shiftboss.cli.tenants:app", "tenants: how the fleet is shared between them"),
    "doctor": Command("shiftboss.cli.doctor:app", "check the installation and suggest fixes"),
    "db": Command("shiftboss.cli.db:app", "the database: url, start, stop, shell, migrate, roles"),
    "worker": Command("shiftboss.cli.worker:app", "run one worker process: shiftboss worker module:app"),
    "supervise": Command("shiftboss.cli.supervise:app", "keep worker processes alive on this host"),
    "slots": Command("shiftboss.cli.fleet:slots", "supervised workers: state, process, restarts"),
    "pause": Command("shiftboss.cli.fleet:pause", "stop workers from claiming new tasks"),
    "resume": Command("shiftboss.cli.fleet:resume", "let paused workers claim again"),
    "drain": Command("shiftboss.cli.fleet:drain", "let workers finish their tasks and exit"),
    "restart": Command("shiftboss.cli.fleet:restart", "restart supervised workers, including failed ones"),
    "scale": Command("shiftboss.cli.scale:app", "set the number of workers; simulate the autoscaler"),
    "health": Command("shiftboss.cli.health:app", "the health of each worker and its figures for today"),
    "schedule": Command("shiftboss.cli.schedule:app", "cron schedules: list, add, remove, pause, resume"),
    "events": Command("shiftboss.cli.events:app", "the fleet's event log; send an event to waiting tasks"),
    "approvals": Command(
        "shiftboss.cli.approvals:app", "list and answer the questions that tasks ask people"
    ),
    "token": Command("shiftboss.cli.token:app", "API tokens: create, list, revoke, login"),
    "config": Command("shiftboss.cli.config:app", "show every setting, its value and its source"),
    "encryption": Command("shiftboss.cli.encryption:app", "payload encryption: new-key, status"),
    "completion": Command("shiftboss.cli.completion:app", "shell completion: bash, zsh, fish"),
}

# Accepted anywhere on the command line, and passed to child processes through the environment.
FLAGS: dict[str, tuple[str, str]] = {
    "--database-url": ("database.url", "use this PostgreSQL instead of the embedded one"),
    "--data-dir": ("data_dir", "where the embedded PostgreSQL keeps its data"),
    "--config": ("config", "read this shiftboss.toml"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code.

    A ShiftbossError prints one line and a hint; with --debug it is raised instead.
    """
    # Loading modules takes most of a command's time and leaves little garbage, so collect less often.
    gc.set_threshold(20_000, 50, 50)
    atexit.register(gc.freeze)  # otherwise Python searches all modules for garbage twice before it exits
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
    command = COMMANDS.get(name) or commands().get(name)
    if command is None:
        raise _unknown(name)
    try:
        return _invoke(name, command, args[1:])
    except ModuleNotFoundError as error:
        if (error.name or "").startswith(NAME):
            raise
        raise missing(f"`{NAME} {name}`", _extra(name, command, args[1:]), error) from error


def commands() -> dict[str, Command]:
    """Return all commands: those of the core, then those of extensions."""
    return COMMANDS | {name: command for name, command in _brought().items() if " " not in name}


def load_command(name: str, command: Command, verb: str | None = None) -> Any:
    """Return the click command, including the subcommands and options that extensions add to it.

    Subcommands whose packages are not installed are omitted, unless one of them is `verb`.
    """
    from typer.main import get_command

    app = load(command.target)
    known = {one.name for one in app.registered_commands}
    for full, inner in _brought().items():
        noun, _, own = full.partition(" ")
        if noun != name or not own or own in known:
            continue
        try:
            app.command(own, **OPEN if inner.open else {})(load(inner.target))
        except ModuleNotFoundError:
            if own == verb:
                raise
    loaded = get_command(app)
    loaded.params += [
        _option(full.removeprefix(f"{name} "), option)
        for extension in extensions()
        for full, option in extension.options.items()
        if full.startswith(f"{name} --")
    ]
    return loaded


def _option(flag: str, option: Option) -> Any:
    """Return the click option. Like a flag, it sets the setting through the environment."""
    import json

    import typer
    from typer.main import get_command

    def keep(value: Any) -> None:
        if value not in (None, [], ()):
            set_by_flag(option.setting, json.dumps(value) if option.repeatable else str(value), flag)

    names = [flag] if option.short is None else [flag, option.short]
    given = typer.Option(None, *names, help=option.help, callback=keep, expose_value=False)

    def bearer(value: Any = given) -> None: ...

    kind: Any = option.kind
    bearer.__annotations__["value"] = (list[kind] if option.repeatable else kind) | None
    app = typer.Typer(add_completion=False)
    app.command()(bearer)
    return get_command(app).params[0]


def _brought() -> dict[str, Command]:
    return {name: command for extension in extensions() for name, command in extension.commands.items()}


def _extra(name: str, command: Command, args: list[str]) -> str | None:
    inner = _brought().get(f"{name} {args[0]}") if args else None
    return command.extra or (inner.extra if inner else None)


def _invoke(name: str, command: Command, args: list[str]) -> int:
    for extension in extensions():
        for variable, value in extension.environment.items():
            os.environ.setdefault(variable, value)
    loaded = load_command(name, command, args[0] if args else None)
    try:
        loaded.main(args=args, prog_name=f"{NAME} {name}")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(bool(end.code))
    return 0


def _require_text(args: list[str]) -> None:
    """Reject arguments that are not UTF-8: Python passes them as lone surrogates, which cannot be encoded."""
    for word in args:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{word!a} is not UTF-8 text", hint="check the terminal's encoding") from None


def _take_switch(args: list[str], switch: str) -> bool:
    """Remove `switch` from the options before any `--`, and return whether it was there."""
    if switch not in args[: _end_of_options(args)]:
        return False
    args.remove(switch)
    return True


def _take_flags(args: list[str]) -> None:
    for flag, (setting, _) in FLAGS.items():
        while (value := _take_value(args, flag)) is not None:
            set_by_flag(setting, value, flag)


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
    near = similar(name, commands())
    hint = f"did you mean `{NAME} {near}`?" if near else f"`{NAME} --help` lists the commands"
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
            *_table({name: command.help for name, command in commands().items()}),
            "",
            "Options (anywhere on the command line):",
            *_table(switches),
            "",
            f"Run `{NAME} COMMAND --help` for details about a command.",
        ]
    )


def _table(rows: dict[str, str]) -> list[str]:
    width = max(map(len, rows))
    return [f"  {name:<{width}}  {text}" for name, text in rows.items()]


def _complain(error: ShiftbossError) -> None:
    print(f"error: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"hint: {error.hint}", file=sys.stderr)
