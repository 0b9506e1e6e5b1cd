"""Parse a command line into the programs that it runs.

Start at `parse_line`. It understands simple commands with literal words, file patterns and paths in the home folder,
joined by operators; redirects to files; here-documents; `if` and `while`; and simple tests. Other text is not
understood. It is still searched for programs, because rules that deny must find them.

The tree of tree-sitter is not trusted: the text between two nodes must be blank, and the ends of here-documents are
located again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from toolspan.shell.literals import (
    KEYWORDS,
    LITERAL_WORD,
    STRING,
    find_unknown_part,
    is_document,
    parse_literal_line,
)
from toolspan.shell.program import ParsedLine, Program
from toolspan.shell.words import (
    BLANKS,
    UNKNOWN_WORD,
    CharRange,
    Redirect,
    ShellWord,
    bash_parser,
    has_glob,
    parse_word,
)

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_LINE_LENGTH = 10_000
"""The length in UTF-16 code units, as the client counts, above which a line is not understood."""
_MAX_PARSED_LENGTH = 30_000
_MAX_DEPTH = 60
NO_CONTROL_CHARACTERS = re.compile(r"[^\x00-\x08\x0b-\x1f\x7f-\x9f]*")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_UNUSUAL_BLANK = re.compile(r"[\x80-\xa0\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u2064\u3000\ufeff]")
_TEST_WORD = re.compile(r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\])+""")
_BREAKS = re.compile(r"(?:[ \t\n]|\\\n)*")
_EXIT_STATUS = re.compile(r'"[^"$`\\]*\$\?[^"$`\\]*"')
_ARITHMETIC = re.compile(r"\$?\(\([\w\s+*/%<>=!&|,;-]*\)\)|\$\[[\w\s+*/%-]*\]")
_SPECIAL_TEXT = re.compile(
    r"(?<![^\s;&|'\"])=[A-Za-z_]|\{[A-Za-z_]\w*\}[<>]|\\\\;|\\[ \t]|<[0-9]*-[0-9]*>|~\[|/proc/.*/environ", re.ASCII
)
"""Text that some shell replaces, even in quotes."""
_SPECIAL_PARAMETER = re.compile(r"\$\$[({\[]|\$\{[@*?$-]\w|\$\{\d+[A-Za-z_]")
_CONTINUED = re.compile(
    r"(?<=[^\s;|&<>(\\] )\\\n[ \t]*(?=[^\s|;&<>()#\\])|(?<=(?:&&|\|\|) )\\\n[ \t]*(?=[^\s|;&<>()#\\])"
)
"""An escaped line break between two words, or after `&&` or `||`."""
_OPEN_BRACE = re.compile(r"\{[^{}]*['\"]")
_KEYWORD_START = re.compile(r"(?:if|then|else|elif|fi|do|done|for|while|until|case)['\"\\]|[{}]")
_MARK = re.compile(r"""\\?\w+|'\w+'|"\w+\"""", re.ASCII)
_REDIRECT_OPERATORS = frozenset(
    [">", ">>", "<", "0>", "0>>", "0<", "1>", "1>>", "1<", "2>", "2>>", "2<", ">&", "1>&", "2>&", "&>", "&>>"]
)
_LITERAL_TEST = re.compile(
    r"""\[{1,2} (?!.* -(?:eq|ne|lt|le|gt|ge|v|R) )(?:[\w./:,@%+^=~!# -]|'[^'\n]*'|"[^"\\$`\n]*")+ \]{1,2}""", re.ASCII
)
"""A test of literal words. Some operators evaluate their operands, which may run programs."""
_SCRIPT_READERS = frozenset({"awk", "env", "gawk", "jq", "mawk", "nawk", "printf", "xargs"})
"""Programs for which a text of several lines may be a program, an option or a number to evaluate."""
_REDIRECTS = frozenset({"file_redirect", "heredoc_redirect", "herestring_redirect"})
_SEQUENCES = frozenset({
    "program", "list", "pipeline", "negated_command", "if_statement", "elif_clause", "else_clause", "while_statement",
    "do_group",
})  # fmt: skip
_SIMPLE = frozenset({"program", "list", "pipeline"})
_TOKENS = frozenset({"!", "if", "then", "elif", "else", "fi", "while", "until", "do", "done", "{", "}", "(", ")", "in",
                     "case", "esac", "for", "function", "$(", "<(", ">(", "`"})  # fmt: skip
