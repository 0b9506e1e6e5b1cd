"""Messages whose texts hold half of a surrogate pair, as programs in JavaScript write them.

In: a line that a strict reader of JSON refuses. Out: the same value as JSON that it takes, U+FFFD
in place of each half. Somebody waits for an answer to such a line, so it is no garbage.
"""

import json


def without_halves(line: bytes) -> tuple[object, str]:
    """The value of a line, and JSON of it without halves.

    Raises:
        ValueError: it is no JSON.
    """
    try:
        found: object = json.loads(line)
        text = json.dumps(found, ensure_ascii=False)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return found, text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
