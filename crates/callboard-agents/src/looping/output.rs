//! Answers that have to be values.

use std::sync::Arc;

use callboard::messages::{AgentEvent, Json, Message};
use parking_lot::Mutex;

use super::AgentLoop;
use super::context::LoopContext;
use super::finish::Finish;
use super::host::Host;

impl AgentLoop {
    /// The model's prompt, with the instruction about its answer.
    pub(super) fn instructions(&self) -> Arc<str> {
        match &self.settings.output {
            None => Arc::clone(&self.system),
            Some(schema) if self.system.is_empty() => schema.instruction().into(),
            Some(schema) => format!("{}\n\n{}", self.system, schema.instruction()).into(),
        }
    }

    /// The value of an answer; `None` if the model is asked again.
    pub(super) fn judged(&self, host: &dyn Host, context: &Mutex<LoopContext>, text: &str) -> Option<Finish> {
        let Some(schema) = &self.settings.output else { return Some(Finish::Answered(Json::from(text))) };
        let problem: Arc<str> = match schema.read(text) {
            Ok(value) => return Some(Finish::Answered(value)),
            Err(problem) => problem.into(),
        };
        let mut context = context.lock();
        if context.is_asked_again {
            return Some(Finish::Failed(format!("the model's answer {problem}; it was asked again once").into()));
        }
        context.is_asked_again = true;
        let reported =
            format!("Your answer {problem}. Answer again, with nothing but one JSON value that meets the schema.");
        Arc::make_mut(&mut context.history).push(Message::user(reported));
        host.show(AgentEvent::AnswerRefused { problem });
        None
    }
}
