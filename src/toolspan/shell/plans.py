"""`plan`: what a command line would do, if it is understood.

A line is understood if its syntax is (see `syntax.py`) and if no program runs that cannot be seen in it. Whether a
single program may run is decided from its entry in the table and its arguments, or by a rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from msgspec import Struct

from toolspan.shell.arguments import read_arguments
from toolspan.shell.program import Program, program_basename, runner_table
from toolspan.shell.syntax import parse_line
from toolspan.shell.words import Redirect, ShellWord
from toolspan.shell.wrappers import Reached, expand_programs

_FOLDER_CHANGERS = frozenset({"cd", "chdir", "popd", "pushd"})


class Plan(Struct, frozen=True, gc=False):
    """The programs that a command line runs."""

    text: str
    programs: tuple[Program, ...]
    """The programs in order, as the line names them."""
    reached: tuple[Reached, ...] = ()
    """The same, and the programs that those run."""
    code: tuple[str, ...] = ()
    """Code passed to interpreters of other languages."""
    is_simple: bool = True
    """True if the line consists of simple commands and operators."""

    @property
    def files_read(self) -> tuple[ShellWord, ...]:
        """The files that the line reads."""
        redirected = [item.target for item in self._redirects() if item.operator.lstrip("012") == "<"]
        return (*(word for program in self._known() for word in program.arguments.files("read")), *redirected)

    @property
    def files_written(self) -> tuple[ShellWord, ...]:
        """The files that the line creates, changes or removes."""
        redirected = [item.target for item in self._redirects() if ">" in item.operator]
        return (*(word for program in self._known() for word in program.arguments.files("write")), *redirected)

    @property
    def folders(self) -> tuple[ShellWord, ...]:
        """The folders that the line enters."""
        return tuple(
            word for program in self._known() if program.name in _FOLDER_CHANGERS for word in program.words[1:]
        )

    @property
    def uses_network(self) -> bool:
        """Whether a program opens connections."""
        names = {program_basename(entry.program.name) for entry in self.reached}
        return any(name in _NETWORK_PROGRAMS for name in names)

    def _known(self) -> Iterator[Program]:
        for entry in self.reached:
            if entry.program.words and entry.program.inner is entry.program:
                yield entry.program

    def _redirects(self) -> Iterator[Redirect]:
        for program in self.programs:
            yield from (item for item in program.redirects if not is_stream(item))


class NotUnderstood(Struct, frozen=True, gc=False):
    """A command line that is not understood, with the programs that were found in it."""

    text: str
    reason: str
    """The part that is not understood, as a noun phrase such as "A variable"."""
    programs: tuple[Program, ...] = ()
    reached: tuple[Reached, ...] = ()
    code: tuple[str, ...] = ()
    hides_programs: bool = False
    """True if the line may run programs that were not found."""
    is_readable: bool = True
    """False if the shell may split the line in another way."""
    is_simple: bool = False


_NETWORK_PROGRAMS = frozenset({"curl", "ftp", "nc", "ncat", "rsync", "scp", "sftp", "ssh", "telnet", "wget"})


@lru_cache(maxsize=256)
def plan(line: str) -> Plan | NotUnderstood:
    """Return what a line would do, or the reason why that is not known."""
    parsed = parse_line(line)
    expanded = expand_programs(parsed.programs, parse_line)
    reached, code = tuple(expanded.programs), tuple(expanded.code)
    reason = parsed.reason or expanded.hidden or expanded.reason
    if reason is None:
        return Plan(line, parsed.programs, reached, code, parsed.is_simple)
    return NotUnderstood(
        line,
        reason,
        parsed.programs,
        reached,
        code,
        parsed.hides_programs or expanded.hidden is not None,
        parsed.is_readable,
        parsed.is_simple,
    )


def find_simple_commands(line: str) -> list[Program]:
    """Return the commands in a line that consists of simple commands and operators; empty for any other line.

    Programs in command substitutions are omitted; the words that contain them have `has_substitution` set.
    """
    parsed = parse_line(line)
    if not parsed.is_simple or parsed.hides_programs:
        return []
    return [program for program in parsed.programs if not program.nested]


def explain_program(program: Program) -> str | None:
    """Return the reason why the effect of a program is not known, or None if all its arguments are understood."""
    inner = program.inner_before_xargs
    unknown = inner.arguments.unknown
    if unknown is None:
        return None
    if inner.arguments.spec is None and (unknown == inner.name or inner.name in runner_table()):
        return f"{inner.name} is not a known program"
    return f"{unknown or 'an argument'} is not understood in {program.text}"


def is_stream(redirect: Redirect) -> bool:
    """Return whether the redirect's target is another stream instead of a file."""
    return redirect.operator[-1:] == "&" and redirect.operator != "&>" and redirect.target.text in ("0", "1", "2")


def is_read_only(line: str) -> bool:
    """Return whether a line is known to change nothing, whatever its arguments expand to."""
    understood = plan(line)
    if isinstance(understood, NotUnderstood) or not understood.programs:
        return False
    return understood.is_simple and not any(
        command.variables
        or command.name == "cd"
        or not all(map(_is_harmless_redirect, command.redirects))
        or not is_read_only_program(command.name, command.words[1:])
        for command in understood.programs
    )


def is_read_only_program(name: str, arguments: Sequence[ShellWord]) -> bool:
    """Return whether a program is read-only with these arguments."""
    known = read_arguments(name, arguments)
    return known.unknown is None and known.spec is not None and not known.changed


def _is_harmless_redirect(redirect: Redirect) -> bool:
    if redirect.target.has_expansion:
        return False
    return redirect.operator.endswith("<") or is_stream(redirect) or redirect.target.text == "/dev/null"
