"""Find the file arguments of well-known programs, and determine whether the files are read or changed.

Start at `find_file_arguments`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec import Struct

from toolspan.shell.words import ShellWord


class FileArguments(Struct, frozen=True):
    """The file arguments of a program."""

    read: tuple[ShellWord, ...] = ()
    changed: tuple[ShellWord, ...] = ()


@dataclass(frozen=True, slots=True)
class _FileArgumentSpec:
    """The command-line syntax of a program that takes file arguments."""

    value_options: frozenset[str] = frozenset()
    """Options that take the next word as a value other than a file."""
    leading_count: int = 0
    """The number of arguments before the files, such as a pattern, a script or a mode."""
    leading_options: frozenset[str] = frozenset()
    """Options that replace those leading arguments."""
    defaults_to_cwd: bool = False
    """True if the program reads the current folder when it is given no file."""


def _file_spec(
    value_options: str = "", leading_count: int = 0, leading_options: str = "", *, here: bool = False
) -> _FileArgumentSpec:
    return _FileArgumentSpec(frozenset(value_options.split()), leading_count, frozenset(leading_options.split()), here)


_GREP_SPEC = _file_spec(
    "-m -A -B -C -d -D --include --exclude --exclude-dir --max-count --context --color", 1, "-e --regexp -f --file"
)
_CHECKSUM_SPEC = _file_spec()
READING_PROGRAMS: Mapping[str, _FileArgumentSpec] = {
    "awk": _file_spec("-F -v --assign", 1, "-f --file"),
    "cat": _file_spec(),
    "cksum": _CHECKSUM_SPEC,
    "cmp": _file_spec("-n -i"),
    "column": _file_spec("-s -o -c -N -H -R"),
    "comm": _file_spec(),
    "cut": _file_spec("-d -f -c -b --delimiter --fields --output-delimiter"),
    "df": _file_spec("-t -x -B"),
    "diff": _file_spec("-U -C -x -I --exclude --label"),
    "du": _file_spec("-d -t --max-depth --exclude -B", here=True),
    "egrep": _GREP_SPEC,
    "expand": _file_spec("-t"),
    "fgrep": _GREP_SPEC,
    "file": _file_spec(),
    "find": _file_spec(here=True),
    "fold": _file_spec("-w"),
    "grep": _GREP_SPEC,
    "head": _file_spec("-n -c --lines --bytes"),
    "hexdump": _file_spec("-n -s -e"),
    "jq": _file_spec("--arg --argjson --indent", 1, "-f --from-file"),
    "join": _file_spec("-t -1 -2 -j -o -e -a -v"),
    "less": _file_spec(),
    "ls": _file_spec("-I -w -T --ignore --hide", here=True),
    "md5sum": _CHECKSUM_SPEC,
    "more": _file_spec(),
    "nl": _file_spec("-b -w -s -n -v -i"),
    "od": _file_spec("-A -t -N -j -w"),
    "paste": _file_spec("-d"),
    "readlink": _file_spec(),
    "realpath": _file_spec(),
    "rev": _file_spec(),
    "rg": _file_spec(
        "-m -A -B -C -g -t -T -e -E -r --glob --type --type-not --max-count --context --iglob"
        " --max-depth --sort --color",
        1,
        "-e --regexp -f --file --files --type-list",
        here=True,
    ),
    "sed": _file_spec("-l", 1, "-e --expression -f --file"),
    "sha1sum": _CHECKSUM_SPEC,
    "sha256sum": _CHECKSUM_SPEC,
    "sha512sum": _CHECKSUM_SPEC,
    "sort": _file_spec("-k -t -S --key --field-separator --parallel"),
    "stat": _file_spec("-c -f --format --printf"),
    "strings": _file_spec("-n -t -e"),
    "tac": _file_spec("-s"),
    "tail": _file_spec("-n -c -s --lines --bytes --pid --sleep-interval"),
    "tree": _file_spec("-L -P -I", here=True),
    "unexpand": _file_spec("-t"),
    "uniq": _file_spec("-f -s -w"),
    "wc": _file_spec(),
    "xxd": _file_spec("-l -s -c -g"),
    "zcat": _file_spec(),
    "zgrep": _GREP_SPEC,
}
CHANGING_PROGRAMS: Mapping[str, _FileArgumentSpec] = {
    "chgrp": _file_spec("", 1),
    "chmod": _file_spec("", 1),
    "chown": _file_spec("", 1),
    "cp": _file_spec("-S"),
    "dd": _file_spec(),
    "ln": _file_spec("-S"),
    "mkdir": _file_spec("-m --mode"),
    "mv": _file_spec("-S"),
    "rm": _file_spec(),
    "rmdir": _file_spec(),
    "tee": _file_spec(),
    "touch": _file_spec("-d -t --date"),
    "truncate": _file_spec("-s --size"),
    "unlink": _file_spec(),
}


def find_file_arguments(name: str, arguments: Sequence[ShellWord]) -> FileArguments | None:
    """Return the files among the arguments of a program, or None if the program is unknown.

    If a program reads the current folder by default, the result contains `.`.
    """
    if name == "find":
        return FileArguments(read=_starting_points(arguments))
    if name in CHANGING_PROGRAMS:
        return FileArguments(changed=_collect_files(CHANGING_PROGRAMS[name], arguments))
    spec = READING_PROGRAMS.get(name)
    if spec is None:
        return None
    files = _collect_files(spec, arguments)
    if name == "sed" and any(word.text[:2] in ("-i", "--") for word in arguments):
        return FileArguments(changed=files)
    if not files and (spec.defaults_to_cwd or (spec is _GREP_SPEC and _is_recursive(arguments))):
        files = (ShellWord("."),)
    return FileArguments(read=files)


def _is_recursive(arguments: Sequence[ShellWord]) -> bool:
    return any(
        word.text in ("--recursive", "--dereference-recursive")
        or (word.text[:1] == "-" and word.text[:2] != "--" and "r" in word.text.lower())
        for word in arguments
    )


def _starting_points(arguments: Sequence[ShellWord]) -> tuple[ShellWord, ...]:
    folders: list[ShellWord] = []
    for word in arguments:
        if word.text in ("-H", "-L", "-P") and not folders:
            continue
        if word.text[:1] in ("-", "(", "!"):
            break
        folders.append(word)
    return tuple(folders) or (ShellWord("."),)


def _collect_files(spec: _FileArgumentSpec, arguments: Sequence[ShellWord]) -> tuple[ShellWord, ...]:
    files: list[ShellWord] = []
    leading_count, at, options = spec.leading_count, 0, True
    if leading_count and any(word.text.partition("=")[0] in spec.leading_options for word in arguments):
        leading_count = 0
    while at < len(arguments):
        word = arguments[at]
        at += 1
        if options and word.text == "--":
            options = False
        elif options and word.text[:1] == "-" and len(word.text) > 1:
            at += word.text in spec.value_options
            if "=" in word.text and word.text.partition("=")[0] not in spec.value_options:
                files.append(ShellWord(word.text.partition("=")[2], word.has_expansion, word.has_substitution))
        elif leading_count:
            leading_count -= 1
        elif word.text != "-":
            files.append(word)
    return tuple(files)
