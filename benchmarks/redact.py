"""`--redact`: planted secrets that are gone, harmless text that is replaced, and the time beside a plain export.

    python benchmarks/redact.py [--list] [--archive FOLDER --repeats 3]

Secrets are put together at run time, so that no scanner takes this file for a leak. The harmless text is this
project's own documentation and source; every replacement in it is printed with `--list`, to be judged by a person.
With an archive, it is exported plain and redacted in turn, with a warm cache; the page is that of its largest session.
"""

from __future__ import annotations

import argparse
import base64
import os
import random
import resource
import string
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from toolspan.redaction import SecretRedactor

ROOT = Path(__file__).parents[1]
RANDOM = random.Random(7)
ALNUM = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
CONTAINERS = {
    "json": '{{"note": "see {}", "n": 1}}',
    "shell": "echo start && run --with {} && echo done",
    "env": "# settings\n{}\nDEBUG=1",
    "yaml": "app:\n  text: {}\n  n: 1",
    "url": "open {} now",
    "html": "<p>{}</p>",
}


def some(count: int, alphabet: str = ALNUM) -> str:
    return "".join(RANDOM.choice(alphabet) for _ in range(count))


def luhn(prefix: str) -> str:
    digits = prefix + some(15 - len(prefix), string.digits)
    total = sum(sum(divmod(int(d) * (2 if n % 2 == 0 else 1), 10)) for n, d in enumerate(reversed(digits)))
    return digits + str(-total % 10)


def grouped(digits: str) -> str:
    return " ".join(digits[at : at + 4] for at in range(0, len(digits), 4))


def iban(country: str, body: str) -> str:
    number = int("".join(str(int(char, 36)) for char in body + country + "00"))
    return f"{country}{98 - number % 97:02d}{body}"


def keys() -> dict[str, str]:
    """Values that are recognized by their form, by class."""
    b64 = ALNUM + "+/"
    return {
        "anthropic": "sk-ant-" + "api03-" + some(40), "openai": "sk-" + "proj-" + some(40),
        "github": "gh" + "p_" + some(36), "github-pat": "github" + "_pat_" + some(82), "gitlab": "gl" + "pat-" + some(20),  # noqa: E501
        "aws-id": "AK" + "IA" + some(16, string.ascii_uppercase + "234567"), "aws-secret": "aB3" + some(37, b64),
        "google": "AI" + "za" + some(35), "slack": "xo" + "xb-" + some(12, string.digits) + "-" + some(24),
        "slack-hook": "https://hooks." + "slack.com/services/T" + some(8) + "/B" + some(8) + "/" + some(24),
        "discord-hook": "https://discord" + ".com/api/webhooks/" + some(18, string.digits) + "/" + some(68),
        "stripe": "sk" + "_live_" + some(24), "npm": "np" + "m_" + some(36), "pypi": "py" + "pi-AgEIcHlwaS5vcmc" + some(60),  # noqa: E501
        "huggingface": "h" + "f_" + some(34), "sendgrid": "S" + "G." + some(22) + "." + some(43),
        "jwt": "ey" + "J" + some(20) + ".ey" + "J" + some(30) + "." + some(43), "twilio": "S" + "K" + some(32, HEX),
        "mailgun": "key-" + some(32, HEX), "digitalocean": "dop" + "_v1_" + some(64, HEX),
        "shopify": "shp" + "at_" + some(32, HEX), "telegram": some(9, string.digits) + ":AA" + some(33),
        "bcrypt": "$2b" + "$12$" + some(53), "linear": "lin" + "_api_" + some(40), "postman": "PM" + "AK-" + some(24, HEX) + "-" + some(34, HEX),  # noqa: E501
        "login-url": f"postgres://app:{some(12)}@db.example.net/x", "query-token": f"https://example.net/a?access_token={some(24)}&x=1",
        "signature": f"https://example.net/b?sv=1&sig={some(30)}%3D", "email": f"{some(6).lower()}.q@example.com",
        "ipv4": "203.0.113." + str(RANDOM.randint(2, 250)), "ipv6": "2001:db8::" + some(4, HEX) + ":" + some(4, HEX),
        "mac": ":".join(some(2, HEX) for _ in range(6)), "card": luhn("4"), "card-grouped": grouped(luhn("52")),
        "iban": iban("DE", some(18, string.digits)), "phone": "+49 170 " + some(7, "123456789"), "us-phone": "(415) 555-" + some(4, string.digits),  # noqa: E501
        "ssn": f"{RANDOM.randint(100, 600)}-{RANDOM.randint(10, 99)}-{RANDOM.randint(1000, 9999)}",
        "host": f"db{RANDOM.randint(1, 99)}.corp.internal", "home": "/Users/zq" + some(6, string.ascii_lowercase) + "/notes",  # noqa: E501
    }  # fmt: skip


