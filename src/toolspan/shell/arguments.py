"""Read the arguments of well-known programs: the role of each word, and the files that are read or changed.

Start at `read_arguments`, which stops at the first word that is not understood, for permission decisions.
`find_file_arguments` skips such words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import get_args

from msgspec import Struct

from toolspan.shell.table import ProgramSpec, Role, program_table
from toolspan.shell.words import ShellWord


class Argument(Struct, frozen=True, gc=False):
    """An argument of a program, or the value in one, with its role."""

    word: ShellWord
    role: Role


class Arguments(Struct, frozen=True, gc=False):
    """The arguments of a program with their roles."""

    arguments: tuple[Argument, ...] = ()
    unknown: str | None = None
    """The first argument that is not understood."""
    spec: ProgramSpec | None = None
    read: tuple[ShellWord, ...] = ()
    """The files that the program reads."""
    changed: tuple[ShellWord, ...] = ()
    """The files that the program creates, changes or removes."""
    values: tuple[ShellWord, ...] = ()
    """The values of options that are not files."""

    def files(self, *roles: Role) -> tuple[ShellWord, ...]:
        """Return the arguments that have one of the roles."""
        return tuple([argument.word for argument in self.arguments if argument.role in roles])


class FileArguments(Struct, frozen=True):
    """The file arguments of a program."""

    read: tuple[ShellWord, ...] = ()
    changed: tuple[ShellWord, ...] = ()


def changes_files(name: str) -> bool:
    """Return whether a program's main purpose is to change files."""
    spec = program_table().get(name)
    return spec is not None and "write*" in spec.operands.split()


def find_file_arguments(name: str, arguments: Sequence[ShellWord]) -> FileArguments | None:
    """Return the files among the arguments of a program, or None if the program is unknown.

    If a program reads the current folder by default, the result contains `.`.
    """
    known = find_operands(name, arguments)
    if known is None:
        return None
    if name == "sed" and any(word.text[:2] in ("-i", "--") for word in arguments):
        return FileArguments(changed=known.files("read", "write"))
    return FileArguments(read=known.files("read", "stat"), changed=known.changed)


def read_arguments(name: str, arguments: Sequence[ShellWord]) -> Arguments:
    """Return the role of each argument of a program, up to the first one that is not understood."""
    table = program_table()
    spec = table.get(name)
    if spec is None:
        return Arguments(unknown=name)
    if spec.grammar == "subcommands":
        return _read_subcommand(table, name, arguments)
    return _read_with_spec(spec, arguments)


def find_operands(name: str, arguments: Sequence[ShellWord]) -> Arguments | None:
    """Return the roles of the arguments that are understood, skipping all others; None for unknown programs."""
    spec = program_table().get(name)
    if spec is None or spec.only or spec.grammar in ("subcommands", "unknown"):
        return None
    rest = list(arguments)
    while True:
        reader = _ArgumentReader(spec, lenient=True)
        unknown = _READERS.get(spec.grammar, _ArgumentReader.read)(reader, rest)
        shorter = [word for word in rest if word.text != unknown]
        if unknown is None or len(shorter) == len(rest):
            return reader.result(None)
        rest = shorter


def _read_subcommand(table: Mapping[str, ProgramSpec], name: str, arguments: Sequence[ShellWord]) -> Arguments:
    if not arguments:
        return Arguments(unknown=name)
    first = arguments[0]
    if len(arguments) > 1:
        spec = table.get(f"{name}.{first.text} {arguments[1].text}")
        if spec is not None and not (first.has_expansion or arguments[1].has_expansion):
            return _read_with_spec(spec, arguments[2:])
    spec = table.get(f"{name}.{first.text}")
    if spec is not None and not first.has_expansion:
        return _read_with_spec(spec, arguments[1:])
    return Arguments(unknown=first.text)