_SEPARATORS = frozenset({";", "&", "\n", "&&", "||", "|", "|&", ";;", ";&", ";;&"})
_CASE_ENDS = frozenset({";;", ";&", ";;&"})
_WORDS = frozenset({
    "word", "string", "raw_string", "concatenation", "simple_expansion", "expansion", "command_substitution",
    "process_substitution", "number", "ansi_c_string", "translated_string", "variable_name", "extglob_pattern",
    "regex", "brace_expression", "arithmetic_expansion",
})  # fmt: skip
_VISIBLE = {
    "subshell": "A subshell", "compound_statement": "A group in braces", "for_statement": "A variable set",
    "case_statement": "A case statement", "case_item": "A case statement",
    "function_definition": "A function definition", "declaration_command": "A variable set",
    "unset_command": "A variable set", "variable_assignment": "A variable set",
    "variable_assignments": "A variable set",
}  # fmt: skip
"""Constructs whose programs are all found, although their effect depends on the state of the shell."""


@lru_cache(maxsize=256)
def parse_line(line: str) -> ParsedLine:
    """Return the programs that a line would run, and what is not understood about it."""
    programs = parse_literal_line(line)
    if programs is not None:
        return ParsedLine(line, programs, "Text that shells read differently" if _is_special(line) else None)
    if len(line) > _MAX_PARSED_LENGTH:
        is_readable = not any(sign in line for sign in ("rm", "$(", "${", "`"))  # nothing in it would be found
        return ParsedLine(line, (), "The length of the line", hides_programs=True, is_readable=is_readable)
    if not NO_CONTROL_CHARACTERS.fullmatch(line):
        return ParsedLine(line, (), "A control character", hides_programs=True, is_readable=False)
    return parse_tree(line)


def parse_tree(line: str) -> ParsedLine:
    """Return the programs that a line would run, and what is not understood about it, according to its tree."""
    return _Parser(line).parse()


def _is_special(line: str) -> bool:
    has_sign = "=" in line or "<" in line or "\\" in line or "~[" in line or "/proc/" in line
    return has_sign and _SPECIAL_TEXT.search(line) is not None


class _Builder(Struct):
    """A program under construction."""

    words: list[ShellWord] = []
    sources: list[str] = []
    variables: list[str] = []
    values: list[ShellWord] = []
    assignments: list[str] = []
    redirects: list[Redirect] = []
    stdin_text: str | None = None
    has_stdin: bool = False
    start: int = -1
    """The positions of the first word and of the end of the last one in the line."""
    end: int = -1
    is_finished: bool = False
    """True after a redirect, which no word may follow."""


