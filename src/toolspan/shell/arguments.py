"""Read the arguments of well-known programs: the role of each word, and the files that are read or changed.

Start at `read_arguments`, which stops at the first word that is not understood.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import get_args

from msgspec import Struct

from toolspan.shell.table import ProgramSpec, Role, program_table
from toolspan.shell.words import ShellWord, compile_cached, has_glob


class Arguments(Struct, frozen=True, gc=False):
    """The arguments of a program by role. An argument may have several, as `--file=x` has."""

    roles: Mapping[Role, Sequence[ShellWord]] = {}
    unknown: str | None = None
    """The first argument that is not understood."""
    spec: ProgramSpec | None = None

    @property
    def changed(self) -> tuple[ShellWord, ...]:
        """The files that the program creates, changes or removes."""
        return self.files("write")

    def files(self, *roles: Role) -> tuple[ShellWord, ...]:
        """Return the arguments that have one of the roles."""
        return tuple([word for role in roles if role in self.roles for word in self.roles[role]])


def changes_files(name: str) -> bool:
    """Return whether a program's main purpose is to change files."""
    spec = program_table().get(name)
    return spec is not None and "write*" in spec.operands.split()


def read_arguments(name: str, arguments: Sequence[ShellWord]) -> Arguments:
    """Return the role of each argument of a program, up to the first one that is not understood."""
    table = program_table()
    spec = table.get(name)
    if spec is None:
        return Arguments(unknown=name)
    if spec.grammar != "subcommands":
        return _read_with_spec(spec, arguments)
    for count in (2, 1):
        words = arguments[:count]
        spec = table.get(f"{name}.{' '.join([word.text for word in words])}") if len(words) == count else None
        if spec is not None and not any(word.has_expansion for word in words):
            return _read_with_spec(spec, arguments[count:])
    return Arguments(unknown=arguments[0].text if arguments else name)


def _read_with_spec(spec: ProgramSpec, arguments: Sequence[ShellWord]) -> Arguments:
    if spec.only:
        line = " ".join([word.text for word in arguments])
        return Arguments(unknown=None if compile_cached(spec.only).fullmatch(line) else line, spec=spec)
    reader = _ArgumentReader(spec)
    read = _READERS[spec.grammar] if spec.grammar else _ArgumentReader.read
    unknown = read(reader, arguments)
    if unknown is None:
        unknown = reader.find_rejected()
    if unknown is None:
        unknown = _find_misplaced_pattern(arguments, hides_patterns=not spec.globs)
    return Arguments(reader.roles, unknown, spec)


def _find_misplaced_pattern(arguments: Sequence[ShellWord], *, hides_patterns: bool) -> str | None:
    """Return an argument that the client interprets differently from the shell, even in quotes.

    It treats `~x` as the home folder of a user, does not recognise a pattern next to a line break, and treats a quoted
    pattern next to a variable as a file pattern.
    """
    has_pattern = hides_patterns and any(has_glob(word.text) for word in arguments)
    for word in arguments:
        text = word.text
        if text[:1] == "~" and text[1:2] not in ("", "/"):
            return text
        if has_pattern and ("\n" in text or (word.has_expansion and "$" in text)):
            return text
    return None


_TEST_WORD = re.compile(r"(?:~/|\$HOME/)?[^-=!()\s~$`*?\[\]{}<>&|][^$`*?\[\]{}~]*")
"""A word in a test that is neither an operator nor expanded by any shell."""
_FILE_TESTS = frozenset(f"-{letter}" for letter in "bcdefghknprsuwxzGLNOS")
_TEST_OPERATORS = frozenset({"=", "==", "!=", "-nt", "-ot", "-ef"})
_SED_LINES = re.compile(r"(?:[0-9]+(?:,[0-9]+)?)?p")
"""Scripts that only print lines by number; others can write files and run programs."""
_SED_SUBSTITUTION = re.compile(r"s/(?:(?! [wWrRe])[^/\\;{}!#])*/(?:(?! [wWrRe])[^/\\;&{}!#])*/[gpiI]*[1-9]?[gpiI]*")
_SED_FILE = re.compile(
    r"(?![,:]|.*[,/][-+~]|\d*(?:[wWe]|[A-Za-z]\Z)|\d+[^\d_./-]|/[^/]*/(?:[IM]*[wWe]|[A-Za-z]\Z|,)|s[\W_]|s.*[eEwW]\Z"
    r"|s(.).*\1.*\1.*[eEwW]|y.|(?=.*[eEwW]).*y.)[\w./=@%+,:~^-]+",
    re.ASCII,
)
"""File names that the client does not mistake for sed commands after `sed -i`."""
_MAX_SED_NAME = 200
"""The maximum length of a file name, because `_SED_FILE` takes cubic time."""
_COMMON_FILE = re.compile(r"[\w./=@%+,:~^-]+", re.ASCII)
_BRACES = re.compile(r"\{[^{}]*(?:,|\.\.)[^{}]*\}")
_VALUE_FORMS = {
    "count": re.compile(r"[0-9]+\Z"),
    "format": re.compile(r"(?!~|.*signature).*%|(?:oneline|short|medium|full|fuller|raw)\Z"),
}
_NEWER = frozenset({"-newerat", "-newerBt", "-newerct", "-newermt"})
_TEXT_CONVERSION = re.compile(r"%(?:%|[-+ #0']*\d*(?:\.\d*)?[sbc])")
"""The conversions of `printf` whose argument may be any text. Others evaluate it or assign to it."""
_SHORT_DOCUMENT = re.compile(r"\$\(cat <<'\w+'\n[^\n$`{]*\n\w+\n\)", re.ASCII)
"""A literal here-document of one line, without characters that the client takes for expansions."""


