"""Patterns, node names and small checks for bash syntax, used by `programs.py`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from toolspan.shell.program import has_document_code, without_documents
from toolspan.shell.words import ShellWord, bash_parser

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_DEPTH = 60
NO_CONTROL_CHARACTERS = re.compile(r"[^\x00-\x08\x0b-\x1f\x7f-\x9f]*+")
"""perf: The regex engine skips all other characters faster than it searches for these."""
BLANKS = re.compile(r"(?:[ \t]|\\\n)*")
BREAKS = re.compile(r"(?:[ \t\n]|\\\n)*")
PLAIN_WORD = re.compile(r"[A-Za-z0-9_./:,@%+^-]++")
ARITHMETIC = re.compile(r"[ \t0-9+\-*/%<>=!&|^~?:(),]*")
"""Arithmetic without variable names. The shell also evaluates the value of a variable, which may run commands."""
ARITHMETIC_WORD = re.compile(r"(?!-)(?:[\w./:,@%+-]|\$\(\([ \t0-9+\-*/%<>=!&|^~?:(),]+\)\))+", re.ASCII)
"""Words without quotes that contain only arithmetic with numbers."""
_PLAIN_COMMAND = r"[A-Za-z][\w-]*+(?>(?: (?!2>)[\w./:,@%+^-]++)*)(?>(?: < ?[\w./-]++)?)(?>(?: 2>/dev/null)?)"
TEXT_WITH_COMMANDS = re.compile(
    rf"\"[A-Za-z0-9=#*(\[][\w.,:;/()=#*\[\]-]*+[ :][\w.,:;/()=#*'!?|<>+ \[\]-]*+"
    rf"(?>(?:\$\({_PLAIN_COMMAND}\)[\w.,:;/()=#*'!?|<>+ \[\]-]*+)+)\"",
    re.ASCII,
)
"""Text in quotes with the output of plain commands, such as `"Path: $(which node)"`."""
NUMBER = re.compile(r"-?[0-9]+")
COMPARISONS = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
UNUSUAL_EXPANSION = re.compile(r"\$['\"]|\$\{(?!\w+\})")
EVALUATING_EXPANSION = re.compile(r"\$\{(?![A-Za-z_]\w*(?::?[-=+?]|[#%^,/]))", re.ASCII)
"""Expansions such as `${x@P}` and `${x:a[0]}`, which may run commands in a variable's value."""
RESERVED_WORDS = frozenset({
    "!", "[[", "]]", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for",
    "function", "if", "in", "select", "then", "until", "while", "{", "}",
})  # fmt: skip
_KEYWORD = r"(?:case|do|done|elif|else|esac|fi|for|function|if|select|then|until|while)"
RESERVED_START = re.compile(rf"{_KEYWORD}['\"\\]")
_GROUP = r"\((?>(?:[^()]++|\((?>(?:[^()]++|\([^()]*+\))*)\))*)\)"
_VALUE = rf"""(?:'[^']*'|"[^"]*"|\\[\s\S]|\$?{_GROUP}|[^\s'";&|(])"""
_STRING = re.compile(
    r"""#(?<![^\s;&|]#)(?P<comment>[^\n]*)"""
    r"""|<<(?<!<<<)(?!<)-?[ \t]*(?P<quote>['"\\]?)(?P<mark>\w++)['"]?(?P<rest>[^\n]*\n)"""
    r"""(?:[^\n]*\n)*?\t*(?P=mark)(?=\n|\Z)"""
    r"""|\\.|'[^']*+'|"[^"\\]*+(?>(?:\\.[^"\\]*+)*)\"""",
    re.DOTALL,
)
"""A comment, a here-document, an escaped character or a quoted string.

perf: Each alternative begins with a fixed character, so that the regex engine searches for these characters.
"""
_COMMENT = re.compile(r"(?<![^\s;&|()])#(?!\w+\)\))")
_DOUBLE_PARENTHESIS = re.compile(r"(?<!\()\(\((?<!=~[ \t]\(\()(?<!=\(\()")
_SIGN = r"[(+\-*/%<>=!&|^~?:,\[]"
_OPERAND = (
    r"(?:[\w\s+\-*/%<>=!&|^~?:,;.\[\]]|(?<=\d)#(?=\w)|\$\w+|\$\{\w+\}"
    rf"|(?:(?<={_SIGN})|(?<={_SIGN} ))\$(?:[#?@*$!-]|\{{[^{{}}\s]*+\}}|\([^()]*+\)))"
)
"""A part of an arithmetic expression. Most expansions are accepted only after an operator."""
_ARITHMETIC_COMMAND = re.compile(rf"\(\((?>(?:{_OPERAND}|\((?>(?:{_OPERAND}|\((?>{_OPERAND}*)\))*)\))*)\)\)")
_KEYWORD_AFTER_BLANK = re.compile(rf"(?:[ \t]|(?<=\\)\n){_KEYWORD}(?![\w-])", re.ASCII)
_BLANKS_OR_BREAKS = r"[ \t]++(?>(?:\\\n?[ \t]*+)*)"
"""Blanks with escaped line breaks, of which `_without_strings` keeps the backslash."""
_COMMAND_START = r"[\n;&|(){}`][ \t]*(?>(?:(?:do|done|elif|else|esac|fi|if|then|time|until|while|!|\[)[ \t]+)*)"
"""The start of a command in a text after a line break.

perf: The regex engine searches for the first character faster than with an alternative for the start of the text.
"""
_ASSIGNMENT = rf"[A-Za-z_]\w*(?:\[[^\]\s]*+\])?\+?=(?>{_VALUE}*){_BLANKS_OR_BREAKS}"
_KEYWORD_AFTER_VARIABLE = re.compile(rf"{_COMMAND_START}(?>(?:{_ASSIGNMENT})+){_KEYWORD}(?![\w-])", re.ASCII)
_REDIRECT = rf"(?>(?:\d*|\{{\w+\}})(?:<<<|<>|[<>]&|>>|>\||<|>|&>>?)[ \t]*(?>{_VALUE}+){_BLANKS_OR_BREAKS})"
_KEYWORD_AFTER_REDIRECT = re.compile(
    rf"{_COMMAND_START}(?>(?:{_ASSIGNMENT})*){_REDIRECT}(?>(?:{_REDIRECT}|{_ASSIGNMENT})*){_KEYWORD}(?![\w-])", re.ASCII
)
_NUMBER_AS_NAME = re.compile(rf"{_COMMAND_START}(?:for|function|select)[ \t]++\$(?:\(\(|\[)")
_EMPTY_PARENTHESES = re.compile(r"\([ \t]*\)")
_FUNCTION_AFTER_PREFIX = re.compile(
    rf"[\n;&|()][ \t]*(?>(?:{_ASSIGNMENT}|{_REDIRECT})+)"
    r"[\w.:-]++[ \t]*+\([ \t]*+\)",
    re.ASCII,
)
REDIRECT_NODES = frozenset({"file_redirect", "heredoc_redirect", "herestring_redirect"})
REDIRECT_OPERATOR = re.compile(r"\d*(?:>>|>\||>&|<&|<>|<<<|<|>)|&>>|&>")
PLAIN_STREAM = re.compile(r"[\w./][\w./-]*", re.ASCII)
"""The target of `>&`, which the shell expands twice if it is a file."""
COMMAND_END = re.compile(r"(?:\A|;|[^\s;|&!(){}<>]|[^\s;|&!(){}<>][ \t]*&)\s*\Z")
"""The end of a command, after which a comment may begin."""
REDIRECT_AT_END = re.compile(r"""(?:>|(?<!<)<)&?[ \t]*(?:'[^']*'|"[^"]*"|[^\s;|&<>()])+[ \t]*\Z""")
HEREDOC_NODES = frozenset({"<<", "<<-", "heredoc_start", "heredoc_body", "heredoc_end"})
COMMAND_SEPARATORS = frozenset({"&&", "||", ";", "&"})
MARK_TERMINATORS = ("", *" \t;&|<>)")
"""Characters that end the delimiter of a here-document; any other character would be part of it."""
CASE_ENDS = frozenset({";;", ";&", ";;&"})
OPERATORS = frozenset({";", "&", "\n", "&&", "||", "|", "|&"})
IGNORED_TOKENS = OPERATORS | {
    "(", ")", "{", "}", "!", "if", "then", "else", "elif", "fi", "while", "until", "do", "done", "$(", "<(", ">(", "`",
}  # fmt: skip
UNGROUPED_NODES = frozenset({"command", "list", "negated_command", "pipeline", "redirected_statement"})
"""Nodes that share the standard input of the enclosing statement."""
SIMPLE_NODES = frozenset({
    "command", "list", "pipeline", "redirected_statement", "variable_assignment", "variable_assignments",
    "declaration_command", "unset_command", "test_command", "comment",
})  # fmt: skip
UNKNOWN_WORD = ShellWord("", has_expansion=True, has_substitution=True)
UNCLEAR_NODES = {
    "subshell": "A subshell",
    "compound_statement": "A group in braces or double parentheses",
    "c_style_for_statement": "A counting for loop",
    "for_statement": "A variable set",
    "case_statement": "A case statement",
    "function_definition": "A function definition",
}
UNCLEAR_EXPANSIONS = {
    "simple_expansion": "A variable",
    "expansion": "A variable in braces",
    "command_substitution": "A nested command",
    "process_substitution": "A command used as a file",
    "ansi_c_string": "Text with escape codes",
    "translated_string": "Text with escape codes",
    "brace_expression": "A brace pattern",
    "array": "A list of values",
    "subscript": "A list of values",
}
EXPANSION_SIGN = re.compile(r"[$`]|[<>]\(")
HOME_WORD = re.compile(r'"?\$HOME(?:/[\w./@%+=:,-]*)?"?|"\$PWD/[\w./@%+=:,-]*"', re.ASCII)
"""Words with the only variables whose values are known before the line runs."""
QUOTED_DOCUMENT = re.compile(r"""\"\$\(cat <<'(\w+)'\n(?>(?:(?!\1\n)[^\n]*+(?<!\\)\n)*)\1\n\)\"""", re.ASCII)
"""A literal text of several lines, such as the message of `git commit -m`. No line of it ends with a backslash."""
QUOTE_OR_ESCAPE = re.compile(r"['\"\\]")
BRACE_BEFORE_QUOTE = re.compile(r"\{[^{}]*['\"]")
SHORT_OPTION = re.compile(r"-[A-Za-z]*", re.ASCII)
PLAIN_MARK = re.compile(r"""\\?\w+|'\w+'|"\w+\"""", re.ASCII)
BRACE_PATTERN = re.compile(r"\{[^{}\s]*(?:,|\.\.)[^{}\s]*\}")
ESCAPED_BRACE = re.compile(r"\{.*\\[{}]", re.DOTALL)
OPTION_WITH_QUOTES = re.compile(
    r"""-{1,2}[A-Za-z][\w-]*=?(?:'[^']*'|"[^"\\$`]*+(?>(?:\\[!#%&(-\[\]-_a-z|~][^"\\$`]*+)*)")""", re.ASCII
)
PLAIN_TEXT = re.compile(r"[\w./:,@%+='\"! *?-]*")
"""The characters of partly quoted words that every shell reads in the same way."""
LITERAL_STRING = re.compile(r"""'[^']*+'|"[^"]*+\"""")
QUOTED_PART = re.compile(r"""'[^']*'|"[^"]*"|\\.""", re.DOTALL)
QUOTED_STRING = re.compile(r"""'[^']*+'|"[^"\\]*+(?>(?:\\.[^"\\]*+)*)\"""", re.DOTALL)
_COMMENT_OR_STRING = re.compile(rf"#(?<![^\s;&|()]#)[^\n]*+|\\.|{QUOTED_STRING.pattern}", re.DOTALL)
DIGITS_AT_END = re.compile(r"(?<![^\s;&|()<>])\d+\Z")
MAX_STREAM_DIGITS = 9
STREAM_AT_END = re.compile(r"(?<![^\s;&|()])(?:[0-9]{1,9}|\{[A-Za-z_]\w*\})\Z", re.ASCII)
"""The number or the name of a stream directly before a redirect."""
OPERATOR_AT_END = re.compile(r"[<>][&|]?(?>(?:[ \t]|\\\n)*)\Z")
"""The operator of a redirect, whose target follows."""
NAMED_STREAM = re.compile(r"(?<!\S)\{\w+\}[ \t]*\Z", re.ASCII)
"""A word that the client treats as the name of a stream if a redirect follows."""
EQUALS_WORD = re.compile(r"=[A-Za-z_]")
NAMED_TILDE = re.compile(r"~[^/\s]")
UNCLEAR_TEXT = (
    ("A word that begins with an equals sign", "=", re.compile(r"=(?<![^\s;&|]=)[A-Za-z_]")),
    ("A redirect of a named stream", "{", re.compile(r"\{[A-Za-z_]\w*\}[<>]", re.ASCII)),
    ("A blank after a backslash", "\\", re.compile(r"\\(?:[ \t]|(?<![ \t]\\)\n|\n\s*\|(?!\|))")),
    ("An escaped pattern beside an escaped line break", "\\\n", re.compile(r"\s\\[*?\[]")),
    ("An escaped backslash before a semicolon", "\\\\;", re.compile(r"\\\\;")),
    ("A range of numbers in angle brackets", "<", re.compile(r"<[0-9]*-[0-9]*>")),
    ("A tilde before a bracket", "~[", re.compile(r"~\[")),
    ("The environment of a process", "/proc/", re.compile(r"/proc/.*/environ")),
)
"""The reason, a text that must occur in the line, and a pattern. Quotes do not make such text clear. Some shells
replace `=name` by the path of a program.

perf: The lookbehind follows the first character, so that the regex engine searches for that.
"""
NO_OTHER_BLANKS = re.compile("[^\u00a0\u1680\u2000-\u200b\u2028\u2029\u202f\u205f\u3000\ufeff]*+")
"""Text without the blanks that the shell treats as parts of words."""
PLAIN_BREAK = re.compile(
    r"\\\n(?:(?<=[^\s;|&<>(\\][ \t]\\\n)|(?<=&&[ \t]\\\n)|(?<=\|\|[ \t]\\\n)|(?<=[^\s;|&<>(\\]  \\\n))"
    r"[ \t]*(?=[^\s|;&<>()#]|&&|\|\|)"
)
"""An escaped line break between two words of a command, or beside `&&` or `||`."""
CONTINUED_END = re.compile(r"[ \t]\\\n\s*\Z")
TEST_OPERATOR = re.compile(
    r"""(?<!['"\\])(?:&&|\|\||(?<=\s)[<>](?=\s)|(?<=[\s(])\((?=[\s\w])|(?<=[\s\w)])\)(?=[\s)&|]))(?!['"])"""
)
"""An operator between the parts of a test in double brackets."""
_TEST_WORD = r"""(?:(?:~/)?[\w./:,@%+^-][\w./:,@%+^=~!#-]*|'[^'\n]*'|"[^"\\$`\n]*")"""
_TEST_OPERATOR = r"(?:==?|!=|=~|[<>]|-(?:eq|ne|lt|le|gt|ge|nt|ot|ef))"
_TEST = rf"(?:!\s+)?(?:-[A-Za-z]\s+{_TEST_WORD}|{_TEST_WORD}(?:\s+{_TEST_OPERATOR}\s+{_TEST_WORD})?)"
_GROUPED_TEST = rf"(?:!\s+)?\(*\s*{_TEST}\s*\)*"
PLAIN_TEST = re.compile(rf"\[\[\s+{_GROUPED_TEST}(?:\s+(?:&&|\|\|)\s+{_GROUPED_TEST})*\s+\]\]", re.ASCII)
"""A test in double brackets whose parts are plain words, quoted texts and operators, with blanks between them."""
PLAIN_BRACKETS = re.compile(rf"\[\s+{_TEST}\s+\]", re.ASCII)
"""A test in single brackets: a word, a word after an operator, or two words around one."""
HIDDEN_COMMENT = re.compile(r"\n\s*#")
VALUE_UNCERTAINTIES = frozenset({
    "a word is not understood", "a value is not understood", "a declared name is not understood",
    "select is not understood", "a here-document is not on standard input",
})  # fmt: skip
"""Uncertainties about arguments and values, which do not affect which programs run."""


