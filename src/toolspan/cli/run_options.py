"""The options of `toolspan run` that other commands do not have: the prompt, the session to resume, and the limits."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click
import msgspec

from toolspan.cli.output import combine_options
from toolspan.session.agent import Budget
from toolspan.session.models.base import MAX_TOKENS

_OutputFormat = Literal["text", "json", "stream-json"]
FROM_STDIN = "-"
"""The prompt that stands for standard input."""


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options added by `run_options`."""

    prompt: str | None
    stdin: bool
    model_spec: str | None
    base_url: str | None
    output_format: _OutputFormat
    as_json: bool
    resume: str | None
    continue_last: bool
    fork_session: bool
    rewind_to: str | None
    session_id: str | None
    output_schema: Path | None
    max_turns: int | None
    max_tokens: int
    max_budget_usd: float | None
    max_session_tokens: int | None
    max_seconds: float | None
    max_calls: int | None
    context_tokens: int
    system_prompt: str | None
    append_system_prompt: str


_POSITIVE = click.FloatRange(min=0, min_open=True)

run_options = combine_options(
    click.option("-p", "--prompt", is_flag=False, flag_value=FROM_STDIN, metavar="TEXT",
                 help="Run this prompt, print the answer and exit. Without TEXT, or with -, read it from standard"
                 " input."),
    click.option("--stdin", is_flag=True, help="Append standard input to the prompt."),
    click.option("--output-format", type=click.Choice(["text", "json", "stream-json"]), default="text",
                 help="Print the final text, one JSON object, or a JSON line per event."),
    click.option("--json", "as_json", is_flag=True, help="The same as --output-format json."),
    click.option("--output-schema", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE",
                 help="With -p: the JSON Schema of the final answer, which is printed instead of text."),
    click.option("-r", "--resume", metavar="ID", help="Resume this session."),
    click.option("-c", "--continue", "continue_last", is_flag=True, help="Resume the newest session of this folder."),
    click.option("--fork-session", is_flag=True, help="Resume in a copy with a new id."),
    click.option("--rewind-to", metavar="UUID",
                 help="Resume from this record of the session, in a copy with a new id."),
    click.option("--session-id", metavar="UUID", help="The id of the new session."),
    click.option("--max-turns", type=click.IntRange(min=1), help="The maximum number of replies per prompt."),
    click.option("--max-tokens", type=click.IntRange(min=1), default=MAX_TOKENS, show_default=True,
                 help="The maximum number of tokens in one reply."),
    click.option("--max-budget-usd", type=_POSITIVE, metavar="DOLLARS",
                 help="End the turn once the session, with its subagents and before it was resumed, has cost this much."
                 " Resume it with a higher limit to continue."),
    click.option("--max-session-tokens", type=click.IntRange(min=1), help="The same for tokens of all requests."),
    click.option("--max-calls", type=click.IntRange(min=1), help="The same for calls."),
    click.option("--max-seconds", type=_POSITIVE, help="End a turn after this time, before its next step."),
    click.option("--context-tokens", type=click.IntRange(min=1_000), default=Budget().tokens, show_default=True,
                 help="The model's context size; the conversation is compacted before it is full."),
    click.option("--system-prompt", metavar="TEXT", help="Replace the built-in system prompt."),
    click.option("--append-system-prompt", metavar="TEXT", default="", help="Append to the system prompt."),
)  # fmt: skip
