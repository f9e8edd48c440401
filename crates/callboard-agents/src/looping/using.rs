//! What becomes of the calls of one answer: each is judged, people are asked about those that need it, and then they are used.

use std::collections::BTreeMap;
use std::sync::Arc;

use callboard::actors::TurnError;
use callboard::messages::{
    Action, AgentEvent, Command, Consent, Effect, EffectClass, Handoffs, Intent, Json, Reconciled, Refusal, ToolCall,
};
use callboard_text::{did_you_mean, nearest, quoted};
use futures::FutureExt;
use futures::future::{BoxFuture, join_all, ready};
use parking_lot::Mutex;

use crate::made::Draft;
use crate::meta::{self, MetaTool};
use crate::permission::Tier;
use crate::tool::{Entry, ToolError, ToolFailure, ToolOutput, ToolScope, ToolSpec};

use super::context::{Answered, LoopContext};
use super::delegating::SummedUp;
use super::host::{Host, Outside, Permission};
use super::{AgentLoop, recorded};

/// What becomes of a call.
pub(super) enum Use {
    /// Nothing but this answer.
    Answer(Answered),
    /// A tool is used if people allow it.
    AfterPermission(Action, Effect),
    Tool(Action, Effect),
    Ask(meta::AskUser),
    Delegate(meta::Task),
    Make {
        name: String,
        draft: Json,
        is_change: bool,
    },
    /// Keeps an agent of this name, as it is described.
    Keep(String, Json),
    Handoff(Box<Command>),
    AcceptHandoff,
    Search(String),
}

impl Use {
    fn answer(error: ToolError) -> Self {
        Self::Answer(Answered::error(error.0))
    }

    /// The command that passes control on.
    fn handoff(&self) -> Option<&Command> {
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

    /// Whether it may run beside others: it changes nothing that they could see.
    fn is_concurrent(&self) -> bool {
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
            // Tasks of the same message are for it.
            Self::Make { .. } | Self::Keep(..) => false,
        }
    }
}

/// The first handoff that may go ahead; the others are answered. An agent that may not pass control on finishes alone.
async fn check_handoffs(host: &dyn Host, uses: &mut [Use]) -> Result<Option<Command>, TurnError> {
    let mut admitted = None;
    for one in uses {
        let Some(command) = one.handoff().cloned() else { continue };
        if admitted.is_some() {
            *one = Use::answer(ToolError("control goes to one agent, and passes on with another call".to_owned()));
            continue;
        }
        let refusal = match host.handoffs() {
            Handoffs::OrAlone => host.check_handoff(&command).await?,
            Handoffs::Strict | Handoffs::Off => None,
        };
        match refusal {
            None => admitted = Some(command),
            Some(refusal) => {
                let why = format!("control cannot pass on ({refusal}): finish yourself what was asked");
                *one = Use::answer(ToolError(why));
            }
        }
    }
    Ok(admitted)
}