def find_unclear_text(line: str) -> tuple[str, ...]:
    """Return the names of text in a line that is unclear even in quotes."""
    has_sign = "=" in line or "<" in line or "{" in line or "\\" in line or "~[" in line or "/proc/" in line
    if not has_sign:  # perf: faster than the list below
        return ()
    return tuple([reason for reason, sign, pattern in UNCLEAR_TEXT if sign in line and pattern.search(line)])


def find_unclear_breaks(source: str) -> Iterator[str]:
    """Yield the names of unclear line breaks in a word of several lines."""
    if HIDDEN_COMMENT.search(source):
        yield "A line in quotes that looks like a comment"
    if "\\\n" in source and source[0] in ("'", '"'):
        yield "A blank after a backslash"


def find_unclear_parts(source: str, word: ShellWord, node: Node) -> Iterator[str]:
    """Yield the names of expansions and escapes in a word whose result is not known before the line runs.

    A quoted string without expansions has none.
    """
    if QUOTED_DOCUMENT.fullmatch(source):
        if has_document_code(source):
            yield "A nested command"
        return
    if source[-1:] == "$" and source[-2:-1] != "\\":
        yield "A dollar sign alone"
    if "\\" in source and ESCAPED_BRACE.search(QUOTED_STRING.sub("", source)):
        yield "An escaped brace after a brace"
    unquoted = QUOTED_PART.sub("", source) if "{" in source else ""
    if "{" in unquoted and ("," in unquoted or ".." in unquoted):
        yield "A brace pattern"
        return
    is_quoted = QUOTED_STRING.fullmatch(source) is not None
    has_quotes = not is_quoted and ("'" in source or '"' in source)
    text = word.text.removeprefix("~/") if source.startswith("~/") else word.text
    if has_quotes and not (OPTION_WITH_QUOTES.fullmatch(source) or PLAIN_TEXT.fullmatch(text)):
        yield "A word with quotes inside"
    if (word.has_expansion or not is_quoted) and (BRACE_PATTERN.search(source) or BRACE_PATTERN.search(word.text)):
        yield "A brace pattern"
        return
    if not is_quoted and EQUALS_WORD.match(word.text):
        yield "A word that begins with an equals sign"
    is_translated = ("$'" in source or '$"' in source) and not QUOTED_PART.fullmatch(source)
    if not word.has_expansion and not is_translated:
        return
    if word.text[:1] == "~" and NAMED_TILDE.match(word.text):
        yield "A tilde with a name"
    elif EXPANSION_SIGN.search(source) and not HOME_WORD.fullmatch(source):
        yield UNCLEAR_EXPANSIONS.get(first_expansion(node) or "", "A variable")


