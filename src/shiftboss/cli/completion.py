"""`shiftboss completion`: shell completion for bash, zsh and fish."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from shiftboss.cli.tree import Node, tree

app = typer.Typer(add_completion=False)


BASH = """_shiftboss() {
    local words="${COMP_WORDS[*]:1:COMP_CWORD-1}" current="${COMP_WORDS[COMP_CWORD]}" known
    case "$words" in
%s
        *) known="" ;;
    esac
    COMPREPLY=($(compgen -W "$known" -- "$current"))
}
complete -o default -F _shiftboss shiftboss
"""
ZSH = "autoload -U +X bashcompinit && bashcompinit\n" + BASH


@app.command()
def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="bash, zsh or fish")],
) -> None:
    """Print a shell completion script.

    Example: shiftboss completion bash > ~/.local/share/bash-completion/completions/shiftboss

    Example: source <(shiftboss completion zsh)
    """
    nodes = tree()
    if shell == "fish":
        typer.echo("\n".join(_fish(nodes)))
    else:
        typer.echo((BASH if shell == "bash" else ZSH) % "\n".join(_cases(nodes)), nl=False)


def _cases(nodes: list[Node]) -> list[str]:
    """Return one branch of the shell's `case` for each command that takes subcommands or options."""
    tops = " ".join(node.name for node in nodes)
    lines = [f'        "") known="{tops} --help --version" ;;']
    for node in nodes:
        lines += [
            f'        "{node.name} {inner.name}"*) known="{" ".join(inner.options)}" ;;'
            for inner in node.children
        ]
        lines.append(f'        "{node.name}"*) known="{" ".join([*node.names, *node.options])}" ;;')
    return lines


def _fish(nodes: list[Node]) -> list[str]:
    lines = ["complete -c shiftboss -f"]
    for node in nodes:
        lines.append(f"complete -c shiftboss -n __fish_use_subcommand -a {node.name} -d {_quoted(node.help)}")
        for inner in node.children:
            seen = f"'__fish_seen_subcommand_from {node.name}'"
            lines.append(f"complete -c shiftboss -n {seen} -a {inner.name} -d {_quoted(inner.help)}")
        for option in node.options:
            seen = f"'__fish_seen_subcommand_from {node.name}'"
            lines.append(f"complete -c shiftboss -n {seen} -l {option.removeprefix('--')}")
    return lines


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "\\'") + "'"
