"""`toolspan show`: a session as a timeline, or one call in full."""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

import click
import msgspec
from msgspec import Struct
from rich.text import Text

from toolspan.cli.output import STATE_STYLE, clock, console, count, duration, print_json, progress
from toolspan.cli.render import (
    GLYPHS,
    Look,
    call_text,
    diff_line,
    diff_of,
    event_note,
    facts,
    joined,
    plain_lines,
    session_lines,
    summary,
    words,
)
from toolspan.cli.select import complete_session, newest_session, session_files
from toolspan.errors import Ambiguous, NotFound, SourceError
from toolspan.model.inputs import UnknownInput, decode_anything
from toolspan.model.span import Span, moment
from toolspan.model.state import MEANING
from toolspan.model.tokens import Tokens
from toolspan.read.discover import FoundFile, default_roots, discover
from toolspan.read.facts import facts_of
from toolspan.read.history import Ledger, pick
from toolspan.read.lineage import sum_tokens
from toolspan.read.messages import script
from toolspan.read.timeline import Batch, Strand, Turn, timeline, turn_facts
from toolspan.read.transcript import Transcript, read
from toolspan.wire.claude_results import UnknownResult
from toolspan.wire.paths import parse_name, session_folder
from toolspan.wire.source import source_of

_HEAD = 1 << 16
_PIECE = 1 << 20
_SHOWN_LINES = 40
_SHOWN_INPUT = 16
_MOST = 2_000


@click.command("show")
@click.argument(
    "names", nargs=-1, shell_complete=complete_session, metavar="[FILE|FOLDER|SESSION|CALL]..."
)
@click.option("--last", is_flag=True, help="The session written to last (the default).")
@click.option("--session", help="Look for the call in the session whose id begins so.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.option(
    "--messages/--no-messages", default=True, help="Whether the words between calls are told."
)
@click.option("--thinking", is_flag=True, help="The model's thinking too.")
@click.option("--width", type=click.IntRange(40), help="Columns; by default the terminal's.")
@click.option("--full", is_flag=True, help="Texts in full length.")
def command(
    names: tuple[str, ...],
    *,
    last: bool,
    session: str | None,
    as_json: bool,
    width: int | None,
    **wishes: bool,
) -> None:
    """Tell a session as a timeline, or one call in full.

    A session is named by its file or by the beginning of its id; its subagents stand under the
    calls that started them. A call is named by the beginning of its id, and looked for in the files
    and folders named beside it, else in all transcripts.

    Lanes: calls joined by ┌ │ └ ran at the same time; ╷ ╎ ╵ were asked for together and ran one
    after another; ┊ marks what a rewind left behind. Times are UTC.
    """
    found = _find(names, last=last, session=session)
    out = console()
    out.width = width or _columns() or out.width
    told = Told.of(found) if isinstance(found, list) else found
    look = Look(out.width, told.cwd, **wishes)
    if as_json:
        print_json(_session_json(told, look) if isinstance(told, Told) else _call_json(told))
        return
    lines = _session_lines(told, look) if isinstance(told, Told) else _call_lines(told, look)
    for line in lines:
        out.print(line, soft_wrap=True)


def _columns() -> int | None:
    """The terminal's width, also when the output goes to a pager."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        return None


class Told(Struct, frozen=True, kw_only=True):
    """A session, read."""

    main: Transcript
    files: list[Transcript]
    strand: Strand

    @classmethod
    def of(cls, files: Sequence[FoundFile]) -> "Told":
        """The session of these files."""
        mains = [file for file in files if file.name.role != "agent"] or files
        main = max(mains, key=lambda file: file.modified)
        others = [file for file in files if file.name.role == "agent" and file is not main]
        transcripts = [read(main.path), *_readable(others)]
        strand = timeline([script(transcript) for transcript in transcripts])
        return cls(main=transcripts[0], files=transcripts, strand=strand)

    @property
    def cwd(self) -> str | None:
        """The folder it worked in."""
        return self.main.info.cwd

    @property
    def spans(self) -> list[Span]:
        """Every call, subagents' calls included."""
        return [placed.span for strand in self.strand.strands() for placed in strand.calls]

    @property
    def agents(self) -> int:
        """How many subagents it had."""
        return sum(1 for _ in self.strand.strands()) - 1

    @property
    def tokens(self) -> Tokens:
        """Of all files, each message once."""
        return sum_tokens(transcript.message_tokens for transcript in self.files)

    @property
    def busiest(self) -> int:
        """How many calls of one batch were under way at once, at most."""
        batches = (batch for strand in self.strand.strands() for batch in strand.batches)
        groups = (group for batch in batches for group in batch.groups)
        return max((group.concurrency for group in groups), default=0)