def has_brace_before_quote(line: str) -> bool:
    """Return whether an open brace outside quotes precedes a quote, which may hide the expansion of the brace.

    Quotes in here-documents count. The line is searched twice: with comments and escapes as ordinary text, and as the
    shell reads them.
    """
    if BRACE_BEFORE_QUOTE.search(QUOTED_STRING.sub("'", line)):
        return True
    if "#" not in line and "\\" not in line:
        return False
    return BRACE_BEFORE_QUOTE.search(_COMMENT_OR_STRING.sub(_shorten_string, line)) is not None


def _shorten_string(match: re.Match[str]) -> str:
    return match[0] if match[0][0] in "#\\" else "'"


def first_expansion(node: Node) -> str | None:
    """Return the type of the first node that is an expansion, or None."""
    if node.type in UNCLEAR_EXPANSIONS:
        return node.type
    found = (first_expansion(child) for child in node.children if child.is_named or child.child_count)
    return next((kind for kind in found if kind is not None), None)


_UNUSUAL_PARAMETER = re.compile(
    r"""\$\{(?:[@*?$-]\w|\d+[A-Za-z_]|(?>(?:[^{}'\\$]|\\.|'[^']*'|\$(?:\{[^{}]*+\})?)*)\{)""", re.ASCII
)
"""An expansion such as `${@Q}` and `${a:-{b}}`: text after a special parameter, or a brace inside."""


