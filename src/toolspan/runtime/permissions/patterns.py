"""Match the patterns of rules against command lines.

`matches_any_command` is for deny and ask rules. It matches a command in every form, even inside a wrapper or a script
or with another path, and searches lines that cannot be parsed as plain text. `matches_program` and `rule_suffices` are
for allow rules, which have to match each command as it is written.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from msgspec import Struct

from toolspan.runtime.permissions.program_use import GUARDED_STARTERS, PROGRAM_STARTERS, WORD_SOURCE
from toolspan.runtime.permissions.rule import matches_command
from toolspan.shell.program import Program, bare_program_name, program_basename
from toolspan.shell.programs import find_programs
from toolspan.shell.syntax import VALUE_UNCERTAINTIES
from toolspan.shell.words import ShellWord
from toolspan.shell.wrappers import (
    SHELLS,
    SKIPPABLE_WRAPPERS,
    ExpandedLine,
    expand_wrappers,
    is_plainly_wrapped,
    strip_wrappers,
)

_SEPARATOR = r"(?:[\"'\\`(){};&|]|\$\()"
_SEPARATORS = re.compile(_SEPARATOR)
_HIDING = re.compile(r"[$`*?{]|\[\S")
"""Characters with which the shell can build the name of a command. Quotes and backslashes do not prevent a match."""
_QUOTE_CHARACTERS = re.compile(r"[\"'\\]")
_MAX_ASSIGNMENTS = 50
_BLANK = re.compile(r"\s")
_SEEN_THROUGH = frozenset({"env", *SKIPPABLE_WRAPPERS})
_ESCAPED_WORD = re.compile(r"\s\$'(?>(?:[^'\\]|\\.)*)'(?=\s|\Z)", re.DOTALL)
_UNQUOTED_WORD = re.compile(r"((?>(?:[^\s;&|<>()'\"`\\]|\\.)+))([ \t]*+)", re.DOTALL)
_EQUALS_SIGN = re.compile(r"(?<=\S)\s+=(?=\s)")
_QUOTED_TEXT = re.compile(r"""'[^']*+'|"(?>(?:[^"\\]|\\.)*)"|\\.""", re.DOTALL)
_PIPE = re.compile(r"(?<!\|)\|(?!\|)&?")
_COMMAND_END = re.compile(r"[;&\n]|\|\|")
_SUBSTITUTION = re.compile(r"\$\((?!\()|`|[<>]\(")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=", re.ASCII)
_VANISHING_WORD = re.compile(r"\s\$(?:\w+|\{\w+\})(?=\s)|<<<\s*+\S++")
_PROGRAM_ENDING = re.compile(r"\.exe\b", re.IGNORECASE)
_OPERATOR = re.compile(r"[;&|<>()$`]")
_WRAPPER_ARGUMENT = re.compile(r"-|[0-9.]+[smhd]?\Z|[A-Za-z_]\w*=", re.ASCII)
"""Words between a wrapper and its program."""
_SKIPPED_DASHES = re.compile(r"\A(?>(?:-[-p]?(?:\s+|\Z))+)")
_LEADING_DASHES = re.compile(r"\A(?:\s|--\s)+")
_FIND_ACTIONS = frozenset({"-exec", "-execdir", "-ok", "-okdir", "-delete"})
_PLAIN_NAME = re.compile(r"[\w./][\w./+-]*+(?<!/)(?<!\.exe)", re.ASCII | re.IGNORECASE)
"""Names of programs whose forms all begin with the name or with its last part."""
_MISPLACED_WORDS = frozenset({
    "A redirect before other words", "A redirect of a named stream", "A redirect that closes a stream",
    "Digits before a redirect", "Text after the start of a here-document",
})  # fmt: skip
"""Unclear constructs after which the client may not treat all words as parts of the command."""


@lru_cache(maxsize=256)
def expand_command_line(line: str) -> ExpandedLine:
    """Return all programs that a line may run, directly or through wrappers."""
    return expand_wrappers(find_programs(line))


