"""Generated secrets are replaced wherever they occur: in settings, JSON, YAML, commands, addresses, prose and SQL."""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Callable

import pytest

from toolspan.redaction import SecretRedactor

RANDOM = random.Random(15)
ALNUM = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
EXAMPLES = 20
PLACES = (
    "FOO={}", 'export X_VALUE="{}"', '{{"a": 1, "value": "{}"}}', r'"{{\"v\": \"{}\"}}"', "app:\n  thing: {}\n",
    "run --with {} && echo done", "I used {}, then it worked.", "open https://example.net/cb?x={}&y=1",
    "INSERT INTO t (a, b) VALUES (1, '{}');", "{}", 'client = Client("{}")', "- `{}`",
)  # fmt: skip


def some(count: int, alphabet: str = ALNUM) -> str:
    return "".join(RANDOM.choice(alphabet) for _ in range(count))


MESSAGING_KEYS: dict[str, Callable[[], str]] = {
    "slack-bot": lambda: f"xoxb-{some(12, string.digits)}-{some(12, string.digits)}-{some(24)}",
    "slack-app": lambda: f"xapp-1-A{some(10, HEX.upper())}-{some(13, string.digits)}-{some(64, HEX)}",
    "slack-webhook": lambda: f"https://hooks.slack.com/services/T{some(8)}/B{some(8)}/{some(24)}",
    "discord-bot": lambda: f"MT{some(24)}.G{some(5)}.{some(38)}",
    "discord-webhook": lambda: f"https://discord.com/api/webhooks/{some(18, string.digits)}/{some(68)}",
    "telegram": lambda: f"{some(10, '123456789')}:AA{some(33)}",
    "twilio": lambda: "SK" + some(32, HEX),
    "sendgrid": lambda: f"SG.{some(22)}.{some(43)}",
    "mailgun": lambda: "key-" + some(32, HEX),
    "mailgun-new": lambda: f"{some(32, HEX)}-{some(8, HEX)}-{some(8, HEX)}",
    "mailchimp": lambda: some(32, HEX) + "-us7",
    "mandrill": lambda: "md-" + some(21) + "7",
    "firebase": lambda: f"AAAA{some(7)}:APA91b{some(134)}",
    "matrix": lambda: f"syt_{some(8)}_{some(20)}_{some(6)}",
    "mattermost-webhook": lambda: f"https://chat.example.net/hooks/{some(26, string.ascii_lowercase)}",
}
CONNECTIONS = (
    "postgres://app:{}@db.example.net:5432/x", "mongodb+srv://app:{}@cluster0.ab1cd.mongodb.net/?w=majority",
    "amqp://guest2:{}@rabbit:5672/vhost", "redis://:{}@cache:6379/0", "mysql://root:{}@127.0.0.1/shop",
    "Server=db;Database=x;User Id=sa;Password={};", "Data Source=db;uid=sa;pwd={};Encrypt=true",
    "DefaultEndpointsProtocol=https;AccountName=a;AccountKey={};EndpointSuffix=core.windows.net",
    "Endpoint=sb://x.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey={}", "app:{}@tcp(db:3306)/x",
    "host=db user=app password={} dbname=x", "jdbc:sqlserver://db:1433;user=sa;password={};",
    "InstrumentationKey={};IngestionEndpoint=https://x",
)  # fmt: skip
ENDS = ("{}", "echo '{}' > key.json", "GOOGLE_CREDENTIALS='{}'", "key: |\n  {}")


def find_missed(texts: list[tuple[str, str]]) -> list[str]:
    return [text for text, secret in texts if secret in SecretRedactor().redact_text(text)]


@pytest.mark.parametrize("make", MESSAGING_KEYS.values(), ids=MESSAGING_KEYS)
def test_keys_of_messaging_providers_are_replaced(make: Callable[[], str]) -> None:
    keys = [make() for _ in range(EXAMPLES)]

    assert not find_missed([(place.format(key), key) for key in keys for place in PLACES])


@pytest.mark.parametrize("connection", CONNECTIONS)
def test_passwords_in_connection_strings_are_replaced(connection: str) -> None:
    passwords = [some(12) for _ in range(EXAMPLES)]

    assert not find_missed([(place.format(connection.format(word)), word) for word in passwords for place in PLACES])


def make_service_account() -> tuple[str, str, list[str]]:
    lines = [base64.b64encode(RANDOM.randbytes(48)).decode() for _ in range(26)]
    key = "\n".join(("-----BEGIN PRIVATE KEY-----", *lines, "-----END PRIVATE KEY-----", ""))
    mail = f"svc-{some(5)}@project-1.iam.gserviceaccount.com"
    data = {"type": "service_account", "private_key_id": some(40, HEX), "private_key": key, "client_email": mail}
    return json.dumps(data), str(data["private_key_id"]), [*lines, mail]


@pytest.mark.parametrize("place", ENDS)
def test_the_key_of_a_service_account_is_replaced_even_if_it_is_cut(place: str) -> None:
    for _ in range(EXAMPLES):
        account, key_id, (*lines, mail) = make_service_account()
        whole = place.format(account)
        nested = place.format(json.dumps(account))
        first_half, second_half = account[: account.index(lines[20])], account[account.index(lines[3]) :]

        for text in (whole, nested):
            redacted = SecretRedactor().redact_text(text)
            assert [part for part in (*lines, mail, key_id) if part in redacted] == []
        assert not find_missed([(first_half, lines[5]), (second_half, lines[10])])


@pytest.mark.parametrize(
    "text",
    [
        "AccountKey=${ACCOUNT_KEY};",
        "AccountKey=<key>;EndpointSuffix=core",
        "the hooks/ folder and https://example.org/hooks/pre-commit",
        "postgres://user:password@host/db",
        "md-checkbox-indeterminate-x",
        "0123456789abcdef0123456789abcdef-01234567",
        '"private_key_id": "..."',
    ],
)
def test_placeholders_and_similar_text_stay(text: str) -> None:
    assert SecretRedactor().redact_text(text) == text
