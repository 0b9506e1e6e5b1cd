"""Redirects and here-documents of a command.

In: their nodes in the tree of a line. Out: where streams go, and what a program is fed. Where a
here-document ends is found anew in the text: readers of shell code disagree about nothing more.
"""

import re
from typing import TYPE_CHECKING

from toolspan.shell.line import Redirect, Word
from toolspan.shell.program import UNKNOWN, Draft, Program
from toolspan.shell.sheet import BLANKS, Sheet
from toolspan.shell.word import Span, spell, spell_body

if TYPE_CHECKING:
    from tree_sitter import Node

REDIRECTS = frozenset({"file_redirect", "heredoc_redirect", "herestring_redirect"})
_OPERATOR = re.compile(r"\d*(?:>>|>\||>&|<&|<>|<<<|<|>)|&>>|&>")
_DOCUMENT = frozenset({"<<", "<<-", "heredoc_start", "heredoc_body", "heredoc_end"})
_BETWEEN = frozenset({"&&", "||", ";", "&"})
_PARTING = ("", *" \t;&|<>)")
"""What may stand behind a here-document's mark; anything else would belong to it."""


def _ends_in_command(node: "Node") -> bool:
    """Whether a redirect behind `a && b | c` is that of a plain command, the last one."""
    while node.type in ("list", "pipeline"):
        node = node.children[-1]
    return node.type == "command"


class Redirecting(Sheet):
    """Takes in redirects."""

    programs: list[Program]
    _fed = False
    """Whether something other than the terminal is what the next command reads."""
    _around = False
    """The same for the innermost group: what `&&` and `||` lead back to."""

    def _redirected(self, node: "Node") -> None:
        draft = Draft()
        body, *redirects = node.children
        fed = self._fed
        if body.type in REDIRECTS:
            redirects = node.children
        elif body.type == "command":
            self._collect(body, draft)
        elif _ends_in_command(body):
            known = len(self.programs)
            self._visit(body)
            draft = Draft.of(self.programs.pop()) if len(self.programs) > known else draft
        else:
            around = self._around
            self._fed = self._around = fed or any("<" in self._source(one) for one in redirects)
            self._visit(body)
            self._fed, self._around = fed, around
        at = self._end(body) if body.type not in REDIRECTS else self._start(node)
        for redirect in redirects:
            if not BLANKS.fullmatch(self._text, at, self._start(redirect)):
                self._doubt("something stands between two words")
            self._part(redirect, draft)
            at = self._end(redirect)
        self._note(draft)

    def _redirect(self, node: "Node", draft: Draft) -> None:
        if node.type == "heredoc_redirect":
            self._document(node, draft)
            return
        operator, words = self._pieces(node, draft)
        kind = operator.lstrip("0123456789")
        if not words or not _OPERATOR.fullmatch(operator):
            if not operator.endswith("-"):  # such as 2>&-
                self._doubt("a redirect is not understood")
        elif kind == "<<<":
            draft.feed, draft.fed = None if words[0].filled else words[0].text, True
        else:
            draft.redirects.append(Redirect(operator, words[0]))
            draft.fed = draft.fed or kind in ("<", "<>")

    def _pieces(self, node: "Node", draft: Draft) -> tuple[str, list[Word]]:
        """The sign and the word of a redirect; words behind that are the command's."""
        operator = ""
        words: list[Word] = []
        at = self._start(node)
        for child in node.children:
            if not BLANKS.fullmatch(self._text, at, self._start(child)):
                self._doubt("something stands in a redirect")
            if child.is_named and child.type != "file_descriptor":
                if words and at == self._start(child):
                    self._doubt("two words touch")
                words.append(self._word(child))
                if len(words) > 1:
                    draft.words.append(words[-1])
                    draft.sources.append(self._source(child))
            else:
                operator += self._source(child)
            at = self._end(child)
        return operator, words

    def _document(self, node: "Node", draft: Draft) -> None:
        """A here-document: where it begins and ends is found anew."""
        parts = {child.type: child for child in node.children}
        start, end = parts.get("heredoc_start"), parts.get("heredoc_end")
        if start is None or end is None or not ("<<" in parts or "<<-" in parts):
            self._doubt("a here-document is not understood")
            self._substitutions_below(node)
            return
        begin = self._text.find("\n", self._end(start)) + 1
        mark = self._word(start) if start.child_count else self._mark(start)
        stop = self._closing(begin, mark.text, tabs="<<-" in parts)
        rest = self._text[self._end(start) : max(begin - 1, 0)]
        beside = (one for one in node.children if one.type not in ("heredoc_body", "heredoc_end"))
        on_line = all(self._end(one) < begin for one in beside) and rest[:1] in _PARTING
        if not on_line or "<<" in rest or self._line_of(end) != stop or rest.endswith("\\"):
            self._doubt("a here-document is not understood")
        draft.fed = True
        literal = re.search(r"['\"\\]", self._source(start)) is not None
        self._behind_mark(node, draft)
        draft.feed = self._body(parts.get("heredoc_body"), begin, stop, literal=literal)

    def _mark(self, node: "Node") -> Word:
        word = spell(self._text, self._start(node), self._end(node))
        if word is None or word.filled:
            self._doubt("a here-document is not understood")
        return word or UNKNOWN

    def _closing(self, begin: int, mark: str, *, tabs: bool) -> int:
        """Where the line begins that ends the document."""
        at = begin
        while at <= len(self._text):
            end = self._text.find("\n", at)
            line = self._text[at : end if end >= 0 else len(self._text)]
            if (line.lstrip("\t") if tabs else line) == mark:
                return at
            if end < 0:
                break
            at = end + 1
        return -1

    def _line_of(self, node: "Node") -> int:
        return self._text.rfind("\n", 0, self._start(node)) + 1

    def _behind_mark(self, node: "Node", draft: Draft) -> None:
        """What stands on the line behind the mark: words, redirects, or further commands."""
        for child in node.children:
            kind = child.type
            if kind in _DOCUMENT or kind in _BETWEEN:
                continue
            if kind == "file_descriptor":
                self._doubt("a here-document is not on standard input")
            elif kind == "pipeline":
                fed, self._fed = self._fed, True
                self._visit(child)
                self._fed = fed
            elif kind in REDIRECTS or not self._is_statement(child):
                self._part(child, draft)
            else:
                self._visit(child)

    def _body(self, body: "Node | None", begin: int, stop: int, *, literal: bool) -> str | None:
        if literal:
            return self._text[begin : max(stop, begin)]
        runs: list[Span] = []
        if body is not None:
            for child in body.children:
                self._substitutions(child, runs)
        word = spell_body(self._text, begin, max(stop, begin), runs)
        if word is None:
            self._doubt("a here-document is not understood")
        return word.text if word is not None and not word.filled else None
