"""Test an agent without a key and without a network: the model says what a script tells it to."""

from __future__ import annotations

import asyncio

from toolspan.testing import ScriptedModel, last_result_texts, say, use


def conclude(messages):
    """A step may look at what came back."""
    return say(f"There are {len(last_result_texts(messages)[0].split())} files.")


async def agent(model, prompt):
    """The agent under test: it knows one tool."""
    messages = [{"role": "user", "content": prompt}]
    while True:
        reply = await model.create(messages=messages)
        messages.append({"role": "assistant", "content": reply["content"]})
        if reply["stop_reason"] != "tool_use":
            return reply["content"][-1]["text"]
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": "a.txt b.txt"}
            for block in reply["content"]
            if block["type"] == "tool_use"
        ]
        messages.append({"role": "user", "content": results})


model = ScriptedModel([[say("I look first."), use("Bash", command="ls")], conclude])
print(asyncio.run(agent(model, "How many files are here?")))
print(f"{len(model.requests)} requests, {model.remaining_steps} steps left")
