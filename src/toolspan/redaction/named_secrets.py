"""Secrets recognized by the name before them: `DB_PASS=…`, `"password": "…"`, `--token …`, "the password is …".

This module finds names and values in a line, and `secret_names.py` classifies them. Start at `find_named`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator

from toolspan.redaction.checks import is_mixed
from toolspan.redaction.rules import SecretMatch, join_hints
from toolspan.redaction.secret_names import (
    FOREIGN_KEYS,
    FOREIGN_NAMES,
    NameStrength,
    is_certain_secret,
    is_secret_value,
    is_sentence_value,
    looks_like_password,
    looks_random,
    name_strength,
    plausible_secret,
)

_VALUE = r"""(?:
    (?:[NbBu](?=["']))?                                         # the prefix of a literal
    (?:
        (?P<slashes>\\+)"(?P<nested>(?:[^"\\\n]|\\[^"\n])*)     # \"…\" in nested JSON
      | \\*"(?P<double>(?:[^"\\\n]|\\[^"\n])*(?:\\"(?:[^"\\\n]|\\[^"\n])+)*)
      | \\*'(?P<single>[^'\n]*)
      | `(?P<tick>[^`\n]*)`
    )
  | &(?:quot|apos|\#34|\#39);(?P<entity>[^&\n]*)&
  | (?P<bare>[^\s"'`<>][^\s"'`<>&]*)
)"""
_VALUE_GROUPS = ("nested", "double", "single", "tick", "entity", "bare")
_CORES = (  # perf: each begins with a letter, so that a search skips the places with others
    *FOREIGN_NAMES, "passw(?:or)?d", "passphrase", "passcode", "pass", "pwd", r"pw(?=\W)", r"psk(?=\W)",
    r"pat(?=\W)", "requirepass", "masterauth", "security answer", "secret answer", "recovery key", "paper_?key",
    r"unseal key \d+", "secret access key", "secret phrase", "secret", "security token", "credential", "creds",
    "api key", "access key", "account key", "private key", "encryption key", "license key",
    "auth token", "access token", "api token", "refresh token", "bearer token", "bot token",
    "token", "key", "auth", "jwt", "mnemonic", "seed phrase", "recovery phrase",
    "signature", r"salt(?=\W)", r"pepper(?=\W)", r"seed(?=\W)", r"sign?(?=\W)", "sess(?:ion)?id", "sid(?=[\"'=])",
    r"csrf(?=\W)", r"xsrf(?=\W)",
    "cookie(?=[\"'=:])", "session(?=[\"' =])", "bearer(?=[=:])", r"otp(?=\W)", "totp", r"pin(?=\W)", "cvv", "cvc",
)  # fmt: skip
_CORE = "|".join(_CORES).replace(" ", r"\x20")


def _compile_after_name(pattern: str) -> re.Pattern[str]:
    """Compile a verbose pattern for the text after a name, in which `VALUE` matches a value."""
    return re.compile(rf"(?:{_CORE})" + pattern.replace("VALUE", _VALUE), re.IGNORECASE | re.VERBOSE)


_ASSIGNMENT = _compile_after_name(
    r"""
    (?P<tail>[\w.-]{0,40})
    (?P<close>\\*["'`\]]{0,2}|&(?:quot|apos|\#34|\#39);|(?:\s?(?:\[[^\]\n]{0,40}\]))?)
    (?P<gap>[ \t]{0,8})
    (?P<sep>
        := | ->(?=[ ]?\\*["']) | \|\|= | \?= | => | =(?!=)
      | :[ ]?&?(?:'\w+[ ])?(?:[A-Z]\w*|str|string)\??[ ]?=(?!=)  # with a type
      | (?<=[ ])string[ ]?=(?!=) | :(?!:) | >
    )
    [ \t]{0,8}(?:!{1,2}[A-Za-z][\w:/-]{0,40}[ ])?                 # a tag in YAML
    VALUE
    """
)
_CALL_ARGUMENT = _compile_after_name(
    r"""(?P<tail>[\w.-]{0,40})(?P<close>["'])(?P<gap>)(?P<sep>,|[ ](?=["']))[ \t]{0,20}VALUE"""
)
_OPTION = _compile_after_name(r"(?P<tail>[\w-]{0,40})(?P<close>)(?P<gap>)(?P<sep>[ \t]{1,4})VALUE")
_OTHERWISE = _compile_after_name(
    r"""(?P<tail>[\w.-]{0,40})(?P<close>)(?P<gap>)(?P<sep>\([ ]?|["'\])]{0,3}[ ]?(?:\|\||\?\?|or)[ ])VALUE"""
)
"""A value that follows a name without `=`: an argument, or the default value of a variable."""
_LOOSE = _compile_after_name(
    r"""
    (?P<tail>[\w.-]{0,40})(?P<close>)(?P<gap>)
    (?P<sep>
        (?:[ \t]{0,4}(?:
            !!\w+ | :[ ]?[A-Za-z][\w.\[\]| ]{0,30}=(?!=) | </?\w[^<>\n]{0,60}> | [*_`"'|:=>!()\[{→—–] | \\["']
        )){1,8}[ \t]{0,4}
      | [ ](?:\d[ ])?
    )
    (?:(?P<echo>\$\((?:echo|printf)[ ])|[A-Za-z_][\w.]{0,40}\([^\n"'()\[]{0,40})?
    (?P<quote>["'`]?)(?P<bare>[^\s"'`<>|&,)\]]+)
    """
)
"""A value separated from its name by markup, a comparison or a call. It must look like a secret by itself."""
_ITEM = re.compile(r"[ \t]*,[ \t]*[\"'`]?(?P<it>[^\s\"'`<>|&,)\]]+)[\"'`]?")
"""The next item of a list."""
_SETTER = re.compile(r"(?:[\w.]*\.)?(?:set|with|use|change|update)_?(?P<noun>\w+)\Z")
"""A function that takes a password as its only argument, such as `setPassword`."""
_PROPERTY = re.compile(r"[a-z]+Pass(?:word|phrase)")
"""A property that Gradle sets without `=`, as in `storePassword "…"`."""
_NAME_CORE = re.compile(join_hints(_CORES))
_DIGIT = re.compile(r"\d")
_VALUE_MARK = re.compile(r"[\d:=>\"'(-]| or |setenv|CONFIG|config|ENV")
"""A pattern that matches in every line in which a value may follow a name."""
_SENTENCE = re.compile(
    r"""
    (?<![\w-])(?P<name>passw(?:or)?d|passcode|passphrase|pwd?|pin|secret|token|key|credentials?|FOREIGN)
    (?:
        's[ ]["'`]?
      | [ \t](?:
            (?:  # "the password for the server"
                (?:for|of|at|on|in|to|del?|für|pour|da|di|van)[ ](?:the[ ])?[\w.@-]{1,40}[ ](?:\w{1,20}[ ]){0,2}
            )?
            (?:
                (?:(?:was|is|got|has[ ]been|have[ ]been)[ ])?(?:set|changed|reset|updated)[ ]to
              | is(?:[ ]now)? | was | are | reads | (?:will|should|must)[ ]be | = | : | → | -> | — | – | to
              | ist | lautet | est | es | é | è | jest | är | er
            )[ \t]{1,2}["'`]?
          | ["'`]
        )
    )
    (?P<it>[^\s"'`<>]{4,})
    """.replace("FOREIGN", "|".join(FOREIGN_NAMES).replace(" ", r"\x20")),
    re.IGNORECASE | re.VERBOSE,
)
_KEY_OWNER = re.compile(r"(?i)\b(?:api|wi-?fi|wlan|wpa|access|secret|encryption|licen[cs]e|master|recovery)[ _-]\Z")
_ATTRIBUTE = _compile_after_name(
    r"""
    (?P<tail>[\w.-]{0,40})["'][^<>\n]{0,120}?(?P<close>)(?P<gap>)
    (?:\b|Parameter)(?:value|content|default)\\*["']?[ ]?(?P<sep>[=:])[ ]?VALUE
    """
)
_NAME_ATTRIBUTE = re.compile(r"(?:name|key|id)=\\*[\"']\Z")
_SETTING_COMMAND = re.compile(r"(?<!\w)(?:ENV|#define|setx|setenv|config[ ]set|CONFIG[ ]SET)[ ]+\Z")
"""The beginning of a line that sets a variable without `=`."""
_MAX_NAMES_IN_VALUE = 16
"""The number of further names in a value, as in `key=key=key=…`. A longer value is cut, which limits the time."""
_ENVIRONMENT = (
    "export", "-e", "--env", "set", "env", "ARG", "ENV", "-D", "--set", "-var", "--var", "--set-string", "--build-arg",
    "-F", "--form", "-d", "--data", "--data-raw", "--data-urlencode",
)  # fmt: skip
_LOGIN_BEFORE = re.compile(
    r"(?i)(?:\A|[\s\"'`>*;])(?:user(?:name|[ ]?id)?|uid|login|e?mail|account|benutzer(?:name)?|utilisateur|usuario"
    r"|utente|dbname|database|host|server)[ ]?[:=][ ]?"
    r"[^\s;=,()\"'{}$<]{2,64}[ ]?[;/|]?\Z"
)
"""A user or a database in front of a password, as in `user=mira password=…` or `login: mira / pw: …`."""
_OPTION_END = re.compile(r"\Z|[|;&)\"'`]|[ ](?:-|/|[|;&<>])")
"""The text after the value of an option in a command, but not in a sentence about the option."""
_OPTION_WORD = re.compile(r"(?:options?|flags?|arguments?|parameters?|prompts?|files?|instead|switch)\Z")


def find_named(line: str, low: str) -> Iterator[SecretMatch]:
    """Yield the secrets in a line that follow their names. `low` is the line in lower case."""
    patterns = [_ASSIGNMENT] if ":" in line or "=" in line or ">" in line else []
    patterns.append(_OPTION)
    if "(" in line or "||" in line or "??" in line or " or " in line:
        patterns.append(_OTHERWISE)
    if "," in line or '" "' in line or "' '" in line:
        patterns.append(_CALL_ARGUMENT)
    if "value" in low or "content" in low or "default" in low:
        patterns.append(_ATTRIBUTE)
    matches = _NAME_CORE.finditer(low if len(low) == len(line) else line) if _VALUE_MARK.search(line) else ()
    cores = [(match.start(), match.start() + match[0].rfind(" ") + 1) for match in matches]
    yield from _find_after_names(line, patterns, [start for start, _ in cores])
    if _DIGIT.search(line):
        yield from _find_in_sentences(line, sorted({start for core in cores for start in core}))


def _find_after_names(line: str, patterns: list[re.Pattern[str]], starts: list[int]) -> Iterator[SecretMatch]:
    """Yield the values that follow the names at these offsets."""
    end = 0
    limits = itertools.chain(starts[_MAX_NAMES_IN_VALUE:], itertools.repeat(len(line)))
    for start, limit in zip(starts, limits):  # noqa: B905
        if start < end:
            continue
        matches = filter(None, (pattern.match(line, start, limit) for pattern in patterns))
        finding = next(filter(None, (_named_finding(line, match) for match in matches)), None)
        if finding:
            yield finding
            end = finding.end
        if not finding or line[finding.start] == "[" or line[finding.start - 1] in "[(":
            for loose in _find_loose(line, start, limit):
                yield loose
                end = loose.end


def _find_loose(line: str, start: int, limit: int) -> Iterator[SecretMatch]:
    """Yield the values after the name at `start` that look like secrets by themselves, with any text in between."""
    match = _LOOSE.match(line, start, limit)
    if match is None:
        return
    name = re.search(r"[\w.-]{0,60}\Z", line[max(0, start - 60) : match.end("tail")])
    strength = name_strength(name[0].lstrip("-.")) if name else NameStrength.NONE
    if strength is NameStrength.NONE and re.search(r"(?i)(?:token|key)s\Z", line[start : match.end("tail")]):
        strength = NameStrength.WEAK
    separator = match["sep"].strip(" 0123456789")
    is_sentence = not separator and bool(line[match.end("bare") :].strip(" \t\"'`.;"))
    if is_sentence and strength is NameStrength.PASSWORD:
        strength = NameStrength.STRONG
    is_call = match["sep"].startswith("(") or (match.end("sep") < match.start("quote") and not match["echo"])
    is_expression = (is_call or "==" in separator or "!=" in separator) and not (
        match["quote"] or '"' in separator or "'" in separator
    )
    if is_expression or (line[start : match.end("tail")].lower() == "pass" and line[start - 1 : start] == " "):
        return
    is_list = "[" in separator or "{" in separator or bool(re.search(r"[=:][ ]?\(", match["sep"]))
    rule = f"name {name[0] if name else ''}"[:60]
    while strength and match is not None:
        group = match.lastgroup or "bare"
        value = match[group].rstrip(".,;:!?")
        if is_certain_secret(value, strength):
            yield SecretMatch(match.start(group), match.start(group) + len(value), "secret", rule)
        match = _ITEM.match(line, match.end() + line.startswith(('"', "'", "`"), match.end())) if is_list else None


def _find_in_sentences(line: str, name_starts: Iterable[int]) -> Iterator[SecretMatch]:
    """Yield passwords and keys in sentences. A line without digits is skipped, because its values look like words."""
    for match in filter(None, (_SENTENCE.match(line, start) for start in name_starts)):
        value = match["it"].rstrip(".,;:!?)")
        accepted = is_mixed(value)
        if match["name"].lower() in ("key", *FOREIGN_KEYS) and not _KEY_OWNER.search(
            line, max(0, match.start() - 16), match.start()
        ):
            accepted = accepted and len(value) >= 16 and looks_random(value)
        if accepted and is_sentence_value(value):
            yield SecretMatch(match.start("it"), match.start("it") + len(value), "secret", "sentence")


def _named_finding(line: str, match: re.Match[str]) -> SecretMatch | None:
    """Return the value if the name is that of a secret and the value can be one, or None."""
    group = next((name for name in _VALUE_GROUPS if match[name] is not None), "bare")
    value = match[group] or ""
    start = match.start(group)
    if group == "bare":
        value = _trim_bare(value)
    elif group == "nested":
        value = value.rstrip("\\")
    if not value:
        return None
    name_start = match.start()
    while (
        name_start > 0
        and match.start() - name_start < 64
        and (line[name_start - 1].isalnum() or line[name_start - 1] in "_-.")
    ):
        name_start -= 1
    name = line[name_start : match.end("tail")]
    is_option = name.startswith("-") or "--" in name or line[name_start - 1 : name_start] == "/"
    is_option = is_option or bool(_SETTING_COMMAND.search(line, max(0, name_start - 16), name_start))
    if match.re is _OTHERWISE or (match.re is _OPTION and not is_option):
        is_secret = _is_argument(value, name, match, quoted=group != "bare")
        return SecretMatch(start, start + len(value), "secret", f"name {name}"[:60]) if is_secret else None
    name = name.rpartition("--")[2].lstrip("-.")
    strength = name_strength(name)
    if match.re is _OPTION and name.lower().endswith("token"):
        strength = NameStrength.STRONG
    if strength is NameStrength.NONE:
        return None
    before, after = line[:name_start].rstrip(), line[start + len(value) :].strip()
    if _is_other_name(name, value, before, match):
        return None
    whole_line = not after and before in ("", "-", "#", "//", "+", ">", "*", "{")
    is_element = match["sep"] == ">" and after.startswith("</")
    if match["sep"] == ">" and not (is_element and (not match["close"] or _NAME_ATTRIBUTE.search(before))):
        return None
    is_assignment = match["sep"] == "=" and not match["gap"] and not line[match.end("sep") : start].strip("\"'")
    is_secret = is_secret_value(
        value,
        name,
        strength,
        quoted=group != "bare",
        certain=is_element
        or (
            is_assignment
            and (whole_line or name.isupper() or before[-1:] in "?&;" or before.rstrip("\"'= ").endswith(_ENVIRONMENT))
        )
        or (strength is NameStrength.PASSWORD and _is_login_value(line, name_start, match, start + len(value))),
        whole_line=whole_line,
    )
    if match.re is _CALL_ARGUMENT and (
        group == "bare"
        or (name_strength(value) and re.fullmatch(r"[A-Za-z_-]+\d?|\w+(?:Key|Token|Credential)s?", value))
    ):
        return None  # an expression, or another name
    is_list = (
        match.re is _CALL_ARGUMENT
        and value.replace("_", "").isalpha()
        and not re.search(r"(?:define|env|environ\.get)\([ ]?[\"']\Z", before)
    )
    if not is_secret or is_list:
        return None
    return SecretMatch(start, start + len(value), "secret", f"name {name}"[:60])


def _is_login_value(line: str, name_start: int, match: re.Match[str], end: int) -> bool:
    """Return whether a password is the value of an option, or follows the name of a user."""
    has_slash = line[name_start - 2 : name_start] == " /"
    if match.re is _OPTION:
        is_option = (has_slash or line[name_start] == "-") and bool(_OPTION_END.match(line, end))
        return is_option and not _OPTION_WORD.match(line[match.end("sep") : end])
    if has_slash and match["sep"] == ":" and match.end("sep") == end - len(match["bare"] or ""):
        return True
    return bool(_LOGIN_BEFORE.search(line[max(0, name_start - 120) : name_start].rstrip()))


def _is_argument(value: str, name: str, match: re.Match[str], *, quoted: bool) -> bool:
    """Return whether a value without `=` after its name is a secret: an argument or an alternative."""
    setter = _SETTER.match(name) if match["sep"].startswith("(") and quoted else None
    if setter and name_strength(setter["noun"]) is NameStrength.PASSWORD and plausible_secret(value):
        return True
    strength = name_strength(name)
    if quoted and match.re is _OPTION and _PROPERTY.fullmatch(name):
        return plausible_secret(value)
    is_secret = looks_like_password(value) or (quoted and is_certain_secret(value, strength))
    return strength >= NameStrength.STRONG and is_secret and (match.re is _OPTION or quoted)


def _is_other_name(name: str, value: str, before: str, match: re.Match[str]) -> bool:
    """Return whether a name has another meaning, as in `"Low Pass": …`, `x ? "PASS" : …` or `--pass: #a0b0c0`."""
    if name.lower() == "pass":
        is_last_word = bool(match["close"]) and match.string[match.start() - 1 : match.start()] == " "
        return is_last_word or bool(re.search(r"\?\s*[\"']\Z", before) or re.match(r"#[0-9A-Fa-f]{3,8}\b", value))
    return before.endswith("${") and value.startswith("?")


def _trim_bare(value: str) -> str:
    """Return an unquoted value without the punctuation and escapes that follow it."""
    value = re.split(r"\\[nrt]|(?<!\\)\\+$|;(?=\s|$)|</|\x1b", value, maxsplit=1)[0]
    while value and (
        value[-1] in ",;"
        or (value[-1] in ")]}" and value.count(value[-1]) > value.count("([{"[")]}".index(value[-1])]))
    ):
        value = value[:-1]
    return value


_BLOCK_SCALAR = re.compile(
    r":[ \t]*[|>][+-]?[ \t]*\n(?=(?P<indent>[ \t]+)\S)(?P<lines>(?:(?P=indent)[^\n]*(?:\n|\Z))+)"
)
_MANIFEST_DATA = re.compile(
    r"(?m)^(?P<indent>[ \t]*)(?:data|stringData):[ \t]*\n(?P<items>(?:(?P=indent)[ \t]+[^\s:#]+:[ \t]*\S+[ \t]*(?:\n|\Z))+)"  # noqa: E501
)
_PARENT_END = re.compile(r":[ \t]*+(?:[\[{][ \t]*+)?\n(?=[ \t]+\S)")
"""The end of a line with a name whose items are in the lines below."""
_PARENT_NAME = re.compile(r"(?:pass|pwd|secret|token|credential|key)\w{0,40}(?=\\*[\"']?\Z)")
_CHILDREN = re.compile(r"(?P<indent>[ \t]+)[^\n]*(?:\n|\Z)(?:(?P=indent)[^\n]*(?:\n|\Z))*")
_CHILD = re.compile(r"(?m)^[ \t]*(?:- |[\"']?[\w.-]+[\"']?:[ \t]*)?[\"']?(?P<it>[^\s\"'#{}\[\]]{6,})[\"']?,?[ \t]*$")
_MAX_PARENT = 60
_MAX_HEAD = 400
_COLUMN_NAME = re.compile(r"[ ]*\"?\w[\w .#-]{0,60}\"?[ ]*")
_MAX_COLUMNS = 41
_FIRST_LINES = 3
_TABLE_RULE = re.compile(r"\n[|+]?[ ]?:?---*:?[ ]?[|+]")


def find_named_values(text: str) -> Iterator[SecretMatch]:
    """Yield the secrets whose names are in an earlier line, as in Terraform or in the header of a table."""
    if "\n" in text:
        yield from _find_in_tables(text)
        yield from _find_in_manifests(text)
        yield from _find_in_children(text)


def _find_in_children(text: str) -> Iterator[SecretMatch]:
    """Yield the items below a name, and the values in the lines after one."""
    searched = dict.fromkeys(NameStrength, 0)
    for parent in _PARENT_END.finditer(text):
        named = _PARENT_NAME.search(text[max(0, parent.start() - _MAX_PARENT) : parent.start()])
        strength = (name_strength(named[0]) or NameStrength.WEAK) if named else NameStrength.NONE
        is_searched = parent.end() < searched[strength]  # these items are below another name of this strength, too
        children = _CHILDREN.match(text, parent.end()) if named and not is_searched else None
        if named is None or children is None:
            continue
        searched[strength] = children.end()
        for child in _CHILD.finditer(text, children.start(), children.end()):
            if is_certain_secret(child["it"], strength):
                yield SecretMatch(*child.span("it"), "secret", f"name {named[0]}"[:60])


def _find_in_manifests(text: str) -> Iterator[SecretMatch]:
    """Yield the data of Kubernetes secrets and the block scalars of YAML."""
    for data in _MANIFEST_DATA.finditer(text) if "kind: Secret" in text else ():
        for item in re.finditer(r":[ \t]*[\"']?([^\s\"']{4,})", data["items"]):
            start = data.start("items") + item.start(1)
            yield SecretMatch(start, start + len(item[1]), "secret", "manifest")
    for match in _BLOCK_SCALAR.finditer(text) if "|" in text or ">" in text else ():
        name = re.search(r"[\w.-]{2,60}\Z", text[max(0, match.start() - 60) : match.start()])
        strength = name_strength(name[0]) if name else NameStrength.NONE
        for line in re.finditer(r"\S+(?=[ \t]*$)", match["lines"], re.MULTILINE) if strength else ():
            if (strength is not NameStrength.WEAK and looks_like_password(line[0])) or looks_random(line[0]):
                start = match.start("lines") + line.start()
                yield SecretMatch(start, start + len(line[0]), "secret", f"name {name[0] if name else ''}"[:60])


def _find_in_tables(text: str) -> Iterator[SecretMatch]:
    for name, value, start in table_cells(text, lambda name: name_strength(name) >= NameStrength.WEAK):
        strength = name_strength(name)
        is_word = strength is NameStrength.PASSWORD and len(value) >= 6 and bool(re.search(r"[^\W\d_]", value))
        is_secret = looks_like_password(value) or (is_word and bool(_DIGIT.search(value)) and " " not in value)
        if looks_random(value, 16) if strength is NameStrength.WEAK else is_secret and plausible_secret(value):
            yield SecretMatch(start, start + len(value), "secret", "table")


def table_cells(text: str, wanted: Callable[[str], bool]) -> Iterator[tuple[str, str, int]]:
    """Yield the column name, text and offset of each cell in the columns whose names `wanted` accepts.

    Tables may be in Markdown, in the output of SQL clients, or in CSV at the beginning of a text.
    """
    ends = [rule.start() for rule in _TABLE_RULE.finditer(text)] if "--" in text else []
    at = first_end = -1
    for _ in range(_FIRST_LINES):
        if (at := text.find("\n", at + 1)) < 0:
            break
        ends.append(at)
        first_end = at
    heads = {end: head for end in ends if (head := _table_head(text, end, wanted))}
    for end, (separator, names, columns) in heads.items():
        while end >= 0:
            start, end = end + 1, text.find("\n", end + 1)  # noqa: PLW2901
            if end in heads and end > first_end:
                break  # the head of the next table
            row = text[start : end if end >= 0 else len(text)]
            cells = row.split(separator)
            if len(cells) != len(names):
                if row.strip("-+"):
                    break
                continue
            for column in columns:
                value = cells[column].strip(" \"'\r")
                if value:
                    place = start + sum(map(len, cells[:column])) + column + cells[column].index(value)
                    yield names[column], value, place


def _table_head(text: str, end: int, wanted: Callable[[str], bool]) -> tuple[str, list[str], list[int]] | None:
    """Return separator, names and wanted columns of the table whose head ends at `end`, or None if it is not one."""
    line = text[text.rfind("\n", 0, end) + 1 : end]
    separator = next((mark for mark in "|\t;," if mark in line), None)
    if separator is None or len(line) > _MAX_HEAD:
        return None
    heads = line.strip().removeprefix("|").removesuffix("|").split(separator)
    if len(heads) > _MAX_COLUMNS or not all(map(_COLUMN_NAME.fullmatch, heads)):
        return None
    names = [cell.strip(" \"'") for cell in line.split(separator)]
    columns = [n for n, name in enumerate(names) if wanted(name)]
    return (separator, names, columns) if columns else None
