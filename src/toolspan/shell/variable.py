"""Which variables change what programs do.

In: a variable's name. Out: whether a line that sets it is still the line it seems to be.
"""

import re

_SAFE = frozenset({
    "CI", "CLICOLOR", "CLICOLOR_FORCE", "COLORTERM", "COLUMNS", "DEBIAN_FRONTEND", "FORCE_COLOR",
    "GOARCH", "GOOS", "LANG", "LANGUAGE", "LC_ALL", "LC_COLLATE", "LC_CTYPE", "LC_MESSAGES",
    "LC_NUMERIC", "LC_TIME", "LINES", "NODE_ENV", "NO_COLOR", "PYTHONDONTWRITEBYTECODE",
    "PYTHONUNBUFFERED", "RUST_BACKTRACE", "RUST_LOG", "TERM", "TZ",
})  # fmt: skip

_STRONG = re.compile(
    r"PATH|.*PATH|IFS|ENV|BASH.*|SHELL.*|GLOBIGNORE|HOME|PWD|OLDPWD|PS\d|PROMPT_.*|HIST.*|FUNCNAME"
    r"|LD_.*|DYLD_.*|GIT_.*|SSH_.*|GPG_.*|PAGER|.*_PAGER|MANPAGER|LESS.*|EDITOR|.*_EDITOR|VISUAL"
    r"|BROWSER|PYTHON.*|NODE_.*|NPM_.*|PERL.*|RUBY.*|GEM_.*|JAVA.*|_JAVA.*|JDK_.*|MAVEN_.*|GRADLE_.*"
    r"|GO[A-Z]*|RUST.*|CARGO_.*|TMPDIR|TEMP|TMP|TERMINFO.*|TERMCAP|NLS.*|GCONV.*|MALLOC_.*|GLIBC_.*"
    r"|.*OPTIONS|.*_OPTS?|.*FLAGS|.*_COMMAND|.*_PRELOAD|.*_CONFIG.*|XDG_.*|TAR.*|ZIPOPT|CC|CXX|LD|AR"
    r"|MAKE.*|DOCKER_.*|KUBECONFIG|AWS_.*|.*_PROXY|POSIXLY_CORRECT|UID|EUID|USER|LOGNAME|OPTIND|_"
)


def is_harmless(name: str) -> bool:
    """Whether a program run with it set is the same program."""
    return name in _SAFE


def is_strong(name: str) -> bool:
    """Whether it changes how the shell, or what it runs, goes on."""
    if not name or (name not in _SAFE and _STRONG.fullmatch(name)):
        return True
    return name.endswith("_proxy") or name.startswith(("npm_", "ld_"))