def _read_with_spec(spec: ProgramSpec, arguments: Sequence[ShellWord]) -> Arguments:
    if spec.only:
        line = " ".join(word.text for word in arguments)
        return Arguments(unknown=None if line in spec.only.split(";") else line, spec=spec)
    reader = _ArgumentReader(spec)
    read = _READERS[spec.grammar] if spec.grammar else _ArgumentReader.read
    unknown = read(reader, arguments)
    if unknown is None:
        unknown = reader.find_rejected()
    if unknown is None:
        unknown = _find_misread(arguments, hides_patterns=spec.literals or not spec.globs)
    if unknown is None and spec.operands == "ps*":
        unknown = _find_environment_letter(arguments)
    return reader.result(unknown)


def _find_environment_letter(arguments: Sequence[ShellWord]) -> str | None:
    """Return an argument of `ps` that the client treats as the option `e`, which prints environment variables."""
    for word in arguments if any(word.text[:1] != "-" or word.text == "-" for word in arguments) else ():
        if word.has_expansion or ("e" in word.text.lower() and word.text[:2] != "--"):
            return word.text
    return None


def _find_misread(arguments: Sequence[ShellWord], *, hides_patterns: bool) -> str | None:
    """Return an argument that the client interprets differently from the shell, even in quotes.

    It treats `~x` as the home folder of a user, does not recognise a pattern next to a line break, and treats a quoted
    pattern next to a variable as a file pattern.
    """
    for word in arguments:
        text = word.text
        if text[:1] == "~" and text[1:2] not in ("", "/"):
            return text
        is_hiding = hides_patterns and ("\n" in text or (word.has_expansion and "$" in text))
        if is_hiding and any(_GLOB.search(other.text) for other in arguments):
            return text
    return None


_HOME_PATH = re.compile(r"~|\$HOME/")
_UNUSUAL_OPERAND = re.compile(
    r"-(?![bcdefghknprstuwxzGLNOS]\Z|nt\Z|ot\Z|ef\Z|eq\Z|ne\Z|lt\Z|le\Z|gt\Z|ge\Z)|=[A-Za-z_]|.*\[", re.DOTALL
)
"""Operands of a test that are neither operators nor plain texts."""
_ASSIGNING_TESTS = frozenset({"-v", "-R", "-o", "-a"})
_COMPARISONS = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
_TEST_OPERATORS = frozenset(
    {"=", "==", "!=", "<", ">", "=~", "!", "(", ")", "-nt", "-ot", "-ef", "&&", "||", "]", "]]"}
)
_TEST_OPTION = re.compile(r"-[A-Za-z]")
_MISPLACED_OPERATOR = re.compile(r"-[A-Za-z]|[=!]=|=~?")
_NUMBER = re.compile(r"[-+]?[0-9]+(?:\.[0-9]+)?")
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
_PLAIN_FILE = re.compile(r"[\w./=@%+,:~^-]+", re.ASCII)
_BRACES = re.compile(r"\{[^{}]*(?:,|\.\.)[^{}]*\}")
_TEXT_FORMS = {
    "number": re.compile(r"[0-9]+"),
    "format": re.compile(r"\+.*|-", re.DOTALL),
    "ps": re.compile(r"(?!=)[A-DF-Za-df-z0-9_./:,@%+=-]+"),
    "name": re.compile(r"[A-Za-z][\w.+-]*"),
    "topic": re.compile(r"(?!\.)[^/~\\]+"),
    "address": re.compile(r":[0-9]+|(?:tcp|udp)(?::[0-9]+)?"),
}
_VALUE_FORMS = {
    "count": re.compile(r"[0-9]+\Z"),
    "format": re.compile(r"(?!~|.*signature).*%|(?:oneline|short|medium|full|fuller|raw)\Z"),
}
_NEWER = re.compile(r"-newer[aBcm]t")
_UNKNOWN_TEST = re.compile(r"-[a-z]{3,}")
"""A word that looks like a test. `find` fails on unknown tests, so it is harmless unless the table rejects it."""
_TEXT_CONVERSION = re.compile(r"%(?:%|[-+ #0']*\d*(?:\.\d*)?(?:[sbc]|q(?![A-Za-z])))")
"""The conversions of `printf` whose argument may be any text.

Some shells evaluate the argument of any other conversion as an arithmetic expression, so it must be a number.
"""
_ASSIGNING_CONVERSION = re.compile(r"%[^%a-zA-Z]*[hjlLqtz]*n")
_GLOB = re.compile(r"[*?\[]")
_SHORT_DOCUMENT = re.compile(r"\$\(cat <<'\w+'\n[^\n$`{]*\n\w+\n\)", re.ASCII)
"""A literal here-document of one line, without characters that the client takes for expansions."""


