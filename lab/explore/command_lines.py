"""A grammar of shell command lines over ordinary and risky programs, options, redirects and compounds."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Sequence
from pathlib import Path

_INSIDE = (
    "a.txt",
    "src/b.py",
    "src",
    ".",
    "./a.txt",
    "sub dir/c.txt",
    "new.txt",
    "src/../a.txt",
    "deep/er/x.json",
    "-",
    "ln-file",
)
_PROTECTED = (
    ".git/config", ".git/hooks/pre-commit", ".bashrc", ".claude/settings.json", ".env", "secret/key.pem",
    ".vscode/settings.json", ".git", ".npmrc", ".gitconfig", ".mcp.json", "HEAD", "hooks/post-checkout",
    ".husky/pre-push", "package.json", "Makefile",
)  # fmt: skip
_OUTSIDE = (
    "/etc/passwd", "/tmp/x", "~/x", "~/.bashrc", "$HOME/.profile", "../x", "../../etc/hosts", "/", "/dev/null",
    "/dev/sda", "~", "/home/dev/proj/a.txt", "/home/dev/other", "ln-out", "/proc/self/environ", "~root/x",
    "/usr/bin/env", "${HOME}/x", "/dev/tcp/h/80",
)  # fmt: skip
_ODD_WORDS = (
    "*", "*.txt", "?.py", "[ab]*", "{a,b}.txt", "$X", "${X}", '"$X"', "$(pwd)", "`pwd`", "'a b'", '"a b"', "a\\ b",
    "$'a\\tb'", "''", "--", "-", "$((1+1))", "${X:-y}", "${X:=y}", "~+", "!!", "#x", "a#b", "=x", "x=y", "%1",
    "<(ls)", ">(cat)", "$'\\x2d'c", "@", ":", "src/*", "**/*.py", '"*.txt"', "$?", "$$", "$1", "$@", "\\*", "-rf",
    "--help", "--version", "-v", "1", "10", "a{1,2}", "'{a,b}'", ".e*", "[!a]*", "*/", "./*", ".*", "~+/a.txt", "'~/x'",
    "x=~/y", '"$HOME/proj"', "$HOME/proj/a.txt", '"$PWD/src"', "HEAD~1", "HEAD@{1}", "stash@{0}", "@{u}", "HEAD:a.txt",
    "a\\\\b", "$'a'", '$"a"', "\u00fc.txt", "a\u00a0b", "-n", "-5", "+5", "--x=y", "-x=y", "-o", "@x", "=ls", "'#x'",
    "x~1", "a.", "...", "-- a.txt", ".//a.txt", "src//b.py", "src//..", "./src/../a.txt", ".ENV", "secret/*", ".[e]nv",
    "ln-secret", "ln-dir/x.txt", "ln-git", "ln-dir", "HEAD", "main..HEAD", "'s/a/b/'", "'1p'", "-la", "-r",
    "-f", "-e x", "-i", '"$PWD/a.txt"', '"$HOME/proj/a.txt"', "$((2*3))", '"$((1))"', "a.txt -r", "--tab", "-- -x",
    "\u0663", "-\u0663", "-n \u00b2", "'..\\x'", "'a\\..\\b'", ".gi\u200ct/config", ".g\u0131t/config", "src/size",
    "%Gx",
    "'%(signature)'", "\\\\", "my_file", "5,6", "--format='%h %G?'",
    "src/*/", "../src/*", "s*/*", "'..\\*'", "~root/*", "/mnt/c", "`pwd`", "./$(pwd)", "' /'", "/HOME/dev/Proj",
    "~-", "\u201cx\u201d", "x\u200b", "'a\nb'", "'a\\\nb'", "a\\\nb", "=", "X=$(id)", "\\\n '*'",
)  # fmt: skip
OPTIONS: dict[str, list[str]] = tomllib.loads((Path(__file__).parent / "programs.toml").read_text(encoding="utf-8"))
"""Words that may follow a program; the line is completed with further words."""
_COMMON = (
    "ls", "cat", "grep", "git", "find", "sed", "echo", "cd", "head", "tail", "sort", "rm", "cp", "mv", "mkdir", "touch",
    "xargs", "awk", "wc", "rg", "jq", "uniq", "cut", "tr", "diff", "stat", "file", "date", "ps", "test", "printf",
    "timeout", "env", "command", "git", "git", "du", "tree", "docker", "rmdir",
)  # fmt: skip


class Lines:
    """Draws command lines."""

    def __init__(self, rng: random.Random, commands: Sequence[str] = ()) -> None:
        """Create a source of lines. Half of the commands are among `commands`, if there are any."""
        self._rng, self._commands = rng, commands

    def line(self) -> str:
        """Draw a line: a command, a compound, or a construct around them."""
        rng = self._rng
        roll = rng.random()
        if roll < 0.5:
            return self.command()
        if roll < 0.75:
            return self._joined(rng.choice((2, 2, 3)))
        if roll < 0.8:
            place, operator = rng.choice(("src", "/tmp", "..", "deep/er", "nowhere")), rng.choice(("&&", ";", "||"))
            return f"cd {place} {operator} {self.command()}"
        return self._construct()

    def command(self) -> str:
        """Draw one simple command with its redirects, assignments and wrappers."""
        rng = self._rng
        program = rng.choice(_COMMON) if rng.random() < 0.5 else rng.choice(sorted(OPTIONS))
        words = [rng.choice(OPTIONS[program])] if rng.random() < 0.85 else []
        if self._commands and rng.random() < 0.5:
            program, *words = rng.choice(self._commands).split()
        words += [self.word() for _ in range(rng.choice((0, 0, 0, 1, 1, 2)))]
        text = " ".join(word for word in (self._spelled(program), *words) if word)
        if rng.random() < 0.05:
            wrappers = (
                "timeout 5",
                "nice",
                "env",
                "nohup",
                "time",
                "command",
                "xargs",
                "sudo",
                "stdbuf -o0",
                "env -i",
                "builtin",
                "timeout 5 A=1",
                "nice LANG=C",
                "timeout 5 watch",
                "command -V A=1",
                "'A=1'",
                "> /dev/null then",
                "time a,b",
                "nohup --",
                "LC_ALL=C :",
                "0< a.txt",
            )
            text = f"{rng.choice(wrappers)} {text}"
        if rng.random() < 0.06:
            assigned = (
                "X=1",
                "LANG=C",
                "PATH=/tmp:$PATH",
                "NODE_ENV=test",
                "LD_PRELOAD=./x.so",
                "GIT_PAGER=id",
                "X=$(id)",
                "IFS=/",
                "PAGER=cat",
                "A=1 B=2",
                "X=",
                "LC_MESSAGES=C",
                "LC_TIME=C",
                "LANG='C'",
                "NODE_ENV=/x",
                "NODE_ENV=a,b",
                "LS_COLORS=x",
                "CGO_ENABLED=0",
            )
            text = f"{rng.choice(assigned)} {text}"
        if rng.random() < 0.16:
            text += rng.choice((" ", " ", " ", "")) + self._redirect()
        if rng.random() < 0.04:
            text = f"{rng.choice(('2>/dev/null', '>/dev/null', '< a.txt', '2>&1', '>&2', '> out.txt', '<<< x'))} {text}"
        return text

    def word(self) -> str:
        """Draw an argument."""
        rng = self._rng
        pool = rng.choice((_INSIDE, _INSIDE, _INSIDE, _ODD_WORDS, _PROTECTED, _OUTSIDE))
        return rng.choice(pool)

    def _spelled(self, program: str) -> str:
        rng = self._rng
        if rng.random() < 0.95:
            return program
        head, tail = program[:1], program[1:]
        return rng.choice((
            f"\\{program}", f"'{program}'", f'"{program}"', f"/bin/{program}", f"/usr/bin/{program}", f"./{program}",
            f"{head}''{tail}", f"$'{program}'", f"{program}.exe", f"'a\\{program}'",
            f"a\\ {program}", f"{program} $'x'", f"{program}<<<x", f"{program} $X", f"{program} ", f"{program}$'x'",
            f"\u00a0{program}", f"then {program}", f"${{X}}{program}", f"{head}\\{tail}",
        ))  # fmt: skip

    def _redirect(self) -> str:
        rng = self._rng
        target = rng.choice((self.word(), "out.txt", "/dev/null", "out.log", "/tmp/o", ".bashrc"))
        return rng.choice((
            f"> {target}", f">> {target}", f"2> {target}", "2>&1", "2>/dev/null", f"&> {target}", f">| {target}",
            f"< {target}", ">&2", f">& {target}", f"<> {target}", "<<< x", f"2>&1 > {target}", "&>/dev/null",
            f"1> {target} 2> {self.word()}", ">/dev/null 2>&1", "<<EOF\nx\nEOF", "<<'EOF'\n$(id)\nEOF",
            f"{{fd}}> {target}", "3>&1", ">&-", f">{target}", "> $X", "> $(pwd)/x", "> *.txt", "> ~/x", "> 'a b'",
            f"&>> {target}", "<<< 'a b'", "<<<$X", f"0< {target}", f"3< {target}", "<&0", f"2>> {target}",
            f"> ./{target}", f"> src/{target}", f"> '{target}'", f'> "{target}"', "> a=b", "> -", "> x~",
            "> /dev/stderr", "> //dev/null", "<<-EOF\n\tx\n\tEOF", "<<\\EOF\n$(id)\nEOF", f"<{target}",
            f"2>&1 | cat {target}",
        ))  # fmt: skip

    def _joined(self, count: int) -> str:
        text = self.command()
        for _ in range(count - 1):
            text += (
                self._rng.choice((" && ", " || ", "; ", " | ", " | ", " | ", "\n", " |& ", ";", " & ")) + self.command()
            )
        return text

    def _construct(self) -> str:
        rng, one, other = self._rng, self.command(), self.command()
        bare = one.replace("'", "")
        value = rng.choice(("a.txt", "$(id)", "-rf"))
        return rng.choice((
            f"( {one} )", f"{{ {one}; }}", f"({one}; {other})", f"echo $({one})", f"echo `{one}`",
            f"for f in *; do {one}; done", f"for i in 1 2; do {one}; done", f"if {one}; then {other}; fi",
            f"while false; do {one}; done", f"f() {{ {one}; }}; f", f"! {one}", f"{one} &", f"cat <({one})",
            f"[[ -f a ]] && {one}", f"X={value}; {one}", f"bash -c '{bare}'", f"eval \"{one}\"", f"{one} # comment",
            f"# comment\n{one}", f"  {one}  ", f"{one};", f"(( 1 + 1 )); {one}", f"case a in a) {one};; esac",
            f"coproc {one}", f"echo \"$({one})\"", f"diff <({one}) <({other})", f"test -f a && {one} || {other}",
            f"X=1 Y=2 {one}", f"{one} \\\n  -x", f"time {one}", f"echo '{bare}'", f'echo "{bare}"',
            f"find . -name '*.py' | xargs {one}", f"{one} | while read l; do echo $l; done",
            f"until true; do {one}; done", f"select x in a; do {one}; done", f"a=({one}); echo",
            f"function g {{ {one}; }}", f"export X=1 && {one}", f"set -e; {one}", f"cat <<EOF\n$({one})\nEOF",
            f"true && ({one}) || {other}", f"cd src && cd .. && {one}", f"cd /home/dev/proj && {one}", f"{one}|{other}",
            f"{one}&&{other}", f"{one} \\\n", f"\t{one}", f"{one} #x", f"{one} # '\n{other}", f"timeout 5s {one}",
            f"nice -n 5 {one}", f"xargs -n1 {one}", f"find . -exec {one} \\;", f"find . | xargs {one}",
            f"{one}\n\n{other}", f"cd . && {one}", f"{one} && cd src", f"cat a.txt | {one}", f"{one} | head -5",
            f"{one} 2>&1 | tail -n 5", f"{one} && echo ok || echo failed", f"cd src && {one} && cd ..",
            f"cd ~/other && {one}", f"cd secret; {one}", f"env {one}", f"command {one}",
            f"[ -f a.txt ] && {one}", f"if test -d src; then {one}; else {other}; fi", f"cd ~/proj && {one}",
            f"cd ../proj; {one}", f"cd '' && {one}", f"cd s* && {one}", f"{one} & {other} | cat", f"{one} & {other}",
            f"{one} \\\n | {other}", f"{one} | \\\n {other}", f"{one}\\\n", f"{one} \\\n && {other}",
            f"cd src && {one} < b.py", f"{one} < a.txt; cd src", f"[[ -d src && -f a.txt ]] && {one}",
            f"[[ a =~ b || ( c < d ) ]] || {one}", f"cat <<'E' | {one}\nx\nE", f"{{ {one}\n{other}\n}}",
            f"echo $((1 + 2)) && {one}", f"builtin {one}", f"command -p {one}", f"noglob {one}", f"command -- {one}",
            f"timeout -s KILL 5 {one}", f"timeout 5 nice {one}", f"cd -- src && {one}", f"cd -P src && {one}",
            f"{one} |& {other}", f"{one} >/dev/null | {other}", f"if {one}\nthen {other}\nfi",
            f"{one}\n# it's\n{other}", f"cd src && cd .. && {one}", f"cd secret; cd ..; {one}",
            f"cd /tmp && cd src && {one}",
            f"cd && {one}", f"cd; {one}", f"cd - && {one}", f"popd; {one}", f"cd secret && env {one}",
            f"sh -c 'cd src && {bare}'", f"cd secret && bash -c '{bare}'", f"/usr/bin/nice {one}", f"2>&1 2>&1 {one}",
            f"(( $# < 2 )) && {one}", f"((a $({bare})))", f"echo $(( $({bare}) - 5 ))", f"{one} # ((",
            f"pushd src && {one}", f"(({one}))", f"(({one}) | cat)", f"{one}\\\\; {other}",
            f"cd  /home/dev/proj; {one}", f"cd /home/dev/proj; {one} | cat", f"{one} | cat; cd /home/dev/proj",
            f"cd \\. | {one}", f"c''d .; {one} | cat", f"cd -x && {one}", f"cd s* && {one}", f"nice '{bare}'",
            f"'{bare}'", f"timeout '5 {bare}'", f"nice ' {bare}'", f"A=1 f() {{ {one}; }}; f", f"{one} -x/../y",
            f"{one} -- -x", f"{one} '-x$X'", f"{one} -k..", f"{one.replace(' ', chr(10), 1)}", f"{one} ''", f"{one} $X",
            f"{one.replace(' ', ' <<< x ', 1)}", f"{one} > x y", f"{one} {{fd}}>&1", f"{one} >(cat)",
            f"f() {{ bash -c '{bare}'; }}", f"bash -c $'{bare}'", f"case a in a) sh -c '{bare}';; esac", f"{one} '",
            f"echo $({one}; ({other}))", f"echo $({one};;)", f"> o {{ cd x; {one}; }}", f"foo -exec {one} \\;",
            f"{one} ((a))", f"x{value} (({bare}))", f"echo ${{x:-`{one}`}}", f"echo ${{x:-$({one} \\\n)}}",
            f"else {one}", f"watch '{bare}'", f"watch {one}", f"ionice - -n7 {one}", f"sudo {one}",
            f"bash -c $'{bare}\\x20'",
            f"bash -c 'alias x=y; {bare}'", f"sh -c '{bare} ${{#x}}'", f"setsid -w {one}", f"strace - {one}",
            f"{one} <<\n'E'\nx\nE", f"xargs -n1 {one}", f"cd src && /usr/bin/nice {one}",
        ))  # fmt: skip
