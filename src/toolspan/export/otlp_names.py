"""Names of what leaves as OTLP: those of `toolspan.telemetry`, which needs OpenTelemetry to import.

A test holds the two together.
"""

SCOPE = "toolspan"

CALL_SPAN = "execute_tool {tool}"
PERMISSION_SPAN = "toolspan.permission_wait"
HOOK_SPAN = "toolspan.hook"
EXECUTION_SPAN = "toolspan.execution"

OPERATION = "gen_ai.operation.name"
OPERATION_VALUE = "execute_tool"
TOOL = "gen_ai.tool.name"
CALL_ID = "gen_ai.tool.call.id"
TOOL_TYPE = "gen_ai.tool.type"
CONVERSATION = "gen_ai.conversation.id"
AGENT = "gen_ai.agent.id"
MESSAGE = "toolspan.message.id"
PARENT_CALL = "toolspan.parent_call.id"
STATE = "toolspan.call.state"
ERROR_TYPE = "error.type"
ERROR_KIND = "toolspan.error.kind"
EXIT_CODE = "process.exit.code"
INPUT_SIZE = "toolspan.input.size"
RESULT_SIZE = "toolspan.result.size"
TRUNCATED = "toolspan.result.truncated"
BACKGROUND = "toolspan.background"
ARGUMENTS = "gen_ai.tool.call.arguments"
RESULT = "gen_ai.tool.call.result"