/// Waits for those that run side by side.
async fn settle(
    host: &dyn Host,
    calls: &[ToolCall],
    running: &mut Vec<(usize, BoxFuture<'_, Result<Answered, TurnError>>)>,
    answers: &mut BTreeMap<usize, Answered>,
) -> Result<(), TurnError> {
    let running = std::mem::take(running).into_iter().map(|(position, answer)| async move {
        let answered = answer.await?;
        let call = &calls[position];
        let (call, name) = (Arc::clone(&call.id), Arc::clone(&call.name));
        let (text, is_error) = (Arc::clone(&answered.text), answered.is_error);
        host.show(AgentEvent::ToolAnswered { call, name, text, is_error });
        Ok::<_, TurnError>((position, answered))
    });
    for answered in join_all(running).await {
        let (position, answered) = answered?;
        answers.insert(position, answered);
    }
    Ok(())
}

impl AgentLoop {
    /// Uses the tools that the model has called. Gives the command of a handoff, which ends the loop.
    pub(super) async fn use_tools(
        &self,
        host: &dyn Host,
        context: &Mutex<LoopContext>,
        calls: Vec<ToolCall>,
    ) -> Result<Option<Command>, TurnError> {
        for call in &calls {
            host.show(AgentEvent::ToolCalled { call: call.clone() });
        }
        let mut uses: Vec<Use> = calls.iter().map(|call| self.judge(host, call, &context.lock())).collect();
        self.ask_for_permission(host, context, &calls, &mut uses).await?;
        let handoff = check_handoffs(host, &mut uses).await?;
        let summed_up = self.sum_up(host, context, &uses).await?;
        let mut answers: BTreeMap<usize, Answered> = BTreeMap::new();
        let mut side_by_side: Vec<(usize, BoxFuture<'_, Result<Answered, TurnError>>)> = Vec::new();
        for (position, (call, one)) in calls.iter().zip(uses).enumerate() {
            if !one.is_concurrent() {
                settle(host, &calls, &mut side_by_side, &mut answers).await?;
            }
            let is_concurrent = one.is_concurrent();
            side_by_side.push((position, self.begin(host, context, summed_up.as_ref(), position, call, one)));
            if !is_concurrent {
                settle(host, &calls, &mut side_by_side, &mut answers).await?;
            }
        }
        settle(host, &calls, &mut side_by_side, &mut answers).await?;
        let answers: Vec<_> = calls.into_iter().zip(answers.into_values()).collect();
        for (call, _) in answers.iter().filter(|(_, answered)| answered.is_untrusted) {
            host.mark(&call.name);
        }
        let mut context = context.lock();
        context.answered(answers);
        // What others did for this turn may have marked it.
        context.is_marked |= host.is_marked();
        Ok(handoff)
    }

    /// What a call comes to, before anybody is asked.
    fn judge(&self, host: &dyn Host, call: &ToolCall, context: &LoopContext) -> Use {
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
        let Some(entry) = self.means.tools.get(&call.name).filter(|entry| self.is_shown(&entry.spec.name, context))
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
        match self.means.tier.consent(entry.spec.effect, context.is_marked) {
            Consent::Auto if self.means.asking.contains(&entry.spec.name) => {
                Use::AfterPermission(action, entry.spec.effect)
            }
            Consent::Auto => Use::Tool(action, entry.spec.effect),
            Consent::Ask | Consent::AskWithin(_) => Use::AfterPermission(action, entry.spec.effect),
            Consent::Deny => Use::answer(ToolError(format!("{} may not be used here", call.name))),
        }
    }

    fn unknown(&self, host: &dyn Host, name: &str, context: &LoopContext) -> ToolError {
        let own = self.means.tools.names().filter(|name| self.is_shown(&Arc::from(*name), context));
        let known: Vec<&str> = own.chain(self.meta_there(host).map(|(tool, _)| tool.name())).collect();
        let likely = nearest(name, known.iter().copied());
        let there =
            if known.is_empty() { "there are none".to_owned() } else { format!("there are {}", known.join(", ")) };
        ToolError(format!("there is no tool {}{}; {there}", quoted(name), did_you_mean(likely.as_deref())))
    }

    /// Asks people about all calls that need it, at once.
    async fn ask_for_permission(
        &self,
        host: &dyn Host,
        context: &Mutex<LoopContext>,
        calls: &[ToolCall],
        uses: &mut [Use],
    ) -> Result<(), TurnError> {
        let mut asked = Vec::new();
        for (position, (call, one)) in calls.iter().zip(uses.iter()).enumerate() {
            let Use::AfterPermission(action, effect) = one else { continue };
            context.lock().pending_permissions.insert(Arc::clone(&call.id), action.clone());
            host.show(AgentEvent::PermissionAsked { call: Arc::clone(&call.id), action: action.clone() });
            let each_time = self.means.tier == Tier::Dynamic || self.means.asking.contains(&call.name);
            let decided = host.approve(&call.id, action.clone(), each_time);
            let effect = *effect;
            asked.push(async move { (position, effect, decided.await) });
        }
        for (position, effect, decided) in join_all(asked).await {
            let call = &calls[position];
            context.lock().pending_permissions.remove(&call.id);
            let (is_granted, reason) = match decided? {
                Permission::Granted(action) => {
                    uses[position] = Use::Tool(action, effect);
                    (true, "".into())
                }
                Permission::Denied { reason } => {
                    let colon = if reason.is_empty() { "" } else { ": " };
                    uses[position] = Use::answer(ToolError(format!("a person did not allow this{colon}{reason}")));
                    (false, reason)
                }
            };
            host.show(AgentEvent::PermissionDecided { call: Arc::clone(&call.id), is_granted, reason });
        }
        Ok(())
    }

    /// Begins what was decided on. What needs an ordinal of the turn takes it here.
    fn begin<'a>(
        &'a self,
        host: &'a dyn Host,
        context: &'a Mutex<LoopContext>,
        summed_up: Option<&SummedUp>,
        position: usize,
        call: &ToolCall,
        one: Use,
    ) -> BoxFuture<'a, Result<Answered, TurnError>> {
        match one {
            Use::Answer(answered) => ready(Ok(answered)).boxed(),
            Use::AfterPermission(action, _) | Use::Tool(action, _) => {
                self.use_tool(host, context, position, &call.name, action)
            }
            Use::Ask(meta::AskUser { question, choices }) => {
                let asked: Json = if choices.is_empty() {
                    question.into()
                } else {
                    serde_json::json!({ "question": question, "choices": choices }).into()
                };
                let id = Arc::clone(&call.id);
                context.lock().pending_questions.insert(Arc::clone(&id), asked.clone());
                host.show(AgentEvent::QuestionAsked { call: Arc::clone(&id), question: asked.clone() });
                let answer = host.ask(&id, asked);
                async move {
                    let answer = match answer.await {
                        Ok(answer) => answer,
                        Err(error) if matches!(error.refusal(), Some(Refusal::QuestionExpired { .. })) => {
                            context.lock().pending_questions.remove(&id);
                            return Ok(Answered::error("nobody answered in time; go on without an answer"));
                        }
                        Err(error) => return Err(error),
                    };
                    context.lock().pending_questions.remove(&id);
                    host.show(AgentEvent::QuestionAnswered { call: id, answer: answer.clone() });
                    Ok(Answered::of(words(&answer)))
                }
                .boxed()
            }
            Use::Delegate(task) => self.delegate(host, context, summed_up, task),
            Use::Make { name, draft, is_change } => {
                let made = host.make_agent(&name, draft, is_change);
                let told = move |made: Result<(), String>| match made {
                    Ok(()) => Answered::of(format!("{name} is ready for tasks")),
                    Err(why) => Answered::error(why),
                };
                made.map(|made| made.map(told)).boxed()
            }
            Use::Keep(name, draft) => {
                let kept = host.keep_agent(&name, draft);
                let told = move |kept: Result<(), String>| match kept {
                    Ok(()) => Answered::of(format!("{name} stays after this run")),
                    Err(why) => Answered::error(why),
                };
                kept.map(|kept| kept.map(told)).boxed()
            }
            Use::Handoff(command) => {
                for to in command.goto.targets() {
                    host.show(AgentEvent::Handoff { to: Arc::clone(to) });
                }
                ready(Ok(Answered::of("control passes on"))).boxed()
            }
            Use::AcceptHandoff => ready(Ok(Answered::of(host.handed_over().to_string()))).boxed(),
            Use::Search(query) => {
                let mut context = context.lock();
                let shown =
                    self.means.tools.names().map(Arc::from).filter(|name| self.is_shown(name, &context)).collect();
                let found = meta::search(&self.means.tools, &shown, &query);
                let specs = found.iter().filter_map(|name| self.means.tools.get(name));
                let lines: Vec<String> =
                    specs.map(|entry| format!("{}: {}", entry.spec.name, entry.spec.description)).collect();
                context.activated.extend(found);
                let text = if lines.is_empty() { "no tool has these words".to_owned() } else { lines.join("\n") };
                ready(Ok(Answered::of(text))).boxed()
            }
        }
    }

    fn use_tool<'a>(
        &'a self,
        host: &'a dyn Host,
        context: &Mutex<LoopContext>,
        position: usize,
        name: &str,
        action: Action,
    ) -> BoxFuture<'a, Result<Answered, TurnError>> {
        let Some(entry) = self.means.tools.get(name) else {
            return ready(Ok(Answered::error("the tool is gone"))).boxed();
        };
        // What people have changed is looked at again.
        if let Err(error) = entry.check(&action.arguments) {
            return ready(Ok(Answered::error(error.0))).boxed();
        }
        let scope = host.scope(&format!("tool-{}-{position}", context.lock().iteration));
        let (arguments, in_scope) = (action.arguments.clone(), scope.clone());
        let work = async move { kept(entry, used(host, entry, arguments, in_scope).await) };
        let may_repeat = self.means.idempotent.contains(&entry.spec.name);
        if may_repeat || entry.class(&action.arguments) != EffectClass::Once {
            let step = host.step(&entry.spec.name, work.boxed());
            return async move { recorded(&step.await?) }.boxed();
        }
        let arguments = action.arguments.clone();
        let before = entry.tool.before(arguments.clone()).boxed();
        let reconcile = move |intent: Intent| async move {
            let found = entry.tool.reconcile(intent, arguments, scope).await;
            Ok(match found.map_err(|error| TurnError::transient(error.0))? {
                Reconciled::Done(output) => Reconciled::Done(kept(entry, answered(&entry.spec, output))?),
                Reconciled::NotDone => Reconciled::NotDone,
                Reconciled::Unknown => Reconciled::Unknown,
            })
        };
        let (on_unknown, reconcile) = (entry.spec.on_unknown, Box::new(|intent| reconcile(intent).boxed()));
        let done = host.effect(Outside { action, on_unknown, before, reconcile }, work.boxed());
        let name = &entry.spec.name;
        async move {
            Ok(match done.await? {
                // What a person gives as its result is text, or whatever else they have of it.
                Some(value) => value.parse().unwrap_or_else(|_| Answered::of(words(value.value()))),
                None => Answered::error(format!(
                    "{name} may have run: the work stopped before its result was known; look before you use it again"
                )),
            })
        }
        .boxed()
    }
}

