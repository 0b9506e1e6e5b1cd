"""Run ripgrep: no shell, nothing kept that nobody wants, ended when enough was heard.

In: arguments, a folder to start in, somebody who takes the output in pieces. Knows nothing of what
the arguments mean.
"""

import shutil
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio

from toolspan.errors import ToolError
from toolspan.process import Child, Command, StartError
from toolspan.run.context import ToolContext

_TROUBLE = 2
"""How ripgrep exits when it refused, or met a file it could not read."""
_REJECTED = (
    "Search failed — ripgrep rejected the pattern, glob, or file type without searching:\n{}"
)
_KEPT = 1 << 16
_ALWAYS = ("--no-config", "--no-messages", "--color=never", "--hidden", "--null")

Take = Callable[[bytes], bool]
"""Gets the output in pieces, in the event loop; True: enough was heard."""


async def ripgrep(ctx: ToolContext, arguments: Sequence[str], folder: Path, take: Take) -> None:
    """Search, and hand over what is found.

    Raises:
        ToolError: ripgrep is missing, or does not take these arguments; some clients have found
            nothing then.
    """
    listener = _Listener(take)
    command = Command(
        argv=[program(ctx.workspace.environment.get("PATH")), *_ALWAYS, *arguments],
        cwd=folder,
        env=ctx.workspace.environment,
        mark=ctx.call.id,
        on_output=listener.hear,
        memory_limit=_KEPT,
        bulk=True,
    )
    try:
        async with ctx.workspace.custody.running(command, grace=0.0) as child:
            listener.child = child
            with anyio.CancelScope() as listener.scope:
                await child.wait()
            if listener.fault is not None:
                raise listener.fault
    except StartError as error:
        raise ToolError(f"The search could not be started: {error.reason}") from error
    rejection = _rejection(child)
    if rejection and ctx.profile.search.tells_rejection:
        raise ToolError(_REJECTED.format(rejection), kind="invalid_input")


def program(path: str | None) -> str:
    """Where ripgrep is: among the scripts of this Python, or on the path.

    Raises:
        ToolError: there is none.
    """
    packaged = Path(sysconfig.get_path("scripts")) / "rg"
    found = str(packaged) if packaged.is_file() else shutil.which("rg", path=path)
    if found is None:
        raise ToolError("ripgrep is needed to search, and there is no `rg` on the PATH")
    return found


def _rejection(child: Child) -> str | None:
    if child.exit is None or child.exit.code != _TROUBLE or child.stdout.total:
        return None
    return child.stderr.data.decode(errors="replace").strip() or None


class _Listener:
    """Hands on what comes from one of the child's two streams, until it is enough."""

    def __init__(self, take: Take) -> None:
        self.child: Child | None = None
        self.scope: anyio.CancelScope | None = None
        self.fault: Exception | None = None
        """What went wrong while taking: the loop would only log it, and the rest be missing."""
        self._take = take
        self._heard = 0

    def hear(self, data: bytes) -> None:
        if self.child is None or self.child.stdout.total == self._heard:
            return  # it was an error message
        self._heard = self.child.stdout.total
        if self.scope is not None and not self.scope.cancel_called and self._enough(data):
            self.scope.cancel()

    def _enough(self, data: bytes) -> bool:
        try:
            return self._take(data)
        except Exception as error:  # noqa: BLE001 - raised again where the search was asked for
            self.fault = error
            return True
