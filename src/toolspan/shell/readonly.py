"""Recognise command lines that change nothing.

Start at `is_read_only`. Read-only lines may run concurrently, so a line qualifies only if every program is known to be
read-only, whatever its arguments expand to.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolspan.shell.arguments import read_arguments
from toolspan.shell.plans import NotUnderstood, is_stream, plan
from toolspan.shell.program import Program
from toolspan.shell.words import Redirect, ShellWord


def is_read_only(line: str) -> bool:
    """Return whether a line is known to change nothing."""
    understood = plan(line)
    if isinstance(understood, NotUnderstood) or not understood.programs:
        return False
    return understood.is_simple and all(map(_is_read_only_command, understood.programs))


def _is_read_only_command(command: Program) -> bool:
    if command.variables or command.name == "cd" or not all(map(_is_harmless_redirect, command.redirects)):
        return False
    return is_read_only_program(command.name, command.words[1:])


def is_read_only_program(name: str, arguments: Sequence[ShellWord]) -> bool:
    """Return whether a program is read-only with these arguments."""
    known = read_arguments(name, arguments)
    return known.unknown is None and known.spec is not None and not known.changed


def _is_harmless_redirect(redirect: Redirect) -> bool:
    if redirect.target.has_expansion:
        return False
    return redirect.operator.endswith("<") or is_stream(redirect) or redirect.target.text == "/dev/null"
