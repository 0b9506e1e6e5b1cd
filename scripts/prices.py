"""Write `src/toolspan/prices.json` from the genai-prices package (`pip install genai-prices`).

Run it when vendors change their prices; the file records the version it was made from and the date.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from genai_prices.data import providers

TARGET = Path(__file__).parents[1] / "src/toolspan/prices.json"
PROVIDERS = {"anthropic": "claude", "openai": "", "google": "gemini"}
"""The providers to include, and the beginning of the model names to take from each."""
FIELDS = {
    "input_mtok": "input",
    "output_mtok": "output",
    "cache_write_mtok": "cache_write",
    "cache_write_1h_mtok": "cache_write_1h",
    "cache_read_mtok": "cache_read",
}


FAST_FACTORS = {"claude-opus-4-6": 6, "claude-opus-4-7": 6, "claude-opus-4-8": 2, "claude-opus-5": 2}
"""Multipliers of fast mode, which genai-prices does not have; from the vendor's page on fast mode and OpenRouter."""


def clause_names(clause: Any) -> list[str] | None:
    """Return the names that a clause matches, with `*` for any text, or None if it takes a regular expression."""
    match type(clause).__name__:
        case "ClauseEquals":
            return [clause.equals]
        case "ClauseStartsWith":
            return [f"{clause.starts_with}*"]
        case "ClauseEndsWith":
            return [f"*{clause.ends_with}"]
        case "ClauseContains":
            return [f"*{clause.contains}*"]
        case "ClauseOr":
            parts = [clause_names(part) for part in clause.or_]
            return None if None in parts else [name for part in parts for name in part or ()]
        case _:
            return None


def clause_pattern(clause: Any) -> str:
    """Return a regular expression that matches the same whole names as a clause."""
    match type(clause).__name__:
        case "ClauseEquals":
            return re.escape(clause.equals)
        case "ClauseStartsWith":
            return re.escape(clause.starts_with) + ".*"
        case "ClauseEndsWith":
            return ".*" + re.escape(clause.ends_with)
        case "ClauseContains":
            return ".*" + re.escape(clause.contains) + ".*"
        case "ClauseRegex":
            return f"(?=.*?(?:{clause.regex})).*" if not clause.regex.startswith("^") else f"(?={clause.regex}).*"
        case "ClauseOr":
            return "(?:" + "|".join(map(clause_pattern, clause.or_)) + ")"
        case "ClauseAnd":
            return "".join(f"(?={clause_pattern(part)}$)" for part in clause.and_) + ".*"
        case _:
            raise TypeError(f"unknown clause {clause!r}")


def rates(prices: Any, since: str | None) -> dict[str, object] | None:
    """Return the rates in dollars per million tokens, with those above a context length apart."""
    base: dict[str, float] = {}
    above: dict[str, float] = {}
    for field, name in FIELDS.items():
        price = getattr(prices, field, None)
        if hasattr(price, "tiers"):
            base[name] = float(price.base)
            above |= {"tokens": price.tiers[0].start, name: float(price.tiers[0].price)}
        elif price is not None:
            base[name] = float(price)
    if not {"input", "output"} <= base.keys():
        return None
    return {**({"since": since} if since else {}), **base, **({"above": above} if above else {})}


def model_entry(model: Any) -> dict[str, object] | None:
    """Return one row of the table, or None for a model that is not priced by text tokens."""
    variants = model.prices if isinstance(model.prices, list) else None
    rates_by_date = (
        [(variant.prices, getattr(variant.constraint, "start_date", None)) for variant in variants]
        if variants
        else [(model.prices, None)]
    )
    rows = [rates(prices, start.isoformat() if start else None) for prices, start in rates_by_date]
    complete = [row for row in rows if row is not None]
    if not complete:
        return None
    names = clause_names(model.match)
    named = {"pattern": clause_pattern(model.match)} if names is None else {"names": names}
    fast = {"fast_factor": FAST_FACTORS[model.id]} if model.id in FAST_FACTORS else {}
    return {"model": model.id, **named, **fast, "rates": complete}


def main() -> None:
    """Write the table."""
    models = [
        entry
        for provider in providers
        if provider.id in PROVIDERS
        for model in provider.models
        if model.id.startswith(PROVIDERS[provider.id]) and (entry := model_entry(model))
    ]
    head = {"source": f"genai-prices {version('genai-prices')} (MIT)", "date": datetime.now(UTC).date().isoformat()}
    rows = ",\n".join(json.dumps(entry) for entry in models)
    TARGET.write_text(f'{json.dumps(head)[:-1]}, "models": [\n{rows}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
