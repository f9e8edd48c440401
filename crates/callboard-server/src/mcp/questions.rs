//! What a run waits for a person with: questions, which a client may put to its user, and what only a command decides.

use callboard::messages::{Json, Pending, PendingId, Question, visible};
use rmcp::model::{
    ClientCapabilities, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema,
    EnumSchema, InputRequest, InputRequests,
};
use serde_json::{Value, json};

/// The field of a form in which the answer is.
const ANSWER: &str = "answer";
/// The longest line of something that waits, in characters.
const MAX_LINE: usize = 300;

/// Whether a client can put questions to its user, in a form.
pub(super) fn can_ask(capabilities: Option<&ClientCapabilities>) -> bool {
    // A client of before the two modes names neither.
    capabilities.and_then(|it| it.elicitation.as_ref()).is_some_and(|it| it.form.is_some() || it.url.is_none())
}

/// The question, if it is one that the user of the client answers. Whether an effect has happened is not: who says so decides
/// whether it happens again.
pub(super) fn question(pending: &Pending) -> Option<&Question> {
    match pending {
        Pending::Question(question) if question.outcome_code().is_none() => Some(question),
        Pending::Question(_) | Pending::Approval(_) | Pending::Node(_) | Pending::Attention { .. } => None,
    }
}

/// The questions among these, each under its id.
pub(super) fn requests(pending: &[Pending]) -> InputRequests {
    let request = |question: &Question| {
        let id = PendingId::Question(question.id).to_string();
        (id, InputRequest::Elicitation(ElicitRequest::new(form(question))))
    };
    pending.iter().filter_map(question).map(request).collect()
}

/// A question as a form with one field.
pub(super) fn form(question: &Question) -> ElicitRequestParams {
    let text = match question.question.get("question") {
        Some(Value::String(text)) => text.clone(),
        Some(_) | None => question.question.as_str().map_or_else(|| question.question.to_string(), str::to_owned),
    };
    let lines: Vec<String> = text.split('\n').map(visible).collect();
    let message = format!("{} asks: {}", visible(question.agent.as_str()), lines.join("\n"));
    let choices = question.question.get("choices").and_then(Value::as_array).into_iter().flatten();
    let choices: Vec<String> = choices.filter_map(|choice| choice.as_str().map(str::to_owned)).collect();
    let schema = ElicitationSchema::builder();
    let schema = match choices.is_empty() {
        true => schema.required_string(ANSWER),
        false => schema.required_enum_schema(ANSWER, EnumSchema::builder(choices).build()),
    };
    let requested_schema = schema.build_unchecked();
    ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema }
}

/// What a user has answered; `None` if nothing.
pub(super) fn answer(result: &ElicitResult) -> Option<Json> {
    let is_given = result.action == ElicitationAction::Accept;
    result.content.as_ref().filter(|_| is_given)?.get(ANSWER).cloned().map(Json::from)
}

/// Something that waits, in a line, and the command with which a person decides.
pub(super) fn line(pending: &Pending) -> (String, String) {
    let id = pending.id();
    let (line, command) = match pending {
        Pending::Approval(envelope) => {
            (format!("{} asks for consent to {}", envelope.agent, envelope.action), format!("callboard approve {id}"))
        }
        Pending::Question(question) => {
            (format!("{} asks {}", question.agent, question.question), format!("callboard answer {id} TEXT"))
        }
        Pending::Node(node) => {
            (format!("the node {} waits for a person to start it", node.node), format!("callboard answer {id}"))
        }
        Pending::Attention { why, .. } => (format!("a turn cannot continue: {why}"), format!("callboard approve {id}")),
    };
    (visible(&line).chars().take(MAX_LINE).collect(), command)
}

/// The same as JSON.
pub(super) fn shown(pending: &[Pending]) -> Value {
    let shown = pending.iter().map(|pending| {
        let (line, command) = line(pending);
        json!({ "id": pending.id(), "waits_for": line, "command": command })
    });
    shown.collect()
}