@lru_cache(maxsize=256)
def _command_forms(line: str) -> tuple[str, ...]:
    """Return the commands in a line, in all forms that a rule may match, also with single blanks between the words."""
    forms = [line.strip()]
    if _QUOTE_CHARACTERS.search(line):
        forms.append(_strip_quotes(forms[0]))
    for entry in expand_command_line(line).programs:
        if entry.program.words:
            forms += _program_forms(entry.program, len(line))
    if "\n" in line.strip() and "<<" not in line:  # the client continues some commands on the next line
        forms += _command_forms(" ".join(line.split("\n")))
    for rest in _without_skipped_text(line):
        forms += _command_forms(rest)
    if "|" in line:
        forms += _pipe_forms(line)
    forms += [" ".join(form.replace("\ufeff", " ").split()) for form in forms]
    return tuple(dict.fromkeys(forms))


def _without_skipped_text(line: str) -> Iterator[str]:
    """Yield a line without text that the client skips.

    It skips words in escape quotes, the name of a program up to a blank after a backslash, and a single `=`.
    """
    if "$'" in line and (rest := _ESCAPED_WORD.sub("", line)) != line:
        yield rest
    if "\\ " in line and (rest := _UNQUOTED_WORD.sub(_cut_at_blank, line)) != line:
        yield rest
    if "=" in line and (rest := _EQUALS_SIGN.sub("", line)) != line:
        yield rest
    if "\ufeff" in line:
        yield line.replace("\ufeff", " ")


def _pipe_forms(line: str) -> Iterator[str]:
    """Yield the parts of a line between pipes that contain several commands, which the client matches as one."""
    masked = _QUOTED_TEXT.sub(lambda match: "x" * len(match[0]), line)
    start = 0
    for pipe in (*_PIPE.finditer(masked), None):
        end = pipe.start() if pipe else len(line)
        operator = _COMMAND_END.search(masked, start, end)
        if operator and (start or pipe):
            first = line[start : operator.start()].rstrip()
            rest = line[start + len(first) : end].rstrip()
            for entry in expand_command_line(first.lstrip()).programs:
                yield entry.program.text + rest
        start = pipe.end() if pipe else end


def _cut_at_blank(match: re.Match[str]) -> str:
    """Return the part of a word after its last blank, which is always escaped, with the blanks after the word."""
    start = match[1].rfind(" ") + 1
    if not start:
        return match[0]
    return match[1][start:] + match[2] if start < len(match[1]) else ""


def _program_forms(program: Program, length: int) -> list[str]:
    """Return one command in a line of this length, in all forms that a rule may match."""
    text, tokens = program.text, program.words
    name = tokens[0].text
    forms = [text]
    unquoted = " ".join([word.text for word in tokens])
    if unquoted != text:
        forms.append(unquoted)
    if program.assignments:
        forms += _assigned_forms(program, (text, unquoted))
    if program.stdin_text is not None:
        forms.append(f"{text} <<< {program.stdin_text}")
    if any(map(_may_vanish, tokens)):
        forms.append(" ".join([word.text for word in tokens if not _may_vanish(word)]))
    if "(" in text or "`" in text:
        forms += _forms_before_substitution(tokens)
    if "$'" in text:  # the client omits such a word
        forms.append(_ESCAPED_WORD.sub("", text))
    if "/" in name or "\\" in name or name[-4:].lower() == ".exe":
        bare_names = (program_basename(name), bare_program_name(name))
        forms += [bare + form[len(name) :] for bare in bare_names for form in forms if form.startswith(name)]
        texts = [word.text for word in tokens]
        others = list(itertools.dropwhile(_is_skipped_name, texts))
        if len(others) < len(texts):
            forms += _command_forms(" ".join(others))
    if name == "-" and len(tokens) > 1:  # the client skips dashes after `command` and `builtin`
        rest = _SKIPPED_DASHES.sub("", text)
        forms += _command_forms(rest) if rest != text else ()  # a quoted dash stays
    if name in ("[", "[["):
        forms += [form.removesuffix("]" * len(name)).rstrip() for form in (text, unquoted)]
    forms += _quoted_forms(program, length)
    return forms


