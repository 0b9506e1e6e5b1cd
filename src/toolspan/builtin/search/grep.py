"""Grep: the lines, files or numbers of lines that a pattern is found in.

In: a pattern, where to look, what to give. Out: as much as the limit says, and how much there is.
Ripgrep searches on all cores; its output is taken in pieces, of which only what is given is kept.
`asked.py` reads the input, the classes in `found.py` keep what comes, `told.py` has the words.
"""

from collections.abc import Mapping
from functools import partial

from anyio import to_thread

from toolspan.builtin.search.asked import Asked, asked, bad_range, grep_schema
from toolspan.builtin.search.found import Counts, Files, Lines
from toolspan.builtin.search.ripgrep import ripgrep
from toolspan.builtin.search.told import counts_output, files_output, lines_output
from toolspan.builtin.search.where import Place, checked, refused_place
from toolspan.profile import Profile
from toolspan.run.context import ToolContext
from toolspan.run.tool import Output, Refusal, Tool
from toolspan.schema.check import checker

OUTPUT_LIMIT = 20_000
"""Characters that the model gets inline."""


def grep_tool(profile: Profile) -> Tool:
    """Grep as a client version has it."""
    schema = grep_schema(profile.search)
    return Tool(
        name="Grep",
        description=(
            "Search files with a regular expression (ripgrep's). Gives the files that match, or"
            " their matching lines with some around them, or how many lines match in each."
        ),
        input_schema=schema,
        parse=checker(schema, coerce=profile.offer.coerces),
        run=_run,
        validate=_validate,
        concurrent=True,
        read_only=True,
        idempotent=True,
        output_limit=None if profile.search.cuts_content else OUTPUT_LIMIT,
    )


async def _validate(value: Mapping[str, object], ctx: ToolContext) -> Refusal | None:
    values = ctx.profile.search
    if values.checks_range and (wrong := bad_range(value)):
        return Refusal(wrong, "invalid_input")
    if not values.checks_early:
        return None
    return await refused_place(value.get("path"), ctx, "any")


async def _run(value: Mapping[str, object], ctx: ToolContext) -> Output:
    look = partial(checked, value.get("path"), ctx, "any")
    start = await to_thread.run_sync(look, abandon_on_cancel=True)
    wanted = asked(value, ctx.profile.search)
    match wanted.mode:
        case "content":
            return await _lines(wanted, start, ctx)
        case "count":
            return await _counts(wanted, start, ctx)
        case "files_with_matches":
            return await _files(wanted, start, ctx)


async def _lines(wanted: Asked, start: Place, ctx: ToolContext) -> Output:
    lines = Lines(wanted, ctx, named=start.is_folder)
    await ripgrep(ctx, wanted.arguments(start.path), ctx.cwd, lines.take)
    return lines_output(lines, wanted, ctx.profile.search)


async def _counts(wanted: Asked, start: Place, ctx: ToolContext) -> Output:
    counts = Counts(wanted, ctx)
    await ripgrep(ctx, wanted.arguments(start.path), ctx.cwd, counts.take)
    return counts_output(counts, wanted, ctx.profile.search)


async def _files(wanted: Asked, start: Place, ctx: ToolContext) -> Output:
    files = Files(wanted, ctx)
    await ripgrep(ctx, wanted.arguments(start.path), ctx.cwd, files.take)
    return files_output(files, wanted, ctx.profile.search)