def named() -> list[tuple[str, str, str]]:
    """Values that are recognized by what stands before them: class, line, value."""
    word, value = "zq" + some(6, string.ascii_lowercase), "Zq7" + some(9)
    key = base64.b64encode(RANDOM.randbytes(64)).decode()
    lines = {
        "env-password": ("DB_PASS={}", word), "env-secret": ("export CLIENT_SECRET={}", value), "env-key": ("API_KEY={}", value),  # noqa: E501
        "json-pass": ('{{"user": "a", "pass": "{}"}}', word), "json-nested": (r'"{{\"api_key\": \"{}\"}}"', value),
        "yaml-password": ("password: {}", word), "yaml-token": ("  auth_token: {}", value), "toml": ('secret_key = "{}"', value),  # noqa: E501
        "curl-user": ("curl --user {} https://example.net", f"ann:{word}"), "curl-u": ("curl -s -u {} https://example.net", f"bob:{word}"),  # noqa: E501
        "mysql": ("mysql -u root -p{} shop", word), "sshpass": ("sshpass -p {} ssh box", word), "redis": ("redis-cli -a {} ping", word),  # noqa: E501
        "pgpassword": ("PGPASSWORD={} psql shop", word), "docker-login": ("docker login -u ann -p {} registry.example.net", word),  # noqa: E501
        "azure": ("DefaultEndpointsProtocol=https;AccountName=a;AccountKey={};EndpointSuffix=core", key),
        "ado": ("Server=db;User Id=sa;Password={};", word), "bearer": ("Authorization: Bearer {}", value), "basic": ("Authorization: Basic {}", value),  # noqa: E501
        "api-header": ("X-Api-Key: {}", value), "cookie": ("Cookie: sid={}", value), "option": ("deploy --token {} --fast", value),  # noqa: E501
        "xml": ("<password>{}</password>", word), "html-input": ('<input type="password" name="p" value="{}">', word),
        "php": ("define('DB_PASSWORD', '{}');", value), "netrc": ("machine h login ann password {}", value),
        "sentence": ("the password is {}.", value), "sql": ("CREATE USER ann IDENTIFIED BY '{}'", word), "birth": ('"date_of_birth": "{}"', "1987-04-12"),  # noqa: E501
        "author": ("Author: {} <x@example.com>", "Zora " + word.title()), "prompt": ("{}:~$ ls", f"{word}@laptop"),
        "openssl": ("openssl enc -aes-256-cbc -pass pass:{} -in a", word), "npmrc": ("//registry.npmjs.org/:_authToken={}", value),  # noqa: E501
        "heroku": ("HEROKU_API_KEY={}", "-".join(some(n, HEX) for n in (8, 4, 4, 4, 12))), "phone-field": ("phone: {}", "0170 " + some(7, "123456789")),  # noqa: E501
    }  # fmt: skip
    return [(name, line.format(secret), secret) for name, (line, secret) in lines.items()]


def planted() -> list[tuple[str, str, str, str]]:
    """Return class, container, text and secret of every planted item."""
    items = []
    for round_number in range(3):
        for number, (name, value) in enumerate(keys().items()):
            container = list(CONTAINERS)[(number + round_number) % len(CONTAINERS)]
            secret = value.split("/")[2] if name == "home" else value
            if name in ("login-url", "query-token", "signature"):
                secret = (
                    value.split("=", 1 if name == "query-token" else 2)[-1].split("&")[0]
                    if "=" in value
                    else value.split("app:")[1].split("@")[0]
                )
            items.append((name, container, CONTAINERS[container].format(value), secret))
    for _ in range(2):
        items += [(name, "line", f"first\n{line}\nlast", secret) for name, line, secret in named()]
    return items


def export(cache: Path, *words: str | Path) -> tuple[float, float]:
    """Run an export and return its CPU and wall seconds."""
    command = [Path(sys.executable).with_name("toolspan"), "export", *words]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    env = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after, end = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, end - start


def time_exports(archive: Path, repeats: int) -> None:
    """Print the least time of plain and redacted exports, which take turns."""
    largest = max(archive.rglob("*.jsonl"), key=lambda path: path.stat().st_size)
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        export(cache, archive, "--format", "csv")
        print("| format | plain CPU s | redacted CPU s | ratio | plain s | redacted s | ratio |")
        print("|---|---|---|---|---|---|---|")
        for form, source in (("json", archive), ("csv", archive), ("html", largest)):
            plain, redacted = [], []
            for _ in range(repeats):
                plain.append(export(cache, source, "--format", form))
                redacted.append(export(cache, source, "--format", form, "--redact"))
            cells = []
            for index in (0, 1):
                least = min(run[index] for run in plain), min(run[index] for run in redacted)
                cells += [f"{least[0]:.2f}", f"{least[1]:.2f}", f"{least[1] / least[0]:.2f}"]
            print(f"| {form} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print every replacement in the harmless text")
    parser.add_argument("--archive", type=Path, help="time exports of this folder")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    if options.archive:
        time_exports(options.archive, options.repeats)
        return
    items = planted()
    missed = [item for item in items if item[3] in SecretRedactor().redact_text(item[2])]
    classes = {name for name, *_ in items}
    for name, container, text, _ in missed:
        print(f"missed: {name} in {container}: {text!r}")
    share = 1 - len(missed) / len(items)
    print(f"planted: {len(items)} items of {len(classes)} classes, {share:.1%} gone (target: 98 %)")
    files = [*ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md"), *ROOT.glob("src/**/*.py")]
    word_count = replaced = 0
    for path in files:
        text = path.read_text(encoding="utf-8")
        word_count += len(text.split())
        redactor = SecretRedactor(keep_report=True)
        for number, line in enumerate(text.split("\n"), start=1):
            redacted = redactor.redact_text(line)
            if redacted != line and options.list:
                print(f"{path.relative_to(ROOT)}:{number}: {redacted.strip()[:150]}")
        replaced += len(redactor.replacements)
    print(
        f"own documentation and source: {word_count:,} words, {replaced} replacements, {replaced / word_count * 10_000:.2f} per 10,000"  # noqa: E501
    )


if __name__ == "__main__":
    main()