/// An answer as a run's journal keeps it.
fn kept(entry: &Entry, answered: Answered) -> Result<Json, TurnError> {
    let is_untrusted = answered.is_untrusted || entry.spec.is_untrusted;
    Json::of(Answered { is_untrusted, ..answered }).map_err(|error| TurnError::terminal(error.to_string()))
}

fn answered(spec: &ToolSpec, ToolOutput { text, is_untrusted }: ToolOutput) -> Answered {
    Answered { text: cut(text, spec.max_output).into(), is_error: false, is_untrusted }
}

/// Uses a tool, unless it has not answered in time again and again.
async fn used(host: &dyn Host, entry: &Entry, arguments: Json, scope: ToolScope) -> Answered {
    let ToolSpec { name, timeout, max_output, .. } = &*entry.spec;
    let admitted = match host.now().map(|now| entry.gate.admit(now)).transpose() {
        Ok(admitted) => admitted,
        Err(wait) => {
            let wait = wait.as_secs_f64().ceil();
            return Answered::error(format!(
                "{name} has not answered in time again and again: it may be used again in {wait} s"
            ));
        }
    };
    let answer = tokio::time::timeout(*timeout, entry.tool.call(arguments, scope)).await;
    if let (Some(admitted), Some(now)) = (admitted, host.now()) {
        let has_answered = matches!(answer, Ok(Ok(_) | Err(ToolFailure::Told(_))));
        admitted.end(has_answered, now);
    }
    match answer {
        Ok(Ok(output)) => answered(&entry.spec, output),
        Ok(Err(ToolFailure::Told(ToolError(text)) | ToolFailure::Silent(ToolError(text)))) => {
            Answered::error(cut(text, *max_output))
        }
        Err(_) => Answered::error(format!("{name} took longer than {timeout:?}")),
    }
}

/// What people are asked about.
fn action(spec: &ToolSpec, arguments: &Json) -> Action {
    let target = spec.target.as_ref().and_then(|argument| arguments.get(&**argument)).map(words);
    Action::new(&spec.name, target.as_deref().unwrap_or_default(), arguments.clone())
}

/// Text as it is, and other values as JSON.
pub(super) fn words(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The beginning and the end of a text that is too long, and between them how much was left out.
fn cut(text: String, max: usize) -> String {
    if text.len() <= max {
        return text;
    }
    let head = text.floor_char_boundary(max / 4 * 3);
    let tail = text.ceil_char_boundary(text.len() - max / 4);
    format!("{}\n[… {} bytes are left out here …]\n{}", &text[..head], tail - head, &text[tail..])
}