def may_be_misread(line: str) -> bool:
    """Return whether parsers disagree on a line.

    It ends inside `$(…)`, `${…}` or `$((…))`, or contains `$$(`, `$${` or `$$[`, or has a keyword or function after an
    assignment or a redirect, or has `((` after a word or before anything but plain arithmetic, or ends a `$(…)` with
    the parenthesis of a subshell.
    """
    if not ("=" in line or "<" in line or ">" in line or "(" in line or "${" in line or "$[" in line):
        return False  # perf: every pattern below needs one of these
    if "$$" in line and ("$$(" in line or "$${" in line or "$$[" in line):
        return True
    line = without_documents(line)
    may_have_keyword = "=" in line and _KEYWORD_AFTER_VARIABLE.search("\n" + line) is not None
    may_have_function = _EMPTY_PARENTHESES.search(line) is not None
    may_have_name = "$((" in line or "$[" in line
    may_follow_redirect = _may_have_keyword_after_redirect(line)
    if may_have_keyword or may_have_function or may_have_name or may_follow_redirect or "((" in line:
        text = _without_strings(line)
        patterns = (
            (may_have_keyword, _KEYWORD_AFTER_VARIABLE),
            (may_have_function, _FUNCTION_AFTER_PREFIX),
            (may_have_name, _NUMBER_AS_NAME),
            (may_follow_redirect, _KEYWORD_AFTER_REDIRECT),
        )
        if any(may_match and pattern.search("\n" + text) for may_match, pattern in patterns):
            return True
        if "((" in line and (_has_odd_arithmetic(text) or _has_arithmetic_argument(text)):
            return True
    return ("$(" in line or "${" in line) and _has_unclear_expansion(line)


