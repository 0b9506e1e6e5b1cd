"""The commands that take a secret as an option, which are listed in secret_rules.toml."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct, convert

from toolspan.redaction.rules import SecretMatch, join_hints, load_data
from toolspan.redaction.secret_names import plausible_secret

_END = r"(?![\w.:/-])"
"""The end of a command's name."""
_ARGUMENT = r"""(?P<value>"[^"\n]+"|'[^'\n]+'|[^\s"';|&`]+)"""


class _Entry(Struct, frozen=True):
    names: str
    after: str = ""
    option: str = ""
    value: str = _ARGUMENT


class _Command:
    def __init__(self, entry: _Entry) -> None:
        names = entry.names.split()
        self.words = [name.rstrip("*").lower() for name in names]
        self.hints = [
            rf"{re.escape(word)}(?<![\w.-]{re.escape(word)})" + ("" if "*" in name else _END)
            for name, word in zip(names, self.words, strict=True)
        ]
        heads = "|".join(re.escape(name).replace(r"\*", r"\w*") for name in names)
        head = f"(?i:{heads})" if heads != heads.lower() else f"(?:{heads})"
        option = rf"[ \t](?:{entry.option}){entry.value}"
        self._pattern = re.compile(rf"(?<![\w.-]){head}{_END}{entry.after}[^\n]{{0,400}}?{option}")
        repeats = entry.option.startswith(("-", "(?:-")) and not entry.after
        self._next_option = re.compile(rf"[^\n]{{0,200}}?{option}") if repeats else None

    def find(self, line: str) -> Iterator[SecretMatch]:
        """Yield the secrets that follow the options of this command in a line."""
        at = 0
        for match in self._pattern.finditer(line):
            option: re.Match[str] | None = match
            if match.start("value") < at:
                continue
            while option and (value := self._check_value(option)):
                yield value
                at = option.end("value")
                option = self._next_option.match(line, at) if self._next_option else None

    def _check_value(self, match: re.Match[str]) -> SecretMatch | None:
        start, end = match.span("value")
        if match["value"][0] in "\"'":
            start, end = start + 1, end - 1
        if plausible_secret(match.string[start:end]):
            return SecretMatch(start, end, "secret", f"command {self.words[0]}")
        return None


class Commands:
    """A detector for the secrets in command lines."""

    keywords = ()

    def __init__(self) -> None:
        commands = [_Command(entry) for entry in convert(load_data("secret_rules.toml")["commands"], list[_Entry])]
        self.hint = join_hints(hint for command in commands for hint in command.hints)
        self._by_word = tuple((word, command) for command in commands for word in command.words)

    def find(self, line: str, low: str) -> Iterable[SecretMatch]:
        """Yield the secrets in a line."""
        for command in dict.fromkeys([command for word, command in self._by_word if word in low]):
            yield from command.find(line)
