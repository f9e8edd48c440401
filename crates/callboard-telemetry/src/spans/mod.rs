//! The spans that follow from the events of runs. Pure: clock readings are passed in.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use callboard::messages::{
    AgentEvent, FailureKind, RunEvent, RunId, StateRules, Submission, Timestamp, TraceParent, TurnId, Verdict,
};
use callboard::supervision::runs::{Follower, Run, TurnEvent, TurnStatus};
use opentelemetry::trace::{Event, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId};
use opentelemetry::{InstrumentationScope, KeyValue, StringValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use crate::names;
use crate::settings::Providers;

/// The longest name of a tool, and of a call of one, in characters: providers and MCP servers may write anything.
const MAX_NAME: usize = 128;

/// The runs that are followed, and the spans that have ended and were not taken yet.
pub(crate) struct Spans {
    rules: StateRules,
    providers: Providers,
    scope: InstrumentationScope,
    runs: HashMap<RunId, Traced>,
    ended: Vec<SpanData>,
}

/// A run that has not ended.
struct Traced {
    follower: Follower,
    providers: Providers,
    /// The open turns.
    turns: BTreeMap<u32, Open>,
    /// The parents of all turns, because a handoff may be decided after its turn has ended.
    parents: BTreeMap<u32, u64>,
    /// Calls of models, by turn and reservation.
    calls: BTreeMap<(u32, u32), Call>,
    /// Uses of tools, by turn and call.
    tools: BTreeMap<(u32, Arc<str>), Tool>,
    /// How many spans have no id of their own: it makes the next one.
    numbered: u32,
}

struct Open {
    since: Timestamp,
    events: Vec<Event>,
}

struct Call {
    since: Timestamp,
    /// It has failed, and what follows is another try.
    has_failed: bool,
    /// The span of this try.
    span: TraceParent,
}

struct Tool {
    since: Timestamp,
    name: Arc<str>,
}

/// A span that has ended.
struct Ended {
    name: String,
    kind: SpanKind,
    span: u64,
    /// 0 for none.
    parent: u64,
    is_parent_remote: bool,
    time: (Timestamp, Timestamp),
    attributes: Vec<KeyValue>,
    events: Vec<Event>,
    error: Option<Cow<'static, str>>,
}

impl Spans {
    pub(crate) fn new(rules: StateRules, providers: Providers) -> Self {
        let scope = InstrumentationScope::builder("callboard").with_version(env!("CARGO_PKG_VERSION")).build();
        Self { rules, providers, scope, runs: HashMap::new(), ended: Vec::new() }
    }

    /// The spans that have ended since the last call.
    pub(crate) fn take_ended(&mut self) -> Vec<SpanData> {
        std::mem::take(&mut self.ended)
    }

    /// Takes the event of this number. `false` if events before it are missing: [`Spans::catch_up`] continues from the run.
    #[must_use]
    pub(crate) fn take(&mut self, run: RunId, sequence: u64, event: &RunEvent) -> bool {
        if !self.runs.contains_key(&run) {
            let RunEvent::Submitted(_) = event else { return false };
            self.runs.insert(run, self.traced());
        }
        let Some(traced) = self.runs.get_mut(&run) else { return false };
        if sequence > traced.follower.next_sequence() {
            self.runs.remove(&run);
            return false;
        }
        // A custom reducer may panic here as it does on the board.
        let taken = catch_unwind(AssertUnwindSafe(|| traced.take(sequence, event)));
        let Ok(ended) = taken else {
            self.runs.remove(&run);
            return true;
        };
        self.add(run, ended);
        self.end_if_over(run);
        true
    }

    /// Continues from a run, as it is after the event `sequence` or a later one.
    pub(crate) fn catch_up(&mut self, sequence: u64, run: Run) {
        // One that has ended before is not followed: its span was sent, or is lost.
        if run.result().is_some() && run.sequence() != sequence {
            return;
        }
        let id = run.id();
        let mut traced = self.traced();
        for begun in traced.follower.catch_up(run) {
            traced.parents.insert(begun.turn.number, traced.span(0).span);
            traced.turns.insert(begun.turn.number, Open { since: begun.at, events: Vec::new() });
        }
        self.runs.insert(id, traced);
        self.end_if_over(id);
    }

    fn traced(&self) -> Traced {
        Traced::new(self.rules.clone(), Arc::clone(&self.providers))
    }

    /// Events are missing, and it is not known of which runs: each is continued at its next event.
    pub(crate) fn forget_runs(&mut self) {
        self.runs.clear();
    }

    /// Takes what an agent does in its turn.
    pub(crate) fn take_live(&mut self, turn: TurnId, event: &AgentEvent, now: Timestamp) {
        let Some(traced) = self.runs.get_mut(&turn.run) else { return };
        let number = turn.number;
        let ended = match event {
            AgentEvent::ToolCalled { call, is_unknown } => {
                let name = if *is_unknown { names::UNKNOWN.into() } else { Arc::clone(&call.name) };
                let tool = Tool { since: now, name };
                traced.tools.insert((number, Arc::clone(&call.id)), tool);
                None
            }
            AgentEvent::ToolAnswered { call, is_error, .. } => {
                let tool = traced.tools.remove(&(number, Arc::clone(call)));
                tool.map(|tool| traced.tool(number, call, tool, now, is_error.then_some("tool_error".into())))
            }
            AgentEvent::ModelFailed { model, .. } => traced.failed_call(number, model, now),
            _ => None,
        };
        self.add(turn.run, ended.into_iter().collect());
    }

    fn end_if_over(&mut self, run: RunId) {
        let is_over = |traced: &Traced| traced.run().is_some_and(|run| run.result().is_some());
        if self.runs.get(&run).is_some_and(is_over)
            && let Some(ended) = self.runs.get(&run).and_then(Traced::root)
        {
            self.add(run, vec![ended]);
            self.runs.remove(&run);
        }
    }

    /// Adds spans of a run, unless its trace is not recorded.
    fn add(&mut self, run: RunId, ended: Vec<Ended>) {
        let Some(submission) = self.runs.get(&run).and_then(Traced::run).map(Run::submission) else { return };
        let trace = submission.trace_parent(0);
        if trace.is_sampled {
            let whole = ended.into_iter().map(|ended| ended.whole(run, &trace, &self.scope));
            self.ended.extend(whole);
        }
    }
}

impl Traced {
    fn new(rules: StateRules, providers: Providers) -> Self {
        Self {
            follower: Follower::new(rules),
            providers,
            turns: BTreeMap::new(),
            parents: BTreeMap::new(),
            calls: BTreeMap::new(),
            tools: BTreeMap::new(),
            numbered: 0,
        }
    }

    fn run(&self) -> Option<&Run> {
        self.follower.run()
    }

    /// The span of a turn, or of the run for 0.
    fn span(&self, turn: u32) -> TraceParent {
        let nothing = TraceParent { trace: 1, span: 1, is_sampled: false, state: None };
        self.run().map_or(nothing, |run| run.submission().trace_parent(turn))
    }

    /// The id of a span that nothing outside refers to. It follows from the turn and a count, so it is another one in each run.
    fn next_span(&mut self, turn: u32) -> u64 {
        self.numbered += 1;
        let mixed = self.span(turn).span ^ u64::from(self.numbered).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed.max(1)
    }

    fn take(&mut self, sequence: u64, event: &RunEvent) -> Vec<Ended> {
        let is_new = sequence == self.follower.next_sequence();
        // Turns that this event begins: those of a delegation are parts of its turn, others are beside the turn that led to them.
        let parent = match (event.turn(), event) {
            (Some(turn), RunEvent::Delegated { .. }) => Some(self.span(turn).span),
            (turn, _) => turn.and_then(|turn| self.parents.get(&turn).copied()),
        };
        let statuses = self.follower.take(sequence, event);
        let mut ended = if is_new { self.call(event) } else { None }.into_iter().collect();
        for status in statuses {
            self.turn(status, parent, &mut ended);
        }
        ended
    }

    /// Begins or ends a call of a model.
    fn call(&mut self, event: &RunEvent) -> Option<Ended> {
        match event {
            RunEvent::Reserved { turn, ordinal, verdict: Verdict::Admitted(_), at: Some(at), .. } => {
                // A try that may have cost something keeps its reservation: the next one has another, and is of the same call.
                let before = self.calls.range((*turn, 0)..=(*turn, u32::MAX)).next_back();
                let before = before.filter(|(_, call)| call.has_failed).map(|(key, _)| *key);
                let before = before.and_then(|key| self.calls.remove(&key)).map(|call| call.span);
                let own = self.run().map(|run| run.submission().call_trace_parent(*turn, *ordinal));
                let span = before.or(own)?;
                self.calls.insert((*turn, *ordinal), Call { since: *at, has_failed: false, span });
                None
            }
            RunEvent::Settled { turn, ordinal, usage, at: Some(at), model, is_of_run } => {
                let call = self.calls.remove(&(*turn, *ordinal))?;
                // What a run of the turn has used is in the spans of that run, and what was not sent took nothing.
                let usage = usage.filter(|_| !is_of_run)?;
                let tokens = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
                let attributes = vec![
                    KeyValue::new(names::INPUT_TOKENS, tokens(usage.input_tokens)),
                    KeyValue::new(names::OUTPUT_TOKENS, tokens(usage.output_tokens)),
                ];
                Some(self.chat((*turn, call.span.span), model.as_ref(), (call.since, *at), attributes, None))
            }
            _ => None,
        }
    }

    /// A model has failed in a turn; what follows is another try.
    fn failed_call(&mut self, turn: u32, model: &Arc<str>, now: Timestamp) -> Option<Ended> {
        let newest = self.calls.range_mut((turn, 0)..=(turn, u32::MAX)).next_back();
        let (_, call) = newest?;
        let since = std::mem::replace(&mut call.since, now);
        let next = call.span.next_try();
        let span = std::mem::replace(&mut call.span, next).span;
        call.has_failed = true;
        Some(self.chat((turn, span), Some(model), (since, now), Vec::new(), Some("model_failed".into())))
    }

    fn chat(
        &self,
        (turn, span): (u32, u64),
        model: Option<&Arc<str>>,
        time: (Timestamp, Timestamp),
        mut attributes: Vec<KeyValue>,
        error: Option<Cow<'static, str>>,
    ) -> Ended {
        attributes.push(KeyValue::new(names::OPERATION, names::CHAT));
        attributes.extend(model.map(|model| KeyValue::new(names::MODEL, Arc::clone(model))));
        let provider = model.and_then(|model| (self.providers)(model));
        attributes.extend(provider.map(|name| KeyValue::new(names::PROVIDER, names::provider(&name).to_owned())));
        let name = model.map_or_else(|| names::CHAT.to_owned(), |model| format!("{} {model}", names::CHAT));
        self.part((turn, span), name, SpanKind::Client, time, attributes, error)
    }

    fn tool(
        &mut self,
        turn: u32,
        call: &Arc<str>,
        Tool { since, name }: Tool,
        now: Timestamp,
        error: Option<Cow<'static, str>>,
    ) -> Ended {
        let name: String = name.chars().take(MAX_NAME).collect();
        let call: String = call.chars().take(MAX_NAME).collect();
        let attributes = vec![
            KeyValue::new(names::OPERATION, names::EXECUTE_TOOL),
            KeyValue::new(names::TOOL, name.clone()),
            KeyValue::new(names::TOOL_CALL, call),
        ];
        let name = format!("{} {name}", names::EXECUTE_TOOL);
        let span = self.next_span(turn);
        self.part((turn, span), name, SpanKind::Internal, (since, now), attributes, error)
    }

    /// A part of a turn.
    fn part(
        &self,
        (turn, span): (u32, u64),
        name: String,
        kind: SpanKind,
        time: (Timestamp, Timestamp),
        attributes: Vec<KeyValue>,
        error: Option<Cow<'static, str>>,
    ) -> Ended {
        let parent = self.span(turn).span;
        Ended { name, kind, span, parent, is_parent_remote: false, time, attributes, events: Vec::new(), error }
    }

    /// Follows the status of a turn. `parent` is that of a turn that begins; the run's span by default.
    fn turn(&mut self, event: TurnEvent, parent: Option<u64>, ended: &mut Vec<Ended>) {
        let number = event.turn.number;
        let (outcome, error) = match &event.status {
            TurnStatus::Started | TurnStatus::Interrupted => {
                self.parents.insert(number, parent.unwrap_or_else(|| self.span(0).span));
                self.turns.insert(number, Open { since: event.at, events: Vec::new() });
                return;
            }
            TurnStatus::Retrying { attempt, failure, .. } => {
                let attributes = vec![
                    KeyValue::new(names::ATTEMPT, i64::from(*attempt)),
                    KeyValue::new(names::ERROR, error_type(failure.kind)),
                ];
                if let Some(open) = self.turns.get_mut(&number) {
                    open.events.push(Event::new(names::ATTEMPT_FAILED, system_time(event.at), attributes, 0));
                }
                return self.close_parts(number, event.at, ended);
            }
            TurnStatus::Resumed { .. } | TurnStatus::NeedsAttention { .. } | TurnStatus::Restarted => return,
            TurnStatus::Finished { .. } => ("finished", None),
            TurnStatus::Failed { failure, .. } => (failure.outcome().name(), Some(error_type(failure.kind))),
            TurnStatus::Cancelled => ("cancelled", None),
        };
        self.close_parts(number, event.at, ended);
        let root = self.span(0).span;
        let parent = self.parents.get(&number).copied().unwrap_or(root);
        let Some(Open { since, events }) = self.turns.remove(&number) else { return };
        let mut attributes = vec![
            KeyValue::new(names::OPERATION, names::INVOKE_AGENT),
            KeyValue::new(names::AGENT, event.agent.to_string()),
            KeyValue::new(names::TURN, i64::from(number)),
            KeyValue::new(names::OUTCOME, outcome),
        ];
        attributes.extend(event.node.map(|node| KeyValue::new(names::NODE, node)));
        ended.push(Ended {
            name: format!("{} {}", names::INVOKE_AGENT, event.agent),
            kind: SpanKind::Internal,
            span: self.span(number).span,
            parent,
            is_parent_remote: false,
            time: (since, event.at),
            attributes,
            events,
            error,
        });
    }

    /// Ends the calls and tools of a turn that are still open: nothing will come of them.
    fn close_parts(&mut self, turn: u32, at: Timestamp, ended: &mut Vec<Ended>) {
        let of_turn: Vec<_> = self.calls.range((turn, 0)..=(turn, u32::MAX)).map(|(key, _)| *key).collect();
        for call in of_turn.iter().filter_map(|key| self.calls.remove(key)).collect::<Vec<_>>() {
            if !call.has_failed {
                ended.push(self.chat(
                    (turn, call.span.span),
                    None,
                    (call.since, at),
                    Vec::new(),
                    Some("unanswered".into()),
                ));
            }
        }
        let of_turn: Vec<_> = self.tools.keys().filter(|(of, _)| *of == turn).cloned().collect();
        for key in of_turn {
            // A handoff ends its turn: it has no answer.
            if let Some(tool) = self.tools.remove(&key) {
                ended.push(self.tool(turn, &key.1, tool, at, None));
            }
        }
    }

    /// The span of a run that has ended.
    fn root(&self) -> Option<Ended> {
        let run = self.run()?;
        let (result, submission): (_, &Submission) = (run.result()?, run.submission());
        let outcome = result.outcome.name();
        let mut attributes = vec![KeyValue::new(names::OUTCOME, outcome)];
        let name = match &submission.task.plan {
            Some(plan) => {
                attributes.push(KeyValue::new(names::OPERATION, names::INVOKE_WORKFLOW));
                attributes.push(KeyValue::new(names::AGENT, Arc::clone(&plan.name)));
                format!("{} {}", names::INVOKE_WORKFLOW, plan.name)
            }
            None => format!("run {}", submission.agent),
        };
        attributes.extend(run.conversation().map(|it| KeyValue::new(names::CONVERSATION, it.to_string())));
        let parent = submission.task.trace_parent.as_deref();
        Some(Ended {
            name,
            kind: SpanKind::Internal,
            span: submission.trace_parent(0).span,
            parent: parent.map_or(0, |parent| parent.span),
            is_parent_remote: parent.is_some(),
            time: (submission.at, run.last_at()),
            attributes,
            events: Vec::new(),
            error: (!result.outcome.is_finished()).then_some(outcome.into()),
        })
    }
}

impl Ended {
    fn whole(self, run: RunId, trace: &TraceParent, scope: &InstrumentationScope) -> SpanData {
        let Self { name, kind, span, parent, is_parent_remote, time: (start, end), mut attributes, error, .. } = self;
        attributes.push(KeyValue::new(names::RUN, run.to_string()));
        attributes.extend(error.clone().map(|error| KeyValue::new(names::ERROR, string(error))));
        let state = trace.state.as_ref().and_then(|state| state.parse().ok()).unwrap_or_default();
        let (trace, span) = (TraceId::from(trace.trace), SpanId::from(span));
        let mut events = SpanEvents::default();
        events.events = self.events;
        SpanData {
            span_context: SpanContext::new(trace, span, TraceFlags::SAMPLED, false, state),
            parent_span_id: SpanId::from(parent),
            parent_span_is_remote: is_parent_remote,
            span_kind: kind,
            name: name.into(),
            start_time: system_time(start),
            end_time: system_time(end.max(start)),
            attributes,
            dropped_attributes_count: 0,
            events,
            links: SpanLinks::default(),
            status: error.map_or(Status::Unset, Status::error),
            instrumentation_scope: scope.clone(),
        }
    }
}

fn string(text: Cow<'static, str>) -> Value {
    Value::String(StringValue::from(text))
}

/// What a failure is of; its text may have what a model or a tool wrote.
fn error_type(kind: FailureKind) -> Cow<'static, str> {
    kind.to_string().replace(' ', "_").into()
}

fn system_time(at: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(at.as_millis())
}

#[cfg(test)]
mod tests;
