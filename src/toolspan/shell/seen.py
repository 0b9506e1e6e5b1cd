"""Every program that a command line may run.

In: a line for bash. Out: `Seen`: the programs, wherever they stand (substitutions, loops,
functions, here-documents), and what is not understood. Structure is tree-sitter's; but nothing is
believed that cannot be checked here: every word is spelled anew, and between words there may be
blanks only. Plain lines need no tree (`easy.py`). What a program does with its arguments is asked
by `inside.py`. Read `see` first.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from toolspan.shell.easy import easy
from toolspan.shell.line import Word, parse_line
from toolspan.shell.program import UNKNOWN, Draft, Program, Seen
from toolspan.shell.redirect import REDIRECTS, Redirecting
from toolspan.shell.sheet import BLANKS, BREAKS, parser
from toolspan.shell.word import Span

if TYPE_CHECKING:
    from tree_sitter import Node

__all__ = ["LONGEST", "Program", "Seen", "by_tree", "see"]

LONGEST = 10_000
"""Characters; a longer line is not looked at any closer."""
_DEEPEST = 60
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_PLAIN = re.compile(r"[A-Za-z0-9_./:,@%+^-]++")
"""A word that says what is written; most do."""
_SUM = re.compile(r"[\s0-9+\-*/%<>=!&|^~?:(),]*")
"""Arithmetic over numbers alone: a name may hold text that is evaluated, and runs commands."""
_NUMBER = re.compile(r"-?\d+")
_COMPARES = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
_RESERVED = frozenset({
    "!", "[[", "]]", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for",
    "function", "if", "in", "select", "then", "until", "while", "{", "}",
})  # fmt: skip


@lru_cache(maxsize=256)
def see(line: str) -> Seen:
    """What a line would run."""
    if len(line) > LONGEST:
        return Seen(line, (), ("the line is very long",))
    plain = easy(line)
    return by_tree(line) if plain is None else Seen(line, plain)


def by_tree(line: str) -> Seen:
    """The same for any line; of a plain one it says nothing else than `easy.py`."""
    if _CONTROL.search(line):
        return Seen(line, (), ("there are control characters in it",))
    seer = _Seer(line)
    seer.look()
    return Seen(line, tuple(seer.programs), tuple(dict.fromkeys(seer.unclear)))


class _Seer(Redirecting):
    """Walks the tree of a line and notes what it would run."""

    def __init__(self, line: str) -> None:
        super().__init__(line)
        self.programs: list[Program] = []
        self._depth = 0
        self._nested = False

    def look(self) -> None:
        """Look at the whole line."""
        root = parser().parse(self._data).root_node
        if root.has_error:
            self._doubt("it does not parse")
        if not BREAKS.fullmatch(self._text, 0, self._start(root)):
            self._doubt("something stands before it")
        self._sequence(root)
        if not BREAKS.fullmatch(self._text, self._end(root), len(self._text)):
            self._doubt("something stands behind it")

    def _is_statement(self, node: "Node") -> bool:
        return node.type in _STEPS

    def _visit(self, node: "Node") -> None:
        kind = node.type
        step = _STEPS.get(kind)
        if step is None:
            if node.is_named or kind not in _TOKENS:
                self._doubt(f"{kind} is not understood")
                self._sequence(node)
            return
        around = self._around
        if kind not in _OPEN:
            self._around = self._fed
        self._depth += 1
        if self._depth > _DEEPEST:
            self._doubt("it is nested very deeply")
        else:
            step(self, node)
        self._depth -= 1
        self._around = around

    def _sequence(self, node: "Node") -> None:
        """Look at every part; what stands between them must be blank."""
        at = self._start(node)
        for child in node.children:
            if not BREAKS.fullmatch(self._text, at, self._start(child)):
                self._doubt("something stands between two commands")
            self._visit(child)
            at = self._end(child)
        if not BREAKS.fullmatch(self._text, at, self._end(node)):
            self._doubt("something stands behind a command")

    def _list(self, node: "Node") -> None:
        """`a | b && c`: the tree may say that `c` is in the pipe; the shell says that it is not."""
        at = self._start(node)
        for child in node.children:
            if not BREAKS.fullmatch(self._text, at, self._start(child)):
                self._doubt("something stands between two commands")
            if child.type in ("&&", "||"):
                self._fed = self._around
            else:
                self._visit(child)
            at = self._end(child)

    def _group(self, node: "Node") -> None:
        if node.children and node.children[0].type == "((":
            self._calculation(node)
            return
        nested, self._nested = self._nested, True
        self._sequence(node)
        self._nested = nested

    def _pipeline(self, node: "Node") -> None:
        fed = self._fed
        at = self._start(node)
        for child in node.children:
            if not BREAKS.fullmatch(self._text, at, self._start(child)):
                self._doubt("something stands between two commands")
            if child.type in ("|", "|&"):
                self._fed = True
            else:
                self._visit(child)
            at = self._end(child)
        self._fed = fed

    def _comment(self, node: "Node") -> None:
        start = self._start(node)
        if "\n" in self._source(node) or (start and self._text[start - 1] not in " \t\n;&|()"):
            self._doubt("a comment begins inside a word")

    # Commands

    def _command(self, node: "Node") -> None:
        draft = Draft()
        self._collect(node, draft)
        self._note(draft)

    def _collect(self, node: "Node", draft: Draft) -> None:
        """The words, assignments and redirects of a command node."""
        at = self._start(node)
        before: Node | None = None
        for child in node.children:
            start = self._start(child)
            if self._text[at:start] != " ":
                self._gap(before, child, at)
            self._part(child, draft)
            before, at = child, self._end(child)

    def _gap(self, before: "Node | None", child: "Node", at: int) -> None:
        """Look at what stands between two parts of a command, when it is not one blank."""
        start = self._start(child)
        if not BLANKS.fullmatch(self._text, at, start):
            self._doubt("something stands between two words")
        word = before is not None and before.type not in REDIRECTS
        if word and not self._parted(at, start):
            self._apart(child)

    def _parted(self, at: int, start: int) -> bool:
        """Whether a blank stands there; the end of a line that goes on is none."""
        return start > at and (
            self._text[at] in " \t" or self._text[start - 1] in " \t" or " " in self._text[at:start]
        )

    def _apart(self, child: "Node") -> None:
        """Two words that touch are one to the shell; only a redirect's sign parts them."""
        if child.type not in REDIRECTS or self._text[self._start(child)].isdigit():
            self._doubt("two words touch")

    def _part(self, child: "Node", draft: Draft) -> None:
        match child.type:
            case "word":
                self._argument(child, draft)
            case "command_name":
                for part in child.children:
                    self._argument(part, draft)
            case "variable_assignment":
                self._assignment(child, draft)
            case "file_redirect" | "heredoc_redirect" | "herestring_redirect":
                self._redirect(child, draft)
            case "subshell":
                self._doubt("a group stands where a word should")
                self._visit(child)
            case _:
                self._argument(child, draft)

    def _argument(self, node: "Node", draft: Draft) -> None:
        source = self._source(node)
        if _PLAIN.fullmatch(source):
            draft.words.append(Word(source))
            draft.sources.append(source)
        else:
            draft.words.append(self._word(node))
            draft.sources.append(source.replace("\\\n", ""))

    def _note(self, draft: Draft) -> None:
        program = draft.program(fed=self._fed, nested=self._nested)
        if program.words and not program.name:
            self._doubt("a command's name is filled in by the shell")
        if program.name in _RESERVED:
            self._doubt(f"{program.name} stands where a command should")
        self.programs.append(program)

    def _assignment(self, node: "Node", draft: Draft) -> None:
        source = self._source(node)
        found = re.match(r"([A-Za-z_]\w*)\+?=", source, re.ASCII)
        if found is None:
            self._doubt("an element of an array is set")
            self._substitutions(node)
            draft.sets.append("")
            draft.values.append(UNKNOWN)
            return
        draft.sets.append(found[1])
        draft.values.append(self._value(node, self._start(node) + found.end()))

    def _value(self, node: "Node", start: int) -> Word:
        value = node.children[-1]
        if self._start(value) != start or self._end(value) != self._end(node):
            return Word("") if start == self._end(node) else self._odd(node)
        if value.type == "array":
            return self._array(value)
        word = self._word(value)
        return Word(word.text, filled=True, runs=word.runs) if word.text[:1] == "~" else word

    def _odd(self, node: "Node") -> Word:
        self._doubt("a value is not understood")
        self._substitutions(node)
        return UNKNOWN

    def _array(self, node: "Node") -> Word:
        for child in node.children:
            if child.is_named and "=" not in self._source(child):
                self._word(child)
            elif child.is_named:
                self._odd(child)
        return UNKNOWN

    def _bare_assignment(self, node: "Node") -> None:
        draft = Draft()
        for child in node.children if node.type == "variable_assignments" else (node,):
            self._assignment(child, draft)
        self._note(draft)

    def _declaration(self, node: "Node") -> None:
        """`export`, `declare`, `local`, `readonly`, `unset`: what they set counts as set."""
        draft = Draft()
        at = self._start(node)
        for child in node.children:
            if not BLANKS.fullmatch(self._text, at, self._start(child)):
                self._doubt("something stands between two words")
            if child.type == "variable_assignment":
                self._assignment(child, draft)
            elif child.is_named and child.type != "variable_name":
                self._option(child)
            elif child.type == "variable_name":
                draft.sets.append(self._source(child))
            draft.words.append(Word(self._source(child)))
            draft.sources.append(self._source(child))
            at = self._end(child)
        self._note(draft)

    def _option(self, node: "Node") -> None:
        word = self._word(node)
        if word.filled or not re.fullmatch(r"-[aAgprxfFtu]+|[A-Za-z_]\w*", word.text, re.ASCII):
            self._doubt("what is declared is not understood")

    # Substitutions

    def _look_inside(self, node: "Node") -> bool:
        look = _INSIDE.get(node.type)
        if look is not None:
            look(self, node)
        return look is not None

    def _substitution(self, node: "Node") -> None:
        source = self._source(node)
        ends = source[:1] == "`" == source[-1:] or source[-1:] == ")"
        if not ends or (source[0] == "`" and "\\" in source):
            self._doubt("a substitution is not understood")
        fed, nested = self._fed, self._nested
        self._fed, self._nested = False, True
        at = self._start(node)
        for child in node.children:
            if not BREAKS.fullmatch(self._text, at, self._start(child)):
                self._doubt("something stands between two commands")
            if child.type in ("file_redirect", "herestring_redirect", "heredoc_redirect"):
                draft = Draft()
                self._redirect(child, draft)
                self._note(draft)
            else:
                self._visit(child)
            at = self._end(child)
        self._fed, self._nested = fed, nested

    def _calculation(self, node: "Node") -> None:
        source = self._source(node)
        if not _SUM.fullmatch(source.removeprefix("$").replace("[", "(").replace("]", ")")):
            self._doubt("arithmetic is done with names")
        self._substitutions_below(node)

    # Tests, loops, functions

    def _test(self, node: "Node") -> None:
        self._substitutions_below(node)
        source = self._source(node)
        if source.startswith("[["):
            self._double_test(source)
            return
        runs: list[Span] = []
        for child in node.children:
            self._spans(child, runs)
        for start, end in reversed(runs):
            begin = self._start(node)
            source = source[: start - begin] + "x" + source[end - begin :]
        commands = parse_line(source)
        if commands is None or len(commands) != 1 or commands[0].redirects:
            self._doubt("a test is not understood")
            return
        words = commands[0].words
        if any(word.text in ("-v", "-R") or (word.filled and "*" in word.text) for word in words):
            self._doubt("a test is not understood")
        self.programs.append(Program((Word("["), *words[1:]), source, nested=self._nested))

    def _spans(self, node: "Node", runs: list[Span]) -> None:
        if node.type in _INSIDE:
            runs.append((self._start(node), self._end(node)))
            return
        for child in node.children:
            self._spans(child, runs)

    def _double_test(self, source: str) -> None:
        """`[[ ]]` does arithmetic with `-eq` and the like, and looks up names with `-v`."""
        words = source.split()
        for at, word in enumerate(words):
            sides = words[max(at - 1, 0) : at + 2 : 2]
            if word in ("-v", "-R") or (word in _COMPARES and not all(map(_is_number, sides))):
                self._doubt("a test does arithmetic with names")
        if re.search(r"\n|;|`", source):
            self._doubt("a test is not understood")
        self.programs.append(Program((Word("[["),), source, nested=self._nested))

    def _for(self, node: "Node") -> None:
        draft = Draft()
        for child in node.children:
            match child.type:
                case "variable_name":
                    draft.sets.append(self._source(child))
                case "do_group" | "compound_statement":
                    if draft.sets:
                        draft.values.append(_one_of(draft.choices))
                        self._note(draft)
                        draft = Draft()
                    self._group(child)
                case _ if child.is_named:
                    draft.choices.append(self._word(child))
                case "select":
                    self._doubt("select is not understood")
                case _:
                    pass

    def _c_for(self, node: "Node") -> None:
        for child in node.children:
            if child.type in ("do_group", "compound_statement"):
                self._group(child)
            else:
                self._substitutions(child)
        self._doubt("arithmetic is done with names")

    def _case(self, node: "Node") -> None:
        for child in node.children:
            if child.type == "case_item":
                self._case_item(child)
            elif child.is_named:
                self._word(child)

    def _case_item(self, node: "Node") -> None:
        pattern = True
        for child in node.children:
            if child.type == ")":
                pattern = False
            elif pattern and child.is_named:
                self._word(child)
            elif not pattern and child.type not in _ENDS:
                self._visit(child)

    def _function(self, node: "Node") -> None:
        for child in node.children:
            if child.type in ("word", "function", "(", ")"):
                continue
            self._visit(child)


