//! The names of attributes and operations: those of the GenAI conventions of OpenTelemetry, version 0.1.0, and callboard's own.

/// The version of the conventions (<https://github.com/open-telemetry/semantic-conventions-genai>). They are still in development: a name
/// that changes in a later version changes here, and with it this version.
pub const GENAI_CONVENTIONS: &str = "0.1.0";

pub(crate) const OPERATION: &str = "gen_ai.operation.name";
pub(crate) const INVOKE_WORKFLOW: &str = "invoke_workflow";
pub(crate) const INVOKE_AGENT: &str = "invoke_agent";
pub(crate) const CHAT: &str = "chat";
pub(crate) const EXECUTE_TOOL: &str = "execute_tool";

pub(crate) const AGENT: &str = "gen_ai.agent.name";
pub(crate) const CONVERSATION: &str = "gen_ai.conversation.id";
/// Required of calls of models.
pub(crate) const PROVIDER: &str = "gen_ai.provider.name";
pub(crate) const MODEL: &str = "gen_ai.request.model";
pub(crate) const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
pub(crate) const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
pub(crate) const TOOL: &str = "gen_ai.tool.name";
/// In the place of a name that a model has made up: names of spans have few values.
pub(crate) const UNKNOWN: &str = "unknown";
pub(crate) const TOOL_CALL: &str = "gen_ai.tool.call.id";
/// Of the general conventions.
pub(crate) const ERROR: &str = "error.type";

pub(crate) const RUN: &str = "callboard.run.id";
pub(crate) const TURN: &str = "callboard.turn.number";
pub(crate) const NODE: &str = "callboard.workflow.node";
pub(crate) const OUTCOME: &str = "callboard.outcome";
/// An event of a turn's span: an attempt has failed, and another is made.
pub(crate) const ATTEMPT_FAILED: &str = "callboard.attempt_failed";
pub(crate) const ATTEMPT: &str = "callboard.attempt";

/// The well-known name of a provider, by its name in a catalog of models.
pub(crate) fn provider(name: &str) -> &str {
    match name {
        // Any server that speaks OpenAI's protocol: the conventions have no better name.
        "openai-compatible" => "openai",
        "gemini" | "gemini-ix" => "gcp.gemini",
        "vertex" => "gcp.vertex_ai",
        "bedrock-api" => "aws.bedrock",
        "mistral" => "mistral_ai",
        "xai" => "x_ai",
        // Some have the same name in both, such as `anthropic`, and the others are not known to the conventions.
        other => other,
    }
}
