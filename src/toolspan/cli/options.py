"""Options that several commands have, as one decorator."""

from collections.abc import Callable

from click.decorators import FC


def options(*decorators: Callable[[FC], FC]) -> Callable[[FC], FC]:
    """A decorator that adds these options to a command, in this order."""

    def add(command: FC) -> FC:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return add