def _is_number(word: str) -> bool:
    return _NUMBER.fullmatch(word) is not None or word in ("$#", "$?", "${#}")


def _one_of(words: list[Word]) -> Word:
    """The value of a loop's variable: one of its words, if they all stay where they are."""
    if len(words) == 1:
        return words[0]
    stays = all(
        not word.filled and word.text[:1] not in ("", "/", "~", "-") and ".." not in word.text
        for word in words
    )
    return words[0] if words and stays else UNKNOWN


_ENDS = frozenset({";;", ";&", ";;&"})
_TOKENS = frozenset({
    ";", "&", "\n", "&&", "||", "|", "|&", "(", ")", "{", "}", "!", "if",
    "then", "else", "elif", "fi", "while", "until", "do", "done", "$(", "<(", ">(", "`",
})  # fmt: skip
_OPEN = frozenset({"command", "list", "negated_command", "pipeline", "redirected_statement"})
"""What is no group: what such a thing reads is what stands around it."""
_Step = Callable[[_Seer, "Node"], None]
_STEPS: Mapping[str, _Step] = {
    "program": _Seer._sequence,
    "list": _Seer._list,
    "command": _Seer._command,
    "pipeline": _Seer._pipeline,
    "redirected_statement": _Seer._redirected,
    "variable_assignment": _Seer._bare_assignment,
    "variable_assignments": _Seer._bare_assignment,
    "declaration_command": _Seer._declaration,
    "unset_command": _Seer._declaration,
    "test_command": _Seer._test,
    "comment": _Seer._comment,
    "subshell": _Seer._group,
    "compound_statement": _Seer._group,
    "do_group": _Seer._group,
    "if_statement": _Seer._group,
    "elif_clause": _Seer._group,
    "else_clause": _Seer._group,
    "while_statement": _Seer._group,
    "negated_command": _Seer._sequence,
    "for_statement": _Seer._for,
    "c_style_for_statement": _Seer._c_for,
    "case_statement": _Seer._case,
    "function_definition": _Seer._function,
}
_INSIDE: Mapping[str, _Step] = {
    "command_substitution": _Seer._substitution,
    "process_substitution": _Seer._substitution,
    "arithmetic_expansion": _Seer._calculation,
}
