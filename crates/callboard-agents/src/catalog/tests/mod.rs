mod shares;
mod succession;

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use callboard::messages::{Cost, Message, ToolCall, Usage};

use crate::StopReason;
use futures::StreamExt;
use parking_lot::Mutex;
use proptest::prelude::*;
use serde_json::json;
use tokio::time::error::Elapsed;

use super::*;
use crate::model::{ModelAnswer, ModelEvent};

type Events = Vec<Result<ModelEvent, ModelError>>;

/// A model that does as it was set up, one call after the other, and then answers.
#[derive(Clone, Default)]
struct PlannedModel {
    name: &'static str,
    script: Arc<Mutex<VecDeque<Events>>>,
    asked: Arc<Mutex<Vec<ModelRequest>>>,
}

impl PlannedModel {
    fn new(name: &'static str) -> Self {
        Self { name, ..Self::default() }
    }

    fn fails(self, kind: ModelErrorKind) -> Self {
        self.says(vec![Err(ModelError::new(kind, "planned"))])
    }

    fn says(self, events: Events) -> Self {
        self.script.lock().push_back(events);
        self
    }

    fn times_asked(&self) -> usize {
        self.asked.lock().len()
    }
}

const USAGE: Usage = Usage::of(1_000, 100);

impl Model for PlannedModel {
    fn name(&self) -> &str {
        self.name
    }

    fn call(&self, request: ModelRequest) -> ModelStream {
        self.asked.lock().push(request);
        let answer = ModelAnswer::new("another name", StopReason::Finished, USAGE);
        let usual = || vec![Ok(text("hello")), Ok(ModelEvent::Ended(answer))];
        futures::stream::iter(self.script.lock().pop_front().unwrap_or_else(usual)).boxed()
    }
}

fn text(text: &str) -> ModelEvent {
    ModelEvent::Text(text.into())
}

fn request() -> ModelRequest {
    ModelRequest {
        system: "".into(),
        messages: Arc::new(vec![Message::user("hi")]),
        tools: [].into(),
        max_tokens: 500,
        idempotency_key: "turn".into(),
        trace_parent: None,
    }
}

fn models(entries: impl IntoIterator<Item = ModelEntry>) -> Models {
    Models::of(&Env::repeatable(1), entries).unwrap()
}

async fn all(mut stream: ModelStream) -> Events {
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        events.push(event);
    }
    events
}

/// The events, in short.
async fn reported(stream: ModelStream) -> Vec<String> {
    let short = |event: Result<ModelEvent, ModelError>| match event {
        Ok(ModelEvent::Text(text) | ModelEvent::Reasoning(text)) => text.to_string(),
        Ok(ModelEvent::ToolCall(call)) => format!("call {}", call.name),
        Ok(ModelEvent::Failed { model, error, next }) => format!("{model}: {:?}, then {next}", error.kind),
        Ok(ModelEvent::Ended(answer)) => format!("ended by {}", answer.model),
        Err(error) => format!("error {:?}: {error}", error.kind),
    };
    all(stream).await.into_iter().map(short).collect()
}

use ModelErrorKind::*;

#[tokio::test(start_paused = true)]
async fn the_answer_names_its_model_and_its_cost() {
    let models = models([ModelEntry::of(PlannedModel::new("a")).prices(3.0, 15.0)]);
    let events = all(models.call(&ModelChoice::of("a"), request())).await;
    let Some(Ok(ModelEvent::Ended(answer))) = events.last() else { panic!("{events:?}") };
    assert_eq!((&*answer.model, answer.usage), ("a", USAGE));
    assert_eq!(answer.cost, Some(Cost(4_500_000)), "0.003 and 0.0015 dollars");
}

#[tokio::test(start_paused = true)]
async fn what_said_nothing_is_asked_again_and_then_the_next_one_is() {
    let first = PlannedModel::new("a").fails(Unavailable).fails(NotSent).fails(Unavailable);
    let models = models([ModelEntry::of(first.clone()).fallback("b"), ModelEntry::of(PlannedModel::new("b"))]);
    assert_eq!(
        reported(models.call(&ModelChoice::of("a"), request())).await,
        ["a: Unavailable, then a", "a: NotSent, then a", "a: Unavailable, then b", "hello", "ended by b"]
    );
    assert_eq!(first.times_asked(), 3);
}

