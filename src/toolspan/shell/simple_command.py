"""Read the simple commands of a line from its tree: words, assignments, redirects and substitutions.

`programs.py` visits the statements that contain them.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from toolspan.shell import syntax
from toolspan.shell.program import DOCUMENT_READERS, Program, ProgramBuilder, program_basename
from toolspan.shell.words import CharRange, LineTree, Redirect, ShellWord, parse_document_body, parse_word

if TYPE_CHECKING:
    from tree_sitter import Node


class CommandReader(ABC):
    """A reader of simple commands in a tree.

    The tree is not trusted: the text between any two nodes must be blank, and the extent of here-
    documents is computed again.
    """

    def __init__(self, line: str) -> None:
        tree = LineTree(line)
        self._text, self._root, self._start, self._end = line, tree.root, tree.start, tree.end
        self.programs: list[Program] = []
        self.uncertainties: list[str] = []
        self.unclear: list[str] = []
        self.has_compounds = False
        self._depth = 0
        self._nested = False
        self._has_stdin = False
        """True if the next command reads from something other than the terminal."""
        self._group_has_stdin = False
        """The same for the innermost group, from whose input a command after `&&` or `||` reads."""

    @abstractmethod
    def visit_statement(self, node: Node) -> None:
        """Collect the programs in a statement."""

    @abstractmethod
    def is_statement(self, kind: str) -> bool:
        """Return whether nodes of a type are statements."""

    def _is_blank(self, start: int, end: int) -> bool:
        text = self._text
        return start == end or text[start:end] == " " or syntax.BREAKS.fullmatch(text, start, end) is not None

    def _source_text(self, node: Node) -> str:
        return self._text[self._start(node) : self._end(node)]

    def _check_between_commands(self, at: int, child: Node) -> None:
        if not self._is_blank(at, self._start(child)):
            self.uncertainties.append("there is unexpected text between two commands")

    # Simple commands

    def _visit_command(self, node: Node) -> None:
        builder = ProgramBuilder()
        self._collect_command(node, builder)
        self._finish_command(builder)

    def _finish_command(self, builder: ProgramBuilder) -> None:
        program = builder.build(has_stdin=self._has_stdin, nested=self._nested)
        name = program.name
        if not program.words and program.stdin_text is not None:
            self.unclear.append("A here-string")
        if program.words and not name:
            self.uncertainties.append("a command's name is filled in by the shell")
        if name in syntax.RESERVED_WORDS:
            self.uncertainties.append(f"the keyword {name} is used as a command")
        if syntax.RESERVED_START.match(program.text):
            self.unclear.append("A keyword before a quote")
        self.programs.append(program)

    def _collect_command(self, node: Node, builder: ProgramBuilder) -> None:
        text, sources = self._text, builder.sources
        at = self._start(node)
        before: Node | None = None
        spelling: list[str] = []
        inputs: list[str] = []  # here-strings after the name, which are part of the text if words follow
        for child in node.children:
            start, end = self._start(child), self._end(child)
            gap = text[at:start]
            if gap != " " and (gap or before is not None):
                self._check_gap(before, child, at)
                builder.has_break = builder.has_break or "\\\n" in gap
            count = len(sources)
            if syntax.PLAIN_WORD.fullmatch(text, start, end):
                source = text[start:end]
                builder.words.append(ShellWord(source))
                sources.append(source)
            else:
                self._add_part(child, builder)
            if len(sources) > count:
                if inputs and sources[0] == "jq" and sources[count][:1] == "-":
                    self.unclear.append("A here-string")  # for the client, `jq` has no options after it
                spelling += (gap.replace("\\\n", "") if count else "", *inputs, " ".join(sources[count:]))
                sources[count:count] = inputs
                inputs = []
            elif child.type == "herestring_redirect" and sources:
                if gap:
                    inputs.append(text[start:end])
                else:  # for the client, it belongs to the word before it
                    sources[-1] += text[start:end]
                    spelling.append(text[start:end])
            before, at = child, end
        written = "".join(spelling)
        builder.spelling = "" if written == " ".join(sources) else written

    def _check_gap(self, before: Node | None, child: Node, at: int) -> None:
        """Check the text between two parts of a command, unless it is a single space.

        The shell treats two words without a blank between them as one word; only a redirect
        operator separates them. An escaped line break is not a blank.
        """
        start = self._start(child)
        self._check_blanks(at, child)
        has_blank = start > at and (
            self._text[at] in " \t" or self._text[start - 1] in " \t" or " " in self._text[at:start]
        )
        if before is None or before.type in syntax.REDIRECT_NODES or has_blank:
            return
        if child.type not in syntax.REDIRECT_NODES or self._text[start].isdigit() or self._text[start - 1] == "}":
            self.uncertainties.append("there is no blank between two words")

    def _check_blanks(self, at: int, child: Node) -> None:
        start = self._start(child)
        if at != start and not syntax.BLANKS.fullmatch(self._text, at, start):
            self.uncertainties.append("there is unexpected text between two words")

    def _add_part(self, child: Node, builder: ProgramBuilder) -> None:
        match child.type:
            case "word":
                self._add_argument(child, builder)
            case "command_name":
                for part in child.children:
                    self._add_argument(part, builder)
            case "variable_assignment":
                self._add_assignment(child, builder)
                builder.assignments.append(self._source_text(child))
            case "file_redirect" | "heredoc_redirect" | "herestring_redirect":
                self._add_redirect(child, builder)
            case "subshell":
                self.uncertainties.append("a group is used as a word")
                self.visit_statement(child)
            case _:
                self._add_argument(child, builder)

    def _add_argument(self, node: Node, builder: ProgramBuilder) -> None:
        source = self._source_text(node)
        if syntax.PLAIN_WORD.fullmatch(source):
            builder.words.append(ShellWord(source))
            builder.sources.append(source)
        else:
            if source == "{ }":  # the parser treats these two words as one
                builder.words += (ShellWord("{"), ShellWord("}"))
                builder.sources += ("{", "}")
                return
            if source == "=":
                self.unclear.append("A word that begins with an equals sign")
            unclear_count, program_count = len(self.unclear), len(self.programs)
            if syntax.QUOTED_DOCUMENT.fullmatch(source):
                names = {program_basename(word.text) for word in builder.words}
                if not DOCUMENT_READERS.isdisjoint(names):
                    self.unclear.append("A nested command")
            builder.words.append(self._parse_word(node))
            builder.sources.append(source.replace("\\\n", ""))
            if builder.words[0].text == "echo" and _is_clear_text(source, self.programs[program_count:]):
                del self.unclear[unclear_count:]

    def _parse_word(self, node: Node) -> ShellWord:
        substitutions: list[CharRange] = []
        if node.child_count:
            self._visit_substitutions(node, substitutions)
        start, end = self._start(node), self._end(node)
        source = self._text[start:end]
        word = parse_word(self._text, start, end, substitutions)
        if word is None:
            evaluates = syntax.EVALUATING_EXPANSION.search(source)
            self.uncertainties.append(f"{'an expansion' if evaluates else 'a word'} is not understood")
            return syntax.UNKNOWN_WORD
        if "\n" in source and not syntax.QUOTED_DOCUMENT.fullmatch(source):
            self.unclear += syntax.find_unclear_breaks(source)
        if word.has_expansion or not syntax.LITERAL_STRING.fullmatch(source):
            self.unclear += syntax.find_unclear_parts(source, word, node)
        return word

    # Assignments and declarations

    def _visit_assignment(self, node: Node) -> None:
        builder = ProgramBuilder()
        for child in node.children if node.type == "variable_assignments" else (node,):
            self._add_assignment(child, builder)
        self._finish_command(builder)

    def _add_assignment(self, node: Node, builder: ProgramBuilder) -> None:
        source = self._source_text(node)
        matched = re.match(r"([A-Za-z_]\w*)\+?=", source, re.ASCII)
        if matched is None:
            self.uncertainties.append("an element of an array is set")
            self._visit_substitutions(node)
            builder.variables.append("")
            builder.values.append(syntax.UNKNOWN_WORD)
            return
        if matched[0][-2] == "+":
            self.unclear.append("An assignment with +=")
        builder.variables.append(matched[1])
        builder.values.append(self._parse_value(node, self._start(node) + matched.end()))

    def _parse_value(self, node: Node, start: int) -> ShellWord:
        value = node.children[-1]
        if self._start(value) != start or self._end(value) != self._end(node):
            return ShellWord("") if start == self._end(node) else self._reject_value(node)
        if value.type == "array":
            self.unclear.append("A list of values")
            for child in value.children:
                if child.is_named and "=" not in self._source_text(child):
                    self._parse_word(child)
                elif child.is_named:
                    self._reject_value(child)
            return syntax.UNKNOWN_WORD
        word = self._parse_word(value)
        if word.text[:1] == "~":
            return ShellWord(word.text, has_expansion=True, has_substitution=word.has_substitution)
        return word

    def _reject_value(self, node: Node) -> ShellWord:
        self.uncertainties.append("a value is not understood")
        self._visit_substitutions(node)
        return syntax.UNKNOWN_WORD

    def _visit_declaration(self, node: Node) -> None:
        """Visit `export`, `declare`, `local`, `readonly` or `unset`, and record its variables as set."""
        builder = ProgramBuilder()
        at = self._start(node)
        for child in node.children:
            self._check_blanks(at, child)
            if child.type == "variable_assignment":
                self._add_assignment(child, builder)
            elif child.type == "variable_name":
                builder.variables.append(self._source_text(child))
            elif child.is_named:
                word = self._parse_word(child)
                if word.has_expansion or not re.fullmatch(r"-[aAgprxfFtu]+|[A-Za-z_]\w*", word.text, re.ASCII):
                    is_name = not word.has_expansion and re.fullmatch(r"[^-\[=][^\[=]*", word.text)
                    self.uncertainties.append(f"a declar{'ed name' if is_name else 'ation'} is not understood")
            builder.words.append(ShellWord(self._source_text(child)))
            builder.sources.append(self._source_text(child))
            at = self._end(child)
        self._finish_command(builder)

    # Redirects and here-documents

    def _visit_redirected(self, node: Node) -> None:
        builder = ProgramBuilder()
        body, *redirects = node.children
        has_stdin = self._has_stdin
        if body.type in syntax.REDIRECT_NODES:
            redirects = node.children
        elif body.type == "command":
            self._collect_command(body, builder)
        elif syntax.ends_in_command(body):
            if len(redirects) > 1 and redirects[-1].type == "heredoc_redirect":
                self.unclear.append("A here-document after another redirect")
            program_count = len(self.programs)
            self.visit_statement(body)
            if len(self.programs) > program_count:
                builder = ProgramBuilder.from_program(self.programs.pop())
        else:
            around = self._group_has_stdin
            self.unclear.append("A redirect of several commands")
            reads_file = any("<" in self._source_text(redirect) for redirect in redirects)
            self._has_stdin = self._group_has_stdin = has_stdin or reads_file
            self.visit_statement(body)
            self._has_stdin, self._group_has_stdin = has_stdin, around
        at = self._end(body) if body.type not in syntax.REDIRECT_NODES else self._start(node)
        for redirect in redirects:
            if redirect.type == "heredoc_redirect" and self._text[at : self._start(redirect)] == " - ":
                self._add_lost_word("-", builder)
            else:
                self._check_blanks(at, redirect)
            self._add_part(redirect, builder)
            at = self._end(redirect)
        self._finish_command(builder)

    def _add_redirect(self, node: Node, builder: ProgramBuilder) -> None:
        self._take_stream(self._start(node), builder)
        builder.redirected_first = builder.redirected_first or not builder.words
        if node.type != "file_redirect" and not self._nested:
            self.has_compounds = True
        if node.type == "heredoc_redirect":
            self._add_here_document(node, builder)
            return
        operator, targets = self._split_redirect(node, builder)
        kind = operator.lstrip("0123456789")
        digit_count = len(operator) - len(kind)
        if digit_count > 1:
            self.unclear.append("Digits before a redirect")
        if digit_count > syntax.MAX_STREAM_DIGITS:
            self.uncertainties.append("a redirect is not understood")  # the shell treats the digits as a word
        if not targets or not syntax.REDIRECT_OPERATOR.fullmatch(operator):
            self.unclear.append("A redirect that closes a stream")
            if not operator.endswith("-"):  # such as 2>&-
                self.uncertainties.append("a redirect is not understood")
        elif kind == "<<<":
            is_pattern = targets[0].has_expansion and not targets[0].has_substitution
            is_first = not builder.words and not syntax.PLAIN_WORD.fullmatch(targets[0].text)
            if is_pattern or is_first or "`" in targets[0].text:
                self.unclear.append("A here-string")
            builder.stdin_text, builder.has_stdin = (None if targets[0].has_expansion else targets[0].text, True)
        else:
            if kind in (">&", "<&"):
                self._check_stream(targets[0], self._end(node))
            if not builder.words and ">" in kind and targets[0].text not in ("1", "2", "/dev/null"):
                self.unclear.append("A redirect before a command")
            builder.redirects.append(Redirect(operator, targets[0]))
            builder.has_stdin = builder.has_stdin or kind in ("<", "<>")

    def _take_stream(self, start: int, builder: ProgramBuilder) -> None:
        """Remove the last word if it is the number or the name of the stream that a redirect is for."""
        before = self._text[:start]
        if before[-1:].isdigit() and syntax.DIGITS_AT_END.search(before):
            self.unclear.append("Digits before a redirect")
        if "}" in before and not self._text[start].isdigit() and syntax.NAMED_STREAM.search(before):
            self.unclear.append("A redirect of a named stream")
        if before[-1:] != "}" and not before[-1:].isdigit():
            return
        stream = syntax.STREAM_AT_END.search(before)
        if stream is not None and not syntax.OPERATOR_AT_END.search(before, 0, stream.start()):
            builder.remove_last_word(stream[0])

    def _check_stream(self, target: ShellWord, end: int) -> None:
        """Check a redirect to another stream, which may be the name of a file that the shell expands again."""
        if target.text[:1] == "-":
            self.unclear.append("A redirect that closes a stream")
        elif not syntax.PLAIN_STREAM.fullmatch(target.text) or self._text[end : end + 1] in ("<", ">"):
            self.unclear.append("A redirect that touches another word")

    def _split_redirect(self, node: Node, builder: ProgramBuilder) -> tuple[str, list[ShellWord]]:
        """Return the operator and the target of a redirect. Any other words in its node are added to the command."""
        operator = ""
        targets: list[ShellWord] = []
        at = self._start(node)
        for child in node.children:
            self._check_blanks(at, child)
            if child.is_named and child.type != "file_descriptor":
                if targets and at == self._start(child):
                    self.uncertainties.append("there is no blank between two words")
                targets.append(self._parse_word(child))
                if len(targets) > 1 or operator[-1:] == "-":  # such as 2>&-, which has no target
                    self.unclear.append("A redirect before other words")
                    builder.words.append(targets[-1])
                    builder.sources.append(self._source_text(child))
            else:
                operator += self._source_text(child)
            at = self._end(child)
        return operator, targets

    def _add_here_document(self, node: Node, builder: ProgramBuilder) -> None:
        """Add a here-document. Its first and last lines are located again, because the tree may be wrong."""
        children = node.children
        parts: dict[str, Node] = {}
        last = 0
        for child in children:
            parts[child.type] = child
            if child.type not in ("heredoc_body", "heredoc_end"):
                last = max(last, self._end(child))
        start, end = parts.get("heredoc_start"), parts.get("heredoc_end")
        if start is None or end is None or not ("<<" in parts or "<<-" in parts):
            self.uncertainties.append("a here-document is not understood")
            self._visit_child_substitutions(node)
            return
        operator = parts["<<"] if "<<" in parts else parts["<<-"]
        lost_word = self._source_text(operator).removesuffix(operator.type)
        if lost_word:
            at = self._start(node)
            has_one_blank = self._text[at - 1] == " " and self._text[at - 2] not in " \t"
            self._add_lost_word(lost_word if has_one_blank else "", builder)
        mark_source, mark_end = self._source_text(start), self._end(start)
        begin = self._text.find("\n", mark_end) + 1
        mark = self._parse_word(start) if start.child_count else self._parse_mark(start)
        stop = syntax.find_closing_line(self._text, begin, mark.text, tabs="<<-" in parts)
        rest = self._text[mark_end : max(begin - 1, 0)]
        on_line = last < begin and rest[:1] in syntax.MARK_TERMINATORS
        on_line = on_line and "\n" not in self._text[self._end(operator) : self._start(start)]
        end_line = self._text.rfind("\n", 0, self._start(end)) + 1
        if not on_line or "<<" in rest or end_line != stop or rest.endswith("\\"):
            self.uncertainties.append("a here-document is not understood")
        if builder.redirected_first and builder.stdin_text is not None:
            self.unclear.append("A here-string")
        builder.has_stdin = True
        literal = syntax.QUOTE_OR_ESCAPE.search(mark_source) is not None
        is_sed = bool(builder.words) and builder.words[0].text == "sed"  # the client searches its line for a backslash
        is_plain_mark = syntax.PLAIN_MARK.fullmatch(mark_source) is not None
        if not literal or not is_plain_mark or (is_sed and mark_source[0] == "\\"):
            self.unclear.append("A here-document with expansions")
        if not parts.keys() <= syntax.HEREDOC_NODES:
            self._visit_after_mark(children, builder)
        builder.stdin_text = self._parse_body(parts.get("heredoc_body"), begin, stop, literal=literal)

    def _add_lost_word(self, source: str, builder: ProgramBuilder) -> None:
        """Add a word before a here-document that the tree omits or joins to the operator."""
        if builder.words and syntax.SHORT_OPTION.fullmatch(source):
            builder.words.append(ShellWord(source))
            builder.sources.append(source)
            builder.spelling += f" {source}" if builder.spelling else ""
        else:
            self.uncertainties.append("there is unexpected text between two words")

    def _parse_mark(self, node: Node) -> ShellWord:
        word = parse_word(self._text, self._start(node), self._end(node))
        if word is None or word.has_expansion:
            self.uncertainties.append("a here-document is not understood")
        return word or syntax.UNKNOWN_WORD

    def _visit_after_mark(self, children: Sequence[Node], builder: ProgramBuilder) -> None:
        """Visit the rest of the line after a here-document delimiter: words, redirects and further commands."""
        for child in children:
            kind = child.type
            if kind not in syntax.HEREDOC_NODES:
                self.unclear.append("Text after the start of a here-document")
            if kind in syntax.HEREDOC_NODES or kind in syntax.COMMAND_SEPARATORS:
                continue
            if kind == "file_descriptor":
                self.uncertainties.append("a here-document is not on standard input")
            elif kind == "pipeline":
                has_stdin, self._has_stdin = self._has_stdin, True
                self.visit_statement(child)
                self._has_stdin = has_stdin
            elif kind in syntax.REDIRECT_NODES or not self.is_statement(kind):
                self._add_part(child, builder)
            else:
                self.visit_statement(child)

    def _parse_body(self, body: Node | None, begin: int, stop: int, *, literal: bool) -> str | None:
        if literal:
            return self._text[begin : max(stop, begin)]
        substitutions: list[CharRange] = []
        if body is not None:
            self._visit_child_substitutions(body, substitutions)
        word = parse_document_body(self._text, begin, max(stop, begin), substitutions)
        if word is None:
            self.uncertainties.append("a here-document is not understood")
        return word.text if word is not None and not word.has_expansion else None

    # Substitutions

    def _visit_substitutions(self, node: Node, substitutions: list[CharRange] | None = None) -> None:
        """Visit the substitutions in a word and append their ranges to `substitutions`."""
        visitor = _SUBSTITUTION_VISITORS.get(node.type)
        if visitor is not None:
            visitor(self, node)
            if substitutions is not None:
                substitutions.append((self._start(node), self._end(node)))
            return
        for child in node.children:
            if child.child_count:
                self._visit_substitutions(child, substitutions)

    def _visit_child_substitutions(self, node: Node, substitutions: list[CharRange] | None = None) -> None:
        for child in node.children:
            self._visit_substitutions(child, substitutions)

    def _visit_command_substitution(self, node: Node) -> None:
        source = self._source_text(node)
        ends = source[:1] == "`" == source[-1:] or source[-1:] == ")"
        if not ends or (source[0] == "`" and "\\" in source):
            self.uncertainties.append("a substitution is not understood")
        if node.type == "process_substitution" and not self._nested:
            self.has_compounds = True
        has_stdin, nested = self._has_stdin, self._nested
        self._has_stdin, self._nested = False, True
        at = self._start(node)
        for child in node.children:
            self._check_between_commands(at, child)
            if child.type in syntax.REDIRECT_NODES:
                builder = ProgramBuilder()
                self._add_redirect(child, builder)
                self._finish_command(builder)
            else:
                self.visit_statement(child)
            at = self._end(child)
        self._has_stdin, self._nested = has_stdin, nested

    def _visit_arithmetic(self, node: Node) -> None:
        source = self._source_text(node)
        if not syntax.ARITHMETIC.fullmatch(source.removeprefix("$").replace("[", "(").replace("]", ")")):
            self.uncertainties.append("an arithmetic expression contains names")
        self._visit_child_substitutions(node)


def _is_clear_text(source: str, programs: Sequence[Program]) -> bool:
    """Return whether `echo` may print a word that contains arithmetic or the output of programs."""
    if syntax.ARITHMETIC_WORD.fullmatch(source):
        return True
    return syntax.TEXT_WITH_COMMANDS.fullmatch(source) is not None and all(map(_only_reads, programs))


def _only_reads(program: Program) -> bool:
    """Return whether a program only reads, in any repository and spelling. Its files are checked elsewhere."""
    arguments = program.arguments
    if arguments.unknown is not None or arguments.spec is None or arguments.changed:
        return False
    return program.name != "git" and not arguments.spec.bare


_SUBSTITUTION_VISITORS: Mapping[str, Callable[[CommandReader, Node], None]] = {
    "command_substitution": CommandReader._visit_command_substitution,
    "process_substitution": CommandReader._visit_command_substitution,
    "arithmetic_expansion": CommandReader._visit_arithmetic,
}