def _quoted_forms(program: Program, length: int) -> tuple[str, ...]:
    """Return the forms of a whole command in quotes, which is the program's name or an argument of a wrapper.

    The text without quotes must be shorter than `length`, the length of the line.
    """
    tokens = program.words
    is_wrapper = program_basename(tokens[0].text) in _SEEN_THROUGH
    for start, word in enumerate(tokens):
        is_quoted = _BLANK.search(word.text) or (start == 0 and _QUOTE_CHARACTERS.search(word.text))
        if is_quoted:
            name, *rest = [word.text for word in tokens]
            text = _LEADING_DASHES.sub("", " ".join([_QUOTE_CHARACTERS.sub("", name), *rest])).strip()
            if start:
                text = _OPERATOR.split(text, maxsplit=1)[0]  # the client does not search the commands after it
            return _command_forms(text) if len(text) < length else ()
        if not is_wrapper or (start and not _WRAPPER_ARGUMENT.match(word.text)):
            break
    return ()


def _is_skipped_name(name: str) -> bool:
    """Return whether the client skips a name that contains a slash, such as `../` and `/x=1`."""
    return any(not bare or _ASSIGNMENT.match(bare) for bare in (program_basename(name), bare_program_name(name)))


def _forms_before_substitution(tokens: Sequence[ShellWord]) -> list[str]:
    """Return the command up to the first word with a substitution outside quotes, which ends it for the client."""
    for at, word in enumerate(tokens):
        if at and word.may_split and _SUBSTITUTION.search(word.text):
            before = tokens[:at]
            lasting = [word for word in before if not _may_vanish(word)]
            return [" ".join([word.text for word in words]) for words in (before, lasting)]
    return []


def _may_vanish(word: ShellWord) -> bool:
    """Return whether a word is an expansion that may be empty, so that the command has one word less."""
    return (word.may_split and word.text[:1] in ("$", "`")) or word.text[:2] in ("<(", ">(")


def _assigned_forms(program: Program, texts: tuple[str, str]) -> Iterator[str]:
    """Yield the command with its last assignments in front, as written and without their quotes."""
    count = len(program.assignments)
    for start in dict.fromkeys((0, *range(max(0, count - _MAX_ASSIGNMENTS), count))):
        assignments = " ".join(program.assignments[start:])
        for text in texts:
            yield f"{assignments} {text}"
            yield f"{_strip_quotes(assignments)} {text}"


class CommandPrefix(Struct, frozen=True):
    """The text with which all commands that match a pattern begin."""

    text: str
    words: tuple[str, ...]
    """The words of the text that must be in a line with such a command, cut at their first quotes."""

    @classmethod
    def parse(cls, text: str) -> CommandPrefix:
        """Split a prefix into words.

        The forms of a command contain `<<<` instead of a here-document, and `x` instead of a substitution in a test.
        """
        first, *rest = text.split() or [""]
        words = [first, *(word for word in rest if word != "<<<" and first[:1] != "[")]
        return cls(text, tuple(_QUOTE_CHARACTERS.split(word, maxsplit=1)[0] for word in words))


def cannot_match_prefixes(line: str, prefixes: Sequence[CommandPrefix]) -> bool:
    """Return True only if no command in a line can match a pattern with one of these prefixes."""
    if _is_uncertain(line):
        return False
    if "$'" not in line and "\\\n" not in line and "\\ " not in line:
        prefixes = _contained_prefixes(line, prefixes)
        if not prefixes:
            return True
    if not _may_begin_with(line, tuple([prefix.words[0] for prefix in prefixes])):
        return True
    texts = tuple([prefix.text for prefix in prefixes])
    return not [form for form in _command_forms(line) if form.startswith(texts)]


