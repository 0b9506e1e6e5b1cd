"""Prices of models, with which reading adds up costs and a running agent checks its limits. Start at `load_prices`.

They are in dollars per million tokens. The table ships with the package (`prices.json`, made by `scripts/prices.py`)
and carries its date. A file with the same keys replaces entries of the table.
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from pathlib import Path

import msgspec
from msgspec import Struct

from toolspan.errors import SourceError
from toolspan.types.session import Tokens

__all__ = ["ModelPrice", "PriceTable", "Rate", "load_prices"]
_MILLION = 1_000_000


class LongContextRate(Struct, frozen=True, forbid_unknown_fields=True):
    """The rates of requests whose input is longer than `tokens`."""

    tokens: int
    input: float | None = None
    output: float | None = None
    cache_write: float | None = None
    cache_write_1h: float | None = None
    cache_read: float | None = None


class Rate(Struct, frozen=True, forbid_unknown_fields=True):
    """Dollars per million tokens. A missing cache rate is the input rate."""

    input: float
    output: float
    cache_write: float | None = None
    cache_write_1h: float | None = None
    cache_read: float | None = None
    since: str = ""
    """The first day on which these rates apply; empty if they have applied from the start."""
    above: LongContextRate | None = None

    def cost(self, tokens: Tokens, cache_write_1h: int = 0) -> float:
        """Return the price of one request in dollars. `cache_write_1h` of its tokens are cached for an hour."""
        rate, long = self, self.above
        fresh, created, read = (
            tokens.input_tokens, tokens.cache_creation_input_tokens, tokens.cache_read_input_tokens
        )  # fmt: skip
        if long is not None and fresh + created + read > long.tokens:
            rate = _long_context_rate(self, long)
        input_rate = rate.input
        write = rate.cache_write or input_rate
        total = fresh * input_rate + tokens.output_tokens * rate.output + read * (rate.cache_read or input_rate)
        if cache_write_1h:
            written_1h = min(cache_write_1h, created)
            total += written_1h * (rate.cache_write_1h or write)
            created -= written_1h
        return (total + created * write) / _MILLION


@lru_cache(maxsize=256)
def _long_context_rate(rate: Rate, long: LongContextRate) -> Rate:
    """Return the rate with the prices for long input in place of its own."""
    return Rate(
        input=long.input or rate.input,
        output=long.output or rate.output,
        cache_write=long.cache_write or rate.cache_write,
        cache_write_1h=long.cache_write_1h or rate.cache_write_1h,
        cache_read=long.cache_read or rate.cache_read,
    )


class ModelPrice(Struct, frozen=True, forbid_unknown_fields=True):
    """The rates of one model, oldest first, and the names under which transcripts mention it."""

    model: str
    rates: tuple[Rate, ...]
    names: tuple[str, ...] = ()
    """Further names. A `*` at the beginning or end matches any text."""
    fast_factor: float | None = None
    """Multiplier of all rates in fast mode; None if the model does not have it or its price is unknown."""
    pattern: str = ""
    """A regular expression for whole names, instead of `names`."""

    def matches(self, name: str) -> bool:
        """Return whether `name`, which must be in lower case, is a name of this model."""
        if self.pattern:
            return re.fullmatch(self.pattern, name, re.IGNORECASE) is not None
        return name == self.model.lower() or any(_matches_glob(name, glob) for glob in self.names)


def _matches_glob(name: str, glob: str) -> bool:
    text = glob.strip("*").lower()
    if glob.startswith("*"):
        return text in name if glob.endswith("*") else name.endswith(text)
    return name.startswith(text) if glob.endswith("*") else name == text


class _PriceFile(Struct, frozen=True):
    models: tuple[ModelPrice, ...]
    source: str = ""
    date: str = ""


class PriceTable:
    """The prices of models by name."""

    def __init__(self, prices: _PriceFile) -> None:
        self.source = prices.source
        self.date = prices.date
        self._prices = prices.models
        self._by_name: dict[str, ModelPrice | None] = {}

    def find(self, model: str) -> ModelPrice | None:
        """Return the price of the model with this name in transcripts, or None if the table does not have it."""
        if model not in self._by_name:
            name = _plain_model_name(model).lower()
            self._by_name[model] = next((price for price in self._prices if price.matches(name)), None)
        return self._by_name[model]

    def constant_rate(self, model: str) -> Rate | None:
        """Return the rate of a model whose price has never changed, or None for another model."""
        price = self.find(model)
        return price.rates[0] if price is not None and len(price.rates) == 1 else None

    def rate(self, model: str, at: datetime | None) -> Rate | None:
        """Return the rate of a model at a time; for an unknown time, the first one."""
        price = self.find(model)
        if price is None or not price.rates:
            return None
        current = price.rates[0]
        if at is not None:
            day = at.date().isoformat()
            for rate in price.rates[1:]:
                if rate.since <= day:
                    current = rate
        return current

    def cost(
        self, model: str, at: datetime | None, tokens: Tokens, *, cache_write_1h: int = 0, fast: bool = False
    ) -> float | None:
        """Return the price of one request in dollars, or None if the table does not have the model."""
        rate = self.rate(model, at)
        if rate is None:
            return None
        if not fast:
            return rate.cost(tokens, cache_write_1h)
        price = self.find(model)
        factor = price and price.fast_factor
        return rate.cost(tokens, cache_write_1h) * factor if factor else None


def _plain_model_name(model: str) -> str:
    """Return a model name without the prefixes and suffixes of gateways: `us.anthropic.NAME-v1:0`, `NAME[1m]`."""
    name = model.rpartition("/")[2].partition("[")[0].partition("@")[0]
    name = re.sub(r"\A(?:[a-z]{2,6}\.)?(?:anthropic|openai|google)\.", "", name)
    return re.sub(r"-v\d+(?::\d+)?\Z", "", name)


def load_prices(path: Path | None = None) -> PriceTable:
    """Return the shipped table. The entries of the file at `path` take precedence.

    Raises:
        SourceError: the file cannot be read or is not a price table.
    """
    shipped = _read_prices(Path(__file__).with_name("prices.json"))
    if path is None:
        return PriceTable(shipped)
    own = _read_prices(path)
    return PriceTable(
        _PriceFile(
            models=own.models + shipped.models, source=f"{path}, {shipped.source}", date=own.date or shipped.date
        )
    )


@lru_cache(maxsize=4)
def _read_prices(path: Path) -> _PriceFile:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_PriceFile)
    except OSError as error:
        raise SourceError(f"cannot read {path}: {error.strerror}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SourceError(f"{path} is not a price table: {error}") from error
