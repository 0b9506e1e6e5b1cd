"""Names on the wire, which dashboards and alerts use, do not change with the names of modules."""

from __future__ import annotations

from toolspan.types import telemetry_names

PUBLISHED = """
error.type gen_ai.agent.id gen_ai.agent.name gen_ai.conversation.id gen_ai.input.messages gen_ai.operation.name
gen_ai.output.messages gen_ai.provider.name gen_ai.request.model gen_ai.response.finish_reasons gen_ai.response.id
gen_ai.response.model
gen_ai.tool.call.arguments gen_ai.tool.call.id gen_ai.tool.call.result gen_ai.tool.name gen_ai.tool.type
gen_ai.usage.cache_creation.input_tokens gen_ai.usage.cache_read.input_tokens gen_ai.usage.input_tokens
gen_ai.usage.output_tokens process.exit.code toolspan.background toolspan.batch.calls toolspan.batch.finished
toolspan.call.duration toolspan.call.state toolspan.denial.kind toolspan.duplicate toolspan.error.kind
toolspan.execution toolspan.expected_s toolspan.fault toolspan.fault.where toolspan.hook toolspan.hook.command
toolspan.hook.name toolspan.hook.outcome toolspan.hook.point toolspan.hook.stderr toolspan.hook.stdout
toolspan.hook.text toolspan.input.size toolspan.limit.name toolspan.limit.reached toolspan.limit.spent
toolspan.limit.value toolspan.message.id toolspan.parent_call.id toolspan.path toolspan.permission.decision
toolspan.permission.source toolspan.permission_wait toolspan.progress toolspan.progress.data
toolspan.progress.kind toolspan.reason toolspan.recovers toolspan.recovery.applied toolspan.recovery.policy
toolspan.recovery.steps toolspan.recovery.succeeded toolspan.result.size toolspan.result.truncated
toolspan.sandbox.targets toolspan.sandbox_denied toolspan.slow toolspan.transcript.write_failed
toolspan.turn.stopped
"""


def test_telemetry_has_the_published_names() -> None:
    texts = [value for name, value in vars(telemetry_names).items() if name.isupper() and isinstance(value, str)]

    assert sorted(text for text in texts if "." in text and " " not in text) == PUBLISHED.split()
