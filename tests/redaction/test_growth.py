"""The time of redaction grows with the length of a text, not with its square.

A text of four times the length takes four times the CPU time, and sixteen times with a quadratic rule. The bound lies
between; a measurement that other work disturbed is repeated.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import msgspec
import pytest

from toolspan.redaction import SecretRedactor

BOUND = 8
ATTEMPTS = 5
END = "\n-----END PRIVATE KEY-----\nDB_PASS=zqhunter"


class Call(msgspec.Struct):
    """A record with a password as a value of its own."""

    input: dict[str, str]


def redact_text(text: str) -> str:
    return SecretRedactor().redact_text(text)


def redact_password(text: str) -> str:
    return SecretRedactor().redact_record(Call({"password": text})).input["password"]


def measure_growth(redact: Callable[[str], str], unit: str, count: int, end: str) -> list[float]:
    """Return the CPU seconds for a quarter, a half and the whole of the text, each compared with the first."""
    seconds = []
    for length in (count // 4, count // 2, count):
        start = time.thread_time()
        redact(unit * length + end)
        seconds.append(time.thread_time() - start)
    return [each / seconds[0] for each in seconds]


def check_growth(redact: Callable[[str], str], unit: str, count: int, end: str = END) -> None:
    redact(unit + end)  # the first call reads the rules
    growths = []
    for _ in range(ATTEMPTS):
        growths.append(measure_growth(redact, unit, count, end))
        if growths[-1][-1] < BOUND:
            return
    pytest.fail(f"The time does not grow with the length: {growths}")


@pytest.mark.parametrize(
    "unit, count",
    [
        ("Zq7/kX9b", 500_000),
        ("0123456789abcdef", 250_000),
        ("\\", 500_000),
        (" ", 500_000),
        ("eyJ", 100_000),
        (" key:\n", 12_000),
        ("| a | password |\n|---|---|\n", 5_000),
        ("key=", 4_000),
        ("curl -u a:b ", 4_000),
        ("a.logic.azure.com", 4_000),
        ("column      ,", 40_000),
        ("AccountKey=", 5_000),
        ("https://a:", 20_000),
        ("QUJDREVG" * 8 + "\\n", 5_000),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_the_time_grows_with_the_length_of_a_text_and_not_with_its_square(unit: str, count: int) -> None:
    check_growth(redact_text, unit, count, ":" + END if unit == " " else END)

    assert "zqhunter" not in redact_text(unit * count + END)


@pytest.mark.parametrize("rule", ["regex:/(a/,", "string,", "string|", "between:8,9|", "min:1,"])
def test_a_long_value_that_resembles_many_rules_is_replaced(rule: str) -> None:
    check_growth(redact_password, rule, 20_000, "monkey12!")

    assert redact_password(rule * 20_000 + "monkey12!") == "[secret-1]"


def test_a_quadratic_rule_exceeds_the_bound() -> None:
    def redact(text: str) -> str:
        return re.sub("[^!]*,[?]", "", redact_text(text))

    with pytest.raises(pytest.fail.Exception, match="does not grow"):
        check_growth(redact, "column      ,", 2_000)
