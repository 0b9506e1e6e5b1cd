"""Every block of code on every page is run by somebody, and by one alone."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.docs import test_data, test_shown, test_typed
from tests.docs.blocks import Block, all_blocks, blocks, blocks_in, of, pages
from tests.docs.diagrams import diagrams
from tests.docs.programs import programs
from tests.docs.spoken import COMPARED, compared
from tests.journeys.test_journeys import PAGES as JOURNEYS
from tests.requirement import requirement


def generated() -> list[Block]:
    """What scripts/docs.py writes from the code; `make docs` and tests/test_docs.py hold it to it.

    Python on those pages is run like any other.
    """
    below = [page for page in pages() if page.startswith("docs/reference/")]
    return of("text", ["docs/commands.md", "docs/reference.md", *below])


RUNNERS = {
    "tests/test_examples.py": list(programs()),
    "tests/test_examples.py, printed": [text for texts in programs().values() for text in texts],
    "tests/docs/test_recipes.py": [one for name in COMPARED for one in compared(f"docs/{name}")],
    "tests/docs/test_shown.py": test_shown.RUN,
    "tests/docs/test_typed.py": test_typed.RUN,
    "tests/docs/test_data.py": test_data.RUN,
    "tests/docs/test_diagrams.py": diagrams(),
    "tests/journeys": [one for name in JOURNEYS for one in blocks(f"docs/journeys/{name}.md")],
    "make docs": generated(),
}
"""Who runs what, or holds it against the code."""


@requirement("docs.blocks-run")
def test_every_block_of_the_documentation_is_run_once() -> None:
    ran = Counter(block for found in RUNNERS.values() for block in found)

    nobody = [block.name for block in all_blocks() if not ran[block]]
    assert nobody == [], "CONTRIBUTING.md says how a block gets somebody who runs it"
    assert [block.name for block, times in ran.items() if times > 1] == []


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_runner_has_something_to_run(runner: str) -> None:
    assert RUNNERS[runner]


def test_blocks_are_found_however_they_are_written() -> None:
    page = """\
Words.

```console
$ one
```

~~~
two
```
~~~

1. In a list:

   ```python
   three
   ```

> ```json
> 4
> ```

    five

````text
```
six
"""

    assert [(block.line, block.language, block.text) for block in blocks_in(page, "x.md")] == [
        (4, "console", "$ one\n"),
        (8, "", "two\n```\n"),
        (15, "python", "three\n"),
        (19, "json", "4\n"),
        (22, "indented", "five\n"),
        (25, "text", "```\nsix\n"),
    ]
