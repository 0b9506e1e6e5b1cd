"""What is drawn on a page is there: modules, layers, words of a handler's answer."""

from __future__ import annotations

import configparser
import re
from itertools import pairwise

from tests.docs.blocks import ROOT
from tests.docs.diagrams import ANSWERS, FLOW, LAYERS, of_page
from tests.docs.test_names import MODULE, PACKAGES, defined, is_module


def test_modules_that_are_drawn_exist() -> None:
    drawn = {name for name in MODULE.findall(of_page(FLOW)) if name.split("/")[0] in PACKAGES}

    assert len(drawn) > 15
    assert [name for name in sorted(drawn) if not is_module(name)] == []


def test_no_layer_lies_below_one_that_it_was_drawn_above() -> None:
    rules = configparser.ConfigParser()
    rules.read(ROOT / ".importlinter")
    ruled = next(rules[name]["layers"] for name in rules if "layers" in rules[name])
    levels = {
        name.strip("() ").rpartition(".")[2]: level
        for level, line in enumerate(ruled.split("\n"))
        for name in re.split(r"[|:]", line)
    }

    drawn = [re.findall(r"\w+", line) for line in of_page(LAYERS).splitlines()]
    found = [{levels[name] for name in line} for line in drawn]

    assert len(found) == 10
    assert [pair for pair in pairwise(found) if max(pair[0]) > min(pair[1])] == []


def test_the_words_of_an_answer_are_understood() -> None:
    lines = [re.split(r" {3,}", line.strip()) for line in of_page(ANSWERS).splitlines()]
    words = {word for what, *_ in lines for word in re.findall(r"\w+", what)} - {"false", "true"}

    assert {"updatedInput", "permissionDecision", "stopReason", "block"} <= words
    assert [word for word in sorted(words) if not {word, snake(word)} & defined()] == []


def snake(word: str) -> str:
    """A name as our own code spells it."""
    return re.sub(r"[A-Z]+", lambda found: f"_{found[0].lower()}", word)
