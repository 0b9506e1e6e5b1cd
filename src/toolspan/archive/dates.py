"""Parse dates and ages: `7d`, `yesterday`, `monday`, `last week`, `2026-03`, `2026-03-31`.

Start at `parse_since` and `parse_until`, which turn the two ends of a period into points in time.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from toolspan.errors import InvalidFilter

_AGE_PATTERN = re.compile(r"(\d+)\s*([smhdw])")
_AGE_UNITS = {"s": "seconds", "h": "hours", "d": "days", "w": "weeks"}
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTH_PATTERN = re.compile(r"(\d{4})-(\d{2})")
_DAY_PATTERN = re.compile(r"\d{4}-\d{2}-\d{2}")


def parse_since(text: str) -> datetime:
    """Return the point in time at which a period begins. Days, weeks and months begin at local midnight.

    Raises:
        InvalidFilter: the text is not a time.
    """
    name = " ".join(text.casefold().split())
    try:
        time = _parse_age(name) or _parse_named_day(name) or _parse_date(text.strip())
    except OverflowError as error:
        raise InvalidFilter(f"{text!r} is too long ago") from error
    if time is None:
        raise InvalidFilter(
            f"{text!r} is not a time; use an age (7d, 24h), a day (today, yesterday, monday, 2026-03-31), "
            "a month (2026-03), 'last week' or a timestamp"
        )
    return time


def parse_until(text: str) -> datetime:
    """Return the point in time before which a period ends. A day, week or month is included.

    Raises:
        InvalidFilter: the text is not a time.
    """
    start = parse_since(text)
    return _end_of_named_period(start, " ".join(text.casefold().split())) or start


def check_period(since: datetime | None, until: datetime | None) -> None:
    """Check that a period is not empty.

    Raises:
        InvalidFilter: it ends before it begins.
    """
    if since is not None and until is not None and until <= since:
        start, stop = (f"{time.astimezone():%Y-%m-%d %H:%M}" for time in (since, until))
        raise InvalidFilter(f"the period is empty: its end ({stop}) is not later than its beginning ({start})")


def _end_of_named_period(start: datetime, name: str) -> datetime | None:
    day = start.astimezone()
    if _MONTH_PATTERN.fullmatch(name) or name.endswith(" month"):
        return _local_midnight((day.replace(day=1) + timedelta(days=32)).replace(day=1))
    if name.endswith(" week"):
        return _local_midnight(day + timedelta(days=7))
    if name in ("today", "yesterday", *_WEEKDAYS) or _DAY_PATTERN.fullmatch(name):
        return _local_midnight(day + timedelta(days=1))
    return None


def _parse_age(name: str) -> datetime | None:
    age = _AGE_PATTERN.fullmatch(name)
    if age is None:
        return None
    if age[2] == "m":
        number = int(age[1])
        raise InvalidFilter(
            f"{name!r} could be minutes or months; write {number * 60}s for minutes or {number * 30}d for months"
        )
    return datetime.now(UTC) - timedelta(**{_AGE_UNITS[age[2]]: int(age[1])})


def _parse_named_day(name: str) -> datetime | None:
    """Return the local midnight at which a named day, week or month begins, or None for any other name.

    The name of a weekday refers to the most recent one, which may be today.
    """
    today = datetime.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0)
    monday = today.weekday()
    days_ago = {
        "today": 0, "yesterday": 1, "this week": monday, "last week": monday + 7,
        **{day: (monday - number) % 7 for number, day in enumerate(_WEEKDAYS)},
    }  # fmt: skip
    if name in days_ago:
        return _local_midnight(today - timedelta(days=days_ago[name]))
    if name in ("this month", "last month"):
        first = today.replace(day=1)
        return _local_midnight(first if name == "this month" else (first - timedelta(days=1)).replace(day=1))
    return None


def _parse_date(text: str) -> datetime | None:
    if month := _MONTH_PATTERN.fullmatch(text):
        text = f"{month[1]}-{month[2]}-01"
    try:
        time = datetime.fromisoformat(text)
        return time.astimezone(UTC)  # a time without a zone is local
    except ValueError:
        return None


def _local_midnight(time: datetime) -> datetime:
    """Return the midnight of a day in the zone's offset on that day."""
    return time.replace(tzinfo=None).astimezone()
