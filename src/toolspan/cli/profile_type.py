"""The type of the option `--profile`, which several commands have."""

from __future__ import annotations

import click

from toolspan.cli.output import warn
from toolspan.runtime.profiles import VERSIONS, nearest_version


class ProfileType(click.Choice[str]):
    """The name of a profile. For any other client version, the nearest profile is used."""

    def __init__(self) -> None:
        super().__init__(VERSIONS)

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return a known version, with a warning if another one was given."""
        nearest = nearest_version(value)
        if nearest is None:
            return super().convert(value, param, ctx)
        if nearest != value:
            warn(f"there is no profile {value}; using the nearest one, {nearest}")
        return nearest