def _readable(files: Sequence[FoundFile]) -> Iterator[Transcript]:
    for file in files:
        try:
            yield read(file.path)
        except SourceError as error:
            click.echo(f"toolspan: {error}", err=True)


class Portrait(Struct, frozen=True, kw_only=True):
    """One call and where it stands."""

    span: Span
    file: str
    cwd: str | None
    turn: Turn | None = None
    batch: Batch | None = None
    before: Span | None = None
    after: Span | None = None


def _find(names: Sequence[str], *, last: bool, session: str | None) -> list[FoundFile] | Portrait:
    """What the words name: the files of a session, or a call.

    Raises:
        NotFound: nothing has that name, or more than one thing has.
    """
    paths = [Path(name) for name in names if _exists(name)]
    others = [name for name in names if not _exists(name)]
    if len(others) > 1:
        raise NotFound(f"{' and '.join(others)}: show tells one session or one call")
    if others:
        return _named(others[0], paths, session)
    if session is not None:
        return session_files(session, _root(paths))
    if last or not paths:
        return newest_session([str(path) for path in paths])
    if len(paths) > 1:
        raise Ambiguous(f"{len(paths)} files named: show tells one session or one call")
    return _alone(paths[0]) if not paths[0].is_dir() else _only_session(paths[0])


def _exists(name: str) -> bool:
    try:
        return Path(name).exists()
    except (OSError, ValueError):
        return False


def _root(paths: Sequence[Path]) -> Path | None:
    return paths[0] if paths and paths[0].is_dir() else None


def _alone(path: Path) -> list[FoundFile]:
    """A named file, with the subagents that belong to it."""
    found = discover(path)
    if found[0].name.role == "agent":
        return found
    folder = session_folder(path)
    inside = discover(folder) if folder.is_dir() else []
    others = sorted(path.parent.glob("agent-*.jsonl*"))
    beside = (file for other in others for file in discover(other))
    mine = (file for file in beside if _speaks_of(file, found[0].name.stem))
    return [*found, *(file for file in (*inside, *mine) if file.name.role == "agent")]


def _speaks_of(file: FoundFile, session: str) -> bool:
    try:
        return session.encode() in source_of(file.path).read(0, _HEAD)
    except SourceError:
        return False


def _only_session(folder: Path) -> list[FoundFile]:
    stems = {file.name.stem for file in discover(folder) if file.name.role == "session"}
    if len(stems) > 1:
        raise Ambiguous(f"{folder}: {len(stems)} sessions there; name one by its id, or add --last")
    return newest_session([str(folder)])


def _named(word: str, paths: Sequence[Path], session: str | None) -> list[FoundFile] | Portrait:
    """The session, or else the call, whose id begins with a word."""
    if "/" in word or word.endswith((".jsonl", ".zst")):
        raise NotFound(f"{word}: no such file or folder")
    if session is not None:
        return _call(word, session_files(session, _root(paths)))
    if any(not path.is_dir() for path in paths):
        found = (discover(path) if path.is_dir() else _alone(path) for path in paths)
        return _call(word, [file for files in found for file in files])
    files = [file for path in paths or default_roots() for file in discover(path)]
    try:
        stems = [file.name.stem for file in files if file.name.role == "session"]
        stem = pick(word, stems, "session", hint=lambda known: known[:13])
    except Ambiguous:
        raise
    except NotFound:
        return _call(word, files)
    return session_files(stem, _root(paths))


def _call(word: str, files: Sequence[FoundFile]) -> Portrait:
    """The call whose id begins with a word."""
    transcripts = []
    with progress(sum(file.size for file in files), "searching") as advance:
        for file in files:
            if _mentions(file, word.encode("utf-8", "replace")):
                transcripts.append(read(file.path))
            advance(file.size)
    ledger = Ledger.of(transcripts)
    rows = {row.id: row.file for row in reversed(ledger.calls) if row.id.startswith(word)}
    if not rows:
        raise NotFound(f"no session or call begins with {word!r}")
    name = pick(word, sorted(rows), "call")
    transcript = next(found for found in transcripts if found.file == rows[name])
    span = next(span for span in transcript.spans if span.id == name)
    return _portrait(ledger.tied(span), transcript)


def _mentions(file: FoundFile, needle: bytes) -> bool:
    """Whether a file has these bytes in it; a file that cannot be read has not."""
    held = b""
    try:
        with source_of(file.path).open() as stream:
            while piece := stream.read(_PIECE):
                held += piece
                if needle in held:
                    return True
                held = held[-len(needle) :]
    except SourceError:
        return False
    return False


