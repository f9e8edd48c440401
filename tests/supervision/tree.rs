//! What the supervision tree promises. All tests run on virtual time: hours pass in milliseconds and nobody sleeps.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use callboard::env::Env;
use callboard::supervision::tree::{
    ActorState, AutoShutdown, CallError, ChildRef, ChildSpec, ChildTemplate, ControlError, Down, EndReason, Exit,
    Intensity, ProcessGroups, Restart, RestartBackoff, Shutdown, SpecError, StartError, Strategy, Supervisor,
    SupervisorSpec, TreeEvent, TreeEventKind,
};
use parking_lot::Mutex;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tokio::sync::{broadcast, oneshot};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// What a part's start or stop does.
#[derive(Clone, Copy, Default)]
enum Act {
    #[default]
    Work,
    Fail,
    Panic,
    /// Takes an hour.
    Dawdle,
    Hang,
}

impl Act {
    async fn perform(self, what: &str) -> Result<(), ActorProcessingErr> {
        match self {
            Self::Work => Ok(()),
            Self::Fail => Err(format!("{what} failed").into()),
            Self::Panic => panic!("{what} panicked"),
            Self::Dawdle => {
                tokio::time::sleep(HOUR).await;
                Ok(())
            }
            Self::Hang => std::future::pending().await,
        }
    }
}

/// The stage on which the parts of a test play: what they did, and what they are to do.
#[derive(Clone, Default)]
struct Stage {
    log: Arc<Mutex<Vec<String>>>,
    starts: Arc<Mutex<HashMap<String, Act>>>,
    stops: Arc<Mutex<HashMap<String, Act>>>,
}

impl Stage {
    fn on_start(&self, part: &str, act: Act) {
        self.starts.lock().insert(part.to_owned(), act);
    }

    fn on_stop(&self, part: &str, act: Act) {
        self.stops.lock().insert(part.to_owned(), act);
    }

    fn note(&self, what: &str, part: &str) {
        self.log.lock().push(format!("{what}{part}"));
    }

    /// What happened since the last call: `+a` is a start of `a`, `-a` its orderly stop.
    fn log(&self) -> String {
        std::mem::take(&mut *self.log.lock()).join(" ")
    }

    fn part(&self, id: &str) -> (ChildSpec, ChildRef<PartMsg>) {
        let (stage, name) = (self.clone(), id.to_owned());
        ChildSpec::actor(id, move || (Part, (stage.clone(), name.clone())))
    }

    /// A part, without its reference.
    fn extra(&self, id: &str) -> ChildSpec {
        self.part(id).0
    }
}

struct Part;

