//! Carries out the calls of one answer: each is judged, people are asked about those that need consent, and then they are used.

use std::collections::BTreeMap;
use std::sync::Arc;

use callboard::actors::TurnError;
use callboard::messages::{AgentEvent, Command, Handoffs, Json, Rationale, Refusal, ToolCall};
use futures::FutureExt;
use futures::future::{BoxFuture, join_all, ready};
use parking_lot::Mutex;

use crate::meta;
use crate::permission::Tier;
use crate::tool::ToolError;

use super::AgentLoop;
use super::context::{Answered, LoopContext};
use super::delegating::SummedUp;
use super::host::{Asked, Host, Permission};
use super::text::words;
use super::uses::Use;

/// Checks the handoffs: returns the first that is admitted, and answers the others. An agent whose handoffs are off finishes
/// alone.
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

/// Waits for concurrent uses.
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
    /// Uses the tools that the model has called. Returns the command of a handoff, which ends the loop.
    pub(super) async fn use_tools(
        &self,
        host: &dyn Host,
        context: &Mutex<LoopContext>,
        calls: Vec<ToolCall>,
    ) -> Result<Option<Command>, TurnError> {
        for call in &calls {
            let is_unknown = !self.knows(host, call, &context.lock());
            host.show(AgentEvent::ToolCalled { call: call.clone(), is_unknown });
        }
        let mut uses: Vec<Use> = calls.iter().map(|call| self.judge(host, call, &context.lock())).collect();
        if uses.iter().any(|one| matches!(one, Use::AfterPermission(..))) {
            self.look(host, &calls, &mut uses).await?;
            self.ask_for_permission(host, context, &calls, &mut uses).await?;
        }
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
            host.taint(&call.name);
        }
        let mut context = context.lock();
        context.answered(answers);
        // Other agents that worked for this turn may have tainted it.
        context.is_tainted |= host.is_tainted();
        Ok(handoff)
    }

    /// Answers the calls that their tools would refuse, before people are asked about them. The result is a step, so that a repeated
    /// attempt asks about the same calls.
    async fn look(&self, host: &dyn Host, calls: &[ToolCall], uses: &mut [Use]) -> Result<(), TurnError> {
        let names: Vec<String> = calls.iter().map(|call| format!("check {}", call.name)).collect();
        let mut looking = Vec::new();
        for (position, ((call, name), one)) in calls.iter().zip(&names).zip(uses.iter()).enumerate() {
            let Use::AfterPermission(action, _) = one else { continue };
            let look = self.settings.tools.get(&call.name).and_then(|entry| entry.tool.look(&action.arguments));
            let Some(look) = look else { continue };
            let found = look.map(|found| Ok(found.err().map_or_else(Json::null, |ToolError(why)| why.into())));
            let step = host.step(name, found.boxed());
            looking.push(async move { (position, step.await) });
        }
        for (position, found) in join_all(looking).await {
            if let Some(why) = found?.as_str() {
                uses[position] = Use::answer(ToolError(why.to_owned()));
            }
        }
        Ok(())
    }

    /// Asks people about all calls that need consent, at once.
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
            let (tier, is_named) = (self.settings.tier, self.settings.asking.contains(&call.name));
            let rule = if is_named { "the agent's permissions ask each time before this tool" } else { tier.rule() };
            let rationale = Rationale {
                reason: context.lock().texts.last().cloned(),
                effect: Some(*effect),
                tier: Some(tier.to_string().into()),
                rule: Some(rule.into()),
            };
            let each_time = tier == Tier::Dynamic || is_named;
            let decided = host.approve(&call.id, Asked { action: action.clone(), each_time, rationale });
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

    /// Begins the uses. Those that need an ordinal of the turn take it here.
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
                self.use_tool(host, context, position, call, action)
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
                let reported = move |made: Result<(), String>| match made {
                    Ok(()) => Answered::of(format!("{name} is ready for tasks")),
                    Err(why) => Answered::error(why),
                };
                made.map(|made| made.map(reported)).boxed()
            }
            Use::Keep(name, draft) => {
                let kept = host.keep_agent(&name, draft);
                let reported = move |kept: Result<(), String>| match kept {
                    Ok(()) => Answered::of(format!("{name} stays after this run")),
                    Err(why) => Answered::error(why),
                };
                kept.map(|kept| kept.map(reported)).boxed()
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
                    self.settings.tools.names().map(Arc::from).filter(|name| self.is_shown(name, &context)).collect();
                let found = meta::search(&self.settings.tools, &shown, &query);
                let specs = found.iter().filter_map(|name| self.settings.tools.get(name));
                let lines: Vec<String> =
                    specs.map(|entry| format!("{}: {}", entry.spec.name, entry.spec.description)).collect();
                context.activated.extend(found);
                let text = if lines.is_empty() { "no tool has these words".to_owned() } else { lines.join("\n") };
                ready(Ok(Answered::of(text))).boxed()
            }
        }
    }
}