def _contained_prefixes(line: str, prefixes: Sequence[CommandPrefix]) -> list[CommandPrefix]:
    """Return the prefixes all of whose words are in a line, even if quotes split them."""
    if "'" in line or '"' in line or "\\" in line:
        line = _strip_quotes(line)
    contained: list[CommandPrefix] = []
    for prefix in prefixes:
        for word in prefix.words:
            if word not in line:
                break
        else:
            contained.append(prefix)
    return contained


def _may_begin_with(line: str, first_words: tuple[str, ...]) -> bool:
    """Return False only if no form of a command in a line begins with one of these words.

    perf: this avoids `_command_forms` for most lines that contain the words elsewhere, such as in a here-document.
    """
    if "\ufeff" in line or "$'" in line or "\\ " in line or ("=" in line and _EQUALS_SIGN.search(line)):
        return True
    if "\n" in line.strip() and "<<" not in line and _may_begin_with(" ".join(line.split("\n")), first_words):
        return True
    for text in (line, _strip_quotes(line)):
        if "".join(text.split(None, 1)[:1]).startswith(first_words):
            return True
    for entry in expand_command_line(line).programs:
        program = entry.program
        if not program.words:
            continue
        name = program.words[0].text
        base = program_basename(name)
        is_plain = _PLAIN_NAME.fullmatch(name) and (program.text == name or program.text.startswith(f"{name} "))
        if not is_plain or program.assignments or base in _SEEN_THROUGH:
            return True
        if name.startswith(first_words) or base.startswith(first_words):
            return True
    return False


def matches_any_command(line: str, pattern: str) -> bool:
    """Return whether a command in a line matches `pattern`, or may match if the line cannot be parsed completely."""
    for form in _command_forms(line):
        if matches_command(form, pattern):
            return True
    return _is_uncertain(line) and matches_text(line, pattern)


def _is_uncertain(line: str) -> bool:
    """Return whether a line may contain other commands than those that are found in it."""
    return bool(expand_command_line(line).uncertainties) or not _MISPLACED_WORDS.isdisjoint(find_programs(line).unclear)


def matches_text(text: str, pattern: str) -> bool:
    """Return whether `text` contains the fixed words at the start of a pattern.

    The words may be separated by blanks, quotes or operators, and may contain quotes.
    """
    prefix = _fixed_prefix(pattern)
    if prefix is None or (prefix.first in text and prefix.matches_loosely(text)):
        return True
    bare = _strip_quotes(text)
    if prefix.first in bare and prefix.pattern.search(bare) is not None:
        return True
    shorter = _PROGRAM_ENDING.sub("", bare) if ".exe" in bare.lower() else bare
    shorter = _VANISHING_WORD.sub("", shorter) if "$" in shorter or "<<<" in shorter else shorter
    return shorter != bare and prefix.pattern.search(shorter) is not None


class _FixedPrefix(Struct, frozen=True):
    """The fixed words at the start of a pattern."""

    first: str
    pattern: re.Pattern[str]
    """A pattern that matches the words with blanks between them."""
    loose_pattern: re.Pattern[str] | None
    """A pattern that also allows quotes and operators between the words; None if the words themselves contain any."""

    def matches_loosely(self, text: str) -> bool:
        if self.loose_pattern is not None:
            return self.loose_pattern.search(text) is not None
        return any(self.pattern.search(candidate) for candidate in (text, _SEPARATORS.sub(" ", text)))


@lru_cache(maxsize=256)
def _fixed_prefix(pattern: str) -> _FixedPrefix | None:
    start = pattern.partition("*")[0]
    head = start.removesuffix(":").split() or max(pattern.split("*"), key=len).split()
    if not head:
        return None
    end = "" if pattern != start and start[-1:].strip(": ") else r"(?![\w-])"  # `l*` also matches `ls`
    signs = any("$" in word or _SEPARATORS.search(word) for word in head)
    loose_pattern = None if signs else _sequence_pattern(head, rf"(?:\s|{_SEPARATOR})+", end)
    return _FixedPrefix(head[0], _sequence_pattern(head, r"\s+", end), loose_pattern)


