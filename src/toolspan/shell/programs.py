"""Find the programs that a command line would run, using its tree-sitter tree.

Permission decisions depend on this parser alone. It never guesses: any unsupported syntax is
reported as an uncertainty, and callers must then assume that the line may run anything. Start at
`find_programs`; `simple_command.py` reads single commands, and `wrappers.py` adds the programs that these run in turn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec.structs import replace

from toolspan.shell import syntax
from toolspan.shell.program import (
    LinePrograms,
    Program,
    ProgramBuilder,
    find_document_program,
    find_plain_programs,
    without_documents,
)
from toolspan.shell.simple_command import CommandReader
from toolspan.shell.words import CharRange, ShellWord, split_words

if TYPE_CHECKING:
    from tree_sitter import Node

BACKGROUND = "A background command"
"""The entry in `LinePrograms.unclear` for a command that ends with `&`."""
MAX_LINE_LENGTH = 10_000
"""The length in UTF-16 code units, as the client counts, above which a line is not parsed."""


@lru_cache(maxsize=256)
def find_programs(line: str) -> LinePrograms:
    """Return the programs that a line would run, and the reasons why it may run others."""
    if len(line) > MAX_LINE_LENGTH or (
        len(line) > MAX_LINE_LENGTH // 2 and len(line.encode("utf-16-le", "surrogatepass")) > 2 * MAX_LINE_LENGTH
    ):
        return LinePrograms(line, (), ("the line is very long",))
    plain_programs = find_plain_programs(line)
    if plain_programs is not None:
        reasons = tuple(syntax.find_unclear_breaks(without_documents(line))) if "#" in line else ()
        reasons += syntax.find_unclear_text(line)
        if "<<" in line and "{" in line and syntax.has_brace_before_quote(line):
            reasons += ("A brace before a quote",)
        return LinePrograms(line, tuple(plain_programs), unclear=reasons)
    if not syntax.NO_CONTROL_CHARACTERS.fullmatch(line):
        return LinePrograms(line, (), ("there are control characters in it",))
    unclear = list(syntax.find_unclear_text(line))
    if "\\\n" in line:
        # The parser does not expect the end of the line after a backslash.
        if "|" not in line and syntax.CONTINUED_END.search(line) and line.strip() != "\\":
            return replace(find_programs(line.rstrip()[:-1]), text=line)
        if len(syntax.PLAIN_BREAK.findall(line)) < line.count("\\\n"):
            unclear.append("A blank after a backslash")
    if not line.isascii() and not syntax.NO_OTHER_BLANKS.fullmatch(line):
        unclear.append("A blank of another kind")
    if "{" in line and syntax.has_brace_before_quote(line):
        unclear.append("A brace before a quote")
    document = find_document_program(line) if "<<" in line else None
    if document is not None:
        return LinePrograms(line, (document,), has_compounds=True, unclear=tuple(dict.fromkeys(unclear)))
    return find_programs_in_tree(line, unclear)


def find_programs_in_tree(line: str, unclear: Sequence[str] = ()) -> LinePrograms:
    """Return the programs that a line would run, according to its tree."""
    finder = _ProgramFinder(line)
    try:
        finder.visit_line()
    except RecursionError:  # an expression with hundreds of operators
        finder.uncertainties.append("the line is nested too deeply")
    reasons = [tuple(dict.fromkeys(found)) for found in (finder.uncertainties, [*finder.unclear, *unclear])]
    return LinePrograms(line, tuple(finder.programs), reasons[0], finder.has_compounds, reasons[1])


def find_simple_commands(line: str) -> list[Program]:
    """Return the commands in a line that consists of simple commands and operators; empty for any other line.

    Programs in command substitutions are omitted; the words that contain them have `has_substitution` set.
    """
    parsed = find_programs(line)
    if parsed.uncertainties or parsed.has_compounds:
        return []
    return [program for program in parsed.programs if not program.nested]


class _ProgramFinder(CommandReader):
    """A walker that collects the programs in a tree."""

    def visit_line(self) -> None:
        root = self._root
        if root.has_error:
            self.uncertainties.append("the line cannot be parsed")
        if not self._is_blank(0, self._start(root)):
            self.uncertainties.append("unexpected text precedes the first command")
        self._visit_sequence(root)
        if not self._is_blank(self._end(root), len(self._text)):
            self.uncertainties.append("unexpected text follows the last command")

    # Statements

    def is_statement(self, kind: str) -> bool:
        return kind in _VISITORS

    def visit_statement(self, node: Node) -> None:
        kind = node.type
        visitor = _VISITORS.get(kind)
        if visitor is None:
            if kind == "&":
                self.unclear.append(BACKGROUND)
            if kind in syntax.OPERATORS and not self._nested and self.programs:
                self.programs[-1] = replace(self.programs[-1], ended_by=kind)
            elif node.is_named or kind not in syntax.IGNORED_TOKENS:
                self.uncertainties.append(f"{kind} is not understood")
                self._visit_sequence(node)
            return
        if kind not in syntax.SIMPLE_NODES and not self._nested:
            self.has_compounds = True
        if kind in syntax.UNCLEAR_NODES:
            self.unclear.append(syntax.UNCLEAR_NODES[kind])
        around = self._group_has_stdin
        if kind not in syntax.UNGROUPED_NODES:
            self._group_has_stdin = self._has_stdin
        self._depth += 1
        if self._depth > syntax.MAX_DEPTH:
            self.uncertainties.append("the line is nested too deeply")
        else:
            visitor(self, node)
        self._depth -= 1
        self._group_has_stdin = around

    def _visit_sequence(self, node: Node) -> None:
        at, before = self._start(node), ""
        for child in node.children:
            self._check_between_commands(at, child)
            if before in syntax.RESERVED_WORDS:
                gap = self._text[at : self._start(child)]
                if before == "!" and "\n" in gap:
                    self.unclear.append("A line break after a negation")
                if at == self._start(child) and self._text[at : at + 1] not in (";", "\n"):
                    self.uncertainties.append("there is no blank after a keyword")
            self.visit_statement(child)
            at, before = self._end(child), child.type
        if not self._is_blank(at, self._end(node)):
            self.uncertainties.append("unexpected text follows a command")

    def _visit_list(self, node: Node) -> None:
        # The tree of `a | b && c` may have `c` inside the pipeline; for the shell it is outside.
        at = self._start(node)
        for child in node.children:
            self._check_between_commands(at, child)
            if child.type in ("&&", "||"):
                self._has_stdin = self._group_has_stdin
            self.visit_statement(child)
            at = self._end(child)

    def _visit_pipeline(self, node: Node) -> None:
        if self._nested:
            self.unclear.append("A pipeline inside another command")
        has_stdin = self._has_stdin
        at = self._start(node)
        for child in node.children:
            self._check_between_commands(at, child)
            if child.type in ("|", "|&"):
                self._has_stdin = True
            self.visit_statement(child)
            at = self._end(child)
        self._has_stdin = has_stdin

    def _visit_group(self, node: Node) -> None:
        nested, self._nested = self._nested, True
        is_arithmetic = bool(node.children) and node.children[0].type == "(("
        (self._visit_arithmetic if is_arithmetic else self._visit_sequence)(node)
        self._nested = nested

    def _visit_comment(self, node: Node) -> None:
        start = self._start(node)
        if syntax.REDIRECT_AT_END.search(self._text, self._text.rfind("\n", 0, start) + 1, start):
            self.unclear.append("A comment after a redirect")
        source = self._source_text(node)
        if source.endswith("\\"):
            self.unclear.append("A blank after a backslash")
        if "{" in source and ("'" in source or '"' in source):
            self.unclear.append("A brace before a quote")
        if not syntax.COMMAND_END.search(self._text, 0, start):
            self.unclear.append("A comment after an operator")
        if "\n" in source or (start and self._text[start - 1] not in " \t\n;&|()"):
            self.uncertainties.append("a comment begins inside a word")

    # Tests, loops, functions

    def _visit_test(self, node: Node) -> None:
        substitutions: list[CharRange] = []
        self._visit_child_substitutions(node, substitutions)
        source = self._source_text(node)
        if "$" in source or "`" in source or "\n" in source:
            self.unclear.append(syntax.UNCLEAR_EXPANSIONS.get(syntax.first_expansion(node) or "", "A variable"))
        if source.startswith("[["):
            self._visit_double_test(source)
            return
        if not syntax.PLAIN_BRACKETS.fullmatch(source):
            self.unclear.append("A test")
        for start, end in reversed(substitutions):
            begin = self._start(node)
            source = source[: start - begin] + "x" + source[end - begin :]
        words = None if syntax.UNUSUAL_EXPANSION.search(source) else split_words(source)
        words = words if words and (words[0].text, words[-1].text) == ("[", "]") else []
        if not words or any(word.text in ("-v", "-R") or (word.has_expansion and "*" in word.text) for word in words):
            self.uncertainties.append("a test is not understood")
        if words:
            self.programs.append(Program((ShellWord("["), *words[1:]), source, nested=self._nested))

    def _visit_double_test(self, source: str) -> None:
        if syntax.has_arithmetic(source.split()):
            self.uncertainties.append("an arithmetic test contains names")
        if re.search(r"\n|;|`", source):
            self.uncertainties.append("a test is not understood")
        words = split_words(syntax.TEST_OPERATOR.sub(r" '\g<0>' ", source)) or []
        if not words or not syntax.PLAIN_TEST.fullmatch(source):
            self.unclear.append("A test")
        self.programs.append(Program((ShellWord("[["), *words[1:]), source, nested=self._nested))

    def _visit_for(self, node: Node) -> None:
        builder = ProgramBuilder()
        for child in node.children:
            match child.type:
                case "variable_name":
                    builder.variables.append(self._source_text(child))
                case "do_group" | "compound_statement":
                    if builder.variables:
                        builder.values.append(syntax.loop_value(builder.loop_values))
                        self._finish_command(builder)
                        builder = ProgramBuilder()
                    self._visit_group(child)
                case _ if child.is_named:
                    builder.loop_values.append(self._parse_word(child))
                case "select":
                    self.uncertainties.append("select is not understood")
                case _:
                    pass

    def _visit_c_for(self, node: Node) -> None:
        for child in node.children:
            is_body = child.type in ("do_group", "compound_statement")
            (self._visit_group if is_body else self._visit_substitutions)(child)
        self.uncertainties.append("an arithmetic expression contains names")

    def _visit_case(self, node: Node) -> None:
        for child in node.children:
            if child.type == "case_item":
                self._visit_case_item(child)
            elif child.is_named:
                self._parse_word(child)

    def _visit_case_item(self, node: Node) -> None:
        in_pattern = True
        for child in node.children:
            if child.type == ")":
                in_pattern = False
            elif in_pattern and child.is_named:
                self._parse_word(child)
            elif not in_pattern and child.type not in syntax.CASE_ENDS:
                self.visit_statement(child)

    def _visit_function(self, node: Node) -> None:
        for child in node.children:
            if child.type not in ("word", "function", "(", ")"):
                self.visit_statement(child)


_Visitor = Callable[[_ProgramFinder, "Node"], None]
_VISITORS: Mapping[str, _Visitor] = {
    "program": _ProgramFinder._visit_sequence,
    "list": _ProgramFinder._visit_list,
    "command": _ProgramFinder._visit_command,
    "pipeline": _ProgramFinder._visit_pipeline,
    "redirected_statement": _ProgramFinder._visit_redirected,
    "variable_assignment": _ProgramFinder._visit_assignment,
    "variable_assignments": _ProgramFinder._visit_assignment,
    "declaration_command": _ProgramFinder._visit_declaration,
    "unset_command": _ProgramFinder._visit_declaration,
    "test_command": _ProgramFinder._visit_test,
    "comment": _ProgramFinder._visit_comment,
    "subshell": _ProgramFinder._visit_group,
    "compound_statement": _ProgramFinder._visit_group,
    "do_group": _ProgramFinder._visit_group,
    "if_statement": _ProgramFinder._visit_group,
    "elif_clause": _ProgramFinder._visit_group,
    "else_clause": _ProgramFinder._visit_group,
    "while_statement": _ProgramFinder._visit_group,
    "negated_command": _ProgramFinder._visit_sequence,
    "for_statement": _ProgramFinder._visit_for,
    "c_style_for_statement": _ProgramFinder._visit_c_for,
    "case_statement": _ProgramFinder._visit_case,
    "function_definition": _ProgramFinder._visit_function,
}
