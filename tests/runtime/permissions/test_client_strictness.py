"""Lines that the newest client asks about although they look harmless, and similar lines that it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.permissions.requests import bash_request, decide_request
from toolspan.runtime.permissions import Permissions, Rules
from toolspan.runtime.permissions.modes import Mode
from toolspan.types.decision import Allow, Ask, Decision, Deny


def on_line(permissions: Permissions, command: str, project: Path) -> Decision:
    return decide_request(permissions, bash_request(command, project))


@pytest.mark.parametrize(
    "command",
    [
        "[ -f = a.txt ]", "[[ -n == a ]]",
        "ls src//..", "diff a/./.. b", "wc .../..", "cd src//..", "git diff a/..", "git diff HEAD src//..",
        "jq '.a[]' x \\\n y", "rg 'a*' \\\nsrc", "timeout 5 jq '.[]' \\\n x", "git log --format='[%h]' \\\n -5",
        "X=1", "X=1; ls", "X=a.b", "X=1 Y=2", "LC_ALL=C", "for i in 1 2; do ls; done", "LANG=/x ls", "TZ=../x date",
        "COLUMNS=x ls", "LANG=C uniq -d", "cp", "rm", "tee", "jq", "sed -i s/a/b/", "ls =x", "comm a *.txt",
        "help a/b", "find . -Foobar x", "find . -foobar '*'", "find . -cpio x", "find . '*.txt'", "timeout '5' date",
        "LANG=C timeout 5 date",
        "\\timeout 5 date", "echo -$((1))", "echo $((x))", 'echo "$((1))"', "touch $((1))", "git branch x --list",
        "git reflog list delete", "[[ 1 -eq x ]]", "[[ !(a) ]]",
        "git log $((1))", "printf x $((1))", "which $((1))", "lsof \\\n \\*",
        "timeout 5 cd x", "command timeout 5 cd x", "which ls \\\\; uniq -c", "find . \\\n -name '*.py'",
        "echo $((1\n + 2)) && ls", "git log --format=%h%GK", "git show '%+G?'", "git branch --list %Gx",
        "git for-each-ref --sort=-signature:grade",
        "git log --format='%(contents:signature)'", "git rev-list '%(signature)'", "git tag -l '% G?'",
        "timeout \u0663 ls", "git log -n \u0663", "git log -\u00b2", "xargs -n \u00b2", "test \u0663 -eq \u0663",
        "LC_MESSAGES=C ls", "LC_COLLATE=C date", "NODE_ENV=/x ls", "CI=a/../b ls",
        "<<< x ls <<'EOF'\ny\nEOF", "jq <<< x -r .a", "hostname -ss", "hostname -fs",
        "sed -n \u0663p a.txt", "history \u0663", "grep -A\uff15 x a.txt", "printf %d \u0663",
        "echo 'a <-> b'", "ls # <1-2>", 'grep "x~[y" a', 'ls "a"{b,c}', "ls 'a$x'/*", 'ls "~"/*', 'rm "a b"/*',
        'echo "$(pwd)"', 'echo "x$(pwd)"', 'echo "-n $(pwd)"', 'echo "x $(make)"', 'echo "x $(ls | wc -l)"',
        'echo "x $(cat /etc/passwd)"', 'echo "x $(touch a)"', 'A=1 echo "x $(pwd)"', 'mkdir "x $(pwd)"',
        "echo $((1 + 2))", "[[ a && (b) ]]", "2>/dev/null ls", "cd . && cat < x", "cd -", "ls \\\n",
        "cat <<'E'\nx = {'a': 1}\nE", "cat <<'E'\n# don't {'a'}\nE", "cat <<'E'\n\\\" {'a'}\nE",
    ],
)  # fmt: skip
def test_a_line_that_is_not_fully_understood_is_asked_about(tmp_path: Path, command: str) -> None:
    assert isinstance(on_line(Permissions(), command, tmp_path), Ask)


@pytest.mark.parametrize(
    "command",
    [
        "LANG=C ls", "LC_TIME=C ls", "LS_COLORS=x ls", "CGO_ENABLED=0 ls", "NODE_ENV=a/b ls",
        "LANG=en_US.UTF-8 ls", "TZ=Europe/Berlin date", "COLUMNS=80 ls", "uniq -d",

        "while false; do ls; done", "free -h x", "find . -newermt 2020 -name x", "xargs -0 grep x",
        "timeout 5 date",
        "git branch --sort=x --list", "git branch -r -l x", "git tag --contains x",
        "git reflog list", "noglob ls", "command -- ls",
        "man ls", "git log --grep=signature", "git log --format=%h%gD", "git diff -- signature.py",
        "head -n \u0663 a.txt", 'ls "a!"/b', "cat x'!'y",
        'ls "a b"/*', 'ls x/"a"?', "find . -foobar x -name '*.md'", "find . , -name x", "echo '<a-b> <1--2> ~ ['",

        "cat - <<'E'\nprint((1))\nE",
    ],
)  # fmt: skip
def test_a_line_that_is_fully_understood_runs(tmp_path: Path, command: str) -> None:
    assert isinstance(on_line(Permissions(), command, tmp_path), Allow)


@pytest.mark.parametrize("command", ["grep 'a$' x", 'grep "^$" x', "sed -n '/x/p' x", "sed '$d' x", "awk '/x/' x"])
def test_a_rule_for_a_program_covers_its_script(tmp_path: Path, command: str) -> None:
    permissions = Permissions(Rules(allow=["Bash(grep:*)", "Bash(sed:*)", "Bash(awk:*)"]))

    assert isinstance(on_line(permissions, command, tmp_path), Allow)
    assert isinstance(on_line(permissions, f"{command} /etc/passwd", tmp_path), Ask)


@pytest.mark.parametrize(
    ("command", "runs"),
    [
        ("NODE_ENV=x make", True), ("NODE_ENV=a:b/c-1 make", True), ("NODE_ENV='x' make", False),
        ('LANG="C" make', False), ("NODE_ENV= make", False), ("NODE_ENV=a,b make", False), ("LANG='C' ls", True),
        ("timeout 5 make", True), ("timeout 5 watch make", False), ("xargs script make", False),
        ("nice if make", False), ("timeout 5 'then' make", False), ("timeout 5 /usr/bin/nice -n5 make", False),
        ("nice nohup strace make", False), ("command -v make A=1", False), ("command -V A=1 make", False),
    ],
)  # fmt: skip
def test_a_rule_covers_only_plain_assignments_and_no_starter_in_a_wrapper(
    tmp_path: Path, command: str, runs: bool
) -> None:
    rules = Rules(allow=[f"Bash({name}:*)" for name in ("make", "timeout", "xargs", "nice", "command")])
    assert isinstance(on_line(Permissions(rules), command, tmp_path), Allow) is runs


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        ("timeout 5 A=1 rm x", "Bash(rm:*)"), ("nohup A=1 B=2 rm x", "Bash(rm x)"), ("'A=1' rm x", "Bash(rm *)"),
        ("e''cho a && b", "Bash(echo a && b:*)"),
        ("A=1 timeout 5 B=2 nice C+=3 rm x", "Bash(rm:*)"), ("pwd; A=1 ls", "Bash(A=1 ls)"),
        ("pwd && A='1' ls -a", "Bash(A=1 ls:*)"), ("time A=1 ls | cat", "Bash(A=* ls)"),
        ('pwd; A="1" ls', 'Bash(A="1" ls)'),
    ],
)  # fmt: skip
def test_a_denied_command_is_found_behind_and_with_assignments(tmp_path: Path, command: str, rule: str) -> None:
    permissions = Permissions(Rules(allow=["Bash"], deny=[rule]))
    assert not isinstance(on_line(permissions, command, tmp_path), Allow)


@pytest.mark.parametrize(
    "command",
    [
        "git\npush", "'git  push'", "env 'git\tpush' x", "git\\  push", "' rm' x", "timeout 5 ' \\\nrm'", "'\u2003rm'",
        "ls | '\t' rm x", "strace 'nice rm' x", "'timeout 5 rm x'", "nice 'A=1 rm x'", "nice 'xargs rm' x",
        "0< a rm", "ls; 0<&1 rm x", "0<<< x rm y", "foo bar 0< a", "foo --force ''", "foo --force {fd}>&1",
        "foo bar > x y", "foo bar <<'E' y\nx\nE", "foo b <<< x | cat", "foo <<< --force; ls", "foo bar $f",
        "for f in a; do foo --force $f; done", "A=1\nfoo", "LANG=C  A=1 foo", "'\u00a0A=1' foo",
        "ls | git \npush", "A=2 git\npush x", "builtin '-- nice git push'", "nice '-n 5 rm x'", "timeout '5 rm x'",
        "timeout '5 rm x > y'", "foo --force $'a\\tb'",
        "stdbuf '-oL rm' x", "env -v 'A=1 rm x'", "foo --force >(cat)", "'\ufeff'rm x", "'\\nice' rm x",
        "builtin command - 'rm x'", "command - rm x", "<&- test A=1 rm x", "\\A\\[\\0\\]\\=\\1 rm x & ls",
    ],
)  # fmt: skip
@pytest.mark.parametrize("mode", ["default", "bypassPermissions"])
def test_a_denied_command_is_found_between_other_blanks_quotes_and_redirects(
    tmp_path: Path, command: str, mode: Mode
) -> None:
    denied = ["Bash(rm:*)", "Bash(git push:*)", "Bash(foo bar)", "Bash(* --force)", "Bash(A=1 foo)", "Bash(foo * x)"]
    permissions = Permissions(Rules(allow=["Bash"], deny=denied), mode)

    assert not isinstance(on_line(permissions, command, tmp_path), Allow)
    assert isinstance(on_line(permissions, 'echo "rm  it"; foo x baz', tmp_path), Allow)
    assert isinstance(on_line(permissions, "cat <<'E'\nls; rm x\nE\necho 'a\nrm x'", tmp_path), Allow)


@pytest.mark.parametrize("command", ["> #x cat k.pem", ">&#x head k.pem"])
def test_a_denied_file_is_found_after_a_redirect_to_a_comment(tmp_path: Path, command: str) -> None:
    assert isinstance(on_line(Permissions(Rules(allow=["Bash"], deny=["Read(k.pem)"])), command, tmp_path), Deny)


@pytest.mark.parametrize("rule", ["Bash(l*)", "Bash(ls:*)", "Bash(ls *)", "Bash(ls)"])
@pytest.mark.parametrize("command", ["awk x > #x | ls", "awk x >& #x; ls", "awk x &> # && ls"])
@pytest.mark.parametrize("mode", ["default", "bypassPermissions"])
def test_a_denied_command_is_found_in_a_line_that_cannot_be_parsed(
    tmp_path: Path, command: str, rule: str, mode: Mode
) -> None:
    permissions = Permissions(Rules(allow=["Bash"], deny=[rule]), mode)

    assert isinstance(on_line(permissions, command, tmp_path), Deny)


@pytest.mark.parametrize(
    ("command", "runs"),
    [
        ('cd "$HOME/x" && git log', False), ('cd "$HOME/x" && git log | head', False),
        ('git log | head; cd "$HOME/x"', False), ('cd "$HOME/x" && cat a | head', True),
        ("cd . && git log | head", False), ("cd '.' && git log | head", False), ("cd \\. && git log | head", False),
        ("cd ''.; git log | head", False), ("c''d . | git log", False),
    ],
)  # fmt: skip
def test_git_in_a_pipeline_after_a_variable_folder_is_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, runs: bool
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    project = tmp_path / "x"
    (project / ".git").mkdir(parents=True)

    assert isinstance(on_line(Permissions(), command, project), Allow) is runs


def test_a_quoted_program_after_xargs_in_a_wrapper_is_not_covered_by_its_rule(tmp_path: Path) -> None:
    permissions = Permissions(Rules(allow=["Bash(make *)"]))

    assert isinstance(on_line(permissions, "timeout 5 xargs make", tmp_path), Allow)
    assert isinstance(on_line(permissions, "timeout 5 xargs 'make'", tmp_path), Ask)


@pytest.mark.parametrize(
    ("command", "runs"),
    [
        ("npm run test", True),
        (" npm run test ", True),
        ("npm  run test", False),
        ("npm\trun test", False),
        ("npm run test { }", False),
    ],
)
def test_an_exact_rule_matches_only_the_same_blanks_and_words(tmp_path: Path, command: str, runs: bool) -> None:
    permissions = Permissions(Rules(allow=["Bash(npm run test)"]))
    assert isinstance(on_line(permissions, command, tmp_path), Allow) is runs


def test_a_rule_with_a_final_star_matches_any_blanks(tmp_path: Path) -> None:
    permissions = Permissions(Rules(allow=["Bash(npm run test:*)"]))
    assert isinstance(on_line(permissions, "npm  run test x", tmp_path), Allow)


def test_no_rule_allows_a_command_without_a_name(tmp_path: Path) -> None:
    permissions = Permissions(Rules(allow=["Bash(c* *)"]))

    assert isinstance(on_line(permissions, "command ls x", tmp_path), Allow)
    assert isinstance(on_line(permissions, 'command command "" cd x', tmp_path), Ask)


@pytest.mark.parametrize(
    ("command", "runs"),
    [("foo a.txt", True), ("foo a.txt < c.txt", True), ("foo a.txt <<< x", False), ("qux 1 <<< x", False)],
)
def test_a_here_string_is_part_of_the_text_that_a_rule_matches(tmp_path: Path, command: str, runs: bool) -> None:
    permissions = Permissions(Rules(allow=["Bash(* a.txt)", "Bash(qux *)"]))

    assert isinstance(on_line(permissions, command, tmp_path), Allow) is runs


@pytest.mark.parametrize(
    ("command", "runs"),
    [
        ("echo $(", False), ("echo $( ls", False), ("echo ${x", False), ("echo $((1+", False), ('echo "$(ls"', False),
        ("echo a; echo $(", False), ("echo '$('", True), ("echo `ls", False), ("(ls", False), ('echo "abc', True),
        ("echo $(ls) )", False), ("> x then ls", False), ("pwd && 2>&1 while ls", False), ("{ > x A=1 do y; }", False),
        ("< x > 'a b' fi", False), ("echo > x then", True), ("> x thenx", True), ("echo '\n> x then'", True),
        ("a#b $(", False), ("a#b ${c", False), ("a#b $(c)", False),
        ("((a\\b))", False), ("ls && ((ls) | cat)", False), ("if ((a'b')); then ls; fi", False), ("((a$(b)))", False),
        ("((a $(b)))", False), ("(( $(b)$(c) ))", False), ("(( a $# ))", False), ("(( $# < 2 )) && ls", False),
        ("echo $(( $(date +%s) - 5 ))", False), ("((${#a[@]} > 0))", False), ("# c\ngrep -E '((a|b)\\.x)' x", True),
        ("ls # ((", False), ("ls < a # ((", False), ("ls 2>&1 # ((", False),
        ("cat <<<x\n((ls y) | cat)\nx", False), ("2>&1 " * 40 + "ls", True),
        (";a=" * 3_000, True), ("(a=$(" * 9_000, False), ("2>&1 " * 40 + "then", False),
        ("echo ${@Q}", False), ("echo ${1x}", False), ("echo ${a:-{b}}", False), ('echo "${a//{/x}"', False),
        ("echo ${a:-${b}}", True), ("echo '${a{b}}'", True), ("cat <<'E'\n${a{b}}\nE", True), ("echo ${@%x}", False),
        ("(((a + b) * 2))", False), ("for ((i=0;i<3;i++)); do ls; done", False), ("rg '\\((\\w+)' x", True),
        ("python3 - <<'E'\nf((1, 'x'))\nE", True), ("A=1 f() { ls; }; f", False), ("ls; > x f() { ls; }", False),
        ("A[0]=1 2>&1 f () { ls; }", False), ("f() { A=1 ls; }", True), ("python3 -c 'a=1 f()'", True),
        ("bash +5 -c 'rm x'", False), ("sudo /bin/sh -x +_ -ec 'ls; rmdir x'", False), ("bash -x -c 'rm x'", True),
        ("bash +5 -c ls", True), ("bash +5 rm x", False),
    ],
)  # fmt: skip
def test_an_open_expansion_is_asked_about_whatever_is_allowed(tmp_path: Path, command: str, runs: bool) -> None:
    bypassed = on_line(Permissions(mode="bypassPermissions"), command, tmp_path)
    allowed = on_line(Permissions(Rules(allow=["Bash"])), command, tmp_path)

    assert isinstance(bypassed, Ask) is not runs
    assert isinstance(allowed, Ask) is not runs


@pytest.mark.parametrize("command", ["sed<<<x -i s/a/b/ f", "rm<<<x f", "touch f <<< x"])
def test_an_edit_with_a_here_string_is_asked_about(tmp_path: Path, command: str) -> None:
    assert isinstance(on_line(Permissions(mode="acceptEdits"), command, tmp_path), Ask)


@pytest.mark.parametrize(
    ("command", "runs"),
    [("git commit -m", True), ("jq", False), ("env", False), ("timeout 5 awk", False), ("printf", False)],
)
def test_a_literal_text_of_several_lines_is_not_a_program(tmp_path: Path, command: str, runs: bool) -> None:
    rules = Rules(allow=[f"Bash({name}:*)" for name in ("git", "env", "awk", "xargs", "printf")])
    line = f"{command} \"$(cat <<'EOF'\na\nb\nEOF\n)\""

    assert isinstance(on_line(Permissions(rules), line, tmp_path), Allow) is runs


@pytest.mark.parametrize("mark", ["EOF", "MSG"])
@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ('a "b" c', True), ("# a\n- b", True), ("a\n\n## b `c`", True), ("{a,b}", True), ("a || b \"c\"", True),
        ("filesystem(x)", True), ("a | b 'c'", True), ("a | b; \"c\"", True), ("@x y (z)", True), ("- a\nb", True),
        ("system(x)", False), ("os.system (x)", False), ("a | b\n\"c\"", False), ("a |& getline", False),
        ("@load", False), ("@ include", False), ("@x (y)", False), ("@x::y[1](z)", False), ('"/inet4/x"', False),
        ("-a b\nc", False), ("--a\nb", False), ("a <-> b", False), ("~[a]", False), ("a \\\nb", False),
        ("a =b", False), ("a \"b {\"c\"}", False), ("/proc/1/environ", False),
    ],
)  # fmt: skip
def test_a_literal_text_of_several_lines_is_searched_for_code(tmp_path: Path, text: str, mark: str, runs: bool) -> None:
    line = f"git commit -m \"$(cat <<'{mark}'\n{text}\n{mark}\n)\""

    assert isinstance(on_line(Permissions(Rules(allow=["Bash(git:*)"])), line, tmp_path), Allow) is runs


@pytest.mark.parametrize(
    ("text", "runs"),
    [('{"a": 1}', True), ('a \\n b\\"', True), ("a \\ b", False), ("a \"b\" {'c'", True), ("EOF x", False)],
)
def test_a_literal_text_of_several_lines_may_contain_braces_and_escapes(tmp_path: Path, text: str, runs: bool) -> None:
    line = f"git add a && git commit -m \"$(cat <<'EOF'\n{text}\nEOF\n)\" 2>&1 | tail -3"

    assert isinstance(on_line(Permissions(Rules(allow=["Bash(git:*)"])), line, tmp_path), Allow) is runs


@pytest.mark.parametrize("command", ["cd . || mkdir", "cd src && rm", "cd src; touch", "cd src && cp", "cd . ; mv"])
def test_an_edit_without_files_is_asked_about_after_a_change_of_folder(tmp_path: Path, command: str) -> None:
    rules = Rules(allow=[f"Bash({name}:*)" for name in ("mkdir", "rm", "touch", "cp", "mv")])

    assert isinstance(on_line(Permissions(rules), command, tmp_path), Ask)
    assert isinstance(on_line(Permissions(rules), "mkdir", tmp_path), Allow)


@pytest.mark.parametrize(
    ("command", "runs"),
    [
        ("cd @; mkdir y", False), ("cd @\nmkdir y", False), ("cd @ && mkdir y | cat", True),
        ("cd  @ && mkdir y", False),
        ("cd @ && ls | cat; mkdir y", True), ("ls && cd @ && mkdir y", False),
        ("cd  @; mkdir y", False), ("cd\t@; echo > y", False), ("cd  @ && mkdir y | cat", False),
        ("cd @; mkdir y | cat", False), ("cd @; ls |& cat; mkdir y", False), ("ls | cat && cd @ && mkdir y", False),
        ("mkdir y | cat && cd @", False), ("cd @ || mkdir y | cat", False),
        ("cd @ && \\\nls", False), ("cd @ && ls \\\n -a", True),
    ],
)  # fmt: skip
def test_a_change_to_the_current_folder_is_ignored_only_in_its_plain_form(
    tmp_path: Path, command: str, runs: bool
) -> None:
    permissions = Permissions(mode="acceptEdits")

    assert isinstance(on_line(permissions, command.replace("@", str(tmp_path)), tmp_path), Allow) is runs


@pytest.mark.parametrize("wrapper", ["", "command ", "timeout 5 ", "nohup nice -n 5 ", "timeout 5 xargs "])
@pytest.mark.parametrize(
    ("command", "runs"),
    [
        ("npm run test", True), ("npm run test 'a b'", True), ("npm run test '' <<< x", False), ("foo <<< x y", False),
        ("npm 'run' test", False), ("npm run'' test", False), ("npm run te\\st", False), ("npm 'run test'", False),
        ("npm <<< x run test", False), ("npm run <<<'x y' test", False), ("foo x <<\n'E'\ny\nE", False),
    ],
)  # fmt: skip
def test_a_rule_matches_the_words_of_a_program_as_they_are_written(
    tmp_path: Path, wrapper: str, command: str, runs: bool
) -> None:
    permissions = Permissions(Rules(allow=["Bash(npm run test:*)", "Bash(foo *)"]))

    assert isinstance(on_line(permissions, wrapper + command, tmp_path), Allow) is runs


@pytest.mark.parametrize(
    ("command", "runs"),
    [
        ("time a+b x", True), ("nohup ./a~ x", True), ("timeout 5 a,b x", False), ("time a,b x", False),
        ("nohup a:b x", False), ("time \u00fc x", False), ("time : x", False), ("nohup @a x", False),
        ("LANG=C foo x", True), ("TZ=UTC export X", False), ("LANG=C export X", False), ("LC_ALL=C : x", False),
        ("TZ=UTC LANG=C set -x", False), ("COLUMNS=8 export X", False), ("set a* x", False), ("find . '' x '*'", False),
        ("find . -X '*' x", False), ("find . , -name '*' x", True), ("foo --x='a' --y=\"a\\|b\"", True),
        ("foo x { }", False), ("awk -v x=f y", True), ("awk -Ff x", True),
        ("awk -nf x", False), ("awk x -bE y", False), ("awk --fil=x y", False), ("awk --so x", False),
        ("grep -f a x", True), ("grep -fa x", True), ("grep -f/etc/passwd x", False), ("rg x -f../x", False),
        ("rg --file=/etc/passwd x", False), ("git grep -f/etc/passwd x", False),
    ],
)  # fmt: skip
def test_a_rule_does_not_cover_odd_names_kept_variables_and_joined_files(
    tmp_path: Path, command: str, runs: bool
) -> None:
    permissions = Permissions(Rules(allow=["Bash(*x*)", "Bash(* X)"]))

    assert isinstance(on_line(permissions, command, tmp_path), Allow) is runs


@pytest.mark.parametrize("command", ["man -k -", "man --whatis - ls", "cat <<\n'E'\nx\nE", "ls << \n 'E'\nx\nE"])
def test_a_dash_of_man_and_a_here_document_without_a_delimiter_are_asked_about(tmp_path: Path, command: str) -> None:
    assert isinstance(on_line(Permissions(), command, tmp_path), Ask)
    assert isinstance(on_line(Permissions(), "man ls", tmp_path), Allow)


@pytest.mark.parametrize("command", ["xargs -n1 git status", "/usr/bin/nice sed -n 1p a", "env sed -n 1p a"])
def test_git_and_sed_in_wrappers_are_asked_about_after_a_change_of_folder(tmp_path: Path, command: str) -> None:
    permissions = Permissions(Rules(allow=["Bash(* *)"]))

    assert isinstance(on_line(permissions, command, tmp_path), Allow)
    assert isinstance(on_line(permissions, f"cd src && {command}", tmp_path), Ask)


@pytest.mark.parametrize("command", ["echo x > y", "cat /etc/passwd", "eval ls", "X=1", "cd .. && ls"])
def test_a_pattern_of_two_stars_does_not_allow_the_whole_tool(tmp_path: Path, command: str) -> None:
    permissions = Permissions(Rules(allow=["Bash(**)"]))

    assert isinstance(on_line(permissions, command, tmp_path), Ask)
    assert isinstance(on_line(permissions, "make x", tmp_path), Allow)


@pytest.mark.parametrize(
    "command",
    [
        "command export LD_PRELOAD=x",
        "command -p 'export' X=1",
        "builtin declare X=1",
        "ex\\port X=1",
        "time export X=1",
    ],
)
def test_a_hidden_declaration_is_asked_about_in_spite_of_a_rule(tmp_path: Path, command: str) -> None:
    permissions = Permissions(Rules(allow=["Bash(* *)", "Bash(command:*)", "Bash(builtin:*)", "Bash(time:*)"]))

    assert isinstance(on_line(permissions, command, tmp_path), Ask)
    assert isinstance(on_line(permissions, "command ls x", tmp_path), Allow)


@pytest.mark.parametrize("command", ["rm -rf<<'EOF'\nx\nEOF", "cat -n<<'EOF'\nx\nEOF", "rm -rf <<-EOF\nx\nEOF"])
def test_an_option_that_touches_a_here_document_is_denied(tmp_path: Path, command: str) -> None:
    permissions = Permissions(Rules(allow=["Bash"], deny=["Bash(rm -rf:*)", "Bash(cat -n:*)"]))

    assert isinstance(on_line(permissions, command, tmp_path), Deny)


def test_a_script_in_a_here_document_runs_if_a_rule_allows_its_program(tmp_path: Path) -> None:
    permissions = Permissions(Rules(allow=["Bash(python3:*)"]))

    for command in ("python3 - <<'EOF'\nprint(1)\nEOF", "cd . && python3 - <<'EOF'\nprint(1)\nEOF"):
        assert isinstance(on_line(permissions, command, tmp_path), Allow)