def _may_have_keyword_after_redirect(line: str) -> bool:
    """Return False only if no keyword follows a redirect, in or between the strings of a line.

    perf: Without a here-document, `_without_strings` joins no parts of words, so that the line contains the keyword.
    """
    return "<<" in line or ((">" in line or "<" in line) and _KEYWORD_AFTER_BLANK.search(line) is not None)


def _has_unclear_expansion(line: str) -> bool:
    """Return whether parsers disagree on an expansion in a line."""
    if "${" in line and _UNUSUAL_PARAMETER.search(_without_strings(line, keeps_double_quotes=True)):
        return True
    if "\\\n" in line and "`" in line and "${" in line and any("\\\n" in part for part in line.split("`")[1::2]):
        return True
    if "\\\n" in line and "${" in line and _has_break_in_parameter(line):
        return True
    if "<<" in line and "$((" in line and _has_odd_arithmetic(_without_strings(line, keeps_double_quotes=True), "$"):
        return True
    if "<<" in line and "$(" in line and _ODD_DOCUMENT.search(line):
        return True
    if "`" in line and _without_strings(line, keeps_double_quotes=True).count("`") % 2:
        return True
    root = bash_parser().parse(line.encode("utf-8", "replace")).root_node
    if "))" in line and _has_touching_parentheses(root):
        return True
    if (root.has_error or ";;" in line or _BLOCK_KEYWORD.search(line)) and _has_broken_substitution(root):
        return True
    return root.has_error and (_contains_open_expansion(root) or ("#" in line and _ends_in_expansion(line)))


