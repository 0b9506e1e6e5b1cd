"""Command lines made at random: well-formed nestings, and soups of pieces that mean something."""

from __future__ import annotations

import random
from collections.abc import Callable

Shape = Callable[[random.Random, int], str]
"""How a line is made; the number says how deep other lines may stand in it."""

_NAMES = ("rm", "cat", "ls", "git", "curl", "p0", "p1", "p2")
_PIECES = (
    "rm", "p0", "p1", "ls", "cat", " ", " ", " ", "\n", ";", "&&", "||", "|", "&", "(", ")", "{",
    "}", "$(", ")", "`", "'", '"', "\\", "\\\n", "#", "<<EOF", "<<'E'", "<<-E", "\nEOF\n", "\nE\n",
    "\tE\n", "<<<", "<(", ">(", ">", "<", ">>", "2>&1", "$x", "${x", "}", ":-", "=", "x=", "x=rm",
    "$'", "\\x72m'", '$"', "if", "then", "fi", "do", "done", "for i in", "while", "case", "in",
    "esac", ";;", "function", "f()", "!", "time", "[[", "]]", "((", "))", "$((", "eval", "exec",
    "a.txt", "*", "?", "{a,b}", "~", "-c", "sh", "env", "xargs", "coproc", "select", "[", "]",
    "-eq", "-v", "a[", "@P", "é", "\u00a0", "\t", "command", "builtin", "trap", "EXIT", "in)",
    "until", "$", "$$", "!!", "\\;", "+", "declare", "export", "local", "unset", "let", "test",
)  # fmt: skip


def soup(rng: random.Random) -> str:
    """Pieces in any order."""
    return "".join(rng.choice(_PIECES) for _ in range(rng.randint(2, 14)))


def made(rng: random.Random, depth: int = 3) -> str:
    """A line that is a line, with programs in unlikely places."""
    if depth <= 0:
        return _simple(rng, 0)
    return rng.choice(_SHAPES)(rng, depth - 1)


def plain(rng: random.Random) -> str:
    """Commands with operators between them, and nothing that hides anything."""
    words = ("a.txt", "-n", "'a b'", '"c;d"', "*.txt", "'$(rm)'", "{}", "x=y", "2>&1", "> out",
             "2>/dev/null", "< a.txt", "\\;", '"p1"', "a''b", "~/x", "--", "|p2",
             "rm", "&>>all")  # fmt: skip
    parts = [
        " ".join([rng.choice(_NAMES), *(rng.choice(words) for _ in range(rng.randrange(4)))])
        for _ in range(rng.randint(1, 4))
    ]
    line = parts[0]
    for part in parts[1:]:
        line += rng.choice((" && ", " || ", "; ", " | ", "\n", " & ", ";", "|")) + part
    return line


def broken(rng: random.Random) -> str:
    """A line with a few letters changed."""
    letters = list(made(rng))
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(letters) + 1)
        match rng.randrange(3):
            case 0:
                letters.insert(at, rng.choice(_PIECES))
            case 1:
                del letters[at : at + 1]
            case _:
                letters[at:at] = letters[max(0, at - 3) : at]
    return "".join(letters)


def _quoted(rng: random.Random, name: str) -> str:
    cut = rng.randrange(len(name) + 1)
    head, tail = name[:cut], name[cut:]
    return rng.choice(
        (name, name, f"'{name}'", f'"{name}"', f"{head}''{tail}", f'{head}""{tail}', f"\\{name}",
         f"$'{name}'", "$'" + "".join(f"\\x{ord(one):02x}" for one in name) + "'",
         f"{head}\\\n{tail}")
    )  # fmt: skip


def _argument(rng: random.Random, depth: int) -> str:
    inner = made(rng, depth - 1) if depth > 0 else "p2"
    return rng.choice(
        ("a.txt", "-n", "'a b'", '"c;d"', "*.txt", "$x", "$(" + inner + ")", f'"$({inner})"',
         "`p1`", "<(" + inner + ")", "${x:-y}", "# c", "2>&1", "> out", "< a.txt", "'$(rm)'",
         "\\$(rm", "$((1+1))", "{a,b}", "x=y")
    )  # fmt: skip