def _portrait(span: Span, transcript: Transcript) -> Portrait:
    """A call with what stands around it in its own file."""
    found = Portrait(span=span, file=transcript.file, cwd=transcript.info.cwd)
    for strand in timeline([script(transcript)]).strands():
        calls = [placed.span for placed in strand.calls]
        at = next((n for n, other in enumerate(calls) if other.id == span.id), None)
        if at is not None:
            found = msgspec.structs.replace(
                found,
                turn=next(turn for turn in strand.turns if span.id in _ids(turn)),
                batch=next(batch for batch in strand.batches if span.id in _ids(batch)),
                before=calls[at - 1] if at else None,
                after=calls[at + 1] if at + 1 < len(calls) else None,
            )
    return found


def _ids(part: Turn | Batch) -> list[str]:
    return [placed.span.id for placed in part.calls]


def _session_lines(told: Told, look: Look) -> Iterator[Text]:
    info, width = told.main.info, look.width
    name = info.session_id or parse_name(Path(told.main.file)).stem
    yield from facts("session", joined(name, info.agent_id), width, "bold")
    yield from facts("about", info.title or info.first_prompt, width)
    yield from facts("project", joined(info.cwd, info.git_branch), width)
    yield from facts("client", joined(*info.versions, *info.models), width)
    yield from facts("when", _period(moment(info.started_at), moment(info.ended_at)), width)
    yield _calls_line(told, width)
    agents = count(told.agents, "subagent") if told.agents else None
    busiest = f"up to {told.busiest} calls at once" if told.busiest > 1 else None
    yield from facts("", joined(agents, busiest), width, "dim")
    yield from facts("tokens", _spent(told.tokens), width)
    yield from session_lines(told.strand, look)


def _calls_line(told: Told, width: int) -> Text:
    states = Counter(span.state for span in told.spans)
    (line,) = facts("calls", f"{states.total():,}", width)
    for state, n in states.most_common():
        line.append(f"  {GLYPHS[state]} {n:,} {state}", style=STATE_STYLE[state])
    line.truncate(width, overflow="ellipsis")
    return line


def _period(start: datetime | None, end: datetime | None) -> str:
    if start is None or end is None:
        return clock(start or end)
    took = duration(max((end - start).total_seconds(), 0) * 1000)
    return f"{clock(start)} – {clock(end, date=start.date() != end.date())} ({took})"


def _spent(tokens: Tokens) -> str:
    return (
        f"{tokens.input_tokens:,} in · {tokens.output_tokens:,} out · "
        f"{tokens.cache_creation_input_tokens:,} cache writes · "
        f"{tokens.cache_read_input_tokens:,} cache reads"
    )


def _session_json(told: Told, look: Look) -> dict[str, object]:
    session = {
        **msgspec.to_builtins(told.main.info),
        "file": told.main.file,
        "files": [transcript.file for transcript in told.files],
        "calls": Counter(span.state for span in told.spans),
        "agents": told.agents,
        "concurrency": told.busiest,
        "tokens": told.tokens,
    }
    return {"session": session, "turns": turn_facts(told.strand, look.wants)}


def _call_json(portrait: Portrait) -> dict[str, object]:
    span = portrait.span
    prompt = portrait.turn.prompt if portrait.turn else None
    return {
        "call": facts_of(span, portrait.file),
        "meaning": MEANING[span.state],
        "advice": span.advice._asdict() if span.advice else None,
        "events": span.events,
        "prompt": prompt.text if prompt else None,
        "input_type": type(span.input).__name__,
        "input": decode_anything(span.call.raw_input),
        "result": _result_json(span),
        "diff": diff_of(span.result.structured) if span.result else None,
        "before": portrait.before.id if portrait.before else None,
        "after": portrait.after.id if portrait.after else None,
    }


def _result_json(span: Span) -> dict[str, object] | None:
    if span.result is None:
        return None
    structured = span.result.structured
    return {
        "text": span.result.text,
        "summary": summary(span),
        "structured_type": type(structured).__name__ if structured is not None else None,
        "structured": _structure(structured),
    }


def _structure(structured: object) -> object:
    """A structured result as plain JSON."""
    if isinstance(structured, UnknownResult):
        return structured.json()
    try:
        return decode_anything(msgspec.json.encode(structured))
    except (UnicodeEncodeError, TypeError):
        return repr(structured)


