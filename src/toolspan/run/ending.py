"""How a call ended, before it is written down: where every way through the pipeline leads."""

from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct, structs

from toolspan.errors import ToolError, ToolspanError, words_of
from toolspan.model.kind import ERROR_KINDS, ErrorKind, kind_of, timeout_words
from toolspan.model.live import Content, Context
from toolspan.model.state import State
from toolspan.model.toolkind import tool_kind
from toolspan.run.context import Context as CallContext
from toolspan.run.limits import ERROR_LIMIT, middle_cut
from toolspan.run.outbound import Unfit, clean, fit_json
from toolspan.run.tool import Failure

UNSTOPPED = "it did not stop when it was told to"
_OPEN, _CLOSE = "<tool_use_error>", "</tool_use_error>"


class Ending(Struct, frozen=True, kw_only=True):
    """One result to be, with its state."""

    state: State
    content: Content
    structured: object | None = None
    flag: bool | None = None
    """`is_error` as it is written."""
    kind: ErrorKind | None = None
    reason: str
    """What the state rests on."""
    denial: str | None = None
    exit_code: int | None = None
    background_task: str | None = None
    agent: str | None = None
    """The subagent that the call started."""
    persisted: Path | None = None
    beside: Mapping[str, object] = {}
    """Further keys of the result's record."""
    modify: Callable[[CallContext], CallContext] | None = None
    companions: tuple[Content, ...] = ()
    contexts: tuple[Context, ...] = ()
    structured_output: object | None = None
    stop: str | None = None
    """The turn ends here, for this reason."""
    deferred: bool = False
    """There is no result: the call was put off."""

    @property
    def failed(self) -> bool:
        """Whether the model is told of an error."""
        return self.flag is True


def refused(text: str, *, kind: ErrorKind, reason: str, record: str | None = None) -> Ending:
    """Not run: the text goes into the tags that mark a refusal."""
    text = clean(text)
    return Ending(
        state="failed",
        content=tagged(text),
        structured=error_record(text) if record is None else clean(record),
        flag=True,
        kind=kind,
        reason=reason,
    )


def tagged(text: str) -> str:
    """A text in the tags of errors that are not the tool's own output."""
    return f"{_OPEN}{text}{_CLOSE}"


def untagged(text: str) -> str:
    """A text without the tags that it may have."""
    return text.removeprefix(_OPEN).removesuffix(_CLOSE)


def error_record(text: str) -> str:
    """What is recorded beside an error text: the same, once prefixed."""
    return text if text.startswith("Error: ") else f"Error: {text}"


def timed_out(name: str, seconds: float, *, left: bool) -> Ending:
    """The tool's time limit passed; `left`: it did not stop then."""
    text = f"Error calling tool ({name}): request timed out after {seconds:g}s"
    return Ending(
        state="timed_out",
        content=tagged(text),
        structured=error_record(text),
        flag=True,
        kind=kind_of(name, text),
        reason="the tool's time limit passed" + (f", and {UNSTOPPED}" if left else ""),
    )


def told(name: str, error: ToolError) -> Ending:
    """What a tool says went wrong."""
    text = clean(middle_cut(error.message, ERROR_LIMIT)) or "The tool failed without a word"
    content = tagged(text) if error.wrapped else text
    return _as_read(
        name,
        text,
        Ending(
            state="failed",
            content=content,
            structured=error_record(text),
            flag=True,
            kind=_known(error.kind) or kind_of(name, text),
            reason="the tool reported an error",
        ),
    )


def _known(kind: str | None) -> ErrorKind | None:
    """The error kind of this name, if there is one."""
    return next((known for known in ERROR_KINDS if known == kind), None)


def raised(name: str, error: BaseException) -> Ending:
    """An exception that a tool did not mean to raise."""
    words = words_of(error)
    kind = type(error).__name__
    text = (
        words
        if isinstance(error, OSError | ToolspanError)
        else f"{kind}: {words}"
        if words
        else kind
    )
    text = clean(middle_cut(text, ERROR_LIMIT))
    return _as_read(
        name,
        text,
        Ending(
            state="failed",
            content=text,
            structured=error_record(text),
            flag=True,
            kind=kind_of(name, text),
            reason=f"the tool raised {type(error).__name__}",
        ),
    )


def failure(name: str, failed: Failure) -> Ending:
    """A bad end that the tool tells of."""
    text = clean(failed.text) or "The tool failed without a word"
    kind = failed.kind or kind_of(name, text)
    if kind == "unknown" and failed.exit_code:
        kind = "command_failed"
    return _as_read(
        name,
        text,
        Ending(
            state="timed_out" if failed.timed_out else "failed",
            content=text,
            structured=_record(failed, text),
            flag=True,
            kind=kind,
            exit_code=failed.exit_code,
            modify=failed.modify,
            reason="the tool reported an error",
        ),
    )


def _as_read(name: str, text: str, ending: Ending) -> Ending:
    """An error that says that time ran out is read as one that did; a command's output may."""
    if ending.state != "failed" or tool_kind(name) == "shell" or not timeout_words(name, text):
        return ending
    kind = "permission_timeout" if ending.kind == "permission_timeout" else "mcp_timeout"
    return structs.replace(ending, state="timed_out", kind=kind)


def _record(failed: Failure, text: str) -> object:
    """What a tool records beside its failure; the text, if that is nothing JSON can hold."""
    if failed.structured is None:
        return error_record(text)
    try:
        return fit_json(failed.structured)
    except (Unfit, RecursionError):
        return error_record(text)


def text_of(content: Content) -> str:
    """The texts of a content, joined."""
    if isinstance(content, str):
        return content
    return "\n".join(str(block["text"]) for block in content if block["type"] == "text")