class _Parser:
    """A walker that collects the programs in a tree."""

    def __init__(self, line: str) -> None:
        self._text = line
        self._root = bash_parser().parse(_NOT_ASCII.sub("z", line).encode()).root_node  # one byte per character
        self._programs: list[Program] = []
        self._reasons: list[str] = []
        self._hides = False
        self._is_readable = self._is_simple = True
        self._depth = 0
        self._nested = self._has_stdin = self._group_has_stdin = False

    def parse(self) -> ParsedLine:
        """Return the programs in the line."""
        line, root = self._text, self._root
        try:
            self._visit(root)
        except RecursionError:
            self._reject("A deeply nested expression")
        if root.has_error:
            self._reject("A syntax error")
        if not (_is_blank(line, 0, root.start_byte) and _is_blank(line, root.end_byte, len(line))):
            self._reject("Text between two commands")
        self._check_text()
        reason = self._reasons[0] if self._reasons else None
        return ParsedLine(line, tuple(self._programs), reason, self._hides, self._is_readable, self._is_simple)

    def _check_text(self) -> None:
        line = self._text
        if _SPECIAL_PARAMETER.search(line):
            self._reject("An unusual parameter")
        if _is_special(line):
            self._note("Text that shells read differently")
        if _UNUSUAL_BLANK.search(line):
            self._reject("A blank of another kind")
        if "\\\n" in line and not self._reasons:
            patterns = any(has_glob(word.text) for program in self._programs for word in program.words)
            if patterns or len(_CONTINUED.findall(line)) < line.count("\\\n"):
                self._note("An escaped line break")
        if len(line) > MAX_LINE_LENGTH // 2 and len(line.encode("utf-16-le", "surrogatepass")) > 2 * MAX_LINE_LENGTH:
            self._note("The length of the line")

    def _note(self, reason: str) -> None:
        """Record a part whose effect is not known, although the programs are."""
        self._reasons.append(reason)

    def _hide(self, reason: str) -> None:
        """Record a part that may run programs which are not found."""
        self._reasons.append(reason)
        self._hides = True

    def _reject(self, reason: str, *, is_keyword: bool = False) -> None:
        """Record a part that shells may read in another way than the tree."""
        self._hide(reason)
        if is_keyword or any(sign in self._text for sign in ("$", "`", "(", "rm")):
            self._is_readable = False

    def _source(self, node: Node) -> str:
        return self._text[node.start_byte : node.end_byte]

    # Statements

    def _visit(self, node: Node) -> None:
        kind = node.type
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            self._reject("A deeply nested command")
        elif kind == "command":
            builder = _Builder()
            self._read_command(node, builder)
            self._finish(builder)
        elif kind in _SEQUENCES:
            self._visit_sequence(node)
        elif kind == "redirected_statement":
            self._visit_redirected(node)
        elif kind == "test_command":
            self._visit_test(node)
        elif kind == "comment":
            self._visit_comment(node)
        elif kind in _SEPARATORS or kind == "then":
            self._visit_separator(node)
        elif node.is_named or kind not in _TOKENS:
            self._visit_other(node)
        self._depth -= 1

    def _visit_separator(self, node: Node) -> None:
        kind = node.type
        if kind == "&":
            self._note(BACKGROUND)
        elif kind == "|&":
            self._note("The operator |&")
        elif kind in _CASE_ENDS and (node.parent is None or node.parent.type != "case_item"):
            self._reject("A separator of another statement")
        if self._programs and (kind == "then" or not self._nested):
            self._programs[-1] = replace(self._programs[-1], ended_by=kind)

    def _visit_sequence(self, node: Node) -> None:
        kind = node.type
        has_stdin, group_has_stdin, nested = self._has_stdin, self._group_has_stdin, self._nested
        if kind not in _SIMPLE:
            self._is_simple = False
            if kind != "negated_command":
                self._nested, self._group_has_stdin = True, has_stdin
        elif nested and kind == "pipeline":
            self._note("A pipeline inside another command")
        for child in self._children(node):
            if child.type in ("|", "|&"):
                self._has_stdin = True
            elif child.type in ("&&", "||"):
                self._has_stdin = self._group_has_stdin  # the tree of `a | b && c` may have `c` inside the pipeline
            self._visit(child)
        self._has_stdin, self._group_has_stdin, self._nested = has_stdin, group_has_stdin, nested

    def _children(self, node: Node) -> Iterator[Node]:
        """Yield the children of a statement. The text between them must be blank."""
        at, before = node.start_byte, ""
        for child in node.children:
            start = child.start_byte
            if not _is_blank(self._text, at, start):
                self._reject("Text between two commands")
            if before in KEYWORDS:
                if start == at and child.type not in _SEPARATORS:
                    self._reject("A keyword that touches a word")
                if before == "!" and "\n" in self._text[at:start]:
                    self._reject("A line break after a negation")
            yield child
            at, before = child.end_byte, child.type
        if not _is_blank(self._text, at, node.end_byte):
            self._reject("Text after a command")

    def _visit_other(self, node: Node) -> None:
        """Search a construct that is not understood for programs."""
        kind, text = node.type, self._source(node)
        self._is_simple = self._is_simple and _VISIBLE.get(kind) == "A variable set" and kind != "for_statement"
        if kind not in _VISIBLE or (kind == "for_statement" and not text.startswith("for")):
            self._reject(f"The syntax {text[:20]!r}" if kind != "ERROR" else "A syntax error")
        elif text.startswith("(("):
            self._check_arithmetic(text)
        elif kind in ("declaration_command", "unset_command") and "[" in text:
            self._hide("An element of an array")
        else:
            self._note(_VISIBLE[kind])
        nested, group_has_stdin = self._nested, self._group_has_stdin
        self._nested, self._group_has_stdin = (
            kind not in ("variable_assignment", "variable_assignments"),
            self._has_stdin,
        )
        index = len(self._programs)
        words: list[ShellWord] = []
        values: list[ShellWord] = []
        names = [self._source(child) for child in node.children if child.type == "variable_name"]
        for child in self._children(node):
            assigned = child.children[-1] if child.type == "variable_assignment" and child.children else None
            if kind == "declaration_command" and assigned is not None and assigned.type in _WORDS:
                names.append(self._source(child).partition("=")[0])
                values.append(self._word(assigned))
            elif child.type in _WORDS:
                words += [self._word(child)] if child.type != "variable_name" else []
            elif child.is_named or child.type in _SEPARATORS:
                self._visit(child)
        if kind == "variable_assignment":
            names = [text.partition("=")[0].partition("[")[0].rstrip("+")]
        if text.startswith("(("):
            inner = [program for program in self._programs[index:] if program.words]
            self._programs[index:] = [Program((ShellWord("(("),), text, nested=nested), *inner]
            words, names = [], []
        is_known = all(re.fullmatch(r"-[aAgprxfFtu]+|[A-Za-z_]\w*", word.text) for word in words)
        if kind in ("declaration_command", "unset_command") and not is_known:
            self._hide("A declaration of another form")
        if words or names:
            is_command = kind in ("declaration_command", "unset_command")
            shown = (ShellWord(text.split()[0]), *words) if is_command else ()
            program = Program(shown, text if is_command else "", variables=tuple(names), values=(*words, *values))
            self._programs.insert(index, replace(program, nested=nested))
        self._nested, self._group_has_stdin = nested, group_has_stdin

    def _check_arithmetic(self, text: str) -> None:
        """Check an expression. The shell also evaluates the values of names in it, which may run programs."""
        if not _ARITHMETIC.fullmatch(text):
            self._reject("An arithmetic expression")
        elif any(letter.isalpha() or letter == "_" for letter in text):
            self._hide("An arithmetic expression with names")
        else:
            self._note("An arithmetic expression")

    def _visit_comment(self, node: Node) -> None:
        source, before = self._source(node), self._text[: node.start_byte]
        line = before.rpartition("\n")[2].rstrip()
        touches = before[-1:] not in ("", " ", "\t", "\n", ";") or "\n" in source or source.endswith("\\")
        follows = line[-1:] in tuple("|&(){}<>!") or (self._programs and self._programs[-1].redirects and line)
        if touches or follows or "((" in source:
            self._reject("A comment of another form")
        if "{" in source and ("'" in source or '"' in source):
            self._note("An open brace")

    def _visit_test(self, node: Node) -> None:
        self._visit_substitutions(node, [])
        source = self._source(node)
        if not _LITERAL_TEST.fullmatch(source):
            self._hide("A test of another form")
        name, *ranges = (word.span() for word in _TEST_WORD.finditer(source))
        parsed = (parse_word(source, start, end) for start, end in ranges)
        words = (ShellWord(source[: name[1]]), *(word[0] if word else UNKNOWN_WORD for word in parsed))
        self._programs.append(Program(words, source, nested=self._nested))

    # Simple commands

    def _finish(self, builder: _Builder) -> None:
        spelling = self._text[builder.start : builder.end] if builder.start >= 0 else ""
        text = " ".join(builder.sources)
        program = Program(
            tuple(builder.words),
            text,
            spelling if spelling.replace("\\\n", "") != text else "",
            tuple(builder.variables),
            tuple(builder.values),
            tuple(builder.assignments),
            tuple(builder.redirects),
            builder.has_stdin or self._has_stdin,
            builder.stdin_text,
            self._nested,
        )
        if program.words and program.words[0].text.startswith("~/") and not program.words[0].may_split:
            self._note("A program in the home folder")
        elif program.words and not program.name:
            self._hide("A program whose name the shell fills in")
        if program.name in KEYWORDS or _KEYWORD_START.match(text):
            self._reject(f"The keyword {program.words[0].text}", is_keyword=True)
        self._programs.append(program)

    def _read_command(self, node: Node, builder: _Builder) -> None:
        at, before = node.start_byte, ""
        for child in node.children:
            start = child.start_byte
            gap = self._text[at:start]
            if before and child.type not in _REDIRECTS and not gap.replace("\\\n", ""):
                self._reject("Two words without a blank")
            elif not BLANKS.fullmatch(gap):
                self._reject("Text between two words")
            if child.type == "variable_assignment":
                self._read_assignment(child, builder)
            elif child.type in _REDIRECTS:
                self._read_redirect(child, builder)
            else:
                for part in child.children if child.type == "command_name" else (child,):
                    self._read_word(part, builder)
            at, before = child.end_byte, child.type

    def _read_assignment(self, node: Node, builder: _Builder) -> None:
        source = self._source(node)
        name, equals, rest = source.partition("=")
        value = node.children[-1]
        if not (equals and name.isascii() and name.isidentifier()):
            self._visit_other(node)
            return
        builder.variables.append(name)
        is_empty = not rest
        if not is_empty and (value.type == "array" or self._source(value) != rest):
            self._visit_other(node)
            builder.values.append(UNKNOWN_WORD)
        else:
            builder.values.append(ShellWord("") if is_empty else self._word(value))
        builder.assignments.append(source)

    def _read_word(self, node: Node, builder: _Builder) -> None:
        source = self._source(node)
        if builder.is_finished:
            self._hide("A word after a redirect")
        builder.start = node.start_byte if builder.start < 0 else builder.start
        builder.end = node.end_byte
        if node.type not in _WORDS:
            self._visit_other(node)
        if source in ("=", "{ }"):
            self._reject("A sign alone")
        reasons = len(self._reasons)
        builder.words.append(self._word(node))
        builder.sources.append(source)
        if is_document(source) and any(word.text.rpartition("/")[2] in _SCRIPT_READERS for word in builder.words):
            self._note("A script in several lines")
        is_status = builder.words[0].text == "echo" and _EXIT_STATUS.fullmatch(source) and self._programs
        if is_status and self._reasons[reasons:] == ["A variable"]:
            del self._reasons[reasons:]

    def _word(self, node: Node) -> ShellWord:
        substitutions: list[CharRange] = []
        self._visit_substitutions(node, substitutions)
        source = self._source(node)
        if LITERAL_WORD.fullmatch(source):
            return ShellWord(source)
        parsed = parse_word(self._text, node.start_byte, node.end_byte, substitutions)
        if parsed is None:
            self._reject("A word of another form")
            return UNKNOWN_WORD
        word, expansion = parsed
        reason = find_unknown_part(source, word, expansion)
        if reason is not None:
            self._note(reason)
        return word

    def _visit_substitutions(self, node: Node, substitutions: list[CharRange]) -> None:
        """Visit the substitutions in a word and append their ranges to `substitutions`."""
        if node.type == "arithmetic_expansion":
            self._check_arithmetic(self._source(node))
            substitutions.append((node.start_byte, node.end_byte))
        if node.type not in ("command_substitution", "process_substitution"):
            for child in node.children:
                if child.child_count:
                    self._visit_substitutions(child, substitutions)
            return
        source = self._source(node)
        if (source[0] == "`" and "\\" in source) or source[-1] not in ("`", ")") or _ends_in_group(node):
            self._reject("A nested command of another form")
        substitutions.append((node.start_byte, node.end_byte))
        around = self._has_stdin, self._group_has_stdin, self._nested
        self._has_stdin, self._group_has_stdin, self._nested = False, False, True
        self._is_simple = self._is_simple and node.type == "command_substitution"
        for child in self._children(node):
            if child.type in _REDIRECTS:
                builder = _Builder()
                self._read_redirect(child, builder)
                self._finish(builder)
            else:
                self._visit(child)
        self._has_stdin, self._group_has_stdin, self._nested = around

    # Redirects and here-documents

    def _visit_redirected(self, node: Node) -> None:
        body, redirects, at = node.children[0], node.children[1:], node.start_byte
        program, index, has_stdin = Program((), nested=self._nested), len(self._programs), self._has_stdin
        if body.type in _REDIRECTS:
            redirects = node.children
        else:
            self._has_stdin = has_stdin or any("<" in self._source(redirect) for redirect in redirects)
            self._visit(body)
            self._has_stdin, at, last = has_stdin, body.end_byte, body
            while last.type in ("list", "pipeline"):
                last = last.children[-1]
            if last.type == "command" and len(self._programs) > index:
                program = self._programs.pop()
            else:
                self._note("A redirect of several commands")
            if last is not body and len(redirects) > 1 and redirects[-1].type == "heredoc_redirect":
                self._note("A here-document after another redirect")
        index = len(self._programs)
        builder = _Builder(list(program.words), [program.text] if program.words else [])
        for redirect in redirects:
            gap = self._text[at : redirect.start_byte]
            if gap == " - " and redirect.type == "heredoc_redirect":  # the tree omits a dash before a here-document
                builder.words.append(ShellWord("-"))
                builder.sources.append("-")
            elif not BLANKS.fullmatch(gap):
                self._reject("Text between two words")
            self._read_redirect(redirect, builder)
            at = redirect.end_byte
        program = replace(
            program,
            words=tuple(builder.words),
            text=" ".join(builder.sources),
            redirects=(*program.redirects, *builder.redirects),
            has_stdin=program.has_stdin or builder.has_stdin,
            stdin_text=program.stdin_text if builder.stdin_text is None else builder.stdin_text,
        )
        self._programs.insert(index, program)  # before those that follow the start of a here-document

    def _read_redirect(self, node: Node, builder: _Builder) -> None:
        start = node.start_byte
        if not builder.words:
            self._note("A redirect before a command")
        if builder.words and self._text[start - 1] in "0123456789}":
            self._reject("A stream number that touches a word")
            if builder.words[-1].text.isdigit():
                builder.words.pop()
                builder.sources = " ".join(builder.sources).split(" ")[:-1]
        builder.is_finished = True
        if node.type != "file_redirect":
            self._is_simple = self._is_simple and self._nested
        if node.type == "heredoc_redirect":
            self._read_document(node, builder)
            return
        operator, targets = self._split_redirect(node)
        for word in targets[1:]:  # the tree takes all words after a redirect for targets
            builder.words.append(word)
            builder.sources.append(word.text)
            self._hide("A word after a redirect")
        if node.type == "herestring_redirect":
            self._note("A here-string")
            is_known = bool(targets) and not targets[0].has_expansion
            builder.stdin_text, builder.has_stdin = (targets[0].text if is_known else None), True
            return
        is_stream = operator.endswith("&") and operator != "&"
        if not targets or operator not in _REDIRECT_OPERATORS or (
            is_stream and targets[0].text not in ("0", "1", "2")
        ):  # fmt: skip
            self._reject("A redirect of another form")
        if targets:
            builder.redirects.append(Redirect(operator, targets[0]))
        builder.has_stdin = builder.has_stdin or "<" in operator

    def _split_redirect(self, node: Node) -> tuple[str, list[ShellWord]]:
        """Return the operator of a redirect and the words after it."""
        operator, at = "", node.start_byte
        targets: list[ShellWord] = []
        for child in node.children:
            if not BLANKS.fullmatch(self._text, at, child.start_byte):
                self._reject("Text between two words")
            if child.type in _WORDS:
                targets.append(self._word(child))
            else:
                operator += self._source(child)
            at = child.end_byte
        if operator.endswith("-"):  # it closes a stream and has no target
            targets.insert(0, ShellWord("-"))
        return operator, targets

    def _read_document(self, node: Node, builder: _Builder) -> None:
        """Read a here-document. Its end is located again, because the tree may be wrong."""
        parts = {child.type: child for child in node.children}
        start, end = parts.get("heredoc_start"), parts.get("heredoc_end")
        builder.has_stdin = True
        if start is None or end is None or "<<" not in parts or not _MARK.fullmatch(self._source(start)):
            self._reject("A here-document of another form")
            self._visit_rest(node, builder)
            self._visit_substitutions(parts["heredoc_body"], []) if "heredoc_body" in parts else None
            return
        mark_source, mark_end = self._source(start), start.end_byte
        begin = self._text.find("\n", mark_end) + 1
        mark = mark_source.strip("'\"\\")
        is_literal = mark != mark_source
        closing = re.compile(rf"^{mark}$", re.MULTILINE).search(self._text, begin) if begin else None
        stop = closing.start() if closing else -1
        end_line = self._text.rfind("\n", 0, end.start_byte) + 1
        has_rest = bool(self._text[mark_end : begin - 1].strip(" \t"))
        if self._source(parts["<<"]) != "<<" or "\n" in self._text[parts["<<"].end_byte : start.start_byte]:
            self._reject("A here-document of another form")
        others = parts.keys() - {"<<", "heredoc_start", "heredoc_body", "heredoc_end"}
        if has_rest or others:
            record = self._note if others == {"file_redirect"} else self._hide
            record("Text after the start of a here-document")
            self._visit_rest(node, builder)
        if end_line != stop or begin == 0 or "<<" in self._text[mark_end : begin - 1]:
            self._reject("A here-document of another form")
        body = self._text[begin : max(stop, begin)]
        if not is_literal or mark_source[0] == "\\":
            self._note("A here-document with expansions")
        is_commented = "#" in body or "\\" in body
        if "{" in body and _OPEN_BRACE.search(body if is_commented else STRING.sub("'", self._text)):
            self._note("An open brace")
        has_expansion = not is_literal and ("$" in body or "`" in body)
        builder.stdin_text = None if has_expansion or (not is_literal and "\\" in body) else body
        if has_expansion:
            reject = self._reject if "$((" in body else self._hide
            reject("A here-document with expansions")  # the tree does not have all of them
            self._visit_substitutions(parts["heredoc_body"], []) if "heredoc_body" in parts else None

    def _visit_rest(self, node: Node, builder: _Builder) -> None:
        """Visit the commands and redirects that follow the start of a here-document."""
        for child in node.children:
            if child.type in _REDIRECTS:
                self._read_redirect(child, builder)
            elif child.type in _WORDS:
                self._read_word(child, builder)
            elif child.is_named and not child.type.startswith(("heredoc", "file_descriptor")):
                has_stdin, self._has_stdin = self._has_stdin, True
                self._visit(child)
                self._has_stdin = has_stdin


def _ends_in_group(node: Node) -> bool:
    """Return whether a substitution ends with a subshell or a list of values that touches its last parenthesis."""
    children = node.children
    last: Node | None = children[-2] if len(children) > 2 else None
    while last is not None and last.end_byte == children[-1].start_byte:
        if last.type in ("subshell", "array"):
            return True
        last = last.children[-1] if last.children else None
    return False


BACKGROUND = "A background command"
"""The reason for a command that ends with `&`."""


def _is_blank(text: str, start: int, end: int) -> bool:
    return start == end or text[start:end] == " " or _BREAKS.fullmatch(text, start, end) is not None