enum PartMsg {
    Ping(RpcReplyPort<u64>),
    Drop(RpcReplyPort<u64>),
    Panic(&'static str),
    Fail(&'static str),
    Leave,
    Hang,
    /// Panics when it is dropped unread.
    Explosive(Grenade),
    /// Blocks the thread until the other end is dropped.
    Block {
        entered: oneshot::Sender<()>,
        release: std::sync::mpsc::Receiver<()>,
    },
}

struct Grenade;

impl Drop for Grenade {
    fn drop(&mut self) {
        panic!("boom");
    }
}

struct PartState {
    stage: Stage,
    name: String,
}

impl Actor for Part {
    type Msg = PartMsg;
    type State = PartState;
    type Arguments = (Stage, String);

    async fn pre_start(
        &self,
        _: ActorRef<PartMsg>,
        (stage, name): (Stage, String),
    ) -> Result<PartState, ActorProcessingErr> {
        let act = stage.starts.lock().get(&name).copied().unwrap_or_default();
        act.perform("start").await?;
        stage.note("+", &name);
        Ok(PartState { stage, name })
    }

    async fn handle(
        &self,
        myself: ActorRef<PartMsg>,
        msg: PartMsg,
        _: &mut PartState,
    ) -> Result<(), ActorProcessingErr> {
        match msg {
            PartMsg::Ping(reply) => reply.send(myself.get_id().pid())?,
            PartMsg::Drop(reply) => drop(reply),
            PartMsg::Panic(text) => panic!("{text}"),
            PartMsg::Fail(text) => return Err(text.into()),
            PartMsg::Leave => myself.stop(None),
            PartMsg::Hang => std::future::pending().await,
            PartMsg::Explosive(grenade) => std::mem::forget(grenade),
            PartMsg::Block { entered, release } => {
                let _ = entered.send(());
                let _ = release.recv();
            }
        }
        Ok(())
    }

    async fn post_stop(&self, _: ActorRef<PartMsg>, state: &mut PartState) -> Result<(), ActorProcessingErr> {
        let act = state.stage.stops.lock().get(&state.name).copied().unwrap_or_default();
        act.perform("stop").await?;
        state.stage.note("-", &state.name);
        Ok(())
    }
}

/// Reads a tree's events.
struct Events(broadcast::Receiver<TreeEvent>);

impl Events {
    fn of(tree: &Supervisor) -> Self {
        Self(tree.subscribe())
    }

    /// Waits for the event that reads like this, and gives those up to it.
    async fn until(&mut self, last: &str) -> Vec<String> {
        let mut seen = Vec::new();
        let wait = async {
            while seen.last().is_none_or(|event| event != last) {
                seen.push(self.0.recv().await.expect("the tree goes on").to_string());
            }
        };
        let in_time = tokio::time::timeout(60 * SECOND, wait).await.is_ok();
        assert!(in_time, "no event `{last}` after {seen:#?}");
        seen
    }

    /// What has been seen and not been read yet.
    fn rest(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.0.try_recv().ok()).map(|event| event.to_string()).collect()
    }
}

async fn start(spec: SupervisorSpec) -> (Supervisor, Events) {
    let tree = Supervisor::start_in(spec, Env::repeatable(1)).await.expect("the tree starts");
    let events = Events::of(&tree);
    (tree, events)
}

fn env() -> Env {
    Env::repeatable(1)
}

async fn state(tree: &Supervisor, path: &[&str]) -> Option<ActorState> {
    let picture = tree.snapshot().await.expect("the supervisor answers");
    picture.find(path).map(|node| node.state)
}

fn at_most(max: u32) -> Intensity {
    Intensity::new(max, 60 * SECOND)
}

/// Three parts a, b and c under the given strategy, without backoff.
async fn trio(strategy: Strategy) -> (Stage, Supervisor, Events, [ChildRef<PartMsg>; 3]) {
    let stage = Stage::default();
    let parts = ["a", "b", "c"].map(|id| stage.part(id));
    let mut spec = SupervisorSpec::new("app", strategy).backoff(RestartBackoff::none());
    for (child, _) in &parts {
        spec = spec.child(child.clone());
    }
    let (tree, events) = start(spec).await;
    assert_eq!(stage.log(), "+a +b +c");
    (stage, tree, events, parts.map(|(_, reference)| reference))
}

// Strategies.

#[tokio::test(start_paused = true)]
async fn one_for_one_restarts_only_the_child_that_crashed() {
    let (stage, tree, mut events, [_, b, _]) = trio(Strategy::OneForOne).await;
    b.cast(PartMsg::Panic("boom")).unwrap();
    events.until("app/b gen 2: restarted").await;
    assert_eq!(stage.log(), "+b");
    assert_eq!(tree.stop().await, EndReason::Stopped);
    assert_eq!(stage.log(), "-c -b -a");
}

#[tokio::test(start_paused = true)]
async fn one_for_all_stops_the_others_in_reverse_and_starts_all_in_order() {
    let (stage, _tree, mut events, [_, b, _]) = trio(Strategy::OneForAll).await;
    b.cast(PartMsg::Fail("boom")).unwrap();
    events.until("app/c gen 2: restarted").await;
    assert_eq!(stage.log(), "-c -a +a +b +c");
}

#[tokio::test(start_paused = true)]
async fn rest_for_one_restarts_the_child_and_those_after_it() {
    let (stage, _tree, mut events, [_, b, _]) = trio(Strategy::RestForOne).await;
    b.cast(PartMsg::Panic("boom")).unwrap();
    events.until("app/c gen 2: restarted").await;
    assert_eq!(stage.log(), "-c +b +c");
}

#[tokio::test(start_paused = true)]
async fn a_group_waits_for_its_backoff_as_a_whole() {
    let stage = Stage::default();
    let ((a, _), (b, b_ref)) = (stage.part("a"), stage.part("b"));
    let spec = SupervisorSpec::one_for_all("app").backoff(RestartBackoff::fixed(8 * SECOND)).child(a).child(b);
    let (tree, mut events) = start(spec).await;
    b_ref.cast(PartMsg::Panic("one")).unwrap();
    events.until("app/b gen 2: restarted").await;
    b_ref.cast(PartMsg::Panic("two")).unwrap();
    events.until("app/a gen 2: stopped").await;
    assert_eq!(state(&tree, &["a"]).await, Some(ActorState::Restarting { after: 8 * SECOND }));
    stage.log();
    events.until("app/b gen 3: restarted").await;
    assert_eq!(stage.log(), "+a +b");
}

#[tokio::test(start_paused = true)]
async fn a_crash_while_a_group_stops_is_part_of_the_same_incident() {
    let stage = Stage::default();
    let ((a, a_ref), (b, b_ref), (c, c_ref)) = (stage.part("a"), stage.part("b"), stage.part("c"));
    let spec = SupervisorSpec::one_for_all("app").intensity(at_most(1)).child(a).child(b).child(c);
    let (tree, mut events) = start(spec).await;
    stage.on_stop("c", Act::Hang);
    b_ref.cast(PartMsg::Panic("boom")).unwrap();
    events.until("app/b gen 1: failed: boom").await;
    a_ref.cast(PartMsg::Panic("me too")).unwrap();
    events.until("app/c gen 2: restarted").await;
    assert!(c_ref.actor().is_some());
    assert_eq!(tree.snapshot().await.unwrap().find(&["a"]).unwrap().restarts, 1);
}

// Restart types.

#[tokio::test(start_paused = true)]
async fn a_permanent_child_returns_even_after_a_normal_end() {
    let (_, _tree, mut events, [a, ..]) = trio(Strategy::OneForOne).await;
    a.cast(PartMsg::Leave).unwrap();
    events.until("app/a gen 2: restarted").await;
}

#[tokio::test(start_paused = true)]
async fn a_transient_child_returns_only_after_a_crash() {
    let stage = Stage::default();
    let (a, a_ref) = stage.part("a");
    let (tree, mut events) = start(SupervisorSpec::one_for_one("app").child(a.restart(Restart::Transient))).await;
    a_ref.cast(PartMsg::Panic("boom")).unwrap();
    events.until("app/a gen 2: restarted").await;
    a_ref.cast(PartMsg::Leave).unwrap();
    events.until("app/a gen 2: ended normally").await;
    assert_eq!(state(&tree, &["a"]).await, Some(ActorState::Stopped));
    assert_eq!(a_ref.down(), Some(Down::Stopped));
    tree.restart_child("a").await.unwrap();
    assert_eq!(state(&tree, &["a"]).await, Some(ActorState::Running));
}

#[tokio::test(start_paused = true)]
async fn a_temporary_child_is_gone_after_a_crash_and_its_id_is_free() {
    let stage = Stage::default();
    let (a, a_ref) = stage.part("a");
    let (tree, mut events) = start(SupervisorSpec::one_for_one("app").child(a.restart(Restart::Temporary))).await;
    a_ref.cast(PartMsg::Panic("boom")).unwrap();
    events.until("app/a gen 1: failed: boom").await;
    assert_eq!(state(&tree, &["a"]).await, None);
    tree.start_child(stage.extra("a")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_temporary_child_does_not_return_with_a_siblings_crash() {
    let stage = Stage::default();
    let ((a, a_ref), (b, b_ref), (c, _)) = (stage.part("a"), stage.part("b"), stage.part("c"));
    let temporary = [a.restart(Restart::Temporary), c.restart(Restart::Temporary)];
    let [a, c] = temporary;
    let (tree, mut events) = start(SupervisorSpec::one_for_all("app").child(a).child(b).child(c)).await;
    a_ref.cast(PartMsg::Leave).unwrap();
    events.until("app/a gen 1: ended normally").await;
    b_ref.cast(PartMsg::Panic("boom")).unwrap();
    events.until("app/b gen 2: restarted").await;
    assert_eq!(stage.log(), "+a +b +c -a -c +b");
    assert_eq!(tree.snapshot().await.expect("the supervisor answers").children.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_killed_transient_child_is_restarted() {
    let stage = Stage::default();
    let (a, a_ref) = stage.part("a");
    let (_tree, mut events) = start(SupervisorSpec::one_for_one("app").child(a.restart(Restart::Transient))).await;
    a_ref.cell().unwrap().kill();
    let seen = events.until("app/a gen 2: restarted").await;
    assert_eq!(seen[0], "app/a gen 1: was killed");
    a_ref.cast(PartMsg::Hang).unwrap();
    tokio::task::yield_now().await;
    a_ref.cell().unwrap().kill();
    let seen = events.until("app/a gen 3: restarted").await;
    assert_eq!(seen[0], "app/a gen 2: was killed");
}

#[tokio::test(start_paused = true)]
async fn a_child_whose_task_ends_outside_of_its_handlers_has_crashed() {
    let stage = Stage::default();
    let (a, a_ref) = stage.part("a");
    let (tree, mut events) = start(SupervisorSpec::one_for_one("app").child(a.restart(Restart::Transient))).await;
    a_ref.cast(PartMsg::Leave).unwrap();
    a_ref.cast(PartMsg::Explosive(Grenade)).unwrap();
    let seen = events.until("app/a gen 2: restarted").await;
    assert_eq!(seen[0], "app/a gen 1: lost its task");
    assert_eq!(tree.snapshot().await.unwrap().find(&["a"]).unwrap().last_error.as_deref(), Some("lost its task"));
}

// Intensity, backoff, escalation.

#[tokio::test(start_paused = true)]
async fn too_many_restarts_stop_the_children_in_reverse_and_fail_the_root() {
    let stage = Stage::default();
    let ((a, _), (b, b_ref), (c, _)) = (stage.part("a"), stage.part("b"), stage.part("c"));
    let spec = SupervisorSpec::one_for_one("app").intensity(at_most(2)).child(a).child(b).child(c);
    let (tree, mut events) = start(spec).await;
    for generation in [2, 3] {
        b_ref.cast(PartMsg::Panic("boom")).unwrap();
        events.until(&format!("app/b gen {generation}: restarted")).await;
    }
    stage.log();
    b_ref.cast(PartMsg::Panic("enough")).unwrap();
    let reason = EndReason::IntensityExceeded { child: "app/b".into(), error: "enough".to_owned() };
    assert_eq!(tree.join().await, reason);
    assert_eq!(stage.log(), "-c -a");
    assert_eq!(tree.stop().await, reason);
    assert_eq!(b_ref.down(), Some(Down::Stopped));
    events.until("app gen 1: gives up, app/b was restarted too often: enough").await;
}

#[tokio::test(start_paused = true)]
async fn restarts_outside_of_the_window_do_not_count() {
    let stage = Stage::default();
    let (a, a_ref) = stage.part("a");
    let (_tree, mut events) = start(SupervisorSpec::one_for_one("app").intensity(at_most(1)).child(a)).await;
    for generation in 2..10 {
        a_ref.cast(PartMsg::Panic("boom")).unwrap();
        events.until(&format!("app/a gen {generation}: restarted")).await;
        tokio::time::advance(61 * SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_that_always_crashes_is_given_up_however_patient_its_supervisor_is() {
    let stage = Stage::default();
    let (a, a_ref) = stage.part("a");
    // As patient as it may be: 10 restarts wait 32.7 s.
    let intensity = Intensity::new(10, 33 * SECOND);
    let backoff = RestartBackoff { jitter: 0.0, ..RestartBackoff::default() };
    let (tree, _) = start(SupervisorSpec::one_for_one("app").intensity(intensity).backoff(backoff).child(a)).await;
    stage.on_start("a", Act::Fail);
    a_ref.cast(PartMsg::Panic("boom")).unwrap();
    let reason =
        EndReason::IntensityExceeded { child: "app/a".into(), error: "did not start: start failed".to_owned() };
    assert_eq!(tokio::time::timeout(60 * SECOND, tree.join()).await, Ok(reason));
}

#[tokio::test(start_paused = true)]
async fn one_crash_of_a_large_group_is_one_entry() {
    let stage = Stage::default();
    let parts: Vec<_> = (0..20).map(|n| stage.part(&format!("p{n}"))).collect();
    let mut spec = SupervisorSpec::one_for_all("app").intensity(at_most(2));
    for (child, _) in &parts {
        spec = spec.child(child.clone());
    }
    let (tree, mut events) = start(spec).await;
    for generation in [2, 3] {
        parts[7].1.cast(PartMsg::Panic("boom")).unwrap();
        events.until(&format!("app/p19 gen {generation}: restarted")).await;
    }
    assert_eq!(state(&tree, &[]).await, Some(ActorState::Running));
}

#[tokio::test(start_paused = true)]
async fn a_failing_supervisor_is_restarted_by_the_one_above_until_that_one_fails_too() {
    let stage = Stage::default();
    let ((a, a_ref), (b, _)) = (stage.part("a"), stage.part("b"));
    let (inner, _) = ChildSpec::supervisor(SupervisorSpec::one_for_one("inner").intensity(at_most(1)).child(a));
    let spec = SupervisorSpec::one_for_one("app").intensity(at_most(1)).child(b).child(inner);
    let (tree, mut events) = start(spec).await;

    a_ref.cast(PartMsg::Panic("one")).unwrap();
    events.until("app/inner/a gen 2: restarted").await;
    a_ref.cast(PartMsg::Panic("two")).unwrap();
    let seen = events.until("app/inner gen 2: restarted").await;
    assert_eq!(
        seen,
        [
            "app/inner/a gen 2: failed: two",
            "app/inner gen 1: gives up, app/inner/a was restarted too often: two",
            "app/inner gen 1: failed: `app/inner/a` was restarted too often: two",
            "app/inner gen 1: restarts at once",
            "app/inner/a gen 1: started",
            "app/inner gen 2: restarted",
        ]
    );

    a_ref.cast(PartMsg::Panic("three")).unwrap();
    events.until("app/inner/a gen 2: restarted").await;
    stage.log();
    a_ref.cast(PartMsg::Panic("four")).unwrap();
    let error = "`app/inner/a` was restarted too often: four".to_owned();
    assert_eq!(tree.join().await, EndReason::IntensityExceeded { child: "app/inner".into(), error });
    assert_eq!(stage.log(), "-b");
}

#[tokio::test(start_paused = true)]
async fn restarts_wait_longer_and_longer() {
    let stage = Stage::default();
    let (a, a_ref) = stage.part("a");
    let backoff = RestartBackoff { jitter: 0.0, ..RestartBackoff::default() };
    let (_tree, mut events) = start(SupervisorSpec::one_for_one("app").backoff(backoff).child(a)).await;
    let env = env();
    let mut waits = Vec::new();
    for generation in 2..=5 {
        let before = env.now().monotonic;
        a_ref.cast(PartMsg::Panic("boom")).unwrap();
        events.until(&format!("app/a gen {generation}: restarted")).await;
        waits.push((env.now().monotonic - before).as_millis());
    }
    // tokio's timers may fire a millisecond late.
    let close = |(&wait, expected): (&u128, u128)| (expected..=expected + 1).contains(&wait);
    assert!(waits.iter().zip([0, 100, 200, 400]).all(close), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn a_child_over_its_own_window_fails_alone_and_can_be_restarted_by_hand() {
    let stage = Stage::default();
    let ((a, a_ref), (b, b_ref)) = (stage.part("a"), stage.part("b"));
    let reported = Arc::new(Mutex::new(Vec::new()));
    let hears = Arc::clone(&reported);
    let a = a.own_intensity(at_most(1)).on_failed(move |error| {
        hears.lock().push(error.to_owned());
        panic!("told");
    });
    let spec = SupervisorSpec::one_for_one("app").intensity(at_most(0)).child(a).child(b);
    let (tree, mut events) = start(spec).await;
    a_ref.cast(PartMsg::Panic("one")).unwrap();
    events.until("app/a gen 2: restarted").await;
    a_ref.cast(PartMsg::Panic("two")).unwrap();
    events.until("app/a gen 2: restarted too often, stays down: two").await;

    let refused = a_ref.cast(PartMsg::Leave).unwrap_err();
    assert_eq!((refused.to_string(), refused.down), ("`a` is failed".to_owned(), Down::Failed));
    let picture = tree.snapshot().await.unwrap();
    let node = picture.find(&["a"]).unwrap();
    assert_eq!((node.state, node.last_error.as_deref()), (ActorState::Failed, Some("two")));
    assert_eq!(*reported.lock(), ["two"]);
    assert!(b_ref.actor().is_some());

    tree.restart_child("a").await.unwrap();
    a_ref.cast(PartMsg::Panic("three")).unwrap();
    events.until("app/a gen 4: restarted").await;
    assert_eq!(stage.log(), "+a +b +a +a +a");
}

// Significant children.

#[tokio::test(start_paused = true)]
async fn the_first_significant_child_to_end_takes_its_supervisor_along() {
    let stage = Stage::default();
    let ((a, a_ref), (b, _)) = (stage.part("a"), stage.part("b"));
    let a = a.restart(Restart::Transient).significant();
    let spec = SupervisorSpec::one_for_one("app").auto_shutdown(AutoShutdown::AnySignificant).child(a).child(b);
    let (tree, mut events) = start(spec).await;
    a_ref.cast(PartMsg::Panic("boom")).unwrap();
    events.until("app/a gen 2: restarted").await;
    a_ref.cast(PartMsg::Leave).unwrap();
    assert_eq!(tree.join().await, EndReason::AutoShutdown { child: "app/a".into() });
    assert_eq!(stage.log(), "+a +b +a -a -b");
}

#[tokio::test(start_paused = true)]
async fn the_last_significant_child_to_end_takes_its_supervisor_along() {
    let stage = Stage::default();
    let ((a, a_ref), (b, b_ref)) = (stage.part("a"), stage.part("b"));
    let spec = SupervisorSpec::one_for_one("app")
        .auto_shutdown(AutoShutdown::AllSignificant)
        .child(a.restart(Restart::Temporary).significant())
        .child(b.restart(Restart::Transient).significant());
    let (tree, mut events) = start(spec).await;
    a_ref.cast(PartMsg::Panic("boom")).unwrap();
    events.until("app/a gen 1: failed: boom").await;
    assert_eq!(state(&tree, &[]).await, Some(ActorState::Running));
    b_ref.cast(PartMsg::Leave).unwrap();
    assert_eq!(tree.join().await, EndReason::AutoShutdown { child: "app/b".into() });
}

#[tokio::test(start_paused = true)]
async fn stopping_a_significant_child_by_hand_does_not_end_its_supervisor() {
    let stage = Stage::default();
    let a = stage.extra("a").restart(Restart::Transient).significant();
    let spec = SupervisorSpec::one_for_one("app").auto_shutdown(AutoShutdown::AnySignificant).child(a);
    let (tree, _) = start(spec).await;
    tree.terminate_child("a").await.unwrap();
    assert_eq!(state(&tree, &[]).await, Some(ActorState::Running));
}

// Starting.

#[tokio::test(start_paused = true)]
async fn a_failed_first_start_stops_what_runs_and_names_the_child_and_the_cause() {
    let stage = Stage::default();
    stage.on_start("d", Act::Fail);
    let (inner, _) = ChildSpec::supervisor(
        SupervisorSpec::one_for_one("inner").child(stage.extra("c")).child(stage.extra("d")).child(stage.extra("e")),
    );
    let spec = SupervisorSpec::one_for_one("app").child(stage.extra("a")).child(stage.extra("b")).child(inner);
    let error = Supervisor::start_in(spec, env()).await.unwrap_err();
    assert_eq!(error.to_string(), "`app/inner` could not be started: `app/inner/d` could not be started: start failed");
    assert_eq!(stage.log(), "+a +b +c -c -b -a");
}

#[tokio::test(start_paused = true)]
async fn a_first_start_that_hangs_or_panics_fails_within_its_timeout() {
    for (act, cause) in [(Act::Hang, "not started within 10s"), (Act::Panic, "start panicked")] {
        let stage = Stage::default();
        stage.on_start("b", act);
        let spec = SupervisorSpec::one_for_one("app").child(stage.extra("a")).child(stage.extra("b"));
        let error = Supervisor::start_in(spec, env()).await.unwrap_err();
        let reason = EndReason::StartFailed { child: "app/b".into(), error: cause.to_owned() };
        assert_eq!(error, StartError::Ended(reason));
        assert_eq!(stage.log(), "+a -a");
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_that_starts_over_while_it_starts_has_not_started_until_all_of_it_runs() {
    let stage = Stage::default();
    stage.on_start("b", Act::Hang);
    let ((a, a_ref), (b, _)) = (stage.part("a"), stage.part("b"));
    let (error, ()) =
        tokio::join!(Supervisor::start_in(SupervisorSpec::one_for_all("app").child(a).child(b), env()), async {
            while a_ref.cast(PartMsg::Panic("boom")).is_err() {
                tokio::task::yield_now().await;
            }
            stage.on_start("b", Act::Fail);
        });
    let reason = EndReason::StartFailed { child: "app/b".into(), error: "start failed".to_owned() };
    assert_eq!(error.unwrap_err(), StartError::Ended(reason));
    assert_eq!(stage.log(), "+a +a -a");
}

#[tokio::test(start_paused = true)]
async fn a_panicking_factory_is_a_failed_start() {
    fn broken() -> (Part, (Stage, String)) {
        panic!("no parts left")
    }
    let (a, _) = ChildSpec::actor("a", broken);
    let error = Supervisor::start_in(SupervisorSpec::one_for_one("app").child(a), env()).await.unwrap_err();
    assert_eq!(error.to_string(), "`app/a` could not be started: panicked: no parts left");
}

#[tokio::test(start_paused = true)]
async fn failed_restarts_are_tried_again_and_count() {
    let stage = Stage::default();
    let (a, a_ref) = stage.part("a");
    let spec = SupervisorSpec::one_for_one("app").intensity(at_most(3)).child(a);
    let (tree, mut events) = start(spec).await;
    stage.on_start("a", Act::Fail);
    a_ref.cast(PartMsg::Panic("boom")).unwrap();
    events.until("app/a gen 3: did not start: start failed").await;
    stage.on_start("a", Act::Work);
    events.until("app/a gen 4: restarted").await;
    let picture = tree.snapshot().await.unwrap();
    let node = picture.find(&["a"]).unwrap();
    assert_eq!((node.generation, node.restarts), (4, 1));

    stage.on_start("a", Act::Panic);
    a_ref.cast(PartMsg::Panic("again")).unwrap();
    let reason = EndReason::IntensityExceeded { child: "app/a".into(), error: "again".to_owned() };
    assert_eq!(tree.join().await, reason);
}

#[tokio::test(start_paused = true)]
async fn a_failed_restart_in_a_group_starts_the_group_over() {
    let stage = Stage::default();
    let ((a, a_ref), (b, _)) = (stage.part("a"), stage.part("b"));
    let (_tree, mut events) = start(SupervisorSpec::one_for_all("app").child(a).child(b)).await;
    stage.on_start("b", Act::Fail);
    a_ref.cast(PartMsg::Panic("boom")).unwrap();
    events.until("app/b gen 3: did not start: start failed").await;
    stage.on_start("b", Act::Work);
    events.until("app/b gen 4: restarted").await;
    assert_eq!(stage.log(), "+a +b -b +a -a +a -a +a +b");
}

#[tokio::test(start_paused = true)]
async fn a_restart_that_hangs_counts_as_failed() {
    let stage = Stage::default();
    let (a, a_ref) = stage.part("a");
    let (_tree, mut events) = start(SupervisorSpec::one_for_one("app").child(a.start_timeout(2 * SECOND))).await;
    stage.on_start("a", Act::Hang);
    a_ref.cast(PartMsg::Panic("boom")).unwrap();
    events.until("app/a gen 2: did not start: not started within 2s").await;
    stage.on_start("a", Act::Work);
    events.until("app/a gen 3: restarted").await;
}

#[tokio::test(start_paused = true)]
async fn descriptions_that_contradict_themselves_are_refused() {
    let stage = Stage::default();
    let refused = async |spec: SupervisorSpec| match Supervisor::start_in(spec, env()).await.unwrap_err() {
        StartError::Invalid(error) => error,
        StartError::Ended(reason) => panic!("{reason}"),
    };
    let child = || -> Arc<str> { "a".into() };
    let app = || SupervisorSpec::one_for_one("app");
    let twice = app().child(stage.extra("a")).child(stage.extra("a"));
    assert_eq!(refused(twice).await, SpecError::DuplicateId { child: child() });
    let permanent = app().auto_shutdown(AutoShutdown::AnySignificant).child(stage.extra("a").significant());
    assert_eq!(refused(permanent).await, SpecError::SignificantPermanent { child: child() });
    let idle = app().child(stage.extra("a").restart(Restart::Transient).significant());
    assert_eq!(refused(idle).await, SpecError::SignificantWithoutShutdown { child: child() });
    let shutdown = app().auto_shutdown(AutoShutdown::AllSignificant);
    let alone = shutdown.child(stage.extra("a").restart(Restart::Transient).significant().own_intensity(at_most(1)));
    assert_eq!(refused(alone).await, SpecError::SignificantWithOwnIntensity { child: child() });
    let group = SupervisorSpec::rest_for_one("inner").child(stage.extra("a").own_intensity(at_most(1)));
    let nested = app().child(ChildSpec::supervisor(group).0);
    assert_eq!(
        refused(nested).await,
        SpecError::OwnIntensityInGroup { child: child(), strategy: Strategy::RestForOne }
    );
    let own = app().child(stage.extra("a").own_intensity(at_most(100)));
    for (patient, whose) in [(app().intensity(at_most(100)), "app"), (own, "a")] {
        let error = refused(patient).await.to_string();
        let why = "is never exceeded: 100 restarts wait 932.7s, but only those in 60s count";
        assert_eq!(error, format!("the intensity of `{whose}` {why}"));
    }
    assert_eq!(stage.log(), "");
    let (tree, _) = start(app()).await;
    let added = tree.start_child(stage.extra("a").own_intensity(at_most(100))).await;
    assert!(matches!(added, Err(ControlError::Invalid(SpecError::UnreachableIntensity { .. }))), "{added:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_that_ends_before_its_start_is_reported_is_restarted_like_any_other() {
    struct Ephemeral;
    impl Actor for Ephemeral {
        type Msg = ();
        type State = ();
        type Arguments = ();
        async fn pre_start(&self, _: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
            Ok(())
        }
        async fn post_start(&self, _: ActorRef<()>, (): &mut ()) -> Result<(), ActorProcessingErr> {
            Err("gone already".into())
        }
    }
    let (child, _) = ChildSpec::actor("a", || (Ephemeral, ()));
    let intensity = Intensity::new(1000, 60 * SECOND);
    let spec = SupervisorSpec::one_for_one("app").intensity(intensity).backoff(RestartBackoff::none()).child(child);
    let tree = Supervisor::start(spec).await.unwrap();
    let error = "gone already".to_owned();
    let end = tokio::time::timeout(30 * SECOND, tree.join()).await.expect("no end is missed");
    assert_eq!(end, EndReason::IntensityExceeded { child: "app/a".into(), error });
}

// Stopping.

#[tokio::test(start_paused = true)]
async fn a_nested_tree_stops_from_the_last_child_to_the_first() {
    let stage = Stage::default();
    let inner = SupervisorSpec::one_for_all("inner").child(stage.extra("b")).child(stage.extra("c"));
    let spec = SupervisorSpec::one_for_one("app")
        .child(stage.extra("a"))
        .child(ChildSpec::supervisor(inner).0)
        .child(stage.extra("d"));
    let (tree, _) = start(spec).await;
    assert_eq!(tree.stop().await, EndReason::Stopped);
    assert_eq!(stage.log(), "+a +b +c +d -d -c -b -a");
    assert_eq!(tree.stop().await, EndReason::Stopped);
}

#[tokio::test(start_paused = true)]
async fn a_child_that_ignores_its_stop_is_killed_after_its_timeout() {
    let stage = Stage::default();
    stage.on_stop("b", Act::Hang);
    let spec = SupervisorSpec::one_for_one("app")
        .child(stage.extra("a"))
        .child(stage.extra("b").shutdown(Shutdown::Timeout(3 * SECOND)))
        .child(stage.extra("c"));
    let (tree, mut events) = start(spec).await;
    let env = env();
    tree.stop().await;
    assert_eq!(env.now().monotonic.as_secs(), 3);
    assert_eq!(stage.log(), "+a +b +c -c -a");
    assert_eq!(
        events.rest(),
        ["app/c gen 1: stopped", "app/b gen 1: ignored its stop and was killed", "app/a gen 1: stopped"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_brutal_kill_does_not_ask_first() {
    let stage = Stage::default();
    let (tree, mut events) =
        start(SupervisorSpec::one_for_one("app").child(stage.extra("a").shutdown(Shutdown::BrutalKill))).await;
    tree.stop().await;
    assert_eq!(stage.log(), "+a");
    assert_eq!(events.rest(), ["app/a gen 1: was killed without a stop"]);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_without_time_asks_and_kills() {
    let stage = Stage::default();
    stage.on_stop("a", Act::Hang);
    let (tree, mut events) =
        start(SupervisorSpec::one_for_one("app").child(stage.extra("a").shutdown(Shutdown::Timeout(Duration::ZERO))))
            .await;
    let env = env();
    tree.stop().await;
    assert!(env.now().monotonic < SECOND);
    assert_eq!(events.rest(), ["app/a gen 1: ignored its stop and was killed"]);
}

#[tokio::test(start_paused = true)]
async fn an_infinite_shutdown_waits_as_long_as_the_child_takes() {
    let stage = Stage::default();
    for part in ["a", "b"] {
        stage.on_stop(part, Act::Dawdle);
    }
    // By default a worker has 5 s, and a supervisor what its children take.
    let inner = SupervisorSpec::one_for_one("inner").child(stage.extra("a").shutdown(Shutdown::Infinity));
    let spec = SupervisorSpec::one_for_one("app").child(ChildSpec::supervisor(inner).0).child(stage.extra("b"));
    let (tree, mut events) = start(spec).await;
    let env = env();
    tree.stop().await;
    assert_eq!(env.now().monotonic.as_secs(), 3_605);
    assert_eq!(stage.log(), "+a +b -a");
    let ends =
        ["app/b gen 1: ignored its stop and was killed", "app/inner/a gen 1: stopped", "app/inner gen 1: stopped"];
    assert_eq!(events.rest(), ends);
}

#[tokio::test(start_paused = true)]
async fn a_supervisor_that_is_killed_brutally_takes_its_children_along() {
    let stage = Stage::default();
    let (part, a) = stage.part("a");
    let inner = ChildSpec::supervisor(SupervisorSpec::one_for_one("inner").child(part)).0;
    let (tree, mut events) =
        start(SupervisorSpec::one_for_one("app").child(inner.shutdown(Shutdown::BrutalKill))).await;
    let child = a.cell().unwrap();
    tree.stop().await;
    child.wait(Some(SECOND)).await.unwrap();
    assert_eq!(
        (stage.log(), events.rest()),
        ("+a".to_owned(), vec!["app/inner gen 1: was killed without a stop".to_owned()])
    );
}

#[tokio::test(start_paused = true)]
async fn a_plain_ractor_stop_of_a_supervisor_still_stops_its_children_in_order() {
    let (stage, tree, _, _) = trio(Strategy::OneForOne).await;
    tree.cell().unwrap().stop(None);
    assert_eq!(tree.join().await, EndReason::Stopped);
    assert_eq!(stage.log(), "-c -b -a");
}

#[tokio::test(start_paused = true)]
async fn a_killed_root_is_reported_and_takes_its_children_along() {
    let (_, tree, _, [a, ..]) = trio(Strategy::OneForOne).await;
    let child = a.cell().unwrap();
    tree.cell().unwrap().kill();
    assert_eq!(tree.join().await, EndReason::Killed);
    child.wait(Some(SECOND)).await.unwrap();
    assert_eq!(a.cast(PartMsg::Leave).unwrap_err().down, Down::Stopped);
    assert!(matches!(tree.snapshot().await, Err(ControlError::SupervisorDown { .. })));
}

#[tokio::test(start_paused = true)]
async fn dropping_the_handle_does_not_stop_the_tree() {
    let (stage, tree, mut events, [a, ..]) = trio(Strategy::OneForOne).await;
    drop(tree);
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!((events.rest(), stage.log()), (Vec::new(), String::new()));
    a.cast(PartMsg::Panic("boom")).unwrap();
    events.until("app/a gen 2: restarted").await;
    a.call(PartMsg::Ping, SECOND).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_start_whose_caller_is_gone_leaves_nothing_running() {
    let stage = Stage::default();
    stage.on_start("b", Act::Hang);
    let (b, b_ref) = stage.part("b");
    let (a, a_ref) = stage.part("a");
    let spec = SupervisorSpec::one_for_one("app").child(a).child(b.start_timeout(3 * SECOND));
    let start = tokio::time::timeout(SECOND, Supervisor::start_in(spec, env())).await;
    assert!(start.is_err(), "it waits for b");
    let child = a_ref.cell().unwrap();
    child.wait(Some(3 * SECOND)).await.unwrap();
    assert_eq!(stage.log(), "+a -a");
    assert!(b_ref.actor().is_none());
}

// Answering.

#[tokio::test(start_paused = true)]
async fn a_supervisor_answers_while_a_child_hangs_in_its_start() {
    let stage = Stage::default();
    let (tree, _) = start(SupervisorSpec::one_for_one("app").child(stage.extra("a"))).await;
    stage.on_start("b", Act::Hang);
    let (adding, picture) = tokio::join!(tree.start_child(stage.extra("b")), async {
        tokio::task::yield_now().await;
        tree.snapshot().await.unwrap()
    });
    assert_eq!(picture.find(&["b"]).unwrap().state, ActorState::Starting);
    let error = "not started within 10s".to_owned();
    assert_eq!(adding, Err(ControlError::StartFailed { child: "b".into(), error }));
    assert_eq!(state(&tree, &["b"]).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_supervisor_that_restarts_shows_its_children_while_one_hangs_in_its_start() {
    let stage = Stage::default();
    let (inner, inner_ref) =
        ChildSpec::supervisor(SupervisorSpec::one_for_one("inner").child(stage.extra("a")).child(stage.extra("b")));
    let (tree, mut events) = start(SupervisorSpec::one_for_one("app").child(inner)).await;
    stage.on_start("b", Act::Hang);
    inner_ref.cell().unwrap().kill();
    events.until("app/inner/a gen 1: started").await;
    assert_eq!(state(&tree, &["inner"]).await, Some(ActorState::Restarting { after: Duration::ZERO }));
    assert_eq!(state(&tree, &["inner", "a"]).await, Some(ActorState::Running));
    assert_eq!(state(&tree, &["inner", "b"]).await, Some(ActorState::Starting));
    tree.stop().await;
    assert_eq!(stage.log(), "+a +b +a -a");
}

#[tokio::test(start_paused = true)]
async fn a_supervisor_answers_while_a_child_ignores_its_stop_or_hangs_in_its_work() {
    let stage = Stage::default();
    stage.on_stop("a", Act::Hang);
    let ((a, _), (b, b_ref)) = (stage.part("a"), stage.part("b"));
    let (tree, mut events) = start(SupervisorSpec::one_for_one("app").child(a).child(b)).await;
    b_ref.cast(PartMsg::Hang).unwrap();
    let (stopped, ()) = tokio::join!(tree.stop(), async {
        tokio::task::yield_now().await;
        assert_eq!(state(&tree, &["b"]).await, Some(ActorState::Stopping));
        events.until("app/b gen 1: ignored its stop and was killed").await;
        let picture = tree.snapshot().await.unwrap();
        assert_eq!(picture.state, ActorState::Stopping);
        assert_eq!(picture.find(&["a"]).unwrap().state, ActorState::Stopping);
        assert_eq!(picture.find(&["b"]).unwrap().state, ActorState::Stopped);
        assert_eq!(tree.restart_child("b").await, Err(ControlError::NotReady { state: ActorState::Stopping }));
    });
    assert_eq!(stopped, EndReason::Stopped);
}

// Children at run time.

#[tokio::test(start_paused = true)]
async fn terminating_a_child_in_backoff_calls_off_its_restart() {
    let stage = Stage::default();
    let (a, a_ref) = stage.part("a");
    let spec =
        SupervisorSpec::one_for_one("app").intensity(at_most(2)).backoff(RestartBackoff::fixed(30 * SECOND)).child(a);
    let (tree, mut events) = start(spec).await;
    a_ref.cast(PartMsg::Panic("one")).unwrap();
    events.until("app/a gen 2: restarted").await;
    a_ref.cast(PartMsg::Panic("two")).unwrap();
    events.until("app/a gen 2: restarts in 30s").await;
    assert_eq!(state(&tree, &["a"]).await, Some(ActorState::Restarting { after: 30 * SECOND }));
    assert_eq!(a_ref.cast(PartMsg::Leave).unwrap_err().down, Down::Restarting);
    let busy = tree.restart_child("a").await;
    assert!(matches!(busy, Err(ControlError::NotStopped { state: ActorState::Restarting { .. }, .. })));

    tree.terminate_child("a").await.unwrap();
    tokio::time::advance(60 * SECOND).await;
    assert_eq!(state(&tree, &["a"]).await, Some(ActorState::Stopped));
    assert_eq!(events.rest(), ["app/a gen 2: stopped"]);
    assert_eq!(stage.log(), "+a +a");
}

#[tokio::test(start_paused = true)]
async fn children_come_and_go_at_run_time() {
    let stage = Stage::default();
    let (agents, agents_ref) = ChildSpec::supervisor(SupervisorSpec::one_for_one("agents"));
    let (tree, _) = start(SupervisorSpec::one_for_one("app").child(agents)).await;
    let (a, a_ref) = stage.part("a");
    assert_eq!(a_ref.cast(PartMsg::Leave).unwrap_err().down, Down::Starting);
    agents_ref.start_child(a).await.unwrap();
    a_ref.call(PartMsg::Ping, SECOND).await.unwrap();
    let taken = ControlError::Invalid(SpecError::DuplicateId { child: "a".into() });
    assert_eq!(agents_ref.start_child(stage.extra("a")).await, Err(taken));
    let busy = ControlError::NotStopped { child: "a".into(), state: ActorState::Running };
    assert_eq!(agents_ref.restart_child("a").await, Err(busy));

    agents_ref.terminate_child("a").await.unwrap();
    agents_ref.terminate_child("a").await.unwrap();
    assert_eq!(state(&tree, &["agents", "a"]).await, Some(ActorState::Stopped));
    agents_ref.restart_child("a").await.unwrap();
    a_ref.call(PartMsg::Ping, SECOND).await.unwrap();
    agents_ref.remove_child("a").await.unwrap();
    assert_eq!(state(&tree, &["agents", "a"]).await, None);
    assert_eq!(agents_ref.remove_child("a").await, Err(ControlError::UnknownChild { child: "a".into() }));
    assert_eq!(stage.log(), "+a -a +a -a");
}

#[tokio::test(start_paused = true)]
async fn a_removal_holds_against_a_later_termination() {
    let stage = Stage::default();
    stage.on_stop("a", Act::Hang);
    let (tree, _) = start(SupervisorSpec::one_for_one("app").child(stage.extra("a"))).await;
    let (removed, terminated) = tokio::join!(tree.remove_child("a"), tree.terminate_child("a"));
    assert_eq!((removed, terminated), (Ok(()), Ok(())));
    assert_eq!(state(&tree, &["a"]).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_called_off_leaves_nothing_behind() {
    let stage = Stage::default();
    stage.on_start("b", Act::Hang);
    let inner = SupervisorSpec::one_for_one("inner").child(stage.extra("a")).child(stage.extra("b"));
    let (tree, mut events) = start(SupervisorSpec::one_for_one("app")).await;
    let (adding, removed) = tokio::join!(tree.start_child(ChildSpec::supervisor(inner).0), async {
        events.until("app/inner/a gen 1: started").await;
        tree.remove_child("inner").await
    });
    assert_eq!((adding, removed), (Err(ControlError::Cancelled), Ok(())));
    assert_eq!(stage.log(), "+a -a");
    assert_eq!(tree.snapshot().await.expect("the supervisor answers").children, []);
}

#[tokio::test(start_paused = true)]
async fn as_in_otp_a_siblings_crash_brings_back_a_child_stopped_by_hand() {
    let (stage, tree, mut events, [a, ..]) = trio(Strategy::OneForAll).await;
    tree.terminate_child("b").await.unwrap();
    a.cast(PartMsg::Panic("boom")).unwrap();
    events.until("app/c gen 2: restarted").await;
    assert_eq!(stage.log(), "-b -c +a +b +c");
}

// References.

#[tokio::test(start_paused = true)]
async fn a_reference_follows_its_child_and_gives_back_what_it_cannot_send() {
    let stage = Stage::default();
    let (a, a_ref) = stage.part("a");
    let (tree, mut events) = start(SupervisorSpec::one_for_one("app").child(a)).await;
    let clone = a_ref.clone();
    let first = clone.call(PartMsg::Ping, SECOND).await.unwrap();
    stage.on_start("a", Act::Hang);
    a_ref.cast(PartMsg::Panic("boom")).unwrap();
    events.until("app/a gen 1: restarts at once").await;

    let refused = clone.cast(PartMsg::Fail("keep me")).unwrap_err();
    assert!(matches!(refused.message, PartMsg::Fail("keep me")));
    assert_eq!(refused.down, Down::Restarting);
    let down = CallError::Down { child: "a".into(), down: Down::Restarting };
    assert_eq!(clone.call(PartMsg::Ping, SECOND).await, Err(down));

    stage.on_start("a", Act::Work);
    events.until("app/a gen 3: restarted").await;
    assert_ne!(clone.call(PartMsg::Ping, SECOND).await.unwrap(), first);
    assert_eq!(clone.actor().map(|actor| actor.get_cell()), a_ref.cell());
    let env = env();
    assert_eq!(clone.call(PartMsg::Drop, SECOND).await, Err(CallError::NoAnswer { child: "a".into() }));
    assert_eq!(env.now().monotonic, Duration::ZERO);
    clone.cast(PartMsg::Hang).unwrap();
    let late = CallError::TimedOut { child: "a".into(), after: SECOND };
    assert_eq!(clone.call(PartMsg::Ping, SECOND).await, Err(late));
    tree.stop().await;
    assert_eq!(clone.cast(PartMsg::Leave).unwrap_err().down, Down::Stopped);
}

#[tokio::test(start_paused = true)]
async fn references_below_a_restarted_supervisor_stay_valid() {
    let stage = Stage::default();
    let (a, a_ref) = stage.part("a");
    let (inner, inner_ref) = ChildSpec::supervisor(SupervisorSpec::one_for_one("inner").child(a));
    let (_tree, mut events) = start(SupervisorSpec::one_for_one("app").child(inner)).await;
    let first = a_ref.call(PartMsg::Ping, SECOND).await.unwrap();
    inner_ref.cell().unwrap().kill();
    events.until("app/inner gen 2: restarted").await;
    assert_ne!(a_ref.call(PartMsg::Ping, SECOND).await.unwrap(), first);
    inner_ref.start_child(stage.extra("b")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn two_generations_of_a_child_never_run_at_once_even_if_their_supervisor_was_killed() {
    let stage = Stage::default();
    let (a, a_ref) = stage.part("a");
    let a = a.start_timeout(Duration::from_millis(250));
    let (inner, inner_ref) = ChildSpec::supervisor(SupervisorSpec::one_for_one("inner").child(a));
    let spec = SupervisorSpec::one_for_one("app").intensity(at_most(1000)).backoff(RestartBackoff::none()).child(inner);
    let tree = Supervisor::start(spec).await.unwrap();
    let mut events = Events::of(&tree);
    // A blocked thread holds on to what it was about to run next: let the supervisor finish its part first.
    a_ref.call(PartMsg::Ping, SECOND).await.unwrap();
    tree.snapshot().await.unwrap();
    let ((entered, inside), (release, blocked)) = (oneshot::channel(), std::sync::mpsc::channel());
    a_ref.cast(PartMsg::Block { entered, release: blocked }).unwrap();
    inside.await.unwrap();

    inner_ref.cell().unwrap().kill();
    events.until("app/inner/a gen 1: did not start: its earlier generation still runs").await;
    drop(release);
    events.until("app/inner/a gen 1: started").await;
    assert_eq!(stage.log(), "+a +a");
}

// Watching.

#[tokio::test(start_paused = true)]
async fn events_tell_where_when_which_generation_and_why() {
    let stage = Stage::default();
    let (a, a_ref) = stage.part("a");
    let (inner, _) = ChildSpec::supervisor(SupervisorSpec::one_for_one("inner").child(a));
    let (tree, _) = start(SupervisorSpec::one_for_one("app").child(inner)).await;
    let mut events = tree.subscribe();
    let before = env().now().wall;
    tokio::time::advance(90 * SECOND).await;
    a_ref.cast(PartMsg::Panic("boom")).unwrap();
    let event = events.recv().await.unwrap();
    let exit = Exit::Crashed("boom".to_owned());
    assert_eq!(
        (&*event.path, event.generation, event.kind),
        ("app/inner/a", 1, TreeEventKind::Exited { exit: exit.clone() })
    );
    assert_eq!(event.at, before + 90 * SECOND);
    assert!(!exit.is_normal());
}

#[tokio::test(start_paused = true)]
async fn a_picture_shows_the_whole_tree() {
    let stage = Stage::default();
    let ((a, _), (b, b_ref)) = (stage.part("storage"), stage.part("writer"));
    let a = a.mailbox_depth(|| 3).detail(|| Some("2 open files".to_owned()));
    let (agents, _) =
        ChildSpec::supervisor(SupervisorSpec::rest_for_one("agents").child(b).child(stage.extra("spare")));
    let c = stage.extra("last").mailbox_depth(|| panic!("broken probe"));
    let (tree, mut events) = start(SupervisorSpec::one_for_one("board").child(a).child(agents).child(c)).await;
    tokio::time::advance(61 * SECOND).await;
    b_ref.cast(PartMsg::Panic("boom\nand more")).unwrap();
    events.until("board/agents/spare gen 2: restarted").await;
    tokio::time::advance(SECOND).await;
    assert_eq!(
        tree.snapshot().await.unwrap().to_string(),
        "\
board (one_for_one)  running  gen 1  up 1m 2s
├── storage  running  gen 1  up 1m 2s  mailbox 3  2 open files
├── agents (rest_for_one)  running  gen 1  up 1m 2s
│   ├── writer  running  gen 2  restarts 1  up 1s  last error: boom
│   └── spare  running  gen 2  restarts 1  up 1s
└── last  running  gen 1  up 1m 2s"
    );
}

// Children of a template, and groups.

fn parts(stage: &Stage) -> ChildTemplate<&'static str, PartMsg> {
    let stage = stage.clone();
    ChildTemplate::new("part", move |name: &'static str| (Part, (stage.clone(), name.to_owned())))
}

async fn listed(tree: &Supervisor) -> Vec<String> {
    tree.snapshot().await.expect("the supervisor answers").children.iter().map(|child| child.name.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn children_of_a_template_are_restarted_with_their_arguments_and_leave_the_list_when_they_are_done() {
    let stage = Stage::default();
    let (tree, mut events) = start(SupervisorSpec::simple_one_for_one("app").backoff(RestartBackoff::none())).await;
    let template = parts(&stage).configure(|child| child.restart(Restart::Transient));
    let a = template.start(&tree, "a").await.unwrap();
    let b = template.start(&tree, "b").await.unwrap();
    assert_eq!(
        (stage.log(), listed(&tree).await),
        ("+a +b".to_owned(), vec!["part-1".to_owned(), "part-2".to_owned()])
    );
    a.cast(PartMsg::Panic("boom")).unwrap();
    events.until("app/part-1 gen 2: restarted").await;
    assert_eq!(stage.log(), "+a");
    b.cast(PartMsg::Leave).unwrap();
    events.until("app/part-2 gen 1: ended normally").await;
    assert_eq!((listed(&tree).await, b.down()), (vec!["part-1".to_owned()], Some(Down::Stopped)));
    tree.terminate_child(a.id()).await.unwrap();
    assert_eq!(listed(&tree).await, Vec::<String>::new());
    assert_eq!(template.start(&tree, "c").await.unwrap().id(), "part-3", "no name is given twice");
    assert_eq!(tree.stop().await, EndReason::Stopped);
}

#[tokio::test(start_paused = true)]
async fn children_of_a_template_stop_at_the_same_time() {
    let stage = Stage::default();
    let (tree, _) = start(SupervisorSpec::simple_one_for_one("app")).await;
    let template = parts(&stage);
    for name in ["a", "b", "c", "d"] {
        stage.on_stop(name, Act::Hang);
        template.start(&tree, name).await.unwrap();
    }
    // Each of them takes 5 s, after which it is killed.
    let stopped = tokio::time::timeout(6 * SECOND, tree.stop()).await;
    assert_eq!(stopped.expect("they stop beside each other"), EndReason::Stopped);
}

#[tokio::test(start_paused = true)]
async fn children_that_stop_at_the_same_time_have_their_own_timeouts_and_ends() {
    let stage = Stage::default();
    let (tree, mut events) = start(SupervisorSpec::simple_one_for_one("app")).await;
    let acts = [("obeys", Act::Work), ("fails", Act::Fail), ("panics", Act::Panic), ("hangs", Act::Hang)];
    let ends = [
        ("obeys", Shutdown::Timeout(SECOND)),
        ("obeys", Shutdown::Infinity),
        ("obeys", Shutdown::BrutalKill),
        ("fails", Shutdown::Timeout(SECOND)),
        ("panics", Shutdown::Timeout(SECOND)),
        ("hangs", Shutdown::Timeout(3 * SECOND)),
        ("hangs", Shutdown::Timeout(SECOND)),
        ("dawdles", Shutdown::Infinity),
    ];
    acts.into_iter().for_each(|(name, act)| stage.on_stop(name, act));
    stage.on_stop("dawdles", Act::Dawdle);
    let mut children = Vec::new();
    for (number, (name, shutdown)) in ends.into_iter().enumerate() {
        let stage = stage.clone();
        let (child, reference) =
            ChildSpec::actor(format!("{number} {name}"), move || (Part, (stage.clone(), name.to_owned())));
        tree.start_child(child.shutdown(shutdown)).await.unwrap();
        children.push(reference);
    }
    let below = SupervisorSpec::one_for_one("below").child(stage.extra("obeys"));
    tree.start_child(ChildSpec::supervisor(below).0).await.unwrap();
    let cells: Vec<_> = children.iter().map(|child| child.cell().unwrap()).collect();
    events.rest();
    stage.log();

    let world = env();
    let began = world.now().monotonic;
    let stopping = tokio::spawn({
        let tree = tree.clone();
        async move { tree.stop().await }
    });
    let seen = events.until("app/5 hangs gen 1: ignored its stop and was killed").await;
    assert_eq!((world.now().monotonic - began).as_secs(), 3);
    let kills = seen.iter().filter(|event| event.contains("ignored")).map(String::as_str).collect::<Vec<_>>();
    let [first, last] =
        ["app/6 hangs gen 1: ignored its stop and was killed", "app/5 hangs gen 1: ignored its stop and was killed"];
    assert_eq!(kills, [first, last], "each has its own time");
    let at_once = |number: usize| children[number].down() == Some(Down::Stopped);
    assert!((0..=6).all(at_once), "nobody waits for another one");
    assert_eq!(children[7].down(), Some(Down::Exiting));
    let picture = tree.snapshot().await.unwrap();
    let error = |number: usize| picture.children[number].last_error.clone();
    assert_eq!([error(0), error(3)], [None, Some("stop failed".to_owned())]);
    assert!(error(4).is_some_and(|error| error.contains("stop panicked")));

    assert_eq!(stopping.await.unwrap(), EndReason::Stopped);
    assert_eq!((world.now().monotonic - began).as_secs(), 3_600, "the last one took an hour");
    assert!(cells.iter().all(|cell| cell.get_status() == ractor::ActorStatus::Stopped));
    let orderly = ["0 obeys", "1 obeys", "3 fails", "4 panics", "below"];
    for name in orderly {
        assert!(seen.contains(&format!("app/{name} gen 1: stopped")), "{name} in {seen:#?}");
    }
    assert!(seen.contains(&"app/2 obeys gen 1: was killed without a stop".to_owned()), "{seen:#?}");
    assert_eq!(stage.log(), "-obeys -obeys -obeys -dawdles");
}

#[tokio::test(start_paused = true)]
async fn a_child_that_has_another_supervisor_holds_up_the_end_of_its_own_until_its_timeout_at_most() {
    let stage = Stage::default();
    let (tree, mut events) = start(SupervisorSpec::simple_one_for_one("app")).await;
    let (other, _) = start(SupervisorSpec::one_for_one("other")).await;
    let child = parts(&stage).start(&tree, "a").await.unwrap();
    child.cell().unwrap().link(other.cell().unwrap());
    let stopped = tokio::time::timeout(6 * SECOND, tree.stop()).await;
    assert_eq!(stopped.expect("its end is not reported, and found"), EndReason::Stopped);
    assert!(events.rest().contains(&"app/part-1 gen 1: stopped".to_owned()));
    other.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_listed_child_below_simple_one_for_one_is_refused() {
    let spec = SupervisorSpec::simple_one_for_one("app").child(Stage::default().extra("a"));
    let error = Supervisor::start_in(spec, env()).await.unwrap_err();
    assert_eq!(error.to_string(), "`a` is listed below a simple_one_for_one supervisor; start it from a ChildTemplate");
}

#[tokio::test(start_paused = true)]
async fn too_many_crashes_of_children_of_a_template_end_their_supervisor() {
    let stage = Stage::default();
    let spec = SupervisorSpec::simple_one_for_one("app").backoff(RestartBackoff::none()).intensity(at_most(1));
    let (tree, mut events) = start(spec).await;
    let template = parts(&stage);
    let a = template.start(&tree, "a").await.unwrap();
    let b = template.start(&tree, "b").await.unwrap();
    a.cast(PartMsg::Panic("boom")).unwrap();
    events.until("app/part-1 gen 2: restarted").await;
    b.cast(PartMsg::Panic("boom")).unwrap();
    assert!(matches!(tree.join().await, EndReason::IntensityExceeded { child, .. } if &*child == "app/part-2"));
}

#[tokio::test(start_paused = true)]
async fn a_group_has_the_members_that_run_and_forgets_those_that_have_ended() {
    let stage = Stage::default();
    let (tree, mut events) = start(SupervisorSpec::simple_one_for_one("app").backoff(RestartBackoff::none())).await;
    let template = parts(&stage).configure(|child| child.restart(Restart::Transient));
    let groups = ProcessGroups::new();
    let mut members = Vec::new();
    for name in ["a", "b", "c"] {
        let member = template.start(&tree, name).await.unwrap();
        groups.join("all", &member);
        members.push(member);
    }
    groups.join("first", &members[0]);
    groups.join("first", &members[0]);
    let ids = |group: &str| groups.members(group).iter().map(|member| member.id().to_owned()).collect::<Vec<_>>();
    assert_eq!(ids("all"), ["part-1", "part-2", "part-3"]);
    assert_eq!(ids("first"), ["part-1", "part-1"], "a member as often as it joined");
    members[1].cast(PartMsg::Panic("boom")).unwrap();
    events.until("app/part-2 gen 2: restarted").await;
    assert_eq!(ids("all"), ["part-1", "part-2", "part-3"], "a restart keeps the membership");
    members[2].cast(PartMsg::Leave).unwrap();
    events.until("app/part-3 gen 1: ended normally").await;
    assert_eq!(ids("all"), ["part-1", "part-2"]);
    assert!(groups.leave("first", &members[0]) && groups.leave("first", &members[0]));
    assert!(!groups.leave("first", &members[0]) && !groups.leave("nowhere", &members[0]));
    assert_eq!(groups.groups().iter().map(|name| &**name).collect::<Vec<_>>(), ["all"]);
    tree.stop().await;
    assert!(ids("all").is_empty() && groups.groups().is_empty());
}
