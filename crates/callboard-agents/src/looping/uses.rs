//! Decides about a tool call before people are asked.

use std::sync::Arc;

use callboard::messages::{Action, Command, Consent, Effect, Json, ToolCall};
use callboard_text::{did_you_mean, nearest, quoted};

use crate::meta::{self, Draft, MetaTool};
use crate::tool::{ToolError, ToolSpec};

use super::AgentLoop;
use super::context::{Answered, LoopContext};
use super::host::Host;
use super::text::words;

/// The decision about a call.
pub(super) enum Use {
    /// Only this answer.
    Answer(Answered),
    /// Use the tool if people allow it.
    AfterPermission(Action, Effect),
    Tool(Action, Effect),
    Ask(meta::AskUser),
    Delegate(meta::Task),
    Make {
        name: String,
        draft: Json,
        is_change: bool,
    },
    /// Keep an agent of this name, with this draft.
    Keep(String, Json),
    Handoff(Box<Command>),
    AcceptHandoff,
    Search(String),
}

impl Use {
    pub(super) fn answer(error: ToolError) -> Self {
        Self::Answer(Answered::error(error.0))
    }

    /// The command of a handoff.
    pub(super) fn handoff(&self) -> Option<&Command> {
        match self {
            Self::Handoff(command) => Some(command),
            Self::Answer(_)
            | Self::AfterPermission(..)
            | Self::Tool(..)
            | Self::Ask(_)
            | Self::Delegate(_)
            | Self::Make { .. }
            | Self::Keep(..)
            | Self::AcceptHandoff
            | Self::Search(_) => None,
        }
    }

    /// Whether it may run concurrently with others: it changes nothing that they can see.
    pub(super) fn is_concurrent(&self) -> bool {
        match self {
            Self::Tool(_, effect) | Self::AfterPermission(_, effect) => match effect {
                Effect::Reads | Effect::Sends => true,
                Effect::Notes | Effect::Writes | Effect::Executes => false,
            },
            Self::Answer(_)
            | Self::Ask(_)
            | Self::Delegate(_)
            | Self::Handoff(_)
            | Self::AcceptHandoff
            | Self::Search(_) => true,
            // Later tasks of the same message may be for it.
            Self::Make { .. } | Self::Keep(..) => false,
        }
    }
}

impl AgentLoop {
    /// Whether there is a tool of the name that the model has written.
    pub(super) fn knows(&self, host: &dyn Host, call: &ToolCall, context: &LoopContext) -> bool {
        let entry = self.settings.tools.get(&call.name);
        entry.is_some_and(|entry| self.is_shown(&entry.spec.name, context))
            || self.meta_there(host).any(|(_, spec)| spec.name == call.name)
    }

    /// The decision about a call before people are asked.
    pub(super) fn judge(&self, host: &dyn Host, call: &ToolCall, context: &LoopContext) -> Use {
        let meta = self.meta_there(host).find(|(_, spec)| spec.name == call.name);
        let fits = |error: serde_json::Error| {
            Use::answer(ToolError(format!("the arguments of {} do not fit: {error}", call.name)))
        };
        if let Some((tool, _)) = meta {
            let arguments = &call.arguments;
            return match tool {
                MetaTool::AskUser => arguments.parse().map_or_else(fits, Use::Ask),
                MetaTool::Task => arguments.parse().map_or_else(fits, Use::Delegate),
                MetaTool::HandoffToAgent => arguments
                    .parse::<meta::HandoffToAgent>()
                    .map_or_else(fits, |handoff| Use::Handoff(Box::new(handoff.command()))),
                MetaTool::AcceptHandoff => Use::AcceptHandoff,
                MetaTool::AgentCreate | MetaTool::AgentUpdate => {
                    arguments.parse::<Draft>().map_or_else(fits, |Draft { name, .. }| {
                        let (draft, is_change) = (arguments.clone(), *tool == MetaTool::AgentUpdate);
                        Use::Make { name, draft, is_change }
                    })
                }
                MetaTool::AgentKeep => arguments
                    .parse::<Draft>()
                    .map_or_else(fits, |Draft { name, .. }| Use::Keep(name, arguments.clone())),
                MetaTool::ToolSearch => {
                    arguments.parse::<meta::ToolSearch>().map_or_else(fits, |search| Use::Search(search.query))
                }
            };
        }
        let Some(entry) = self.settings.tools.get(&call.name).filter(|entry| self.is_shown(&entry.spec.name, context))
        else {
            return Use::answer(self.unknown(host, &call.name, context));
        };
        if let Err(error) = entry.check(&call.arguments) {
            return Use::answer(error);
        }
        if !host.authority().allows(entry.spec.effect) {
            return Use::answer(ToolError(format!(
                "{} may not be used for this task: the run, or somebody who passed the task on, may not do what it does",
                call.name
            )));
        }
        let action = action(&entry.spec, &call.arguments);
        match self.settings.tier.consent(entry.spec.effect, context.is_tainted) {
            Consent::Auto if self.settings.asking.contains(&entry.spec.name) => {
                Use::AfterPermission(action, entry.spec.effect)
            }
            Consent::Auto => Use::Tool(action, entry.spec.effect),
            Consent::Ask | Consent::AskWithin(_) | Consent::AskOf { .. } => {
                Use::AfterPermission(action, entry.spec.effect)
            }
            Consent::Deny => Use::answer(ToolError(format!("{} may not be used here", call.name))),
        }
    }

    fn unknown(&self, host: &dyn Host, name: &str, context: &LoopContext) -> ToolError {
        let own = self.settings.tools.names().filter(|name| self.is_shown(&Arc::from(*name), context));
        let known: Vec<&str> = own.chain(self.meta_there(host).map(|(tool, _)| tool.name())).collect();
        let likely = nearest(name, known.iter().copied());
        let there =
            if known.is_empty() { "there are none".to_owned() } else { format!("there are {}", known.join(", ")) };
        ToolError(format!("there is no tool {}{}; {there}", quoted(name), did_you_mean(likely.as_deref())))
    }
}

/// The action that people are asked about.
fn action(spec: &ToolSpec, arguments: &Json) -> Action {
    let target = spec.target.as_ref().and_then(|argument| arguments.get(&**argument)).map(words);
    Action::new(&spec.name, target.as_deref().unwrap_or_default(), arguments.clone())
}
