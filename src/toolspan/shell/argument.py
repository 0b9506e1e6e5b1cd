"""Which arguments of a program are files, and whether it reads or changes them.

In: a program's words. Out: the words that name files, or None for a program that is not known here.
Programs that read where they stand when they are given no file get a `.`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec import Struct

from toolspan.shell.line import Word


class Files(Struct, frozen=True):
    """The files that a program is given."""

    read: tuple[Word, ...] = ()
    changed: tuple[Word, ...] = ()


@dataclass(frozen=True, slots=True)
class _Form:
    """How a program is given files."""

    takes: frozenset[str] = frozenset()
    """Options whose value is the next word, and is no file."""
    before: int = 0
    """Words before the files: a pattern, a script, a mode."""
    instead: frozenset[str] = frozenset()
    """Options that stand for those words."""
    here: bool = False
    """Without a file, it reads the current folder."""


def _form(takes: str = "", before: int = 0, instead: str = "", *, here: bool = False) -> _Form:
    return _Form(frozenset(takes.split()), before, frozenset(instead.split()), here)


_GREP = _form(
    "-m -A -B -C -d -D --include --exclude --exclude-dir --max-count --context --color",
    1,
    "-e --regexp -f --file",
)
_SUM = _form()
READERS: Mapping[str, _Form] = {
    "awk": _form("-F -v --assign", 1, "-f --file"),
    "cat": _form(),
    "cksum": _SUM,
    "cmp": _form("-n -i"),
    "column": _form("-s -o -c -N -H -R"),
    "comm": _form(),
    "cut": _form("-d -f -c -b --delimiter --fields --output-delimiter"),
    "df": _form("-t -x -B"),
    "diff": _form("-U -C -x -I --exclude --label"),
    "du": _form("-d -t --max-depth --exclude -B", here=True),
    "egrep": _GREP,
    "expand": _form("-t"),
    "fgrep": _GREP,
    "file": _form(),
    "find": _form(here=True),
    "fold": _form("-w"),
    "grep": _GREP,
    "head": _form("-n -c --lines --bytes"),
    "hexdump": _form("-n -s -e"),
    "jq": _form("--arg --argjson --indent", 1, "-f --from-file"),
    "join": _form("-t -1 -2 -j -o -e -a -v"),
    "less": _form(),
    "ls": _form("-I -w -T --ignore --hide", here=True),
    "md5sum": _SUM,
    "more": _form(),
    "nl": _form("-b -w -s -n -v -i"),
    "od": _form("-A -t -N -j -w"),
    "paste": _form("-d"),
    "readlink": _form(),
    "realpath": _form(),
    "rev": _form(),
    "rg": _form(
        "-m -A -B -C -g -t -T -e -E -r --glob --type --type-not --max-count --context --iglob"
        " --max-depth --sort --color",
        1,
        "-e --regexp -f --file --files --type-list",
        here=True,
    ),
    "sed": _form("-l", 1, "-e --expression -f --file"),
    "sha1sum": _SUM,
    "sha256sum": _SUM,
    "sha512sum": _SUM,
    "sort": _form("-k -t -S --key --field-separator --parallel"),
    "stat": _form("-c -f --format --printf"),
    "strings": _form("-n -t -e"),
    "tac": _form("-s"),
    "tail": _form("-n -c -s --lines --bytes --pid --sleep-interval"),
    "tree": _form("-L -P -I", here=True),
    "unexpand": _form("-t"),
    "uniq": _form("-f -s -w"),
    "wc": _form(),
    "xxd": _form("-l -s -c -g"),
    "zcat": _form(),
    "zgrep": _GREP,
}
CHANGERS: Mapping[str, _Form] = {
    "chgrp": _form("", 1),
    "chmod": _form("", 1),
    "chown": _form("", 1),
    "cp": _form("-S"),
    "dd": _form(),
    "ln": _form("-S"),
    "mkdir": _form("-m --mode"),
    "mv": _form("-S"),
    "rm": _form(),
    "rmdir": _form(),
    "tee": _form(),
    "touch": _form("-d -t --date"),
    "truncate": _form("-s --size"),
    "unlink": _form(),
}


def files_of(name: str, arguments: Sequence[Word]) -> Files | None:
    """The files that a program is given; None when that is not known of it."""
    if name == "find":
        return Files(read=_starting_points(arguments))
    if name in CHANGERS:
        return Files(changed=_given(CHANGERS[name], arguments))
    form = READERS.get(name)
    if form is None:
        return None
    found = _given(form, arguments)
    if name == "sed" and any(word.text[:2] in ("-i", "--") for word in arguments):
        return Files(changed=found)
    if not found and (form.here or (form is _GREP and _recursive(arguments))):
        found = (Word("."),)
    return Files(read=found)


def _recursive(arguments: Sequence[Word]) -> bool:
    return any(
        word.text in ("--recursive", "--dereference-recursive")
        or (word.text[:1] == "-" and word.text[:2] != "--" and "r" in word.text.lower())
        for word in arguments
    )


def _starting_points(arguments: Sequence[Word]) -> tuple[Word, ...]:
    found: list[Word] = []
    for word in arguments:
        if word.text in ("-H", "-L", "-P") and not found:
            continue
        if word.text[:1] in ("-", "(", "!"):
            break
        found.append(word)
    return tuple(found) or (Word("."),)


def _given(form: _Form, arguments: Sequence[Word]) -> tuple[Word, ...]:
    found: list[Word] = []
    before, at, options = form.before, 0, True
    if before and any(word.text.partition("=")[0] in form.instead for word in arguments):
        before = 0
    while at < len(arguments):
        word = arguments[at]
        at += 1
        if options and word.text == "--":
            options = False
        elif options and word.text[:1] == "-" and len(word.text) > 1:
            at += word.text in form.takes
            if "=" in word.text and word.text.partition("=")[0] not in form.takes:
                found.append(Word(word.text.partition("=")[2], word.filled, word.runs))
        elif before:
            before -= 1
        elif word.text != "-":
            found.append(word)
    return tuple(found)