def _has_break_in_parameter(line: str) -> bool:
    """Return whether `${…}` contains an escaped line break."""
    text = _without_strings(line.replace("\\\n", "\0"), keeps_double_quotes=True)
    end = 0
    while (start := text.find("${", end)) >= 0:
        depth, end = 1, start + 2
        while depth and end < len(text):
            depth += (text[end] == "{") - (text[end] == "}")
            end += 1
        if "\0" in text[start:end]:
            return True
    return False


def _ends_in_expansion(line: str) -> bool:
    """Return whether the last `$(` or `${` is not closed. The tree does not show this if a word contains `#`."""
    start = max(line.rfind("$("), line.rfind("${"))
    return (")" if line[start + 1] == "(" else "}") not in line[start:]


def _without_strings(line: str, *, keeps_double_quotes: bool = False) -> str:
    """Return a line without comments, quoted text and here-documents. Text in double quotes may be kept.

    Return the line unchanged if a `#` may belong to arithmetic, or a comment with `((` follows a redirect.
    """

    def shorten(match: re.Match[str]) -> str:
        if match["comment"] is not None:
            is_clear = "((" not in match[0] or not re.search("[<>]", line[: match.start()])
            return "" if is_clear and "((" not in line[: match.start()] else match[0]
        first = match[0][0]
        if keeps_double_quotes and (first == '"' or (first == "<" and not match["quote"])):
            return match[0]
        return "\\" if first == "\\" else match["rest"] or "''"

    text = _STRING.sub(shorten, line)
    return line if "#" in text and _COMMENT.search(text) else text


