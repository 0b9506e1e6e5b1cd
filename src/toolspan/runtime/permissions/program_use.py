"""Facts about one program in a command line: its spelling, the files among its arguments, its variables.

`commands.py` uses them to decide whether the program may run.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from toolspan.runtime.permissions.line_state import has_parent_after_name
from toolspan.shell.arguments import Arguments
from toolspan.shell.program import LinePrograms, Program, program_basename
from toolspan.shell.readonly import DECLARATIONS
from toolspan.shell.table import ProgramSpec
from toolspan.shell.words import Redirect, ShellWord, is_harmless_variable, is_influential_variable
from toolspan.shell.wrappers import is_plainly_wrapped, strip_wrappers

_SHELL_OPTIONS = re.compile(r"(?:-[euvx]+|-[euvx]*o (?:errexit|nounset|pipefail|xtrace)|[^-+].*)?")
"""The arguments of `set` that a rule for it covers."""
_SCRIPTED_PROGRAMS = frozenset({"awk", "egrep", "fgrep", "gawk", "grep", "jq", "mawk", "rg", "sed"})
"""Programs whose first operand is a script or a pattern."""
_SCRIPT_OPTION = re.compile(r"-\w*[ef]|--[efr]")
"""Options of `_SCRIPTED_PROGRAMS` whose value is the script, so that the first operand is a file."""
_PATTERN_READERS = frozenset({"egrep", "fgrep", "grep", "rg"})
_PATTERN_FILE = re.compile(r"(?:-f|--file=)(.+)", re.DOTALL)
"""An option of `_PATTERN_READERS` joined to the file whose lines are patterns."""
_COPYING_PROGRAMS = frozenset({"cp", "install", "ln", "mv"})
"""Programs whose last operand may be the folder in which they make files with the names of the other operands."""
TARGET_EDITORS = frozenset({"cp", "mkdir", "mv", "rm", "rmdir", "tee", "touch"})
"""Programs all of whose operands are files that they change."""
_PLAIN_WRAPPERS = re.compile(
    r"(?:noglob )?(?:(?:builtin|command(?: -p| --)?) )*(?:timeout [0-9]+(?:\.[0-9]+)?[smhd]? )*"
)
"""Wrappers in the order in which every shell runs the program after them."""
PROGRAM_STARTERS = frozenset({
    "caffeinate", "chpst", "chrt", "cpulimit", "daemonize", "dbus-run-session", "eval", "fakeroot", "faketime",
    "firejail", "flock", "gtimeout", "ionice", "linux32", "linux64", "ltrace", "nsenter", "numactl", "pkexec",
    "prlimit", "proxychains", "proxychains4", "rlwrap", "runuser", "schroot", "script", "setarch", "setpriv", "setsid",
    "softlimit", "strace", "systemd-inhibit", "systemd-run", "taskset", "torify", "torsocks", "toybox", "tsocks",
    "unbuffer", "unshare", "watch", "xvfb-run",
})  # fmt: skip
"""Programs that run other programs, so that an allow rule with a `*` does not suffice for them."""
GUARDED_STARTERS = frozenset({
    "chrt", "flock", "ionice", "ltrace", "nsenter", "script", "setsid", "strace", "taskset", "unshare", "watch",
})  # fmt: skip
"""Programs that run other programs, and that a rule allows only as a whole line."""
PRINTING_PROGRAMS = frozenset({"echo", "printf"})
"""Programs whose arguments are not files to read."""
_PLAIN_FILE = re.compile(r"[\w./~=]")
"""The first character of the name of a file that `touch` may change without approval."""
_TOUCH_COMMAND = re.compile(r"""touch(?:\Z| (?!(?:.* )?(?:\\|''|"")))""", re.DOTALL)
"""A call of `touch` in which no word begins with an escape or with empty quotes."""
_PATTERN = re.compile(r"(?<!\\)[*?]|\[.*\]", re.DOTALL)
_SPECIAL_BUILTINS = DECLARATIONS | {":", "break", "continue", "exit", "return", "set", "shift", "times"}
_PLAIN_ASSIGNMENT = re.compile(r"\w+=[\w./:-]+", re.ASCII)
WORD_SOURCE = re.compile(r"""(?:[^\s'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+""", re.ASCII | re.DOTALL)
"""A word of a command as it is written."""
_DESCRIPTOR_TARGET = re.compile(r"[012]")
_JQ_COMMAND = re.compile(r"""jq(?: (?:--?[A-Za-z][\w-]*|'[^'`]*'|"[^"\\`]*"|[^\s'"-]\S*))*""")
"""A call of `jq` in which no word continues after a quote."""
_CLUSTERED_OPTIONS = re.compile(r" -[^-\s]{2}")
_QUOTED_WORD = re.compile(r"""(?<!\S)(?!--[\w-]+=)\S*["'\\]""")
"""A word with quotes, other than the value of a long option."""
_EXPANSION_SIGN = re.compile(r"[$`]")
_GLOB = re.compile(r"[*?\[]")
_BRACKETS = re.compile(r"[*?\[\]]")
_DECLARATION_OPTIONS = {"export": "Aafnp", "unset": "fv"}


def explain_words(parsed_line: LinePrograms) -> Iterator[tuple[str, str, str | None]]:
    """Yield each command of a line, the roles of its words, and the first of them that is not understood."""
    for program in parsed_line.programs:
        inner = strip_wrappers(program, through_xargs=False)
        arguments = inner.arguments
        roles = [f"{name} variable" for name in program.variables]
        roles += (f"{word.text} wrapper" for word in program.words[: len(program.words) - len(inner.words)])
        roles += (f"{word.text} program" for word in inner.words[:1])
        rest = list(inner.words[1:])
        for argument in arguments.arguments:
            if argument.word in rest:
                rest.remove(argument.word)
        roles += (f"{word.text} {'subcommand' if arguments.unknown is None else 'unknown'}" for word in rest)
        roles += (f"{argument.word.text} {argument.role}" for argument in arguments.arguments)
        roles += (f"{item.operator}{item.target.text} redirect" for item in program.redirects)
        yield program.text, ", ".join(roles), arguments.unknown if inner.words else None


def may_gain_script(program: Program) -> bool:
    """Return whether words that `xargs` adds may be actions or a script, so that a rule does not cover `xargs`."""
    if program.name not in ("awk", "gawk", "mawk"):
        return program.name in ("find", "jq")
    at = 1
    while at < len(program.words) and program.words[at].text[:1] == "-":
        at += 2 if program.words[at].text in ("-F", "-v") else 1
    return at >= len(program.words)


def exceeds_rule(program: Program) -> bool:
    """Return whether a program is used in a way that a rule for it does not cover."""
    match program.name:
        case "git":
            return any(word.text[:2] == "//" for word in program.words)
        case "[" | "[[" | "test":
            return program.arguments.unknown is not None
        case "command":
            return re.match(r"command -p?[vV] \w+=", program.text.replace("'", "").replace('"', "")) is not None
        case "set":
            has_pattern = any(word.has_expansion and _GLOB.search(word.text) for word in program.words)
            return has_pattern or not _SHELL_OPTIONS.fullmatch(" ".join(word.text for word in program.words[1:]))
        case "jobs":  # `-x` runs a program
            return any(word.text[:1] == "-" and "x" in word.text for word in program.words)
        case "export" | "unset":
            options = [word.text[1:] for word in program.words[1:] if word.text[:1] == "-"]
            return any(option.strip("-" + _DECLARATION_OPTIONS[program.name]) for option in options)
        case "printf" if len(program.words) > 1 and program.words[1].text[:1] == "-" != program.words[1].text[1:2]:
            return True
        case "find" if (unknown := program.arguments.unknown) is not None and _BRACKETS.search(
            " ".join(itertools.dropwhile(unknown.__ne__, (word.text for word in program.words)))
        ):  # the words after the unknown one are not read
            return True
        case "awk" | "find" | "gawk" | "mawk" | "printf":  # a file name may be an action or an option
            return any(word.has_expansion and re.search(r"[*?\[]|\$PWD", word.text) for word in program.words)
        case _:
            return False


def find_granted_files(program: Program, arguments: Arguments, spec: ProgramSpec) -> tuple[ShellWord, ...] | None:
    """Return the files of a program that a rule allows, or None if they are uncertain."""
    if any(_matches_rejected(word.text, spec) for word in program.words[1:]):
        return None
    takes_files = spec.roles[-1:] in (("read*",), ("write*",)) or program.name == "uniq"
    if arguments.unknown is None or not takes_files:
        return (*arguments.files("read", "write"), *_joined_pattern_files(program))
    has_pattern = any(word.has_expansion and _GLOB.search(word.text) for word in program.words)
    takes_targets = "write*" in spec.roles or spec.grammar == "sed"
    if takes_targets and (has_pattern or program.name in ("cp", "mv")):
        return None
    files = (*_words_after_script(program), *_joined_pattern_files(program))
    return None if any(_EXPANSION_SIGN.search(word.text) for word in files) else files


def _words_after_script(program: Program) -> tuple[ShellWord, ...]:
    """Return the arguments that may be files if the options of a program are not understood."""
    words = tuple(word for word in program.words[1:] if word.text[:1] != "-")
    has_script = program.name in _SCRIPTED_PROGRAMS and not any(
        _SCRIPT_OPTION.match(word.text) for word in program.words[1:]
    )
    return words[1:] if has_script else words


def _joined_pattern_files(program: Program) -> list[ShellWord]:
    """Return the files joined to options such as `-f` of `grep`, which a rule for the program does not cover."""
    is_git_grep = program.name == "git" and ShellWord("grep") in program.words[1:2]
    if program.name not in _PATTERN_READERS and not is_git_grep:
        return []
    matches = [_PATTERN_FILE.match(word.text) for word in program.words[1:]]
    return [ShellWord(match[1]) for match in matches if match is not None]


def find_late_options(program: Program, spec: ProgramSpec) -> list[ShellWord]:
    """Return the options after an operand, which the client treats as files."""
    name = program.name
    takes_files = name in TARGET_EDITORS or name == "uniq" or spec.roles[-1:] == ("read*",)
    if not takes_files or spec.grammar in ("find", "test") or name in ("git", "jq"):
        return []
    late, has_operand = [], False
    for word in program.words[1:]:
        text = word.text
        has_operand = has_operand or text[:1] != "-" or text in ("-", "--")
        if has_operand and text[:1] == "-" and len(text) > 1 and not word.has_expansion:
            late.append(word)
    return late


def find_changed(program: Program, arguments: Arguments) -> tuple[ShellWord, ...]:
    """Return the files that a program changes. If its arguments are not understood, each of them may be such a file."""
    spec = arguments.spec
    if arguments.unknown is None or spec is None or not (spec.edits or "write*" in spec.roles):
        if program.name != "mkdir":
            return arguments.changed
        # The client treats the mode of new folders as a folder.
        return (*arguments.changed, *[word for word in arguments.values if word in program.words])
    return (*_words_after_script(program), *[word for word in program.words[1:] if word.text == "-"])


def find_targets(program: Program, changed: tuple[ShellWord, ...]) -> tuple[ShellWord, ...]:
    """Return the files that a program changes, and those that it makes if its last operand is a folder.

    The file in that folder may be a link to a protected file.
    """
    if program_basename(program.name) not in _COPYING_PROGRAMS or len(changed) < 2:
        return changed
    *sources, folder = changed
    start = folder.text.rstrip("/") or "/"
    names = [word.text.rstrip("/").rpartition("/")[2] for word in sources]
    return (*changed, *(replace(folder, text=f"{start}/{name}") for name in names))


def sets_variables(parsed_line: LinePrograms) -> bool:
    """Return whether a line contains an assignment that is not part of a command."""
    for program in parsed_line.programs:  # noqa: SIM110 - faster than any()
        if program.variables and not program.words:
            return True
    return False


def is_number(parsed_line: LinePrograms) -> bool:
    """Return whether a line only assigns a number to a variable, such as `X=1`."""
    values = [value for program in parsed_line.programs for value in program.values]
    return len(parsed_line.programs) == len(values) == 1 and values[0].text.isdigit()


def is_free_variable(name: str) -> bool:
    """Return whether a variable, judged by its name, has no effect on the shell and its programs."""
    return not is_influential_variable(name) and not is_harmless_variable(name)


def has_harmless_variables(program: Program) -> bool:
    """Return whether all variables that are set for a program have harmless names and values."""
    if not program.variables:
        return True
    pairs = itertools.zip_longest(program.variables, program.values)  # `unset X` has no value
    return all(is_harmless_variable(name, value) for name, value in pairs)


def has_plain_assignments(program: Program) -> bool:
    """Return whether a rule for a program applies in spite of the assignments before it.

    Their values must be plain and unquoted. No rule applies to special builtins of the shell, which keep the variables.
    """
    if not program.assignments:
        return True
    return program.name not in _SPECIAL_BUILTINS and all(map(_PLAIN_ASSIGNMENT.fullmatch, program.assignments))


def is_understood_wrapper(program: Program, inner: Program) -> bool:
    """Return whether a program that needs no rule needs none inside these wrappers either."""
    wrappers = [word.text for word in program.words[: len(program.words) - len(inner.words)]]
    if program.variables or not is_plainly_wrapped(program, inner):
        return False
    return _PLAIN_WRAPPERS.fullmatch(" ".join(wrappers) + " ") is not None


def is_plainly_spelled(program: Program, inner: Program) -> bool:
    """Return whether a program is spelled in the way in which the client recognises it."""
    wrappers = len(program.words) - len(inner.words)
    text = program.text.split(" ", wrappers)[-1]
    if inner.name == "jq":
        return _JQ_COMMAND.fullmatch(text) is not None
    if inner.name in ("hostname", "uniq") and (program.stdin_text is not None or _QUOTED_WORD.search(text)):
        return False
    if inner.name == "hostname" and _CLUSTERED_OPTIONS.search(text):
        return False
    return text.startswith(inner.name)


def has_inner_quote(program: Program) -> bool:
    """Return whether a quote begins inside a word, as in `x'y'`."""
    return any(source[0] not in "'\"" and re.search("['\"]", source) for source in WORD_SOURCE.findall(program.text))


def is_plain_edit(program: Program, changed: tuple[ShellWord, ...]) -> bool:
    """Return whether a command that changes files is spelled in a way that the client recognises."""
    if program.name != "touch" or program.stdin_text is not None:
        return program.stdin_text is None
    is_plain = all(
        word.text.isascii() and _PLAIN_FILE.match(word.text) and not re.search(r"\s-", word.text) for word in changed
    )
    return is_plain and _TOUCH_COMMAND.match(program.text) is not None


def _matches_rejected(text: str, spec: ProgramSpec) -> bool:
    match = re.fullmatch if spec.grammar == "find" else re.search
    return bool(spec.rejects) and match(spec.rejects, text) is not None


_FOLDER_READERS = frozenset({"diff", "egrep", "fgrep", "grep", "rg"})
_PATCH_OPTION = re.compile(r"-\w*[pumcL]|--(?:patch|cc|word-diff|color-words|remerge|diff-m)")
_LISTING_OPTIONS = frozenset({
    "--dirstat", "--name-only", "--name-status", "--no-patch", "--numstat", "--quiet", "--shortstat", "--stat",
    "--summary", "-s",
})  # fmt: skip
"""Options with which `git diff` and `git show` print no content of files."""
_LINE_FILTERS = frozenset({"egrep", "fgrep", "grep", "head", "sort", "tail", "uniq"})


def searches_folders(program: Program) -> bool:
    """Return whether a program reads the files in its folders. Other options than `-r` may tell it to."""
    if program.name == "git":
        return "grep" in _first_texts(program) or _compares_files(program)
    return program.name in _FOLDER_READERS


def follows_links(program: Program) -> bool:
    """Return whether a program follows the links that it finds in its folders."""
    options = [word.text for word in program.words[1:] if word.text[:1] == "-"]
    match program.name:
        case "diff":
            return "--no-dereference" not in options
        case "rg":
            return any(re.fullmatch(r"-\w*L.*|--follow", option) for option in options)
        case "grep" | "egrep" | "fgrep":
            return any(re.fullmatch(r"-\w*R.*|--deref.*", option) for option in options)
        case _:
            return False


def shows_any_file(program: Program) -> bool:
    """Return whether a command of git may print the content of files that it does not name."""
    texts = [word.text for word in program.words[1:]]
    if program.name != "git" or not texts or _compares_files(program):
        return False
    if texts[0] in ("log", "reflog") or texts[:2] == ["stash", "show"]:
        return any(_PATCH_OPTION.match(text) for text in texts)
    if texts[0] == "cat-file":
        return "-p" in texts
    return texts[0] == "grep" or (texts[0] in ("diff", "show") and _LISTING_OPTIONS.isdisjoint(texts))


def _compares_files(program: Program) -> bool:
    return "diff" in _first_texts(program) and any(word.text == "--no-index" for word in program.words)


def _first_texts(program: Program) -> list[str]:
    return [word.text for word in program.words[1:2]]


def lists_files(program: Program) -> bool:
    """Return whether a program prints the names of files in its folders, one per line, and nothing else."""
    options = {word.text for word in program.words if word.text[:1] == "-"}
    match program.name:
        case "find":
            return not options & {"-printf", "-ls"}
        case "fd" | "fdfind":
            return True
        case "ls":  # the long format shows the targets of links
            return all(re.fullmatch(r"-[1aAdrRStU]+", option) for option in options)
        case "grep" | "egrep" | "fgrep" | "rg":
            return any(
                re.fullmatch(r"-\w*l\w*|--files-with(?:out)?-match(?:es)?|--files", option) for option in options
            )
        case "git":
            command = "".join(_first_texts(program))
            is_name_list = {"diff": "--name-only", "grep": "-l"}.get(command) in options
            return command == "ls-files" or is_name_list
        case _:
            return False


def selects_lines(program: Program) -> bool:
    """Return whether a program only selects or sorts the lines of its input."""
    return program.name in _LINE_FILTERS and not program.arguments.read and program.arguments.unknown is None


_PLAIN_VALUES = frozenset({"fd", "fdfind", "find", "jq"})
_LATE_VALUES = frozenset({"column", "cut", "expand", "fmt", "fold", "numfmt", "paste", "pr", "rg", "tac"})
"""Programs for which the client treats option values as files only after an operand, as for `grep`."""
_GREP_VALUES = re.compile(r"-(?:\w*[Dd]|-devices|-directories|-label|-binary-files|-group-separator)")


def has_parent_after_operand(words: Sequence[ShellWord]) -> bool:
    """Return whether an option after an operand, which the client treats as a path, contains a parent folder."""
    has_operand = False
    for word in words:
        text = word.text
        if text[:1] != "-" or text == "-":
            has_operand = True
        elif has_operand and has_parent_after_name(text):
            return True
    return False


def has_misread_words(program: Program, inner: Program, spec: ProgramSpec, *, allows_parents: bool) -> bool:
    """Return whether the client misreads a word of an understood program.

    A folder before `..` may be a link. In a command with an escaped line break, quotes do not protect a pattern.
    """
    words = inner.words[1:]
    if not allows_parents:
        is_diff = inner.name == "git" and words[0].text == "diff"
        if has_parent_after_operand(words) or (is_diff and any(has_parent_after_name(word.text) for word in words)):
            return True
    hides_patterns = program.has_break and (spec.literals or not spec.globs)
    return hides_patterns and any(_PATTERN.search(word.text) for word in words)


def values_taken_for_files(program: Program, arguments: Arguments) -> list[ShellWord]:
    """Return the values of options that the client treats as files, such as the number in `head -n 5`."""
    name = program.name
    if name in _PLAIN_VALUES or not (name == "uniq" or (arguments.spec and "read" in arguments.spec.operands)):
        return []
    values = [word for word in arguments.values if word in program.words]
    is_grep = name in ("egrep", "fgrep", "grep")
    if is_grep and [1 for word in program.words if word.text[:1] == "-" and _GREP_VALUES.fullmatch(word.text)]:
        return [*values, *arguments.files("text")]
    if not values or (not is_grep and name not in _LATE_VALUES):
        return values
    late = itertools.dropwhile(lambda argument: argument.role not in ("read", "text"), arguments.arguments)
    return [argument.word for argument in late if argument.role == "value" and argument.word in values]


def find_candidates(program: Program, inner: Program, arguments: Arguments) -> list[tuple[ShellWord, bool]]:
    """Return all words of a program that may be files, and whether the program may change these files.

    `inner` is the program inside any wrappers, and `arguments` are its arguments.
    """
    name, changed = inner.name, find_changed(inner, arguments)
    words = [] if name in PRINTING_PROGRAMS else list(inner.words[1:])
    if arguments.unknown is None and arguments.spec is not None:
        words = [*arguments.files("read", "ref", "script", "write")]
        words += arguments.files("stat") if name == "cd" else ()
        words += values_taken_for_files(inner, arguments)
        if arguments.spec.operands == "text*" and name not in PRINTING_PROGRAMS:
            words += arguments.files("text")
    words_and_values = (*words, *program.loop_values)
    candidates = [(word, bool(changed) and word in changed) for word in words_and_values]
    may_change = bool(changed) or name in ("cp", "mv")  # the target may be joined to an option
    candidates += [(part, may_change) for word in words if _has_inner_sign(word.text) for part in _inner_values(word)]
    if program.redirects:
        candidates += [(item.target, ">" in item.operator) for item in program.redirects if not _is_stream(item)]
    if name == "sed" and not any(_SCRIPT_OPTION.match(word.text) for word in inner.words[1:]):
        # The client treats options after the script as files.
        late = itertools.dropwhile(lambda word: word.text[:1] == "-", inner.words[1:])
        candidates += [(word, True) for word in late if word.text[:1] == "-"]
    if name == "find":
        after_dashes = itertools.dropwhile(lambda word: word.text != "--", inner.words[1:])
        candidates += [(word, False) for word in after_dashes]
    if arguments.spec is not None:
        candidates += [(word, name in TARGET_EDITORS) for word in find_late_options(inner, arguments.spec)]
    return candidates


def _has_inner_sign(text: str) -> bool:
    """Return False only if `_inner_values` yields nothing for a word with this text."""
    return text[:1] == "-" or "=" in text or ":" in text or "@" in text


def _inner_values(word: ShellWord) -> Iterator[ShellWord]:
    """Yield the parts of a word that may be a file: `--file=x`, `HEAD:x`, `@x` and `-fx`."""
    text = word.text
    for mark in "=:@":
        if mark in text:
            yield ShellWord(text.rpartition(mark)[2], has_expansion=word.has_expansion)
    if text[:1] == "-" and text[1:2] != "-" and len(text) > 2:
        yield ShellWord(text[2:], has_expansion=word.has_expansion)


def is_stream_or_null(redirect: Redirect) -> bool:
    """Return whether the redirect's target is another stream or `/dev/null`, which is never protected."""
    target = redirect.target
    return _is_stream(redirect) or (target.text == "/dev/null" and not target.has_expansion)


def _is_stream(redirect: Redirect) -> bool:
    """Return whether the redirect's target is another stream instead of a file."""
    if redirect.operator[-1] != "&":
        return False
    text = redirect.target.text
    return text in ("1", "2") or _DESCRIPTOR_TARGET.fullmatch(text) is not None
