"""Read the YAML frontmatter, between two `---` lines, of Markdown files that define agents and skills."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from toolspan.runtime.settings.load import SettingsError

_FRONTMATTER = re.compile(r"\A\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*\r?$\n?(.*)\Z", re.DOTALL | re.MULTILINE)
_HOOKS_KEY = re.compile(r"""(["']?)hooks\1[ \t]*:""")
_PLAIN_FIELD = re.compile(r"""^([A-Za-z][\w-]*)[ \t]*:[ \t]+(?!["'\[{|>#])(.+(?:\n[ \t]+.*)*)""", re.MULTILINE)


def split_frontmatter(text: str) -> tuple[str, str] | None:
    """Split a file into its frontmatter and its body; return None if it has no frontmatter."""
    match = _FRONTMATTER.match(text)
    return None if match is None else (match[1], match[2])


def parse_frontmatter_fields(head: str) -> dict[str, object]:
    """Parse the fields of the frontmatter other than `hooks`; every scalar is a string.

    Raises:
        ValueError: a line cannot be parsed; the message contains its number in the file.
    """
    import yaml  # perf: importing it takes 20 to 80 ms, and most commands read no frontmatter

    fields_head, _ = _split_hooks_block(head)
    # BaseLoader builds only strings, lists and dicts, so that a name such as `on` or `1.0` stays what was written.
    try:
        fields = yaml.load(fields_head, Loader=yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError):
        # Many files have values such as `description: Use when: …` or `tools: *`, which need quotes in YAML.
        try:
            fields = yaml.load(_PLAIN_FIELD.sub(_quote_field, fields_head), Loader=yaml.BaseLoader)
        except (yaml.YAMLError, RecursionError) as error:
            number, line = _locate_error(error, fields_head.split("\n"))
            raise ValueError(f"line {number + 2} cannot be parsed: {line!r}") from error
    if fields is not None and not isinstance(fields, dict):
        raise ValueError(f"line 2 cannot be parsed: {fields_head.strip()[:60]!r}")
    if fields and "hooks" in fields:  # in a form that `parse_frontmatter_hooks` would overlook
        raise ValueError("`hooks` cannot be parsed: it must be one block at the start of a line")
    return {str(key): value for key, value in (fields or {}).items()}


def parse_frontmatter_hooks(head: str) -> object | None:
    """Parse the `hooks` block of the frontmatter into JSON values; return None if there is none.

    Only the block itself is parsed, because other fields of real files are often not valid YAML.

    Raises:
        SettingsError: the block cannot be parsed. Ignoring it would silently drop a safeguard.
    """
    import yaml

    _, block = _split_hooks_block(head)
    if block is None:
        return None
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(block)):
            raise SettingsError("hooks: not understood: aliases are not allowed")  # they can expand exponentially
        hooks = _to_json(yaml.safe_load(block)["hooks"])
    except (yaml.YAMLError, LookupError, TypeError, ValueError, RecursionError) as error:
        _, line = _locate_error(error, block.split("\n"))
        raise SettingsError(f"hooks: not understood: {line!r}") from error
    if isinstance(hooks, str):  # YAML reads stray words as a multi-line string
        raise SettingsError(f"hooks: not understood: {hooks[:60]!r}")
    return hooks


def _split_hooks_block(head: str) -> tuple[str, str | None]:
    """Cut the lines of the `hooks` block out of the frontmatter, leaving blank lines, and return both."""
    lines = head.splitlines()
    start = next((number for number, line in enumerate(lines) if _HOOKS_KEY.match(line)), None)
    if start is None:
        return "\n".join(lines), None
    end = start + 1
    while end < len(lines) and (not lines[end].strip() or lines[end][0] in " \t#-"):
        end += 1
    rest = [*lines[:start], *[""] * (end - start), *lines[end:]]
    return "\n".join(rest), "\n".join(lines[start:end])


def _quote_field(match: re.Match[str]) -> str:
    """Quote the value of a field on one line, and keep the number of lines with blank ones."""
    value = re.split(r"\s#", match[2], maxsplit=1)[0]
    return f"{match[1]}: {json.dumps(' '.join(value.split()), ensure_ascii=False)}" + "\n" * match[2].count("\n")


def _locate_error(error: Exception, lines: Sequence[str]) -> tuple[int, str]:
    """Return the index and the beginning of the line that a parser rejects."""
    mark = getattr(error, "problem_mark", None)
    number = min(mark.line if mark is not None else 0, len(lines) - 1)
    return number, lines[number].strip()[:60]


def _to_json(value: object) -> object:
    match value:
        case dict():
            return {str(key): _to_json(item) for key, item in value.items()}
        case list():
            return [_to_json(item) for item in value]
        case str():
            return value.rstrip("\n")  # the newline that ends a `|` or `>` block is not part of a command
        case None | bool() | int() | float():
            return value
        case _:  # dates and other types that JSON lacks
            return str(value)