def _has_odd_arithmetic(text: str, before: str = "") -> bool:
    """Return whether `((` after the text `before` begins anything but a plain arithmetic expression."""
    starts = [match.start() for match in _DOUBLE_PARENTHESIS.finditer(text)]
    starts = [start for start in starts if text.endswith(before, 0, start)]
    expressions = [_ARITHMETIC_COMMAND.match(text, start) for start in starts]
    return any(expression is None or "<<<" in expression[0] for expression in expressions)


_BLOCK_KEYWORDS = frozenset({b"do", b"done", b"elif", b"else", b"esac", b"fi", b"then", b"}"})
_BLOCK_KEYWORD = re.compile(r"(?:\$\(|[;&|\n`])[^\S\n]*(?:do|done|elif|else|esac|fi|then|\})(?![\w-])")


_EXPRESSION_OR_TEST = re.compile(
    r"\(\((?>(?:[^()]|\((?>(?:[^()]|\([^()]*+\))*)\))*)\)\)|\[\[\s[^\n]*?\s\]\]|\$\{[^{}]*+\}|\w\[[^\]\s]*+\]"
)
_ARITHMETIC_ARGUMENT = re.compile(
    r"(?<![^\s;&|<>()`])(?<![<>]&)(?!(?:do|done|elif|else|esac|fi|for|if|then|until|while)[ \t(\\]"
    r"|(?:!|[{}]|\[)[ \t]|[A-Za-z_]\w*\+?=)[^\s;&|<>()`]++(?<!\$)(?>(?:[ \t]|\\\n)*)\(\("
    r"|(?:<<<[ \t]*+|(?:`|\$\([^()]*+\)|\$\(\(0\)\))[ \t]++)\(\("
)
"""`((` after a word that is neither a keyword nor an assignment, after `<<<`, or after a substitution."""


def _has_arithmetic_argument(text: str) -> bool:
    """Return whether `((` is an argument of a command. Tests and nested expressions may contain `((`."""
    shortened = _EXPRESSION_OR_TEST.sub(lambda match: "((0))" if match[0][0] == "(" else "0", text)
    return _ARITHMETIC_ARGUMENT.search(shortened) is not None


