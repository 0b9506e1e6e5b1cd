"""Patterns and node names of bash syntax, as `programs.py` checks it."""

from __future__ import annotations

import re

from toolspan.shell.words import ShellWord

MAX_DEPTH = 60
CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
BLANKS = re.compile(r"(?:[ \t]|\\\n)*")
BREAKS = re.compile(r"(?:[ \t\n]|\\\n)*")
PLAIN_WORD = re.compile(r"[A-Za-z0-9_./:,@%+^-]++")
ARITHMETIC = re.compile(r"[\s0-9+\-*/%<>=!&|^~?:(),]*")
"""Arithmetic without variable names. The shell also evaluates the value of a variable, which may run commands."""
NUMBER = re.compile(r"-?\d+")
COMPARISONS = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
UNUSUAL_EXPANSION = re.compile(r"\$['\"]|\$\{(?!\w+\})")
EVALUATING_EXPANSION = re.compile(r"\$\{(?![A-Za-z_]\w*(?::?[-=+?]|[#%^,/]))", re.ASCII)
"""Expansions such as `${x@P}` and `${x:a[0]}`, which may run commands in a variable's value."""
RESERVED_WORDS = frozenset({
    "!", "[[", "]]", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for",
    "function", "if", "in", "select", "then", "until", "while", "{", "}",
})  # fmt: skip
REDIRECT_NODES = frozenset({"file_redirect", "heredoc_redirect", "herestring_redirect"})
REDIRECT_OPERATOR = re.compile(r"\d*(?:>>|>\||>&|<&|<>|<<<|<|>)|&>>|&>")
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
HOME_WORD = re.compile(r'"?\$HOME(?:/[\w./@%+=:,-]*)?"?|"\$PWD/[\w./@%+=:,-]*"', re.ASCII)
"""Words with the only variables whose values are known before the line runs."""
QUOTED_DOCUMENT = re.compile(r"""\"\$\(cat <<'(\w+)'\n(?:(?!\1\n)[^\n]*\n)*\1\n\)\"""", re.ASCII)
"""A literal text of several lines, such as the message of `git commit -m`."""
BRACE_BEFORE_QUOTE = re.compile(r"\{[^}]*['\"]")
BRACE_PATTERN = re.compile(r"\{[^{}\s]*(?:,|\.\.)[^{}\s]*\}")
NAMED_TILDE = re.compile(r"~[^/\s]")
EQUALS_WORD = re.compile(r"=[A-Za-z_]")
"""A word that some shells replace by the path of a program."""
HIDDEN_COMMENT = re.compile(r"\n\s*#")
VALUE_UNCERTAINTIES = frozenset({
    "a word is not understood", "a value is not understood", "a declared name is not understood",
    "select is not understood", "a here-document is not on standard input",
})  # fmt: skip
"""Uncertainties about arguments and values, which do not affect which programs run."""
