"""Search without an index, in every JSON spelling of a text and in Codex rollouts."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from tests.strategies import claude_entries, mutated, mutations, to_lines
from toolspan.analysis.search.find import SearchMatch, SearchResults, complete_matches, number_lines, search
from toolspan.analysis.search.query import MATCH_SIDES, MatchSide, QueryError, find_candidates, find_ripgrep, query_of
from toolspan.cli.app import app
from toolspan.formats import zstd
from toolspan.reading.discovery import find_transcripts
from toolspan.reading.parallel import scan_files
from toolspan.reading.transcript import read
from toolspan.testing import TranscriptBuilder, claude_results, codex_builder
from toolspan.testing.codex_builder import RolloutAge, RolloutBuilder

RIPGREP = find_ripgrep()


def search_folder(
    root: Path,
    *arguments: str,
    sides: Iterable[MatchSide] = MATCH_SIDES,
    program: str | None = RIPGREP,
    ignore_case: bool = False,
    regex: bool = False,
) -> SearchResults:
    query = query_of(arguments, ignore_case=ignore_case, regex=regex)
    return search(find_candidates([root], query.rarest_filter, program=program), query, sides=sides)


def names(matches: Sequence[SearchMatch]) -> list[str]:
    """Return the ids of calls and the authors of messages."""
    return [match.call or str(match.voice) for match in matches]


def make_session(session_id: str = "night") -> TranscriptBuilder:
    builder = TranscriptBuilder(session_id=session_id).prompt("why does the harbour burn?")
    call = builder.call("Bash", {"command": "ls harbour"}, id="one", after_ms=1_000)
    builder.result(call, claude_results.ran("boats\nlantern oil"), after_ms=1_000)
    call = builder.call("Bash", {"command": "make lantern"}, id="two", after_ms=1_000)
    builder.result(call, claude_results.exited(2, "no rule for lantern"), after_ms=1_000)
    return builder.text("The lantern did it.", after_ms=1_000)


def write(root: Path, *builders: TranscriptBuilder) -> None:
    for builder in builders:
        builder.write(root / f"{builder.session_id}.jsonl")


def test_words_are_found_in_inputs_results_and_messages_the_newest_first(tmp_path: Path) -> None:
    write(tmp_path, make_session())

    lantern = search_folder(tmp_path, "lantern").matches
    assert names(lantern) == ["text", "two", "one"]
    assert [match.sides for match in lantern] == [("message",), ("input", "result"), ("result",)]
    assert names(search_folder(tmp_path, "harbour").matches) == ["one", "prompt"]
    assert search_folder(tmp_path, "lighthouse").matches == []


@pytest.mark.parametrize(("side", "expected"), [("input", ["two"]), ("result", ["two", "one"]), ("message", ["text"])])
def test_a_search_can_be_restricted_to_one_side(tmp_path: Path, side: MatchSide, expected: list[str]) -> None:
    write(tmp_path, make_session())

    assert names(search_folder(tmp_path, "lantern", sides=[side]).matches) == expected


@pytest.mark.parametrize("program", [RIPGREP, None])
def test_text_that_is_only_in_tool_use_result_is_found_and_marked(tmp_path: Path, program: str | None) -> None:
    builder = TranscriptBuilder(session_id="s").prompt("go")
    only = builder.call("Bash", {"command": "ls"}, id="only")
    builder.result(only, "cut", structured={"stdout": "a lantern", "stderr": "", "lines": ["x", {"deep": "lantern"}]})
    call_with_both = builder.call("Bash", {"command": "ls"}, id="both")
    builder.result(call_with_both, "a lantern", structured={"stdout": "a lantern and oil"})
    write(tmp_path, builder)

    matches = search_folder(tmp_path, "lantern", program=program).matches
    assert [(match.call, match.sides) for match in matches] == [("both", ("result",)), ("only", ("toolUseResult",))]
    (match,) = search_folder(tmp_path, "lantern", "oil", program=program).matches
    assert (match.call, match.sides) == ("both", ("result", "toolUseResult"))
    assert names(search_folder(tmp_path, "lantern", sides=["result"], program=program).matches) == ["both"]


def test_all_words_must_occur_in_the_same_call_or_message(tmp_path: Path) -> None:
    write(tmp_path, make_session())

    assert names(search_folder(tmp_path, "harbour", "oil").matches) == ["one"]  # input and result
    assert names(search_folder(tmp_path, "harbour", "burn").matches) == ["prompt"]
    assert search_folder(tmp_path, "burn", "oil").matches == []
    assert search_folder(tmp_path, "lantern", "nowhere").matches == []


def test_a_match_has_the_text_around_it_and_its_place(tmp_path: Path) -> None:
    write(tmp_path, make_session())

    (match,) = search_folder(tmp_path, "rule for").matches

    assert (match.snippet.before, match.snippet.match, match.snippet.after) == (
        "Exit code 2 no ", "rule for", " lantern",
    )  # fmt: skip
    assert (match.kind, match.session, match.agent) == ("call", "night", None)
    line = (tmp_path / "night.jsonl").read_bytes()[match.offset :][: match.length]
    assert json.loads(line)["timestamp"] == match.at


def test_matches_are_completed_with_tool_state_and_line(tmp_path: Path) -> None:
    builder = make_session()
    builder.call("Bash", {"command": "wait for the lantern"}, id="three", after_ms=1_000)
    write(tmp_path, builder)

    matches = complete_matches(number_lines(search_folder(tmp_path, "lantern").matches), scan_files)

    rows = [(match.call, match.tool, match.state, match.error) for match in matches]
    assert rows == [
        ("three", "Bash", "never_answered", None),
        (None, None, None, None),
        ("two", "Bash", "failed", "command_failed"),
        ("one", "Bash", "succeeded", None),
    ]
    lines = (tmp_path / "night.jsonl").read_bytes().split(b"\n")
    assert all(b"lantern" in lines[(match.line or 0) - 1] for match in matches)


def test_a_line_copied_by_a_fork_is_one_match(tmp_path: Path) -> None:
    builder = make_session("a")
    write(tmp_path, builder, builder.fork("b"))

    matches = search_folder(tmp_path, "lantern").matches

    assert names(matches) == ["text", "two", "one"]
    assert [match.copies for match in matches] == [1, 1, 1]


def test_compressed_files_and_links_inside_the_folder_are_searched(tmp_path: Path) -> None:
    data = make_session().data()
    (tmp_path / "packed.jsonl.zst").write_bytes(zstd.compress(data))
    outside = tmp_path / "outside"
    inside = tmp_path / "inside"
    for folder in (outside, inside):
        folder.mkdir()
    TranscriptBuilder(session_id="x").prompt("a beacon").write(outside / "x.jsonl")
    (inside / "store").write_bytes(TranscriptBuilder(session_id="y").prompt("a buoy").data())
    (inside / "y.jsonl").symlink_to(inside / "store")
    (inside / "x.jsonl").symlink_to(outside / "x.jsonl")

    assert names(search_folder(tmp_path, "lantern").matches) == ["text", "two", "one"]
    assert names(search_folder(inside, "buoy").matches) == ["prompt"]
    assert search_folder(inside, "beacon").matches == []


@pytest.mark.parametrize("ends", ["exit 2", "kill -9 $$", None])
def test_all_files_are_scanned_if_ripgrep_fails(tmp_path: Path, ends: str | None) -> None:
    write(tmp_path, make_session())
    program = tmp_path / "rg"
    if ends is not None:
        program.write_text(f"#!/bin/sh\necho nonsense\n{ends}\n", encoding="utf-8")
        program.chmod(0o755)

    matches = search_folder(tmp_path, "lantern", program=str(program)).matches

    assert names(matches) == ["text", "two", "one"]
    rows = complete_matches(matches, scan_files)
    assert [match.state for match in rows] == [None, "failed", "succeeded"]


def test_few_calls_of_a_file_are_completed_like_many(tmp_path: Path) -> None:
    builder = make_session()
    for number in range(40):  # more calls than are looked up separately
        builder.text("and so on " * 1_000)
        call = builder.call("Bash", {"command": f"lantern {number}"}, id=f"c{number}")
        builder.result(call, claude_results.exited(2, "dark") if number % 3 else claude_results.ran("bright"))
    write(tmp_path, builder)
    matches = search_folder(tmp_path, "lantern").matches

    everything = complete_matches(matches, scan_files)
    assert all(match.state for match in everything if match.call)
    assert complete_matches(matches[:6], scan_files) == everything[:6]


def test_a_torn_last_line_is_ignored(tmp_path: Path) -> None:
    data = make_session().data() + b'{"type":"user","message":{"content":"a lantern'
    (tmp_path / "live.jsonl").write_bytes(data)

    result = search_folder(tmp_path, "lantern")

    assert names(result.matches) == ["text", "two", "one"]
    assert result.problems == []


def test_an_unreadable_file_is_reported(tmp_path: Path) -> None:
    write(tmp_path, make_session())
    (tmp_path / "broken.jsonl.zst").write_bytes(b"\x28\xb5\x2f\xfd nothing of the kind")

    result = search_folder(tmp_path, "lantern")

    assert names(result.matches) == ["text", "two", "one"]
    assert len(result.problems) == 1
    assert "broken.jsonl.zst" in result.problems[0]


AWKWARD = [
    'say "no"', "a\nb", "naïve", "日本", "a/b", "<b>", "c:\\x", "😀!", "é", '"', "\t", "Ω", "ß",
]  # fmt: skip


def json_spelling(text: str, how: str) -> str:
    """Return a JSON string in one of the spellings of clients."""
    if how == "raw":
        return json.dumps(text, ensure_ascii=False)
    if how == "ascii":
        return json.dumps(text).replace("/", "\\/")
    plain = re.compile(r"[A-Za-z0-9 _.:!-]")
    units = text.encode("utf-16-be").hex().upper()
    if how == "lower":
        units = units.lower()
    pairs = [units[n : n + 4] for n in range(0, len(units), 4)]
    letters = (chr(int(pair, 16)) for pair in pairs)
    escaped = (letter if plain.fullmatch(letter) else f"\\u{pair}" for letter, pair in zip(letters, pairs, strict=True))
    return '"' + "".join(escaped) + '"'


@pytest.mark.parametrize("how", ["raw", "ascii", "upper", "lower"])
@pytest.mark.parametrize("text", AWKWARD)
@pytest.mark.parametrize("program", [RIPGREP, None])
def test_a_text_is_found_in_every_json_spelling(tmp_path: Path, text: str, how: str, program: str | None) -> None:
    line = '{"type":"user","sessionId":"s","message":{"role":"user","content":%s}}\n'
    (tmp_path / "s.jsonl").write_text(line % json_spelling(f"x{text}y", how), encoding="utf-8")

    for term in (text, f"x{text}", f"{text}y"):
        assert names(search_folder(tmp_path, term, program=program).matches) == ["prompt"]
        folded = search_folder(tmp_path, term.swapcase(), ignore_case=True, program=program).matches
        assert names(folded) == (["prompt"] if len(term.swapcase()) == len(term) else [])


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (r"lant\w+ oil", ["one"]),
        (r"(ls|make) (harbour|lantern)", ["two", "one"]),
        (r"^lantern", ["one"]),
        (r"lanterns?$", ["two"]),
        (r"(?i)LANTERN did", ["text"]),
        (r"burn\?", ["prompt"]),
        (r"boats\nlan", ["one"]),
        (r"x*lantern{1,2} oil+", ["one"]),
    ],
)
@pytest.mark.parametrize("program", [RIPGREP, None])
def test_regular_expressions_see_decoded_text(
    tmp_path: Path, expression: str, expected: list[str], program: str | None
) -> None:
    write(tmp_path, make_session())

    result = search_folder(tmp_path, expression, regex=True, program=program, sides=MATCH_SIDES)

    assert names(result.matches) == expected


@pytest.mark.parametrize(("arguments", "regex"), [((), False), (("",), False), (("(",), True)])
def test_invalid_queries_are_refused(arguments: tuple[str, ...], regex: bool) -> None:
    with pytest.raises(QueryError):
        query_of(arguments, regex=regex)


def search_all_texts(root: Path, arguments: Sequence[str], *, ignore_case: bool) -> set[tuple[str, str]]:
    """Read all files in full and search every text."""
    query = query_of(arguments, ignore_case=ignore_case)

    def holds(texts: list[str]) -> bool:
        return all(any(word.expression.search(text) for text in texts) for word in query.terms)

    matches: set[tuple[str, str]] = set()
    for file in find_transcripts(root):
        transcript = read(file.path)
        for span in transcript.spans:
            texts = _strings(json.loads(span.call.raw_input)) if span.call.place else []
            if span.result is not None:
                texts.append(span.result.text)
            if holds(texts):
                matches.add(("call", span.id))
        for message in transcript.messages():
            if holds([message.text]):
                matches.add((str(message.voice), message.text[:8]))
    return matches


def _strings(value: object) -> list[str]:
    match value:
        case str():
            return [value]
        case dict():
            return [text for item in value.values() for text in _strings(item)]
        case list():
            return [text for item in value for text in _strings(item)]
        case _:
            return []


TEXTS = st.text(st.sampled_from('ab "\\/<\n\té日😀AKßx'), min_size=1, max_size=12)


@st.composite
def transcripts(draw: st.DrawFn) -> bytes:
    """Draw a short transcript whose lines differ in their JSON spelling."""
    builder = TranscriptBuilder(session_id="s").prompt(draw(TEXTS))
    for number in range(draw(st.integers(0, 3))):
        tool_input = {"command": draw(TEXTS), "deep": [{"x": draw(TEXTS)}]}
        call = builder.call("Bash", tool_input, id=f"c{number}")
        if draw(st.booleans()):
            builder.result(call, claude_results.ran(draw(TEXTS)), after_ms=10)
        builder.text(draw(TEXTS), after_ms=10)
    lines = [json.loads(line) for line in builder.lines()]
    plain = [json.dumps(line, ensure_ascii=draw(st.booleans())) for line in lines]
    return "".join(line + "\n" for line in plain).encode("utf-8", "surrogatepass")


@given(transcripts(), st.lists(TEXTS, min_size=1, max_size=2), st.booleans())
def test_search_with_and_without_ripgrep_finds_what_reading_everything_finds(
    data: bytes, arguments: list[str], ignore_case: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "s.jsonl").write_bytes(data)
        fast = search_folder(root, *arguments, ignore_case=ignore_case).matches
        slow = search_folder(root, *arguments, ignore_case=ignore_case, program=None).matches
        expected = search_all_texts(root, arguments, ignore_case=ignore_case)

    assert fast == slow
    calls = {("call", str(match.call)) for match in fast if match.kind == "call"}
    assert calls == {item for item in expected if item[0] == "call"}
    voices = {str(match.voice) for match in fast if match.kind == "message"}
    assert voices == {voice for voice, _ in expected if voice != "call"}


@given(st.lists(claude_entries(), max_size=4), mutations(), st.text(max_size=3))
@example([], [], "a")
def test_search_never_fails_on_the_content_of_a_file(
    records: list[dict[str, object]], damage: list[tuple[str, int, int]], word: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "s.jsonl").write_bytes(mutated(to_lines(records), damage))
        for term in (word or "x", '"', "e"):
            fast = search_folder(root, term)
            assert fast == search_folder(root, term, program=None)
            complete_matches(number_lines(fast.matches), scan_files)


def search_rows(*arguments: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(app, ["search", *arguments, "--json"])
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def home(user: Path) -> Path:
    """A home folder with a session of Claude Code."""
    builder = TranscriptBuilder(session_id="s").prompt("a lantern, please")
    builder.write(user / ".claude" / "projects" / "-home-dev" / "s.jsonl")
    return user


def make_rollout(age: RolloutAge = "enveloped") -> RolloutBuilder:
    builder = RolloutBuilder(age=age, cwd="/home/dev").prompt('light the "lantern"', after_ms=60_000)
    call = builder.call("exec_command", {"cmd": 'echo "lantern\noil" > naïve'}, after_ms=1_000)
    return builder.output(call, codex_builder.command_output("no such lantern", code=2), after_ms=1_000)


@pytest.mark.parametrize("age", ["bare", "enveloped", "paginated"])
def test_rollouts_of_every_age_are_searched_beside_transcripts(home: Path, age: RolloutAge) -> None:
    make_rollout(age).write(home / ".codex")

    matches = search_rows("lantern")

    assert sorted(row["voice"] or row["tool"] for row in matches) == [
        "exec_command", "prompt", "prompt",
    ]  # fmt: skip
    call = next(row for row in matches if row["kind"] == "call")
    assert (call["state"], call["error"]) == ("failed", "command_failed")
    assert call["sides"] == ["input", "result"]
    assert [row["voice"] for row in search_rows("lantern", "--client", "claude")] == ["prompt"]
    assert len(search_rows("lantern", "--client", "codex")) == 2


@pytest.mark.parametrize("word", ['"lantern', "lantern\noil", "naïve", '" > n'])
def test_doubly_escaped_text_is_found(home: Path, word: str) -> None:
    make_rollout().write(home / ".codex")

    assert [row["tool"] for row in search_rows(word, "--in", "input")] == ["exec_command"]


def test_a_compressed_rollout_is_searched_once(home: Path) -> None:
    path = make_rollout().write(home / ".codex")
    packed = zstd.compress(path.read_bytes())
    path.with_name(path.name + ".zst").write_bytes(packed)
    rows = search_rows("lantern", "--client", "codex")
    path.unlink()
    item = search_rows("lantern", "--client", "codex")

    assert [row["copies"] for row in rows] == [0, 0]
    assert [row["snippet"] for row in item] == [row["snippet"] for row in rows]
