"""Patterns for secrets: the keys that vendors issue, and the commands and functions that take a secret as an argument.

The tables are data for `secrets.py`. They omit the keys that the rules of gitleaks match.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from toolspan.redaction.secret_names import plausible_secret


class SecretMatch(NamedTuple):
    """A secret or personal item in a string."""

    start: int
    end: int
    kind: str
    """The name of the kind in placeholders, such as `key` in `[key-1]`."""
    rule: str
    """The rule that recognized it."""


def plausible_matches(pattern: re.Pattern[str], line: str, kind: str, rule: str) -> Iterator[SecretMatch]:
    """Yield the values that a pattern finds in its named group, without their quotes, if they can be secrets."""
    return plausible_values(pattern.finditer(line), kind, rule)


def plausible_values(matches: Iterable[re.Match[str]], kind: str, rule: str) -> Iterator[SecretMatch]:
    """Yield the values in the named groups of `matches`; see `plausible_matches`."""
    for match in matches:
        group = next(name for name in match.re.groupindex if match[name] is not None and name != "user")
        start, end = match.span(group)
        if match[group][0] in "\"'":
            start, end = start + 1, end - 1
        if plausible_secret(match.string[start:end]):
            yield SecretMatch(start, end, kind, rule)


def join_hints(parts: Iterable[str]) -> re.Pattern[str]:
    """Return one pattern that matches wherever any of the parts matches.

    perf: parts with the same first two characters are grouped, so that most of them are skipped at once.
    """
    return re.compile(_join_alternatives(dict.fromkeys(parts), levels=2))


def _join_alternatives(parts: Iterable[str], levels: int) -> str:
    groups: dict[str, list[str]] = {}
    for part in parts:
        first = re.match(r"(?:\\\W|[^\W_]|[-:<~])(?![?*+{])", part) if levels else None
        groups.setdefault(first[0] if first else part, []).append(part[first.end() :] if first else "")
    others = {first: rest for first, rest in groups.items() if not first.isascii() and len(first) == 1}
    alternatives = [
        f"{first}(?:{_join_alternatives(rest, levels - 1)})" if any(rest) else first
        for first, rest in groups.items()
        if first not in others
    ]
    if others:  # perf: most texts contain none of these letters
        names = (f"(?<={first})(?:{'|'.join(rest)})" for first, rest in others.items())
        alternatives.append(f"[{''.join(others)}](?:{'|'.join(names)})")
    return "|".join(alternatives)


_START = r"(?<![0-9A-Za-z])"
KEY_FORMS = re.compile(
    "|".join(
        (
            rf"{_START}sk-(?!ssh-|ecdsa-)[\w-]{{16,}}|sk-(?:admin|ant|or|proj|svcacct)-[\w-]{{12,}}",
            r"[rsp]k_(?:live|test)_\w{8,}|[a-z]{2,8}_(?:live|test)_(?=[A-Za-z]*\d)[0-9A-Za-z]{12,}|whsec_[\w+/=]{16,}",
            r"gh[oprsu]_[A-Za-z0-9]{16,}|github_pat_\w{16,}",
            r"gl(?:pat|dt|rt|cbt|ptt|ft|soat|imt|agent|oas|ffct)-[\w.-]{12,}",
            rf"{_START}(?:AKIA|ASIA|AROA|AIDA|AGPA)[0-9A-Z]{{12,}}",
            r"AIza[\w-]{20,}|ya29\.[\w-]{16,}|GOCSPX-[\w-]{16,}|1//0[\w-]{30,}",
            r"xox[abeoprs]-[\w-]{8,}|xapp-[\w-]{12,}",
            rf"{_START}(?:npm_[A-Za-z0-9]{{20,}}|pypi-Ag[\w-]{{16,}}|hf_[A-Za-z0-9]{{16,}}|d[oop]+_v1_[0-9a-f]{{32,}})",
            r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{16,}|SG\.[\w-]{16,}\.[\w-]{16,}",
            r"(?<!\d)\d{8,10}:AA[\w-]{32,}",  # Telegram bots
            r"AGE-SECRET-KEY-1[0-9A-Z]{20,}|[xyz]prv[0-9A-Za-z]{100,112}",
            r"eyJ[\w-]{6,}\.[\w-]{4,}(?:\.[\w-]*)*|ops_eyJ[\w+/=-]{40,}",  # JSON web tokens
            rf"{_START}[5KL][1-9A-HJ-NP-Za-km-z]{{50,51}}(?![0-9A-Za-z])",  # Bitcoin
            rf"{_START}live_(?=[A-Za-z]*\d)[0-9A-Za-z]{{24,}}(?![0-9A-Za-z])",
            r"(?:ssh-(?:rsa|ed25519|dss)|ecdsa-sha2-nistp\d{3}) AAAA[\w+/=]{20,}",
            rf"{_START}(?:SK|AC)[0-9a-f]{{32}}(?:[\"'\\,: ]{{1,6}}[0-9a-f]{{32}})?(?![0-9A-Za-z])",  # Twilio
            rf"{_START}[0-9a-f]{{32}}-us\d{{1,2}}(?![0-9A-Za-z])",  # Mailchimp
            rf"{_START}key-[0-9a-f]{{32}}(?![0-9A-Za-z])",  # Mailgun
            rf"{_START}(?:gsk|xai|tvly|r8|fw|nvapi|lsv2_pt|lsv2_sk|phc|phx|sbp|vcp|dckr_pat|tskey|cio|whsec)[-_][\w-]{{20,}}",
            rf"{_START}(?:CCIP(?:AT|RJ)|figd|ntn|CFPAT|sq[apu]|rnd|pcsk|jina|e2b|sgp|waka|nfp|re|sb_secret|hcaik|lip|napi|rpa|csk)[-_]"
            r"(?=[A-Za-z_-]{0,80}\d)[\w-]{20,}",
            rf"{_START}(?:sk_[0-9a-f]{{32,}}|fc-[0-9a-f]{{32}})(?![\w-])|{_START}sl\.(?:u\.)?[\w-]{{100,}}|{_START}oy2[a-z0-9]{{43}}(?![0-9A-Za-z])",
            rf"{_START}[a-z][0-9a-z]{{1,11}}_(?:live|test|prod|api|pat|key|secret|token|ma)_(?=[A-Za-z]*\d)[0-9A-Za-z]{{20,}}",
            rf"{_START}(?:AT(?:BB|CTT3)[0-9A-Za-z=_-]{{20,}}|da2-[a-z0-9]{{26}}|SCW[0-9A-Z]{{17}}|a[ks]-[0-9A-Za-z]{{22}}|(?:access-(?:sandbox|production)|pat-\w{{2}}\d)-[0-9a-f-]{{36}}|NR(?:BR|II|IQ|AK|JS|AL)-[\w-]{{18,}}|pat[0-9A-Za-z]{{14}}\.[0-9a-f]{{64}}|f[mo]\d_[\w+/=,]{{40,}})(?![0-9A-Za-z])",
            rf"{_START}gAAAAA[\w-]{{60,}}|{_START}IQoJb3JpZ2lu[\w+/=]{{40,}}",  # Fernet, AWS sessions
            rf"{_START}EAA[A-Za-z][0-9A-Za-z]{{40,}}|{_START}[MNO][\w-]{{23,25}}\.[\w-]{{6}}\.[\w-]{{27,}}",  # Discord
            r"\$(?:2[abxy]\$\d\d\$[./0-9A-Za-z]{53}|apr1\$[^$\s]{1,8}\$[./0-9A-Za-z]{22}"
            r"|[156y]\$[^\s:\"']{0,40}\$[./0-9A-Za-z]{22,}|argon2id?\$[^\s\"']{20,})",  # password hashes
            rf"{_START}sntry[su]_[\w+/=]{{40,}}",
            r"pbkdf2_sha\d+\$\d+\$[^\s\"']{20,}|\{S?SHA(?:256|512)?\}[\w+/=]{20,}",
        )
    )
)
KEY_FORM_HINT = join_hints(
    (
        "sk-", "_live_(?=[a-z0-9])", "_test_(?=[a-z]*[0-9])[a-z0-9]{8}", "k_test_", "whsec_", "gh[oprsu]_", "github_pat_", r"gl\w{2,6}-", "akia", "asia", "aroa",  # noqa: E501
        "aida", "agpa", "aiza", r"ya29\.", "gocspx-", "1//0", "xox", "xapp-", "npm_", "pypi-ag", "hf_", "_v1_",
        r"shp\w\w_", r"sg\.", ":aa", "age-secret-key-1",
        "5[1-9a-z]{50}(?![0-9a-z])", "k[1-9a-z]{51}(?![0-9a-z])", "l[1-9a-z]{51}(?![0-9a-z])",
        "live_[0-9a-z]{24}", "prv(?<=[xyz]prv)", "eyj", "aaaa", "sk[0-9a-f]{32}",
        "ac[0-9a-f]{32}", "-us(?<=[0-9a-f]{32}-us)", "key-[0-9a-f]{32}", "eaa[a-z][0-9a-z]{40}",
        r"\.(?<=[\w-]{24}\.)[\w-]{6}\.", r"\$2[abxy]\$", r"\$apr1\$", r"\$[156y]\$", r"\$argon2", "pbkdf2_", r"\{s?sha",
        "sntry[su]_", r"gsk[-_]", r"xai[-_]", r"tvly[-_]", r"r8[-_]", r"fw[-_]", r"nvapi[-_]", r"lsv2_(?:pt|sk)[-_]", r"ph[cx][-_]",  # noqa: E501
        r"sbp[-_]", r"vcp[-_]", r"dckr_pat[-_]", r"tskey[-_]", r"cio[-_]",
        "ccip(?:at|rj)_", "figd_", "ntn_", "cfpat-", "sq[apu]_", "rnd_", "pcsk_", "jina_", "e2b_", "sgp_", "waka_", "nfp_",  # noqa: E501
        "re_", "napi_", "rpa_", "csk-", "fc-[0-9a-f]{32}", "sb_secret_", "hcaik_", "lip_", "sk_[0-9a-f]{32}", r"sl\.(?:u\.)?[a-z0-9]", "oy2[a-z0-9]{43}", "gaaaaa", "iqojb3jpz2lu",  # noqa: E501
        "_(?:live|test|prod|api|pat|key|secret|token|ma)_(?=[a-z]*[0-9])[0-9a-z]{20}", "at(?:bb|ctt3)", "da2-", "scw[0-9a-z]{17}", "a[ks]-[0-9a-z]{22}", "access-(?:sandbox|production)-", r"pat-\w\w\d-", "nr(?:br|ii|iq|ak|js|al)-", r"pat[0-9a-z]{14}\.", r"f[mo]\d_",  # noqa: E501
    )
)  # fmt: skip


class Command(NamedTuple):
    """A command with an option that takes a secret."""

    words: tuple[str, ...]
    """The literal beginnings of its name."""
    hints: tuple[str, ...]
    """Patterns for these words in lower-case text, which begin with a fixed character."""
    pattern: re.Pattern[str]
    next_option: re.Pattern[str] | None
    """A pattern for a further occurrence of the option after a match."""

    @classmethod
    def make(cls, names: str, rest: str, option: str, argument: str) -> Command:
        """Return a command with one or more names, in which `*` matches the rest of a name.

        A name with capitals matches in any case.
        """
        words = [name.rstrip("*").lower() for name in names.split()]
        end = r"(?![\w.:/-])"
        hints = [
            rf"{re.escape(word)}(?<![\w.-]{re.escape(word)})" + ("" if "*" in name else end)
            for name, word in zip(names.split(), words, strict=True)
        ]
        heads = "|".join(re.escape(name).replace(r"\*", r"\w*") for name in names.split())
        head = f"(?i:{heads})" if heads != heads.lower() else f"(?:{heads})"
        pattern = rf"(?<![\w.-]){head}{end}{rest}[^\n]{{0,400}}?[ \t](?:{option}){argument}"
        repeats = option.startswith(("-", "(?:-"))
        next_option = re.compile(rf"[^\n]{{0,200}}?[ \t](?:{option}){argument}") if repeats else None
        return cls(tuple(words), tuple(hints), re.compile(pattern), next_option)

    def find(self, line: str) -> Iterator[SecretMatch]:
        """Yield the secrets that follow the options of this command in a line."""
        rule = f"command {self.words[0]}"
        at = 0
        for finding in plausible_matches(self.pattern, line, "secret", rule):
            if finding.start < at:
                continue
            yield finding
            at = finding.end
            while self.next_option and (match := self.next_option.match(line, at)):
                yield from plausible_values((match,), "secret", rule)
                at = match.end()


_USER_OPTION = r"(?P<it>\"[^\"\n]+\"|'[^'\n]+'|[^\s\"']+:[^\s\"']*|[^\s\"']+)"
_ARGUMENT = r"(?P<it>\"[^\"\n]+\"|'[^'\n]+'|[^\s\"';|&`]+)"
_PIPED_LOGIN = (
    r"(?=(?:[^\n|;&\"']|\"[^\"\n]{0,200}\"|'[^'\n]{0,200}'){1,200}\|[ ]*(?:sudo[ ]-S|passwd|chpasswd|su[ ]"
    r"|(?:docker|podman|helm|gh|glab|vault)[ ][^|\n]{0,60}(?:login|-stdin|--with-token|secret[ ]set)"
    r"|(?:sudo[ ])?(?:cryptsetup|kinit|ssh-add|smbpasswd|vncpasswd|gpg)[ ]"
    r"|[^|\n]{1,80}[ ]--(?:pass\w*|token|secret)-stdin))"
)
COMMANDS = tuple(
    Command.make(*row)
    for row in (  # words that begin the command, what follows them, options, value
        ("curl", "", r"(?:-u|--user|--proxy-user|-U)(?:[ =]|(?=\S))", r"(?P<it>\"[^\"\n]*:[^\"\n]*\"|'[^'\n]*:[^'\n]*'|[^\s\"'-][^\s\"':]*:[^\s\"']+)"),  # noqa: E501
        ("http https httpie", "", r"(?:-a|--auth)[ =]?", _USER_OPTION),
        ("wget", "", r"--(?:http-|ftp-)?(?:user|password)[ =]", _ARGUMENT),
        ("mysql* mariadb*", "", r"(?:-p(?!\s)|--password=)", _ARGUMENT),
        ("sshpass", "", r"-p[ ]?", _ARGUMENT),
        ("redis-cli", "", r"(?:-a|--pass)[ ]", _ARGUMENT),
        ("docker podman helm az oc buildah skopeo", r" [^\n]{0,80}?login", r"(?:-p|--password)[ =]", _ARGUMENT),
        ("htpasswd", "", r"-\w*b\w*[ ]+(?:-\S+[ ]+){0,3}(?!-)[^\s]+[ ]+[^\s]+[ ]+", _ARGUMENT),
        ("openssl", "", r"-(?:pass(?:in|out)?[ ]+pass:|k[ ]|K[ ])", _ARGUMENT),
        ("mongo*", "", r"(?:-p|--password)[ =]?", _ARGUMENT),
        ("ldap*", "", r"-w[ ]?", _ARGUMENT),
        ("smbclient", "", r"-U[ ]?[^\s%]+%", _ARGUMENT),
        ("zip unzip", "", r"-P[ ]?", _ARGUMENT),
        ("7z 7za 7zr", "", r"-p", _ARGUMENT),
        ("rar unrar", "", r"-h?p", _ARGUMENT),
        ("gpg gpg2", "", r"--passphrase[ =]", _ARGUMENT),
        ("lftp", "", r"-u[ ]?", _ARGUMENT),
        ("sqlcmd bcp", "", r"-P[ ]?", _ARGUMENT),
        ("cqlsh", "", r"-p[ ]?", _ARGUMENT),
        ("clickhouse clickhouse-client", "", r"--password[ =]", _ARGUMENT),
        ("useradd usermod", "", r"(?:-p|--password)[ =]?", _ARGUMENT),
        ("nmcli", "", r"(?:password|[\w.-]*\.psk)[ ]+", _ARGUMENT),
        ("mosquitto*", "", r"-P[ ]?", _ARGUMENT),
        ("keytool jarsigner", "", r"-(?:store|key)pass[ ]", _ARGUMENT),
        ("ssh-keygen", "", r"-[NP][ ]", _ARGUMENT),
        ("xfreerdp* freerdp*", "", r"/p:", _ARGUMENT),
        ("net", " user", r"[\w.-]+[ ](?=\S*\d)", _ARGUMENT),
        ("rsync", "", r"--password=", _ARGUMENT),
        ("kubectl", "", r"--from-literal[ =][^\s=]+=", _ARGUMENT),
        ("vault", "", r"(?:kv put|write)[ ]+\S+[ ]+[\w-]+=", _ARGUMENT),
        ("gh", " secret set", r"(?:-b|--body)[ =]?", _ARGUMENT),
        ("aws", " configure set", r"\w*(?:key|token)[ ]+", _ARGUMENT),
        ("oathtool", "", r"(?:-b|--base32)[ ]", _ARGUMENT),
        ("snmp-server", "", r"community[ ](?:\d[ ])?", _ARGUMENT),
        ("radius-server tacacs-server", "", r"key[ ](?:\d[ ])?", _ARGUMENT),
        ("basicauth basic_auth", "", r"(?:/\S*[ ])?[\w.-]+[ ](?=\S*\d)", _ARGUMENT),
        ("bw", " unlock", "", _ARGUMENT),
        ("sp_addlogin sp_password", "", r"N?'[^'\n]+',[ ]?(?=N?')", r"N?(?P<it>'[^'\n]+')"),
        ("ATTACH", "", r"(?i:key)[ ]", r"(?P<it>'[^'\n]+')"),
        ("schtasks", "", r"/rp[ ]", _ARGUMENT),
        ("ipmitool", "", r"-P[ ]?", _ARGUMENT),
        ("snmp*", "", r"-(?:c|A|X)[ ]", _ARGUMENT),
        ("sqlplus exp expdp imp impdp rman tnsping", "", r"(?:\w+=)?[\"']?\w+/(?=[^\s\"']+@)", r"(?P<it>[^\s\"'/]+(?=@))"),  # noqa: E501
        ("rabbitmqctl", " (?:add_user|change_password)", r"\S+[ ]+", _ARGUMENT),
        ("npm pnpm yarn", " config set", r"\S*(?:_authToken|_auth|_password|npmAuthToken)[ =]", _ARGUMENT),
        ("snyk cargo vault flyctl vercel", "(?: config)? (?:auth|login)", r"", _ARGUMENT),
        ("ngrok", "", r"(?:add-)?authtoken[ ]+", _ARGUMENT),
        ("sonar-scanner mvn* gradle*", "", r"-Dsonar\.(?:login|token)=", _ARGUMENT),
        ("mc mcli minio-client", " (?:alias set|config host add)", r"\S+[ ]+\S+[ ]+\S+[ ]+", _ARGUMENT),
        ("aws az", " (?:ssm put-parameter|keyvault secret set|secretsmanager)", r"--(?:value|secret-string)[ =]", _ARGUMENT),  # noqa: E501
        ("doctl hcloud", " (?:auth|context)", r"(?:-t|--access-token)[ =]", _ARGUMENT),
        ("security", " add-\\w+-password", r"-w[ ]", _ARGUMENT),
        ("hydra medusa plink pscp psftp", "", r"-pw?[ ]", _ARGUMENT),
        ("ansible-vault", " encrypt_string", r"(?!-)", _ARGUMENT),
        ("wpa_passphrase", r" \S+", r"", _ARGUMENT),
        ("poetry composer", " config", r"(?:--\S+[ ]+)*(?:http-basic|pypi-token)\.\S+[ ]+(?:[\w.-]+[ ]+(?=\S))?", _ARGUMENT),  # noqa: E501
        ("bundle bundler", " config", r"(?:set[ ]+)?(?:--\S+[ ]+)*[\w.-]+[ ]+[\w.-]+:", _ARGUMENT),
        ("ConvertTo-SecureString", "", r"(?:-String[ ])?", r"(?P<it>\"[^\"\n]+\"|'[^'\n]+'|(?![-$(])[^\s\"'()|;]{4,}(?=[ ]+-[Aa]))"),  # noqa: E501
        ("rclone", " (?:obscure|config)", r"(?:pass\w*[ =])?", _ARGUMENT),
        ("curl http https", "", r"(?:-b|--cookie)[ =]?", r"(?P<it>\"[^\"\n]*=[^\"\n]*\"|'[^'\n]*=[^'\n]*'|[^\s\"'=-]+=[^\s\"']+)"),  # noqa: E501
        ("gh glab docker podman vault", r" [^\n|]{0,80}?(?:--with-token|--stdin|--password-stdin|login)", r"<<<[ ]*", _ARGUMENT),  # noqa: E501
        ("echo printf", _PIPED_LOGIN, r"(?:-\w+[ ]+)?(?:[\"']?%s[\\n]*[\"']?[ ]+)?", _ARGUMENT),
    )
)  # fmt: skip
LOGIN_OPTIONS = re.compile(
    r"(?<!\S)(?:-u|-U|--user(?:name)?|--login|-username|-user)(?:[ =][ ]?[^\s-]\S*|[^\s=-]\S*)[ ]+(?:\S+[ ]+){0,2}?"
    rf"(?:-[pP](?!ass(?:word|wd|phrase))|--pass|-pass)(?:[ =][ ]?|(?=[^\s-])){_ARGUMENT}"
)
"""A user and a password among the options of any command, as in `twine upload -u mira -p …`."""
USER_PAIR = re.compile(r"(?<!\S)--user[ =][\"']?[\w.@-]{1,64}:(?=[^\s\"']*[^\s\d:\"'])(?P<it>[^\s\"':]{4,128})")
TOKEN_OPTION = re.compile(r"(?<!\S)-t[ ][\"']?(?P<it>[0-9A-Za-z_-]{20,128})(?![\w.:/-])")
LOGIN_OPTIONS_HINT = r"-(?:p|pass)(?<![\w-]-p)(?<![\w-]-pass)(?![\w-])"
LOGIN_CALL = re.compile(
    r"(?i)(?:(?:(?:(?<![a-z])|(?-i:(?<=[a-z])(?=[A-Z])))(?:basic_?auth|http_?basic_?auth|auth|login|authenticate"
    r"|(?:username_?)?password_?authentication)|credentials?(?:\.\w{1,20})?)"
    r"[ ]?[:=]?[ ]?[(\[][ ]?(?P<user>\"[^\"\n]*\"|'[^'\n]*')"
    r"|(?:\bpdo|mysqli(?:_connect)?|pg_connect|getConnection|\bconnect)[(][ ]?(?:\"[^\"\n]*\"|'[^'\n]*'|[\w$.]+)"
    r",[ ]?(?:\"[^\"\n]*\"|'[^'\n]*')"
    r"|(?:create_?(?:super_?)?user|add_?user|wifi\.begin|credentials::new)[(][ ]?(?:\"[^\"\n]*\"|'[^'\n]*')(?:\.\w+\(\))?(?:,[ ]?(?:\"[^\"\n]*@[^\"\n]*\"|'[^'\n]*@[^'\n]*'))?"  # noqa: E501
    r"|mysql_real_connect[(][^,\n]{1,60},[ ]?[^,\n]{1,80},[ ]?[^,\n]{1,80}|PlainAuth[(][^,\n]{0,40},[^,\n]{1,80}|\.login[(][ ]?[\w.]*(?:user(?:_?name)?|e?mail|account|sender|login))"  # noqa: E501
    r",[ ]?(?:Some\()?(?P<it>\"[^\"\n]+\"|'[^'\n]+')"
)
"""A user and a password as arguments of a function, as in `auth=("mira", "…")` or `new PDO(dsn, "mira", "…")`."""
CLIENT_CALL = re.compile(
    r"(?i)\b\w*(?:init|client|configure|search|connect|sdk|api)[(][ ]?(?:(?:\"[\w.:/-]{1,80}\"|'[\w.:/-]{1,80}'),[ ]?)?[\"'](?P<it>[0-9A-Za-z_-]{24,128})[\"'][ ]?[,)]"  # noqa: E501
)
"""A key as an argument of a function that creates the client of a service, as in `Rollbar.init("…")`."""
LOGIN_COMMAND = re.compile(
    r"(?i)(?<!\S)[\w-]+[ ](?:auth[ ])?login[ ](?P<it>[0-9A-Za-z._-]{20,})(?!\S)"
    r"|(?:(?<!\S)[A-Za-z]?\d+[ ](?-i:LOGIN)|imap:?[ ]login)[ ]\S+[ ](?P<imap>\S{4,})"
)
"""A key or password after `login`, as in `wandb login …` or in IMAP."""
_LITERAL = r"(?!.(?:[a-z]{2,3}-?\d{1,3}|utf-?8|eyJ)\b)(?:\"[^\"\n]{4,}?\"|'[^'\n]{4,}?')"
SIGNING_CALL = re.compile(
    r"(?i)(?:\b(?:jwt|jsonwebtoken|jws)\.(?:sign|encode|verify|decode)[(][^\n]{0,200}?,[ ]?"
    rf"|sign_?with[(](?:[\w.]{{1,60}},[ ]?)?)(?P<it>{_LITERAL})[ ]?[,)]"
    rf"|(?:bcrypt\.\w{{0,12}}(?:hash|compare)\w{{0,12}}[(]b?|plain_?text[(]|secret_?str[(]|\w\.(?:en|de)crypt[(][\w.]{{1,40}},[ ]?)(?P<plain>{_LITERAL})[ ]?[,)]"  # noqa: E501
    rf"|(?P<chars>(?=[\"'])(?:(?=.[^\"'\n]{{0,60}}?\d)|(?<=,)|(?<=, )|(?<=Spec\()|(?<=Protection\()){_LITERAL})"
    r"\.toCharArray\(\)"
    rf"|(?:(?:pgp_sym|aes)_(?:en|de)crypt[(][^\n]{{1,200}}?,[ ]?|signed_?string[(](?:\[\]byte[(])?|hmac\.new[(]b?|create_?hmac[(][^,\n]{{1,40}},[ ]?)(?P<key>{_LITERAL})[ ]?[,)]"  # noqa: E501
)
"""A key as an argument of a function that creates or verifies signatures, as in `jwt.sign(payload, "…")`."""
LOGIN_CALL_HINTS = (
    "<<<", "auth", "login", r"pdo\(", "mysqli", "connect", "credential", r"jwt\.", r"jsonwebtoken\.", r"jws\.",
    "sign_?with", "signed_?string", r"hmac\.new", "create_?hmac", "_(?:en|de)crypt", r"\.(?:en|de)crypt", r"bcrypt\.", r"plain_?text\(", r"secret_?str\(", r"wifi\.", r"user\(", "tochararray", r"init\(", r"client\(", r"search\(", r"sdk\(", r"api\(", "--user", r"-t(?<![\w-]-t)(?![\w-])",  # noqa: E501
    r"configure\(",
)  # fmt: skip
