"""Prices of models, with which reading adds up costs and a running agent checks its limits. Start at `load_prices`."""

from __future__ import annotations

from toolspan.prices.table import ModelPrice, PriceTable, Rate, load_prices

__all__ = ["ModelPrice", "PriceTable", "Rate", "load_prices"]