def _is_number(text: str) -> bool:
    """Return whether a text consists of ASCII digits. Programs do not read other digits as numbers."""
    return text.isascii() and text.isdigit()


_ROLES: Mapping[str, Role] = {f"{role}{star}": role for role in get_args(Role) for star in ("", "*")}
_SEARCHED_ROLES = frozenset({"text", "script", "value", "read", "ref", "write"})
"""The roles of the arguments in which these texts are searched for."""


class _ArgumentReader:
    """A reader for the arguments of one program. Its methods return the first text that is not understood, or None."""

    def __init__(self, spec: ProgramSpec) -> None:
        self._spec, self._roles = spec, spec.roles
        self._rejects_dashes = spec.closed or not spec.globs
        self.roles: defaultdict[Role, list[ShellWord]] = defaultdict(list)
        self._has_operand = self._is_recursive = self._has_unknown = False

    def read(self, arguments: Sequence[ShellWord]) -> str | None:
        spec = self._spec
        at, in_options, has_operand = 0, True, False
        while at < len(arguments):
            word = arguments[at]
            text = word.text
            at += 1
            if (word.has_expansion or "$" in text or "`" in text or "{" in text) and self._may_become_option(word):
                return text
            is_operand = text[:1] != "-"
            if not is_operand:
                is_rejected = (spec.no_dash and text in ("-", "--")) or (spec.bare and has_operand)
                if is_rejected or not (in_options or spec.globs):
                    return text
                is_operand = not in_options or text == "-"
            if is_operand:
                has_operand = True
                if not self._read_operand(word):
                    return text
                continue
            if has_operand and self._roles[:1] == ("text",):
                self._roles = self._roles[1:]  # the client treats the option as an operand
            if text == "--":
                if not self._roles or (spec.edits and not spec.flags):
                    return text
                in_options = False
                self.roles["option"].append(word)
                continue
            taken = self._read_option(word, arguments[at : at + 2])
            if taken is None:
                return text
            at += taken
        self._add_default()
        return "" if self._roles[:1] == ("script",) else None

    def _may_become_option(self, word: ShellWord) -> bool:
        """Return whether a word may become an option or another word when the shell expands it."""
        spec = self._spec
        if word.has_expansion:
            if word.has_substitution and not spec.globs and not _SHORT_DOCUMENT.fullmatch(word.text):
                return True
            return not spec.globs and has_glob(word.text)
        if not spec.dollars and ("$" in word.text or "`" in word.text):
            return True
        return "{" in word.text and not spec.dollars and _BRACES.search(word.text) is not None

    def _add_default(self) -> None:
        if not self._has_operand and (self._spec.default or self._is_recursive):
            self.roles["read"].append(ShellWord(self._spec.default or "."))

    def _read_option(self, word: ShellWord, following: Sequence[ShellWord]) -> int | None:
        """Read an option and its value. Return the number of following words that belong to it, or None."""
        text, spec = word.text, self._spec
        if spec.literal or (spec.numbers and _is_number(text[1:])) or (spec.globs and text in ("--help", "--version")):
            self.roles["option"].append(word)
            return 0
        if text[:2] == "--":
            name, equals, value = text.partition("=")
            return self._read_value(word, name, value if equals else None, following)
        for at, letter in enumerate(text[1:], start=2):
            kind = spec.options.get("-" + letter)
            if kind != "flag":
                if not spec.globs and (at > 2 or (text[at:] and "-" + letter not in spec.joined.split())):
                    return None
                if spec.closed and (at > 2 or (text[at:] and kind != "count")):
                    return None
                return self._read_value(word, "-" + letter, text[at:] or None, following)
            if spec.noted_options:
                self._note_option("-" + letter)
        self.roles["option"].append(word)
        return 0

    def _read_value(
        self, word: ShellWord, option: str, value: str | None, following: Sequence[ShellWord]
    ) -> int | None:
        kind = self._spec.options.get(option)
        is_long = option[:2] == "--"
        if kind is None and self._spec.globs and not self._spec.closed:
            self._has_unknown = True
            self.roles["option"].append(word)
            if value is not None and is_long:
                self.roles["read"].append(ShellWord(value, has_expansion=word.has_expansion))
            return 0
        is_empty = value == "" and kind == "optional" and self._spec.bare
        if kind is None or (kind == "flag" and value is not None) or is_empty:
            return None
        self._note_option(option)
        is_next_value = kind == "optional" and value is None and self._rejects_dashes  # in the client
        if is_next_value and (not following or following[0].text[:1] == "-"):
            return None
        if kind == "flag" or (kind == "optional" and (is_long or value is None)):
            self.roles["option"].append(word)
            return 0
        # After an unknown option, the client treats the values of options as files.
        role: Role = "read" if kind == "read" or self._has_unknown else "value"
        form = _VALUE_FORMS.get(kind)
        if form and not form.match(value if value is not None else following[0].text if following else ""):
            return None
        if value is not None:
            if self._rejects_dashes and value[:1] == "-":
                return None
            self.roles["option"].append(word)
            self.roles[role].append(ShellWord(value, has_expansion=word.has_expansion))
            return 0
        if not following or self._may_become_option(following[0]):
            return None
        if self._rejects_dashes and following[0].text[:1] == "-":
            return None
        self.roles["option"].append(word)
        self.roles["read" if self._may_name_files(following[0]) else role].append(following[0])
        return 1

    def _may_name_files(self, word: ShellWord) -> bool:
        """Return whether a word at the position of a text may expand to several words, the rest of which are files."""
        return word.has_expansion and "read*" in self._spec.roles and has_glob(word.text)

    def _note_option(self, option: str) -> None:
        noted = self._spec.noted_options.get(option)
        if noted == "recursive":
            self._is_recursive = True
        elif noted == "listing":
            self._roles = ("text*",)
        elif noted is not None and self._roles[:1] in (("text",), ("script",)):
            self._roles = self._roles[1:]

    def _read_operand(self, word: ShellWord) -> bool:
        if not self._roles:
            return False
        role = _ROLES[self._roles[0]]
        if role == self._roles[0]:
            self._roles = self._roles[1:]
        self._has_operand = self._has_operand or role == "read"
        self.roles[role].append(word)
        if role == "text" and self._may_name_files(word):
            self.roles["read"].append(word)
        if role == "read":
            return word.has_expansion or not ("$" in word.text or "`" in word.text)
        return role != "format" or ((word.text[:1] == "+" or word.text == "-") and not word.has_expansion)

    def find_rejected(self) -> str | None:
        if not self._spec.rejects or self._spec.grammar == "find":
            return None
        pattern = compile_cached(self._spec.rejects)
        texts = (word.text for role, words in self.roles.items() if role in _SEARCHED_ROLES for word in words)
        return next(filter(pattern.search, texts), None)

    # Programs with their own grammar

    def read_find(self, arguments: Sequence[ShellWord]) -> str | None:
        at, in_expression, has_predicate = 0, False, False
        while at < len(arguments):
            word = arguments[at]
            at += 1
            kind = self._spec.options.get(word.text) or ("read" if word.text in _NEWER else None)
            is_open = word.has_expansion and (has_glob(word.text) or in_expression)
            if is_open or compile_cached(self._spec.rejects).fullmatch(word.text):
                return word.text
            if word.text[:1] not in ("-", "(", ")", "!", ",", "") or word.text == "-":
                if has_glob(word.text) or "]" in word.text:
                    return word.text
                self._has_operand = True
                self.roles["text" if has_predicate else "read"].append(word)  # find refuses paths after an expression
                continue
            in_expression = in_expression or word.text not in ("-H", "-L", "-P")
            has_predicate = has_predicate or (in_expression and word.text[:1] == "-")
            self.roles["option"].append(word)
            if kind in ("value", "read"):
                if at >= len(arguments) or arguments[at].has_expansion:
                    return word.text
                self.roles["read" if kind == "read" else "value"].append(arguments[at])
                at += 1
            elif kind is None and word.text not in ("(", ")", "!", ","):
                # find fails on unknown tests, so those that are not rejected are harmless
                letters = word.text[1:]
                if len(letters) < 3 or not (letters.isascii() and letters.isalpha() and letters.islower()):
                    return word.text
        self._add_default()
        return None

    def read_printf(self, arguments: Sequence[ShellWord]) -> str | None:
        pattern = arguments[0].text if arguments else ""
        if pattern[:1] == "-" or "$" in pattern or "%" in _TEXT_CONVERSION.sub("", pattern):
            return pattern
        for word in arguments:
            if word.has_substitution or (word.has_expansion and has_glob(word.text)):
                return word.text
            if "[" in word.text and "$" in word.text:
                return word.text
            self.roles["text"].append(word)
        return None

    def read_sed(self, arguments: Sequence[ShellWord]) -> str | None:
        unknown = self.read(arguments)
        if unknown is not None:
            return unknown
        options, scripts, names = (
            [word.text for word in self.roles.get(role, ())] for role in ("option", "script", "read")
        )
        letters = {letter for option in options if option[:2] != "--" for letter in option[1:]}
        is_quiet = "n" in letters or "--quiet" in options or "--silent" in options
        in_place = "i" in letters or "--in-place" in options
        if not scripts or (in_place and not names) or options.count("-i") > 1:
            return ""
        if not is_quiet and "z" not in letters and _SED_SUBSTITUTION.fullmatch(scripts[0]):
            form = _SED_FILE if in_place else _COMMON_FILE
            if not (
                scripts[0].isascii()
                and scripts[0].isprintable()
                and all(len(name) <= _MAX_SED_NAME and form.fullmatch(name) for name in names)
            ):
                return scripts[0]
            # The client asks about substitutions in files, even if they are only printed.
            self.roles["write"] = self.roles.pop("read", [])
            return None
        lines = not in_place and is_quiet and all(_SED_LINES.fullmatch(part.strip()) for part in scripts[0].split(";"))
        return None if lines else scripts[0]

    def read_test(self, arguments: Sequence[ShellWord]) -> str | None:
        words = list(arguments)
        if words and words[-1].text in ("]", "]]"):
            words.pop()
        if words and words[0].text == "!":
            del words[0]
        texts = [word.text for word in words]
        if len(words) == 2 and texts[0] in _FILE_TESTS:
            operands = words[1:]
        elif len(words) == 3 and texts[1] in _TEST_OPERATORS and texts[1] != self._spec.rejects:
            operands = [words[0], words[2]]
        else:
            return " ".join(texts) or "]"
        for word in operands:
            if _TEST_WORD.fullmatch(word.text) is None or (word.text[:1] in "~$" and not word.has_expansion):
                return word.text
            self.roles["stat"].append(word)
        return None

    def read_xargs(self, arguments: Sequence[ShellWord]) -> str | None:
        at = 0
        while at < len(arguments) and arguments[at].text[:1] == "-":
            text = arguments[at].text
            kind = self._spec.options.get(text)
            if kind is None and all(self._spec.options.get("-" + letter) == "flag" for letter in text[1:]):
                kind = "flag"
            if kind is None:
                return text
            self.roles["option"].append(arguments[at])
            if kind == "count" and not (at + 1 < len(arguments) and _is_number(arguments[at + 1].text)):
                return arguments[at].text
            at += 1 + (kind == "count")
        if at >= len(arguments):
            return None
        name, *fixed = arguments[at:]
        # The added words may be options or any files, so only programs without dangerous options are understood.
        if name.text not in self._spec.words.split() or name.has_expansion:
            return name.text
        if any(word.has_expansion and (has_glob(word.text) or name.text != "echo") for word in fixed):
            return name.text
        if any(map(self._may_become_option, fixed)):
            return name.text
        self.roles["text"].append(name)
        if any(word.text[:2] == "--" and "=" in word.text for word in fixed):
            return name.text
        inner = read_arguments(name.text, fixed)
        for role, found in inner.roles.items():
            self.roles[role] += [word for word in found if word.text != "."]
        return inner.unknown


_READERS: Mapping[str, Callable[[_ArgumentReader, Sequence[ShellWord]], str | None]] = {
    "find": _ArgumentReader.read_find,
    "printf": _ArgumentReader.read_printf,
    "sed": _ArgumentReader.read_sed,
    "test": _ArgumentReader.read_test,
    "xargs": _ArgumentReader.read_xargs,
    "unknown": lambda _, arguments: " ".join(word.text for word in arguments),
}