def _sequence_pattern(tokens: list[str], between: str, end: str) -> re.Pattern[str]:
    first, *rest = map(re.escape, tokens)
    # perf: the lookbehind follows the first word, so that the regex engine searches for the word
    return re.compile(between.join([rf"{first}(?<![\w.-]{first})", *rest]) + end)


@lru_cache(maxsize=16)
def _strip_quotes(text: str) -> str:
    return text.replace("\\\n", "").replace('"', "").replace("'", "").replace("\\", "")


def may_hide_match(line: str, patterns: list[str]) -> bool:
    """Return whether a line may contain a matching command that the parser did not find.

    Without expansions, a command that is not visible in the line can only come from a file or from input.
    """
    unfolded = expand_command_line(line)
    if unfolded.uncertainties or not unfolded.code:
        reasons = VALUE_UNCERTAINTIES.issuperset(unfolded.uncertainties)
        return not reasons and (_HIDING.search(line) is not None or _runs_input(unfolded))
    return any(matches_text(code, pattern) for code in unfolded.code for pattern in patterns)


def _runs_input(line: ExpandedLine) -> bool:
    """Return whether a program in a line may run commands from a file or from input, which are not visible in it."""
    names = {program_basename(entry.program.name) for entry in line.programs}
    return not names.isdisjoint({".", "enable", "source", *SHELLS})


def matches_program(program: Program, pattern: str) -> bool:
    """Return whether a pattern matches a program as written, or inside a transparent wrapper.

    The number of blanks between the words is ignored only if the pattern ends in a separate star.
    """
    if program.spelling and not pattern.endswith((":*", " *")):
        spellings = (program.spelling, program.text)
        return all(matches_command(spelling, pattern, granting=True) for spelling in spellings)
    inner = strip_wrappers(program, through_xargs=False)
    if matches_command(program.text, pattern, granting=True) and (inner is program or not program.variables):
        return True
    if inner is not program and not is_plainly_wrapped(program, inner):
        return False
    text = _text_inside_wrappers(program, inner)
    # After `xargs`, the client supports only prefixes and no further wrapper.
    is_prefix = "*" in pattern and "*" not in pattern[:-1]
    text_after_xargs = text.removeprefix("xargs ")
    if inner.name == "xargs" and is_prefix and matches_command(text_after_xargs, pattern, granting=True):
        return True
    return inner is not program and matches_command(text, pattern, granting=True)


def _text_inside_wrappers(program: Program, inner: Program) -> str:
    """Return the text of the program inside plain wrappers as it is written, but without quotes around its name."""
    if inner is program:
        return program.text
    wrappers = program.words[: len(program.words) - len(inner.words)]
    text = program.text[len(" ".join(word.text for word in wrappers)) + 1 :]
    name = WORD_SOURCE.match(text)
    return text if name is None else inner.words[0].text + text[name.end() :]


def rule_suffices(pattern: str | None, program: Program) -> bool:
    """Return whether a rule is precise enough to allow a program as a part of a line.

    Programs that run others need a rule without `*`. Some of them are allowed only as a whole line.
    """
    if pattern is None:
        return True
    if program.stdin_text is not None and not pattern.endswith("*"):
        return False  # a here-string or here-document follows the last word
    name = program_basename(program.name)
    starters = PROGRAM_STARTERS if "*" in pattern else GUARDED_STARTERS
    if name in starters or program_basename(strip_wrappers(program).name) in starters:
        return False
    if "*" not in pattern:
        return True
    return name != "find" or _FIND_ACTIONS.isdisjoint([word.text for word in program.words])
