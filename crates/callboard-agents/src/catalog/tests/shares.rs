//! Catalogs of boards on one store, which share their rates.

use callboard::prelude::*;
use callboard::runtime::Builder;
use tokio::task::JoinSet;

use super::*;

/// How long a board that has ended still counts at most.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// A model that notes when it is asked, and by whom.
#[derive(Clone)]
struct Timed {
    env: Env,
    asked: Arc<Mutex<Vec<(Duration, &'static str)>>>,
    by: &'static str,
}

impl Model for Timed {
    fn name(&self) -> &str {
        "a"
    }

    fn call(&self, _: ModelRequest) -> ModelStream {
        self.asked.lock().push((self.env.now().monotonic, self.by));
        let answer = ModelAnswer::new("a", StopReason::Finished, USAGE);
        futures::stream::iter([Ok(ModelEvent::Ended(answer))]).boxed()
    }
}

/// A store, and what boards on it have sent.
struct Store {
    env: Env,
    storage: Arc<Memory>,
    asked: Arc<Mutex<Vec<(Duration, &'static str)>>>,
    per_minute: NonZeroU32,
}

impl Store {
    fn new(per_minute: u32) -> Self {
        let env = Env::repeatable(1);
        let storage = Arc::new(Memory::new(env.clock()));
        Self { env, storage, asked: Arc::default(), per_minute: NonZeroU32::new(per_minute).unwrap() }
    }

    fn models(&self, by: &'static str) -> Models {
        let model = Timed { env: self.env.clone(), asked: Arc::clone(&self.asked), by };
        models([ModelEntry::of(model).requests_per_minute(self.per_minute)])
    }

    fn builder(&self) -> Builder {
        let builder = Callboard::builder().env(self.env.clone()).storage(Arc::clone(&self.storage));
        builder.shutdown_grace(Duration::ZERO)
    }

    /// A board with an agent, and its models.
    async fn board(&self, by: &'static str) -> (Callboard, Models) {
        let (models, share) = (self.models(by), BoardShare::new(&self.env));
        models.share_rates(&share);
        let board = self.builder().board_share(&share).agent(by, |_: Turn| async { Ok(Command::output("")) });
        (board.start().await.unwrap(), models)
    }