#[tokio::test(start_paused = true)]
async fn what_asking_again_cannot_mend_goes_to_the_next_one_at_once() {
    for kind in [Rejected, Unauthorised, Malformed, CutOff] {
        let first = PlannedModel::new("a").fails(kind);
        let models = models([ModelEntry::of(first), ModelEntry::of(PlannedModel::new("b"))]);
        let events = reported(models.call(&ModelChoice::of("a").fallback("b"), request())).await;
        assert_eq!(events, [format!("a: {kind:?}, then b"), "hello".to_owned(), "ended by b".to_owned()]);
    }
}

#[tokio::test(start_paused = true)]
async fn after_something_was_said_the_error_is_passed_on() {
    for said in [text("so"), ModelEvent::ToolCall(ToolCall::new("1", "look", json!({})))] {
        let first = PlannedModel::new("a").says(vec![Ok(said), Err(ModelError::new(Unavailable, "planned"))]);
        let second = PlannedModel::new("b");
        let models = models([ModelEntry::of(first.clone()).fallback("b"), ModelEntry::of(second.clone())]);
        let events = reported(models.call(&ModelChoice::of("a"), request())).await;
        assert_eq!(events[1..], ["error Unavailable: planned"]);
        assert_eq!((first.times_asked(), second.times_asked()), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_just_ends_was_cut_off() {
    let models = models([ModelEntry::of(PlannedModel::new("a").says(vec![Ok(text("so"))]))]);
    let events = reported(models.call(&ModelChoice::of("a"), request())).await;
    assert_eq!(events, ["so", "error CutOff: the answer ended without saying that it was complete"]);
}

#[tokio::test(start_paused = true)]
async fn a_provider_is_given_the_time_that_it_asks_for_unless_that_is_too_long() {
    let env = Env::repeatable(1);
    let limited = |secs| RateLimited(Some(Duration::from_secs(secs)));
    let first = PlannedModel::new("a").fails(limited(30)).fails(limited(31));
    let models =
        Models::of(&env, [ModelEntry::of(first).fallback("b"), ModelEntry::of(PlannedModel::new("b"))]).unwrap();
    let events = reported(models.call(&ModelChoice::of("a"), request())).await;
    assert_eq!(events[..2], ["a: RateLimited(Some(30s)), then a", "a: RateLimited(Some(31s)), then b"]);
    assert_eq!(env.now().monotonic, Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn when_all_have_failed_the_error_names_each() {
    let models = models([
        ModelEntry::of(PlannedModel::new("a").fails(Unauthorised)),
        ModelEntry::of(PlannedModel::new("b").fails(RateLimited(Some(Duration::from_secs(99))))),
    ]);
    let events = reported(models.call(&ModelChoice::of("a").fallback("b"), request())).await;
    let last = "error RateLimited(Some(99s)): none of 2 models has answered: a: planned; b: planned";
    assert_eq!(events, ["a: Unauthorised, then b", last]);
}

#[tokio::test(start_paused = true)]
async fn a_request_asks_for_no_more_tokens_than_the_model_can_write() {
    let model = PlannedModel::new("a");
    let models = models([ModelEntry::of(model.clone()).max_output(100)]);
    reported(models.call(&ModelChoice::of("a"), request())).await;
    assert_eq!(model.asked.lock()[0].max_tokens, 100);
}

#[tokio::test(start_paused = true)]
async fn three_failed_calls_open_the_breaker_and_the_next_one_is_asked_without_trying() {
    let first = (0..9).fold(PlannedModel::new("a"), |model, _| model.fails(Unavailable));
    let models = models([ModelEntry::of(first.clone()).fallback("b"), ModelEntry::of(PlannedModel::new("b"))]);
    for _ in 0..3 {
        assert_eq!(models.breakers("a"), Some((BreakerState::Closed, BreakerState::Closed)));
        reported(models.call(&ModelChoice::of("a"), request())).await;
    }
    assert_eq!(models.breakers("a"), Some((BreakerState::Open, BreakerState::Open)));
    let events = reported(models.call(&ModelChoice::of("a"), request())).await;
    assert_eq!(events, ["a: NotSent, then b", "hello", "ended by b"]);
    assert_eq!(first.times_asked(), 9, "three calls, and two more tries in each");

    tokio::time::advance(Duration::from_secs(30)).await;
    assert_eq!(reported(models.call(&ModelChoice::of("a"), request())).await, ["hello", "ended by a"]);
    assert_eq!(models.breakers("a"), Some((BreakerState::Closed, BreakerState::Closed)));
}

#[tokio::test(start_paused = true)]
async fn models_of_one_provider_share_its_breaker() {
    let first = (0..9).fold(PlannedModel::new("a"), |model, _| model.fails(Unavailable));
    let models = models([
        ModelEntry::of(first).provider("p"),
        ModelEntry::of(PlannedModel::new("b")).provider("p"),
        ModelEntry::of(PlannedModel::new("c")).provider("q"),
    ]);
    for _ in 0..3 {
        reported(models.call(&ModelChoice::of("a"), request())).await;
    }
    assert_eq!(models.breakers("b"), Some((BreakerState::Closed, BreakerState::Open)));
    let events = reported(models.call(&ModelChoice::of("b").fallback("c"), request())).await;
    assert_eq!(events, ["b: NotSent, then c", "hello", "ended by c"]);
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_refuses_is_there_and_opens_no_breaker() {
    for kind in [Rejected, Unauthorised, RateLimited(Some(Duration::from_secs(99)))] {
        let first = (0..9).fold(PlannedModel::new("a"), |model, _| model.fails(kind));
        let models = models([ModelEntry::of(first)]);
        for _ in 0..9 {
            reported(models.call(&ModelChoice::of("a"), request())).await;
        }
        assert_eq!(models.breakers("a"), Some((BreakerState::Closed, BreakerState::Closed)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_is_dropped_is_given_back() {
    let first = (0..9).fold(PlannedModel::new("a"), |model, _| model.fails(Unavailable));
    let models = models([ModelEntry::of(first)]);
    for _ in 0..3 {
        reported(models.call(&ModelChoice::of("a"), request())).await;
    }
    tokio::time::advance(Duration::from_secs(30)).await;
    let mut probe = models.call(&ModelChoice::of("a"), request());
    assert_eq!(probe.next().await, Some(Ok(text("hello"))));
    assert_eq!(models.breakers("a"), Some((BreakerState::HalfOpen, BreakerState::HalfOpen)));
    drop(probe);
    assert_eq!(reported(models.call(&ModelChoice::of("a"), request())).await, ["hello", "ended by a"]);
}

#[tokio::test(start_paused = true)]
async fn a_rate_lets_so_many_through_and_then_one_after_the_other() {
    let env = Env::repeatable(1);
    let two = NonZeroU32::new(2).unwrap();
    let models = Models::of(&env, [ModelEntry::of(PlannedModel::new("a")).requests_per_minute(two)]).unwrap();
    let mut times = Vec::new();
    for _ in 0..4 {
        reported(models.call(&ModelChoice::of("a"), request())).await;
        times.push(env.now().monotonic.as_secs());
    }
    assert_eq!(times, [0, 0, 30, 60]);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_stops_waiting_for_the_rate_counts_no_request() {
    let env = Env::repeatable(1);
    let one = NonZeroU32::new(1).unwrap();
    let model = PlannedModel::new("a");
    let models = Models::of(&env, [ModelEntry::of(model.clone()).provider("p")]).unwrap().with_provider_rate("p", one);
    reported(models.call(&ModelChoice::of("a"), request())).await;
    for _ in 0..5 {
        let waits = reported(models.call(&ModelChoice::of("a"), request()));
        let waited = tokio::time::timeout(Duration::from_secs(1), waits).await.map(drop);
        assert!(matches!(waited, Err(Elapsed { .. })), "the rate allows one call a minute");
    }
    reported(models.call(&ModelChoice::of("a"), request())).await;
    assert_eq!((env.now().monotonic.as_secs(), model.times_asked()), (60, 2));
}

#[test]
fn nothing_is_sent_before_the_stream_is_polled() {
    let model = PlannedModel::new("a");
    let models = models([ModelEntry::of(model.clone())]);
    drop(models.call(&ModelChoice::of("a"), request()));
    drop(models.chosen(&ModelChoice::default()).unwrap().call(request()));
    assert_eq!(model.times_asked(), 0);
}

fn problems(entries: impl IntoIterator<Item = ModelEntry>) -> Vec<String> {
    let defects = Models::of(&Env::system(), entries).unwrap_err();
    defects.list().iter().map(|defect| defect.problem.clone()).collect()
}

#[test]
fn models_that_do_not_fit_together_are_refused_with_all_that_is_wrong() {
    let entry = |name| ModelEntry::of(PlannedModel::new(name));
    assert_eq!(problems([entry("a"), entry("a")]), ["two models are named \"a\""]);
    let lost = problems([entry("large").fallback("smal"), entry("small")]);
    assert_eq!(lost, ["\"large\" falls back to \"smal\", which is not there; did you mean \"small\"?"]);
    let circle = problems([entry("a").fallback("b"), entry("b").fallback("c"), entry("c").fallback("b")]);
    assert_eq!(circle, ["fallbacks lead in a circle: \"b\" → \"c\" → \"b\""]);
    assert_eq!(problems([entry("a").fallback("a")]), ["fallbacks lead in a circle: \"a\" → \"a\""]);
    assert_eq!(problems([entry("")]), ["a model needs a name"]);
    assert_eq!(problems([entry("a b")]).len(), 1);
    let prices =
        problems([entry("a").prices(1.0, f64::NAN), entry("b").prices(-1.0, 0.0), entry("c").prices(0.0, 0.0)]);
    let price =
        |name| format!("a price of \"{name}\" is below zero or no number: it is in dollars for a million tokens");
    assert_eq!(prices, [price("a"), price("b")]);
}

#[test]
fn a_choice_that_no_model_meets_is_an_error_that_lists_the_models() {
    let models =
        models([ModelEntry::of(PlannedModel::new("large")).tag("careful"), ModelEntry::of(PlannedModel::new("small"))]);
    let error = |choice: &ModelChoice| models.candidates(choice).unwrap_err().to_string();
    let there = "there are \"large\" (careful), \"small\"";
    assert_eq!(error(&ModelChoice::tagged(["quick"])), format!("no model has the tags \"quick\"; {there}"));
    assert_eq!(error(&ModelChoice::of("gpt")), format!("there is no model \"gpt\"; {there}"));
    assert_eq!(
        error(&ModelChoice::of("large").fallback("smal")),
        "there is no model \"smal\"; did you mean \"small\"?",
        "also if another one is there"
    );
    let none = Models::new(&Env::system()).candidates(&ModelChoice::default()).unwrap_err().to_string();
    assert_eq!(none, "no model is chosen, and none is listed; there are none: list one");
}

fn named(number: usize) -> String {
    format!("m{number}")
}

proptest! {
    /// Fallbacks lead to later models alone, so that there is no circle.
    #[test]
    fn candidates_are_each_there_once_and_in_their_order(
        shape in prop::collection::vec((prop::collection::vec(1..4_usize, 0..3), any::<bool>()), 1..8),
        preferred in prop::option::of(0..8_usize),
        listed in prop::collection::vec(0..8_usize, 0..3),
        has_tag: bool,
    ) {
        let count = shape.len();
        let entries: Vec<_> = shape.iter().enumerate().map(|(at, (steps, is_tagged))| {
            let model = ModelEntry { name: named(at).into(), ..ModelEntry::of(PlannedModel::new("m")) };
            let model = steps.iter().map(|step| at + step).filter(|to| *to < count).fold(model, |model, to| {
                model.fallback(&named(to))
            });
            if *is_tagged { model.tag("t") } else { model }
        }).collect();
        let choice = ModelChoice {
            preferred: preferred.filter(|at| *at < count).map(|at| named(at).into()),
            fallback: listed.iter().filter(|at| **at < count).map(|at| named(*at).into()).collect(),
            tags: if has_tag { vec!["t".into()] } else { Vec::new() },
        };
        let refs: Vec<_> = entries.iter().collect();
        let found = choice::candidates(&choice, count, &refs);

        let mut once = found.clone();
        once.sort_unstable();
        once.dedup();
        prop_assert_eq!(once.len(), found.len());
        if let Some(first) = choice.names().next() {
            prop_assert_eq!(&*entries[found[0]].name, first);
        } else if choice.is_empty() {
            prop_assert_eq!(found[0], 0);
        }
        for name in choice.names() {
            prop_assert!(found.iter().any(|at| &*entries[*at].name == name));
        }
        for at in &found {
            for fallback in &entries[*at].fallbacks {
                let is_there = found.iter().any(|at| entries[*at].name == *fallback);
                let is_by_tag = has_tag && entries[*at].tags.contains(&"t".into());
                prop_assert!(is_there || is_by_tag, "the fallbacks of whoever is named are there");
            }
        }
        let tagged = entries.iter().enumerate().filter(|(_, entry)| has_tag && !entry.tags.is_empty());
        for (at, _) in tagged {
            prop_assert!(found.contains(&at));
        }
    }
}