def _is_number(text: str) -> bool:
    """Return whether a text consists of ASCII digits. Programs do not read other digits as numbers."""
    return text.isascii() and text.isdigit()


@lru_cache(maxsize=256)  # perf: there are two patterns per program, and `re.search` looks for them more slowly
def _compile_rejected(rejects: str, starts: str) -> re.Pattern[str]:
    """Return a pattern for the texts that a program must not have, from these fields of its entry in the table."""
    return re.compile("|".join(filter(None, (rejects, starts))))


_SEARCHED_ROLES = frozenset({"text", "script", "value", "read", "ref", "ps"})
"""The roles of the arguments in which these texts are searched for."""
_OPERAND_ROLES: Mapping[str, tuple[Role, bool]] = {
    f"{role}{star}": (role, bool(star)) for role in get_args(Role) for star in ("", "*")
}
"""The role of each word in the `operands` of a program, and whether it repeats."""


class _ArgumentReader:
    """A reader for the arguments of one program. Its methods return the first text that is not understood, or None."""

    def __init__(self, spec: ProgramSpec, *, lenient: bool = False) -> None:
        self._spec, self._roles, self._lenient = spec, spec.roles, lenient
        self._rejects_dashes = spec.closed or not spec.globs
        self.arguments: list[Argument] = []
        self._has_operand = self._is_recursive = self._has_pair = self._has_unknown = False

    def result(self, unknown: str | None) -> Arguments:
        """Return the arguments read so far. `unknown` is the first argument that is not understood."""
        read, changed, values = [], [], []
        for argument in self.arguments:
            role = argument.role
            if role == "read":
                read.append(argument.word)
            elif role == "write":
                changed.append(argument.word)
            elif role == "value":
                values.append(argument.word)
        return Arguments(tuple(self.arguments), unknown, self._spec, tuple(read), tuple(changed), tuple(values))

    def _with_role(self, role: Role) -> tuple[ShellWord, ...]:
        return tuple([argument.word for argument in self.arguments if argument.role == role])

    def _add(self, word: ShellWord, role: Role) -> None:
        self.arguments.append(Argument(word, role))

    def read(self, arguments: Sequence[ShellWord]) -> str | None:
        spec = self._spec
        at, in_options, has_operand = 0, True, False
        while at < len(arguments):
            word = arguments[at]
            text = word.text
            at += 1
            if self._is_uncertain(word):
                return text
            is_operand = text[:1] != "-"
            if not is_operand:
                is_rejected = spec.no_dash and text in ("-", "--")
                if is_rejected or (spec.leading and has_operand) or not (in_options or spec.globs):
                    return text
                is_operand = not in_options or text == "-"
            if is_operand:
                has_operand = True
                if not self._read_operand(word):
                    return text
                continue
            if has_operand and self._roles[:1] == ("text",):
                self._roles = self._roles[1:]  # the client treats the option as an operand
            is_odd_end = text == "--" and not (self._roles and spec.takes_dashes)
            if is_odd_end or (spec.operands == "ps*" and self._has_operand):
                return text
            if text == "--":
                in_options = False
                self._add(word, "option")
                continue
            taken = self._read_option(word, arguments[at : at + 2])
            if taken is None:
                return text
            at += taken
        self._add_default()
        if spec.unfinished and arguments and arguments[-1].text in spec.unfinished.split() and not self._lenient:
            return arguments[-1].text
        return "" if self._roles[:1] == ("script",) and not self._lenient else None

    def _is_uncertain(self, word: ShellWord) -> bool:
        """Return whether a word may become an option or another word when the shell expands it."""
        spec = self._spec
        if self._lenient:
            return False
        if word.has_expansion:
            if word.has_substitution and not spec.globs and not _SHORT_DOCUMENT.fullmatch(word.text):
                return True
            if "$PWD" in word.text:
                return not spec.globs or spec.plain
            return (spec.literals or not spec.globs) and _GLOB.search(word.text) is not None
        if not spec.dollars and ("$" in word.text or "`" in word.text):
            return True
        if "{" not in word.text or (not spec.plain and (spec.globs or spec.dollars)):
            return False
        return _BRACES.search(word.text) is not None

    def _add_default(self) -> None:
        if not self._has_operand and (self._spec.default or self._is_recursive):
            self._add(ShellWord(self._spec.default or "."), "read")

    def _read_option(self, word: ShellWord, following: Sequence[ShellWord]) -> int | None:
        """Read an option and its value. Return the number of following words that belong to it, or None."""
        text, spec = word.text, self._spec
        if spec.literal or (spec.numbers and _is_number(text[1:])) or (spec.globs and text in ("--help", "--version")):
            self._add(word, "option")
            return 0
        if text[:2] == "--":
            name, equals, value = text.partition("=")
            if any(option.startswith(name) for option in spec.lists.split()):
                return None
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
        self._add(word, "option")
        return 0

    def _read_value(
        self, word: ShellWord, option: str, value: str | None, following: Sequence[ShellWord]
    ) -> int | None:
        kind = self._spec.options.get(option)
        is_long = option[:2] == "--"
        if kind is None and self._spec.globs and not self._spec.closed:
            self._has_unknown = True
            self._add(word, "option")
            if value is not None and is_long:
                self._add(ShellWord(value, has_expansion=word.has_expansion), "read")
            return 0
        is_empty = value == "" and kind == "optional" and self._spec.bare
        if kind is None or (kind == "flag" and value is not None) or is_empty:
            return None
        self._note_option(option)
        if kind == "optional" and value is None and self._rejects_dashes and following and following[0].text[:1] == "-":
            return None  # the client treats the next word as the value
        if kind == "flag" or (kind == "optional" and (is_long or value is None)):
            self._add(word, "option")
            return 0
        # After an unknown option, the client treats the values of options as files.
        role: Role = "read" if kind == "read" or self._has_unknown else "value"
        form = _VALUE_FORMS.get(kind)
        if form and not form.match(value if value is not None else following[0].text if following else ""):
            return None
        if value is not None:
            if self._rejects_dashes and value[:1] == "-":
                return None
            self._add(word, "option")
            self._add(ShellWord(value, has_expansion=word.has_expansion), role)
            return 0
        values = following[: 2 if kind == "pair" else 1]
        if len(values) < (2 if kind == "pair" else 1) or any(map(self._is_uncertain, values)):
            return None
        if self._rejects_dashes and any(value_word.text[:1] == "-" for value_word in values):
            return None
        self._add(word, "option")
        self._has_pair = self._has_pair or kind == "pair"
        for value_word in values:
            self._add(value_word, "read" if self._may_name_files(value_word) else role)
        return len(values)

    def _may_name_files(self, word: ShellWord) -> bool:
        """Return whether a word at the position of a text may expand to several words, the rest of which are files."""
        return word.has_expansion and "read*" in self._spec.roles and _GLOB.search(word.text) is not None

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
        role, repeats = _OPERAND_ROLES[self._roles[0]]
        if not repeats:
            self._roles = self._roles[1:]
        self._has_operand = self._has_operand or role in ("read", "ps")
        self._add(word, role)
        if role == "text" and self._may_name_files(word):
            self._add(word, "read")
        if role == "script" and self._has_pair:
            self._add(word, "read")  # the client treats the second word of the pair as the script
        if role == "read":
            return self._lenient or word.has_expansion or not ("$" in word.text or "`" in word.text)
        if role in _TEXT_FORMS:
            return _TEXT_FORMS[role].fullmatch(word.text) is not None and not word.has_expansion
        return role != "word" or word.text in self._spec.words.split()

    def find_rejected(self) -> str | None:
        rejects, starts = self._spec.rejects, self._spec.starts
        if not rejects and not starts and not self._has_pair:
            return None
        if self._has_pair and any(
            argument.role == "script" and "$" in argument.word.text for argument in self.arguments
        ):
            return "$"  # the client treats the script after such a pair as a file
        if not (rejects or starts) or self._spec.grammar == "find":
            return None
        pattern = _compile_rejected(rejects, starts)
        for argument in self.arguments:
            if argument.role in _SEARCHED_ROLES and pattern.search(argument.word.text):
                return argument.word.text
        return None

    # Programs with their own grammar

    def read_find(self, arguments: Sequence[ShellWord]) -> str | None:
        at, in_expression, has_predicate = 0, False, False
        while at < len(arguments):
            word = arguments[at]
            at += 1
            kind = self._spec.options.get(word.text) or ("read" if _NEWER.fullmatch(word.text) else None)
            is_open = word.has_expansion and (_GLOB.search(word.text) or in_expression or "$PWD" in word.text)
            if is_open or self._is_rejected(word):
                return word.text
            if word.text[:1] not in ("-", "(", ")", "!", ",", "") or word.text == "-":
                if _GLOB.search(word.text) or "]" in word.text:
                    return word.text
                self._has_operand = True
                self._add(word, "text" if has_predicate else "read")  # find refuses paths after an expression
                continue
            in_expression = in_expression or word.text not in ("-H", "-L", "-P")
            has_predicate = has_predicate or (in_expression and word.text[:1] == "-")
            self._add(word, "option")
            if kind in ("value", "read"):
                if at >= len(arguments) or arguments[at].has_expansion:
                    return word.text
                self._add(arguments[at], "read" if kind == "read" else "value")
                at += 1
            elif kind is None and word.text not in ("(", ")", "!", ",") and not _UNKNOWN_TEST.fullmatch(word.text):
                return word.text
        self._add_default()
        return None

    def _is_rejected(self, word: ShellWord) -> bool:
        return _compile_rejected(self._spec.rejects, "").fullmatch(word.text) is not None

    def read_printf(self, arguments: Sequence[ShellWord]) -> str | None:
        has_dashes = bool(arguments) and arguments[0].text == "--"
        words = arguments[1:] if has_dashes else arguments
        if not words:
            return None
        if (
            (words[0].text[:1] == "-" and not has_dashes)
            or "$" in words[0].text
            or (_ASSIGNING_CONVERSION.search(words[0].text) and len(words) > 1)
        ):
            return words[0].text
        only_numbers = "%" in _TEXT_CONVERSION.sub("", words[0].text) or "*" in words[0].text
        for at, word in enumerate(words):
            if word.has_substitution or (word.has_expansion and (_GLOB.search(word.text) or "$PWD" in word.text)):
                return word.text
            if at and ((only_numbers and not _NUMBER.fullmatch(word.text)) or ("[" in word.text and "$" in word.text)):
                return word.text
            self._add(word, "text")
        return None

    def read_sed(self, arguments: Sequence[ShellWord]) -> str | None:
        unknown = self.read(arguments)
        if unknown is not None or self._lenient:
            return unknown
        options = [word.text for word in arguments]
        is_quiet = any(re.fullmatch(r"-[Eirz]*n[Eirz]*|--quiet|--silent", option) for option in options)
        in_place = any(re.fullmatch(r"-[Enrz]*i[Einrz]*|--in-place", option) for option in options)
        scripts = [argument.word.text for argument in self.arguments if argument.role == "script"]
        if not scripts or (in_place and not self._with_role("read")) or options.count("-i") > 1:
            return ""
        if not is_quiet and _SED_SUBSTITUTION.fullmatch(scripts[0]):
            names = [word.text for word in self._with_role("read")]
            form = _SED_FILE if in_place else _PLAIN_FILE
            if not (
                scripts[0].isascii()
                and scripts[0].isprintable()
                and all(len(name) <= _MAX_SED_NAME and form.fullmatch(name) for name in names)
            ):
                return scripts[0]
            if any(re.fullmatch(r"-\w*z\w*", option) for option in options):
                return scripts[0]
            # The client asks about substitutions in files, even if they are only printed.
            self.arguments = [
                Argument(argument.word, "write") if argument.role == "read" else argument for argument in self.arguments
            ]
            return None
        lines = not in_place and is_quiet and all(_SED_LINES.fullmatch(part.strip()) for part in scripts[0].split(";"))
        return None if lines else scripts[0]

    def read_test(self, arguments: Sequence[ShellWord]) -> str | None:
        texts = [word.text for word in arguments]
        if len(texts) == 1 and texts[0][:1] == "-":
            return texts[0]
        for at, word in enumerate(arguments):
            if word.has_expansion and (_GLOB.search(word.text) or not _HOME_PATH.match(word.text)):
                return word.text
            if not word.has_expansion and self._is_uncertain(word):
                return word.text
            if (
                word.text in _ASSIGNING_TESTS
                or _UNUSUAL_OPERAND.match(word.text)
                or word.text == (self._spec.rejects or None)
            ):
                return word.text
            operands = texts[max(at - 1, 0) : at + 2 : 2] if word.text in _COMPARISONS else ()
            if word.text == "-t":
                operands = texts[at + 1 : at + 2]
            if not all(map(_is_number, operands)):
                return word.text
            following = texts[at + 1 : at + 2]
            if _TEST_OPTION.fullmatch(word.text) and following and _MISPLACED_OPERATOR.fullmatch(following[0]):
                return word.text  # an operator in the place of an operand
            is_last = following in ([], ["]"], ["]]"])
            if at and is_last and re.fullmatch(r"-[a-z]+" if following else r"-[A-Za-z]+", word.text):
                return word.text  # an operator without an operand
            is_operator = word.text in _TEST_OPERATORS or re.fullmatch(r"-[a-zA-Z]", word.text)
            self._add(word, "option" if is_operator else "stat")
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
            self._add(arguments[at], "option")
            if kind == "count" and not (at + 1 < len(arguments) and _is_number(arguments[at + 1].text)):
                return arguments[at].text
            at += 1 + (kind == "count")
        if at >= len(arguments):
            return None
        name, *fixed = arguments[at:]
        # The added words may be options or any files, so only programs without dangerous options are understood.
        if name.text not in self._spec.words.split() or name.has_expansion:
            return name.text
        if any(word.has_expansion and (_GLOB.search(word.text) or name.text != "echo") for word in fixed):
            return name.text
        if any(map(self._is_uncertain, fixed)):
            return name.text
        self._add(name, "text")
        if any(word.text[:2] == "--" and "=" in word.text for word in fixed):
            return name.text
        inner = read_arguments(name.text, fixed)
        self.arguments.extend(argument for argument in inner.arguments if argument.word.text != ".")
        return inner.unknown

    def read_nothing(self, arguments: Sequence[ShellWord]) -> str | None:
        return " ".join(word.text for word in arguments)

    def read_cd(self, arguments: Sequence[ShellWord]) -> str | None:
        for word in arguments:
            if word.text[:1] == "-":
                return word.text
            self._add(word, "stat")
        return arguments[1].text if len(arguments) > 1 else None


_READERS = {
    "find": _ArgumentReader.read_find,
    "printf": _ArgumentReader.read_printf,
    "sed": _ArgumentReader.read_sed,
    "test": _ArgumentReader.read_test,
    "xargs": _ArgumentReader.read_xargs,
    "cd": _ArgumentReader.read_cd,
    "unknown": _ArgumentReader.read_nothing,
}
