"""Where a substitution in a command line ends.

In: a text and a place behind `$(` or a backtick. Out: the place behind its end. What is in it is
not looked at further than that: a word with a substitution counts as unknown as a whole.
"""


class Unclear(Exception):  # noqa: N818 - never leaves the package
    """The text holds more than is understood here."""


def end_of_substitution(text: str, start: int) -> int:
    """The place behind the parenthesis that closes.

    Raises:
        Unclear: it never closes.
    """
    depth, at = 1, start
    while depth:
        match text[at : at + 1]:
            case "":
                raise Unclear
            case "\\":
                at += 2
            case "'" | '"' as quote:
                at = _end_of_quote(text, at + 1, quote)
            case "(":
                depth, at = depth + 1, at + 1
            case ")":
                depth, at = depth - 1, at + 1
            case _:
                at += 1
    return at


def end_of_backticks(text: str, start: int) -> int:
    """The place behind the backtick that closes.

    Raises:
        Unclear: it never closes.
    """
    return _end_of_quote(text, start, "`")


def _end_of_quote(text: str, start: int, quote: str) -> int:
    at = start
    while text[at : at + 1] != quote:
        if at >= len(text):
            raise Unclear
        at += 2 if text[at] == "\\" and quote != "'" else 1
    return at + 1