def _simple(rng: random.Random, depth: int) -> str:
    words = [_quoted(rng, rng.choice(_NAMES))]
    words += [_argument(rng, depth) for _ in range(rng.randrange(3))]
    line = " ".join(words)
    if rng.random() < 0.1:
        line = rng.choice(("x=1 ", "LANG=C ", "x=$(p1) ")) + line
    return line + "\n" if "# c" in line else line


def _heredoc(rng: random.Random, depth: int) -> str:
    mark = rng.choice(("EOF", "'EOF'", '"EOF"', "\\EOF"))
    body = rng.choice(("text", "$(p1)", "`p2`", "rm x", "'", made(rng, depth)))
    reader = rng.choice(("cat", "sh", "bash", "cat - |", "cat | sh"))
    if reader == "cat - |":
        return f"cat <<{mark} | {_simple(rng, 0)}\n{body}\nEOF\n{made(rng, depth)}"
    return f"{reader.split(' |')[0]} <<{mark}\n{body}\nEOF\n{made(rng, depth)}"


def _wrapped(rng: random.Random, depth: int) -> str:
    inner = _simple(rng, depth)
    wrapper = rng.choice(
        ("env", "env A=1", "nice -n 1", "nohup", "timeout 5", "command", "exec", "time", "xargs",
         "builtin command", "stdbuf -o0", "env -i", "env -u X", "setsid", "xargs -n1", "nice", "!")
    )  # fmt: skip
    return f"{wrapper} {inner}"


def _script(rng: random.Random, depth: int) -> str:
    inner = made(rng, depth)
    quoted = "'" + inner.replace("'", "'\\''") + "'"
    return rng.choice(("sh -c ", "bash -c ", "eval ", "bash -ec ", "trap ")) + quoted + " EXIT"


def _around(template: str) -> Shape:
    """The shape of a line that has other lines in it, wherever there is a `@`."""
    head, *rest = template.split("@")

    def shape(rng: random.Random, depth: int) -> str:
        return head + "".join(made(rng, depth) + after for after in rest)

    return shape


_SHAPES: tuple[Shape, ...] = (
    _simple,
    _simple,
    lambda rng, depth: f"{made(rng, depth)} {rng.choice(('&&', '||', ';', '|', '|&'))} {made(rng, depth)}",
    *map(
        _around,
        (
            "@\n@",
            "( @ )",
            "{ @; }",
            "if @; then @; fi",
            "for i in 1 2; do @; done",
            "case x in x) @;; esac",
            "f() { @; }; f",
            "x=$(@)",
            '[ -n "$(@)" ] && @',
        ),
    ),
    lambda rng, depth: f"find . -exec {_simple(rng, 0)} \\;",
    _around("{ @; sh; } < a.txt"),
    lambda rng, depth: f"f() {{ {rng.choice(('sh', 'bash', 'xargs'))}; }}; {made(rng, depth)} | f",
    lambda rng, depth: (
        f"echo {_quoted(rng, rng.choice(_NAMES))} | xargs "
        + rng.choice(("", "-I{} ", "-n1 ", "-I% "))
        + rng.choice(
            (
                "sh -c {}",
                "env",
                "{}",
                "sh",
                "%",
                "timeout 5",
                "nice",
                "sh -c",
                "p0 {}",
                "sh -c 'p1 {}'",
                "env {}",
                "find . -exec",
                "-0 rm",
            )
        )
    ),
    lambda rng, depth: f"exec < a.txt; {made(rng, depth)}; {rng.choice(('sh', 'p1', 'xargs p2'))}",
    *map(_around, ("while @; do @; break; done", "! @ & wait; @")),
    lambda rng, depth: f'cat <<< "$({made(rng, depth)})" | {_simple(rng, 0)}',
    lambda rng, depth: (
        f"x='{_simple(rng, 0).strip()}'; "
        + rng.choice(("$x", "eval $x", 'eval "$x"', 'sh -c "$x"', "p1 $x", "echo $((x))", "[[ x -eq 1 ]]"))
    ),
    _heredoc,
    _wrapped,
    _script,
)
