"""The scripted model follows its script and refuses invalid requests like the API."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from toolspan import testing
from toolspan.testing import ScriptedModel, check_history, say, use

pytestmark = pytest.mark.anyio

Json = dict[str, Any]
HELLO: Json = {"role": "user", "content": "Hello"}
IMAGE: Json = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}


def assistant(*blocks: Json) -> Json:
    return {"role": "assistant", "content": [*blocks]}


def user(*blocks: Json) -> Json:
    return {"role": "user", "content": [*blocks]}


def asks(identifier: str, tool: str = "Bash") -> Json:
    return {"type": "tool_use", "id": identifier, "name": tool, "input": {}}


def answers(identifier: str, content: object = "ok", **more: object) -> Json:
    return {"type": "tool_result", "tool_use_id": identifier, "content": content, **more}


async def test_each_request_gets_the_next_reply_in_the_shape_of_the_api() -> None:
    model = ScriptedModel([[say("I look first."), use("Read", file_path="a.txt")], say("Done.")], seed="scripted")

    first: Json = await model.create(messages=[HELLO], model="claude-x")
    second = await model.create(
        messages=[HELLO, assistant(*first["content"]), user(answers(first["content"][1]["id"]))]
    )

    assert first == snapshot(
        {
            "id": "msg_01ce72YtXJDCKl6b4kk4agwQ",
            "type": "message",
            "role": "assistant",
            "model": "claude-x",
            "content": [
                {"type": "text", "text": "I look first."},
                {
                    "type": "tool_use",
                    "id": "toolu_01WlgJVi68pVexxuDzfPr46m",
                    "name": "Read",
                    "input": {"file_path": "a.txt"},
                },
            ],
            "stop_reason": "tool_use",
            "stop_sequence": None,
            "usage": {
                "input_tokens": 11,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
                "output_tokens": 35,
            },
        }
    )
    assert (second["content"], second["stop_reason"]) == ([say("Done.")], "end_turn")


async def test_same_script_gives_the_same_bytes_and_another_seed_other_ids() -> None:
    async def spoken(seed: str) -> str:
        model = ScriptedModel([[testing.think("Hm."), use("Bash", command="ls")]], seed=seed)
        return json.dumps(await model.create(messages=[HELLO]))

    assert await spoken("a") == await spoken("a")
    assert await spoken("a") != await spoken("b")


async def test_ids_of_the_conversation_are_not_repeated() -> None:
    first: Json = await ScriptedModel([use("Bash")]).create(messages=[HELLO])
    resumed = [HELLO, assistant(*first["content"]), user(answers(first["content"][0]["id"]))]

    second: Json = await ScriptedModel([use("Bash")]).create(messages=resumed)

    assert check_history([*resumed, second, user(answers(second["content"][0]["id"]))]) == []


async def test_function_of_the_script_sees_the_results() -> None:
    def follow(messages: list[dict[str, object]]) -> list[dict[str, object]]:
        return [use("TaskOutput", task_id=testing.last_result_texts(messages)[1])]

    async def finish(messages: list[dict[str, object]]) -> dict[str, object]:
        await anyio.lowlevel.checkpoint()
        return say(f"{len(messages)} messages")

    model = ScriptedModel([follow, finish])
    results = user(answers("a"), answers("b", [say("task-"), say("7")]), say("go on"))
    history = [HELLO, assistant(asks("a"), asks("b")), results]

    followed: Json = await model.create(messages=history)
    finished: Json = await model.create(messages=[HELLO])

    assert followed["content"][0]["input"] == {"task_id": "task-7"}
    assert finished["content"] == [say("1 messages")]


async def test_failing_step_raises_and_the_next_request_continues() -> None:
    model = ScriptedModel([testing.fail(529), testing.fail(400, message="too long"), say("At last.")])

    with pytest.raises(testing.ApiError) as overloaded:
        await model.create(messages=[HELLO])
    with pytest.raises(testing.ApiError, match=r"^400 invalid_request_error: too long$"):
        await model.create(messages=[HELLO])
    done = await model.create(messages=[HELLO])

    assert overloaded.value.failure == testing.ScriptedFailure(529, "overloaded_error", "Overloaded")
    assert done["content"] == [say("At last.")]


async def test_truncated_call_lacks_the_rest_of_its_input() -> None:
    model = ScriptedModel(
        [testing.cut(say("I write."), use("Write", file_path="a", content="long")), testing.cut(say("halfway"))]
    )

    torn: Json = await model.create(messages=[HELLO])
    text: Json = await model.create(messages=[HELLO])

    assert (torn["stop_reason"], torn["content"][1]["input"]) == ("max_tokens", {"file_path": "a"})
    assert (text["stop_reason"], text["content"]) == ("max_tokens", [say("half")])


async def test_refusal_and_pause_have_their_stop_reason() -> None:
    pause = testing.ScriptedReply([say("Searching.")], stop_reason="pause_turn")
    model = ScriptedModel([testing.refuse(explanation="No."), pause])

    refused: Json = await model.create(messages=[HELLO])
    paused = await model.create(messages=[HELLO])

    assert (refused["stop_reason"], refused["content"]) == ("refusal", [])
    assert refused["stop_details"]["explanation"] == "No."
    assert paused["stop_reason"] == "pause_turn"


async def test_request_after_the_last_step_raises_unless_an_end_is_given() -> None:
    short, endless = ScriptedModel([say("One.")]), ScriptedModel([], then=say("Still here."))

    await short.create(messages=[HELLO])
    with pytest.raises(testing.ScriptExhausted, match=r"at most 1 requests, .* request 2 has no step"):
        await short.create(messages=[HELLO])
    reply = [(await endless.create(messages=[HELLO]))["content"] for _ in range(2)]

    assert short.remaining_steps == 0
    assert reply == [[say("Still here.")], [say("Still here.")]]


async def test_requests_are_kept_as_received() -> None:
    model = ScriptedModel([say("One.")])
    messages = [copy.deepcopy(HELLO)]

    await model.create(messages=messages, system="Be brief.")
    with pytest.raises(testing.ApiError):
        await model.create(messages=[])
    messages[0]["content"] = "changed"

    assert model.requests == [{"messages": [HELLO], "system": "Be brief."}, {"messages": []}]


async def test_invalid_history_is_refused_as_by_the_api_and_takes_no_step() -> None:
    model = ScriptedModel([say("One.")])

    with pytest.raises(testing.ApiError) as refused:
        await model.create(messages=[HELLO, assistant(asks("toolu_a")), user(say("And?"))])

    assert (refused.value.status, refused.value.type) == (400, "invalid_request_error")
    assert refused.value.message == (
        "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after:"
        " toolu_a. Each `tool_use` block must have a corresponding `tool_result` block in the"
        " next message."
    )
    assert model.remaining_steps == 1


@pytest.mark.parametrize(
    ("tools", "problem"),
    [
        ([{"name": "a", "input_schema": {"type": "object"}}] * 2, "tools: Tool names must be"),
        ([{"name": "a b", "input_schema": {"type": "object"}}], "tools.0.custom.name: String"),
        ([{"name": "a"}], "tools.0.custom.input_schema: Field required"),
        ([{"name": "a", "input_schema": {}}], "tools.0.custom.input_schema.type: Input should be"),
        (["a"], "tools.0: Input should be an object"),
        ("a", "tools: Input should be a valid list"),
    ],
)
async def test_invalid_tools_are_refused(tools: object, problem: str) -> None:
    with pytest.raises(testing.ApiError) as refused:
        await ScriptedModel([say("One.")]).create(messages=[HELLO], tools=tools)

    assert refused.value.message.startswith(problem)


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        (None, "messages: Input should be a valid list"),
        ([], "messages: at least one message is required"),
        (["hi"], "messages.0: Input should be an object"),
        ([{"role": "tool", "content": "x"}], "messages.0.role: Input should be"),
        ([{"role": "user"}], "messages.0.content: Field required"),
        ([{"role": "user", "content": 1}], "messages.0.content: Input should be"),
        ([user("hi")], "messages.0.content.0: Input should be an object"),  # type: ignore[arg-type]
        ([user({})], "messages.0.content.0: Unable to extract tag"),
        ([user({"type": "text"})], "messages.0.content.0.text.text: Field required"),
        ([HELLO, assistant({"type": "thinking", "thinking": "x"})], "messages.1.content.0.thinking"),
        ([user(answers("a", 3))], "messages.0.content.0.tool_result.content: Input should be"),
        (
            [HELLO, assistant({"type": "tool_use", "id": "a b", "name": "x", "input": {}})],
            "messages.1.content.0.tool_use.id: String should match pattern",
        ),
        (
            [HELLO, assistant({"type": "tool_use", "id": "a", "name": "x", "input": "{}"})],
            "messages.1.content.0.tool_use.input: Input should be a valid dictionary",
        ),
    ],
)
def test_malformed_messages_are_reported(messages: object, problem: str) -> None:
    assert [output[: len(problem)] for output in check_history(messages)] == [problem]


def test_final_assistant_message_may_be_empty_but_not_end_in_spaces() -> None:
    assert check_history([HELLO, {"role": "assistant", "content": ""}]) == []
    assert check_history([HELLO, {"role": "assistant", "content": "So "}]) == [
        "messages: final assistant content cannot end with trailing whitespace"
    ]


def test_results_in_adjacent_user_messages_are_one_answer() -> None:
    spread = [HELLO, assistant(asks("a"), asks("b")), user(answers("a")), user(answers("b"))]

    assert check_history(spread) == []
    assert check_history([*spread[:2], user(say("well")), *spread[2:]]) != []


@st.composite
def histories(draw: st.DrawFn) -> list[Json]:
    message = st.text(min_size=1).filter(str.strip)
    reply = st.builds(say, message)
    thought = st.just(THOUGHT)
    contents = message | st.just("") | st.lists(reply | st.just(IMAGE), max_size=2)
    messages: list[Json] = [{"role": "user", "content": draw(message)}]
    calls = 0
    for turn in range(draw(st.integers(1, 4))):
        size = draw(st.integers(0 if turn else 1, 3))
        identifiers = [f"toolu_{n}" for n in range(calls, calls + size)]
        calls += size
        before = draw(st.lists(thought | reply, max_size=2))
        after = draw(st.lists(reply, min_size=0 if size else 1, max_size=1))
        messages.append(assistant(*before, *map(asks, identifiers), *after))
        results = [answers(name, draw(contents)) for name in draw(st.permutations(identifiers))]
        text = draw(st.lists(reply, min_size=0 if size else 1, max_size=2))
        split = draw(st.integers(0, size))
        parts = [user(*results[:split]), user(*results[split:], *text)]
        messages.extend(part for part in parts if part["content"])
    return messages


UNANSWERED = "without `tool_result` blocks immediately after: toolu_"
THOUGHT: Json = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}


def with_results(history: list[Json], *before: Json, after: tuple[Json, ...] = (), skip: int = 0) -> list[Json]:
    results = user(*before, *history[2]["content"][skip:], *after)
    return [*history[:2], results, *history[3:]]


FAULTS: dict[str, tuple[Callable[[list[Json]], list[Json]], str]] = {
    "dropped result": (lambda h: with_results(h, say("Never mind."), skip=1), UNANSWERED),
    "answered twice": (lambda h: with_results(h, h[2]["content"][0]), "each tool_use must have a single result"),
    "unasked result": (
        lambda h: with_results(h, after=(answers("toolu_unasked"),)),
        "unexpected `tool_use_id` found in `tool_result` blocks: toolu_unasked",
    ),
    "late results": (lambda h: [*h[:2], assistant(say("Wait.")), user(say("I wait.")), *h[2:]], UNANSWERED),
    "text first": (lambda h: with_results(h, say("Here:")), UNANSWERED),
    "open end": (lambda h: h[:2], UNANSWERED),
    "repeated id": (
        lambda h: [*h, assistant(asks("toolu_0")), user(answers("toolu_0"))],
        "`tool_use` ids must be unique",
    ),
    "system between": (lambda h: [*h[:2], {"role": "system", "content": "Be brief."}, *h[2:]], UNANSWERED),
    "assistant first": (lambda h: [assistant(say("Welcome.")), *h], 'first message must use the "user" role'),
    "call of the user": (
        lambda h: [*h, user(asks("toolu_x"))],
        "`tool_use` blocks can only be in `assistant` messages",
    ),
    "result of the assistant": (
        lambda h: [h[0], assistant(answers("toolu_x")), *h[1:]],
        "`tool_result` blocks can only be in `user` messages",
    ),
    "image in error": (
        lambda h: with_results(h, {**h[2]["content"][0], "is_error": True, "content": [say("No."), IMAGE]}, skip=1),
        "all content must be type `text` if `is_error` is true",
    ),
    "empty text": (lambda h: [*h, user(say(""))], "text content blocks must be non-empty"),
    "empty text in result": (
        lambda h: with_results(h, {**h[2]["content"][0], "content": [say("")]}, skip=1),
        "text content blocks must be non-empty",
    ),
    "blank text": (
        lambda h: [*h, {"role": "user", "content": " \n"}],
        "text content blocks must contain non-whitespace text",
    ),
    "empty message": (lambda h: [*h, user()], "all messages must have non-empty content"),
    "ends thinking": (
        lambda h: [*h, assistant(THOUGHT)],
        "The final block in an assistant message cannot be `thinking`",
    ),
}


@given(histories())
def test_valid_history_has_no_problems(history: list[Json]) -> None:
    assert check_history(history) == []


@given(histories())
def test_every_planted_fault_is_found(history: list[Json]) -> None:
    missed = [
        name
        for name, (plant, text) in FAULTS.items()
        if not any(text in problem for problem in check_history(plant(history)))
    ]

    assert missed == []


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "type", "text", "id", "tool_use_id", "input"]) | st.text(max_size=3),
            inner | st.sampled_from(["user", "assistant", "text", "tool_use", "tool_result"]),
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(st.lists(_json, max_size=4) | _json)
def test_checking_never_raises(messages: object) -> None:
    assert all(isinstance(problem, str) for problem in check_history(messages))


def test_script_can_be_written_as_json() -> None:
    text = """[
        [{"type": "text", "text": "I look."}, {"type": "tool_use", "name": "Bash", "input": {}}],
        {"type": "text", "text": "Done."},
        {"fail": {"status": 529, "retry_after": 1}},
        {"cut": [{"type": "text", "text": "Half"}]},
        {"refuse": []}
    ]"""

    assert testing.load_script(text) == [
        [say("I look."), use("Bash")],
        [say("Done.")],
        testing.fail(529, retry_after=1),
        testing.cut(say("Half")),
        testing.refuse(),
    ]


@pytest.mark.parametrize(
    "text", ["{", "{}", '["hi"]', "[[1]]", '[{"fail": {}}]', '[{"fail": {"status": 1, "x": 2}}]', '[{"cut": []}]']
)
def test_invalid_script_raises_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="Expected"):
        testing.load_script(text)
