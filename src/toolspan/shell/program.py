"""What is seen of a command line: programs, and doubts.

Values only; `seen.py` makes them.
"""

from dataclasses import dataclass, field

from msgspec import Struct

from toolspan.shell.line import Redirect, Word


class Program(Struct, frozen=True):
    """One program that the line may run, as it stands there."""

    words: tuple[Word, ...]
    """Its name and its arguments; none when there are only redirects or assignments."""
    text: str
    """The words as they were written, with single blanks between them."""
    sets: tuple[str, ...] = ()
    """The variables that are set for it, or, without words, for all that follows."""
    values: tuple[Word, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    fed: bool = False
    """Something other than the terminal is its standard input."""
    feed: str | None = None
    """What it reads there, when the line says it."""
    choices: tuple[Word, ...] = ()
    """What a loop's variable becomes, one after the other."""
    nested: bool = False
    """It stands in a substitution, a function or a group."""

    @property
    def name(self) -> str:
        """What it is called by; empty when only the shell could tell."""
        if not self.words or self.words[0].filled:
            return ""
        return self.words[0].text


class Seen(Struct, frozen=True):
    """What is known of a line."""

    text: str
    programs: tuple[Program, ...]
    unclear: tuple[str, ...] = ()
    """Why there may be more programs than these; nothing when there cannot be."""


@dataclass(slots=True)
class Draft:
    """A command while its parts are collected."""

    sources: list[str] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    sets: list[str] = field(default_factory=list)
    values: list[Word] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)
    choices: list[Word] = field(default_factory=list)
    feed: str | None = None
    fed: bool = False

    @classmethod
    def of(cls, program: Program) -> "Draft":
        """A program that is not complete after all."""
        return cls(
            sources=[program.text] if program.words else [],
            words=list(program.words),
            sets=list(program.sets),
            values=list(program.values),
            redirects=list(program.redirects),
            choices=list(program.choices),
            feed=program.feed,
            fed=program.fed,
        )

    def program(self, *, fed: bool, nested: bool) -> Program:
        """The program, complete."""
        return Program(
            words=tuple(self.words),
            text=" ".join(self.sources),
            sets=tuple(self.sets),
            values=tuple(self.values),
            redirects=tuple(self.redirects),
            fed=self.fed or fed,
            feed=self.feed,
            choices=tuple(self.choices),
            nested=nested,
        )


UNKNOWN = Word("", filled=True, runs=True)
"""A word of which nothing is known."""