    async fn pass(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    fn sent_since(&self, from: Duration) -> Vec<(Duration, &'static str)> {
        self.asked.lock().iter().filter(|(at, _)| *at >= from).copied().collect()
    }

    /// Checks that in no window more was sent than one board would have.
    fn check_windows(&self) {
        let asked = self.asked.lock();
        for (first, (from, _)) in asked.iter().enumerate() {
            for (last, (to, _)) in asked.iter().enumerate().skip(first) {
                let most = f64::from(self.per_minute.get()) * (1.0 + (*to - *from).as_secs_f64() / 60.0);
                let sent = last - first + 1;
                assert!(sent as f64 <= most + 1e-6, "{sent} from {from:?} to {to:?}");
            }
        }
    }
}

/// Asks without end, three at a time.
fn ask_always(models: &Models) -> JoinSet<()> {
    let mut callers = JoinSet::new();
    for _ in 0..3 {
        let models = models.clone();
        callers.spawn(async move {
            loop {
                reported(models.call(&ModelChoice::of("a"), request())).await;
            }
        });
    }
    callers
}

#[tokio::test(start_paused = true)]
async fn boards_that_come_and_go_send_together_what_one_may() {
    let store = Store::new(30);
    let (first, of_first) = store.board("first").await;
    let asking = ask_always(&of_first);
    store.pass(100).await;
    // The first one has spent all that it may. Those that come have nothing saved, whatever they find.
    let (second, of_second) = store.board("second").await;
    let second_asks = ask_always(&of_second);
    let (third, of_third) = store.board("third").await;
    let third_asks = ask_always(&of_third);
    store.pass(301).await;
    drop(second_asks);
    second.shutdown().await;
    store.pass(5).await;
    let (fourth, of_fourth) = store.board("fourth").await;
    store.pass(200).await;
    // It has saved its part, and spends it at once.
    let fourth_asks = ask_always(&of_fourth);
    store.pass(100).await;
    drop((asking, third_asks, fourth_asks));
    store.check_windows();
    let sent = store.sent_since(Duration::ZERO).len();
    assert!((300..=360).contains(&sent), "the rate is used: {sent}");
    for board in [first, third, fourth] {
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_part_of_a_board_that_ends_goes_to_those_who_wait_at_the_others() {
    let store = Store::new(6);
    let (first, of_first) = store.board("first").await;
    let (second, _of_second) = store.board("second").await;
    let asking = ask_always(&of_first);
    store.pass(290).await;
    let sent = store.sent_since(Duration::ZERO);
    let (last, _) = sent[sent.len() - 1];
    assert_eq!((last - sent[sent.len() - 2].0).as_secs(), 20, "half of six a minute");
    second.shutdown().await;
    let ended_at = store.env.now().monotonic;
    store.pass(60).await;
    let next = store.sent_since(ended_at)[0].0;
    // Until the look at half the speed.
    let most = Duration::from_secs(10) + (ended_at + LOOK_EVERY - last) / 2;
    assert!(next <= last + most + Duration::from_millis(10), "{last:?} {ended_at:?} {next:?}");
    assert_eq!((store.sent_since(ended_at)[1].0 - next).as_secs(), 10);
    drop(asking);
    store.check_windows();
    first.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn who_waits_keeps_the_order_while_boards_come_and_go() {
    let store = Store::new(6);
    let (first, of_first) = store.board("first").await;
    for _ in 0..6 {
        reported(of_first.call(&ModelChoice::of("a"), request())).await;
    }
    let ended = Arc::new(Mutex::new(Vec::new()));
    let mut callers = JoinSet::new();
    for number in 0..5 {
        let (models, ended) = (of_first.clone(), Arc::clone(&ended));
        callers.spawn(async move {
            reported(models.call(&ModelChoice::of("a"), request())).await;
            ended.lock().push(number);
        });
        store.pass(1).await;
    }
    let (second, _) = store.board("second").await;
    store.pass(30).await;
    second.shutdown().await;
    while callers.join_next().await.is_some() {}
    assert_eq!(*ended.lock(), [0, 1, 2, 3, 4]);
    store.check_windows();
    first.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn of_more_boards_than_requests_each_sends_one_and_all_together_what_the_rate_allows() {
    let store = Store::new(2);
    let mut boards = Vec::new();
    for by in ["first", "second", "third", "fourth"] {
        boards.push(store.board(by).await);
    }
    for (_, models) in &boards {
        reported(models.call(&ModelChoice::of("a"), request())).await;
    }
    store.pass(300).await;
    let from = store.env.now().monotonic;
    let asking: Vec<_> = boards.iter().map(|(_, models)| ask_always(models)).collect();
    store.pass(599).await;
    let sent = store.sent_since(from);
    let at_once = sent.iter().filter(|(at, _)| *at == from).count();
    assert_eq!(at_once, 4, "one each");
    assert_eq!(sent.len() - at_once, 4 * 4, "in 10 minutes, a little less than two a minute: {sent:?}");
    drop(asking);
    for (board, _) in boards {
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_catalog_that_is_read_again_shares_as_before() {
    let store = Store::new(6);
    let (first, of_first) = store.board("first").await;
    let (second, _) = store.board("second").await;
    store.pass(300).await;
    let faster = NonZeroU32::new(12).unwrap();
    let entry = of_first.entries().next().unwrap().clone();
    for (entry, at_once) in [(entry.clone(), 3), (entry.requests_per_minute(faster), 6)] {
        let now = models([entry]).after(&of_first);
        let from = store.env.now().monotonic;
        let asking = ask_always(&now);
        store.pass(1).await;
        assert_eq!(store.sent_since(from).len(), at_once);
        drop(asking);
        store.pass(300).await;
    }
    for board in [first, second] {
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn boards_without_agents_take_no_part() {
    let store = Store::new(6);
    let client = store.builder().start().await.unwrap();
    let (board, models) = store.board("first").await;
    let asking = ask_always(&models);
    store.pass(35).await;
    assert_eq!(store.sent_since(Duration::ZERO).len(), 6 + 3);
    drop(asking);
    for board in [client, board] {
        board.shutdown().await;
    }
}