def _call_lines(portrait: Portrait, look: Look) -> Iterator[Text]:
    span, width = portrait.span, look.width
    yield call_text(span, look)
    yield Text()
    yield from _call_facts(portrait, width)
    kind = "no known type" if isinstance(span.input, UnknownInput) else type(span.input).__name__
    yield from _section(joined("input", kind), _input_lines(span, look), look)
    if span.result is not None:
        text = plain_lines(span.result.text.rstrip("\n"))
        yield from _section(joined("result", summary(span)), _cut(text, look, _SHOWN_LINES), look)
    diff = diff_of(span.result.structured) if span.result else None
    if diff:
        lines = _cut(plain_lines(diff.rstrip("\n")), look, _SHOWN_LINES * 2)
        yield from _section("diff", (diff_line(line.plain) for line in lines), look)
    if portrait.before or portrait.after:
        yield from _section("around", _neighbours(portrait, look), look)


def _call_facts(portrait: Portrait, width: int) -> Iterator[Text]:
    span = portrait.span
    yield from facts("id", span.id, width)
    yield from facts("session", joined(span.call.session_id, span.call.agent_id), width)
    prompt = portrait.turn.prompt if portrait.turn else None
    yield from facts("prompt", words(prompt) if prompt else None, width)
    flags = [name for name in _FLAGS if getattr(span, name)]
    state = f"{span.state}: {MEANING[span.state]}" + (f" ({', '.join(flags)})" if flags else "")
    yield from facts("state", state, width, STATE_STYLE[span.state])
    for evidence in span.evidence:
        told = f"{evidence.rule}: {evidence.text}" if evidence.text else evidence.rule
        yield from facts("evidence", told, width)
    yield from facts("error", joined(span.error_kind, span.message), width)
    if span.advice:
        yield from facts("cause", span.advice.cause, width)
        yield from facts("solution", span.advice.solution, width, "bold")
        yield from facts("retry", span.advice.retry, width)
    if span.result:
        code = span.result.exit_code
        yield from facts("exit code", None if code is None else str(code), width)
        yield from facts("saved to", span.result.persisted_path, _MOST)
    yield from facts("times", _call_times(span), width)
    for event in span.events:
        yield from facts("", event_note(event), width, "dim")
    yield from _standing(portrait, width)


_FLAGS = ("ambiguous", "background", "deferred", "synthetic")


def _call_times(span: Span) -> str:
    own = span.result.reported_ms if span.result else None
    told = f"the tool itself says {duration(own)}" if own is not None else None
    return joined(_period(span.requested, span.finished), told)


def _standing(portrait: Portrait, width: int) -> Iterator[Text]:
    """Where a call stands: in files, in its batch, on its branch, above its subagents."""
    span = portrait.span
    yield from facts("asked", str(span.call.place or "nobody recorded it"), _MOST)
    yield from facts("answered", str(span.result.place) if span.result else "never", _MOST)
    if portrait.batch and len(portrait.batch.calls) > 1:
        ids = _ids(portrait.batch)
        most = max(group.concurrency for group in portrait.batch.groups)
        how = "one after another" if portrait.batch.serial else f"up to {most} at once"
        yield from facts("batch", f"{ids.index(span.id) + 1} of {len(ids)}, {how}", width)
    if span.branch != "active":
        yield from facts("branch", span.branch, width)
    yield from facts("started by", span.call.parent_call, width)
    yield from facts("subagent", span.agent, width)
    for copy in span.copies[:4]:
        yield from facts("copy", f"{copy.what} at {copy.place}", _MOST)


def _section(title: str, lines: Iterable[Text], look: Look) -> Iterator[Text]:
    yield Text()
    head = f"── {title} "
    yield Text(head + "─" * max(look.width - len(head), 0), style="dim")
    yield from lines


def _input_lines(span: Span, look: Look) -> Iterator[Text]:
    found = decode_anything(span.call.raw_input)
    for key, value in found.items() if isinstance(found, dict) else [("", found)]:
        text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
        lines = plain_lines(text or '""')
        if len(lines) == 1:
            yield from facts(str(key), text or '""', _MOST if look.full else look.width)
        else:
            yield from facts(str(key), count(len(lines), "line"), look.width, "dim")
            yield from (Text("  ") + line for line in _cut(lines, look, _SHOWN_INPUT))


def _cut(lines: Sequence[str], look: Look, most: int) -> Iterator[Text]:
    """Lines, as many and as much of each as people read, unless all is wanted."""
    if look.full:
        yield from (Text(line) for line in lines)
        return
    yield from (Text(line[:_MOST]) for line in lines[:most])
    if len(lines) > most:
        yield Text(f"… {count(len(lines) - most, 'more line')} (--full)", style="dim")


def _neighbours(portrait: Portrait, look: Look) -> Iterator[Text]:
    for label, span in (("before", portrait.before), ("after", portrait.after)):
        if span is not None:
            line = Text().append(f"{label:8}{clock(span.requested, date=False):10}", style="dim")
            line.append_text(call_text(span, look)).append(f"  {span.id}", style="dim")
            yield line