_ODD_DOCUMENT = re.compile(r"""(?<!<)<<(?!<)-?[ \t]*+(?!\\?\w++(?:[\s;&|<>)]|\Z)|'\w++'|"\w++")""")
"""A here-document with an unusual delimiter, whose end parsers may find in different places."""


def _has_broken_substitution(root: Node) -> bool:
    """Return whether `$(…)` or `${…}` contains a syntax error, or a keyword that belongs to no statement."""
    nodes = [(root, False)]
    while nodes:
        node, is_inside = nodes.pop()
        if node.type in ("command_substitution", "expansion"):
            is_inside = True
        if is_inside and (node.type == "ERROR" or node.is_missing):
            return True
        if is_inside and node.type == "command_name" and node.text in _BLOCK_KEYWORDS:
            return True
        children = node.children
        if node.type == "ERROR" and any(child.type in ("$(", "${") for child in children):
            return True
        if is_inside and node.type != "case_item" and any(child.type in CASE_ENDS for child in children):
            return True
        nodes += [(child, is_inside) for child in children]
    return False


_PLAIN_ARITHMETIC = re.compile(rb"\$\(\([^()`]*+\)\)")


def _has_touching_parentheses(root: Node) -> bool:
    """Return whether `$(…)` ends with a subshell or a list of values, without a blank between the parentheses."""
    nodes = [root]
    while nodes:
        node = nodes.pop()
        children = node.children
        nodes += children
        if node.type != "command_substitution" or len(children) < 3:  # no command
            continue
        if node.text is not None and _PLAIN_ARITHMETIC.fullmatch(node.text):  # in a here-document
            continue
        last: Node | None = children[-2]
        while last is not None and last.end_byte == children[-1].start_byte:
            if last.type in ("subshell", "array"):
                return True
            last = last.children[-1] if last.children else None
    return False


_EXPANSION_ENDS = {"$(": ")", "${": "}", "$((": "))"}


def _contains_open_expansion(node: Node) -> bool:
    last = node.children[-1] if node.children else node
    for child in node.children:
        if child.type in _EXPANSION_ENDS and (last.type != _EXPANSION_ENDS[child.type] or last.is_missing):
            return True
        if child.has_error and _contains_open_expansion(child):
            return True
    return False


def ends_in_command(node: Node) -> bool:
    """Return whether a redirect after a list or pipeline belongs to a simple command at its end."""
    while node.type in ("list", "pipeline"):
        node = node.children[-1]
    return node.type == "command"


def has_arithmetic(tokens: Sequence[str]) -> bool:
    """Return whether a test in double brackets evaluates names: with operators such as `-eq`, or with `-v`."""
    for at, token in enumerate(tokens):
        sides = tokens[max(at - 1, 0) : at + 2 : 2]
        if token in ("-v", "-R") or (token in COMPARISONS and not all(map(_is_number, sides))):
            return True
    return False


def _is_number(token: str) -> bool:
    return NUMBER.fullmatch(token) is not None or token in ("$#", "$?", "${#}")


def loop_value(choices: list[ShellWord]) -> ShellWord:
    """Return a possible value of a loop variable: the first one, if all values stay inside the current folder."""
    if len(choices) == 1:
        return choices[0]
    stays = all(
        not word.has_expansion and word.text[:1] not in ("", "/", "~", "-") and ".." not in word.text
        for word in choices
    )
    return choices[0] if choices and stays else UNKNOWN_WORD


def find_closing_line(text: str, begin: int, mark: str, *, tabs: bool) -> int:
    """Return the offset of the line that ends the here-document, or -1 if there is none."""
    at = begin
    while at <= len(text):
        if not tabs and not text.startswith(mark, at):
            at = text.find("\n" + mark, at) + 1
            if not at:
                break
        end = text.find("\n", at)
        line = text[at : end if end >= 0 else len(text)]
        if (line.lstrip("\t") if tabs else line) == mark:
            return at
        if end < 0:
            break
        at = end + 1
    return -1
