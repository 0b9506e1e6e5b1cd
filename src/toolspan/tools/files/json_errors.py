"""Say what is wrong with a JSON text, in the words of the JavaScript engines that clients run on."""

from __future__ import annotations

import re
from json import JSONDecodeError

_STRING_OR_BRACKET = re.compile(r'"(?:\\.|[^"\\])*"|[\[\]{}]')
_WORD = re.compile(r"[A-Za-z_$][\w$]*")
_EXCERPT = 10
"""The number of characters on each side of an error that V8 quotes of a long text."""


def explain_for_jsc(error: JSONDecodeError) -> str:
    """Return the message of JavaScriptCore."""
    text, at = error.doc, error.pos
    match error.msg.split()[:2]:
        case ["Expecting", "value"]:
            char, word = text[at : at + 1], _WORD.match(text, at)
            if not char:
                return "Unexpected EOF"
            if char == "'":
                return "Single quotes (') are not allowed in JSON"
            if char == "]" and text[:at].rstrip().endswith(","):
                return "Unexpected comma at the end of array expression"
            return f"Unexpected token '{char}'" if word is None else f'Unexpected identifier "{word[0]}"'
        case ["Expecting", "':'"]:
            return "Expected ':' before value in object property definition"
        case ["Expecting", _]:
            return f"Expected '{_closing_bracket(text[:at])}'"
        case ["Extra", _]:
            return "Unable to parse JSON string"
        case _:
            return "Unterminated string"


def explain_for_v8(error: JSONDecodeError) -> str:
    """Return the message of V8."""
    text, at = error.doc, error.pos
    match error.msg.split()[:2]:
        case ["Expecting", "value"]:
            return _unexpected_token(text, at)
        case ["Expecting", "property"]:
            problem = "Expected property name or '}'"
        case ["Expecting", "':'"]:
            problem = "Expected ':' after property name"
        case ["Expecting", _]:
            bracket = _closing_bracket(text[:at])
            problem = f"Expected ',' or '{bracket}' after {'property value' if bracket == '}' else 'array element'}"
        case ["Extra", _]:
            return f"Unexpected non-whitespace character after JSON at position {at}"
        case ["Invalid", "control"]:
            problem = "Bad control character in string literal"
        case _:
            problem, at = "Unterminated string", len(text)
    return f"{problem} in JSON at position {at}"


def _unexpected_token(text: str, at: int) -> str:
    for literal in ("true", "false", "null"):  # the first character that does not fit is the unexpected one
        if text.startswith(literal[0], at):
            at += next((n for n, char in enumerate(literal) if text[at + n : at + n + 1] != char), 0)
            break
    if at >= len(text):
        return "Unexpected end of JSON input"
    start, end = 0, len(text)
    if end > 2 * _EXCERPT:
        start, end = max(0, at - _EXCERPT), min(end, at + _EXCERPT)
    excerpt = f'{"..." if start else ""}"{text[start:end]}"{"..." if end < len(text) else ""}'
    return f"Unexpected token '{text[at]}', {excerpt} is not valid JSON"


def _closing_bracket(text: str) -> str:
    """Return the bracket that closes the innermost list or object that is open at the end of a text."""
    stack: list[str] = []
    for token in _STRING_OR_BRACKET.findall(text):
        if token in "[{":
            stack.append("]" if token == "[" else "}")
        elif token in "]}" and stack:
            stack.pop()
    return stack[-1] if stack else "}"
