//! A board's part of limits per minute that all boards on the store share. The rules are [`Shared`], which is pure.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::env::{Clock, Env};

/// The window of the limits.
const MINUTE: Duration = Duration::from_secs(60);

/// A board's part of limits per minute that all boards on its store share, such as the requests that a provider of language models
/// allows (SEMANTICS 16). One board alone has the whole; each of n boards that live and host an agent has an n-th. A cheap clone.
///
/// [`Builder::board_share`](crate::Builder::board_share) has a board keep it up to date: at the start, and with each look at the others
/// ([`Timings::scan_every`](crate::runtime::Timings::scan_every)). A limit is a number of units a minute, and spends what is granted:
///
/// - Time is granted at an n-th of the speed of the clock. A unit costs a minute divided by the limit.
/// - What is granted and not spent is saved, up to an n-th of a minute, so that there can be a burst.
/// - A board that begins where others are has nothing saved, and is granted nothing until these have looked and take smaller parts.
///
/// So all boards together spend at most a minute and the time that passes, whichever come and go, as long as each looks in time.
///
/// ```
/// use callboard::prelude::*;
/// use callboard::actors::BoardShare;
/// use callboard::env::Env;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let share = BoardShare::new(&Env::system());
/// let coder = |_: Turn| async { Ok(Command::output("done")) };
/// let board = Callboard::builder().board_share(&share).agent("coder", coder).start().await?;
/// assert_eq!(share.read().boards.get(), 1);
/// # board.shutdown().await;
/// # Ok::<(), callboard::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct BoardShare {
    clock: Arc<dyn Clock>,
    shared: Arc<watch::Sender<Shared>>,
}

/// A reading of a [`BoardShare`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareReading {
    /// The boards that share the limits, this one included.
    pub boards: NonZeroU32,
    /// The time that was granted since the share was made. It never goes back.
    pub granted: Duration,
    /// What a limit has saved of which nothing was spent.
    pub saved: Duration,
    /// How long nothing is granted, because other boards may not know of this one yet.
    pub pause: Duration,
}

impl BoardShare {
    /// Creates the share of a board that is alone. `env` supplies the clock.
    #[must_use]
    pub fn new(env: &Env) -> Self {
        Self { clock: env.clock(), shared: Arc::new(watch::Sender::new(Shared::new(env.now().monotonic))) }
    }

    /// Returns the share as it is now.
    #[must_use]
    pub fn read(&self) -> ShareReading {
        self.shared.borrow().at(self.clock.now().monotonic).reading()
    }

    /// Waits until the number of boards is another than it was in this reading.
    pub async fn changed(&self, since: &ShareReading) {
        // An error would mean that the share, which holds the sender, is gone.
        let _ = self.shared.subscribe().wait_for(|shared| shared.boards != since.boards).await;
    }

    /// Whether the other one is a clone of this one.
    #[must_use]
    pub fn is_clone_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Notes how many other boards host agents, and the id of this one if the store has that it hosts some.
    pub(super) fn look(&self, others: usize, hosting: Option<&Arc<str>>, look_every: Duration) {
        let now = self.clock.now().monotonic;
        self.shared.send_modify(|shared| *shared = shared.at(now).looked(others, hosting, look_every));
    }
}

impl fmt::Debug for BoardShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BoardShare").field(&self.read()).finish()
    }
}

impl ShareReading {
    /// How long it takes until this time is granted, if the number of boards stays.
    #[must_use]
    pub fn wait_for(&self, time: Duration) -> Duration {
        self.pause.saturating_add(time.saturating_mul(self.boards.get()))
    }

    /// The most that can be saved.
    #[must_use]
    pub fn most_saved(&self) -> Duration {
        most_saved(self.boards)
    }
}

fn most_saved(boards: NonZeroU32) -> Duration {
    MINUTE / boards.get()
}

/// The state of a share at a time.
#[derive(Clone, Debug)]
struct Shared {
    at: Duration,
    boards: NonZeroU32,
    granted: Duration,
    saved: Duration,
    granting_from: Duration,
    /// The board that the store has as one that hosts agents.
    hosting: Option<Arc<str>>,
}

impl Shared {
    fn new(at: Duration) -> Self {
        let (boards, granted) = (NonZeroU32::MIN, Duration::ZERO);
        Self { at, boards, granted, saved: most_saved(boards), granting_from: at, hosting: None }
    }

    /// The same, later.
    fn at(&self, now: Duration) -> Self {
        let passed = now.saturating_sub(self.at.max(self.granting_from)) / self.boards.get();
        Self {
            at: self.at.max(now),
            granted: self.granted + passed,
            saved: (self.saved + passed).min(most_saved(self.boards)),
            ..self.clone()
        }
    }

    /// After a look at the store. What was saved stays, up to the most that can be: a part that has become larger is not full.
    fn looked(self, others: usize, hosting: Option<&Arc<str>>, look_every: Duration) -> Self {
        let boards = NonZeroU32::MIN.saturating_add(u32::try_from(others).unwrap_or(u32::MAX));
        let begins = hosting.is_some() && self.hosting.as_ref() != hosting;
        let looked =
            Self { boards, saved: self.saved.min(most_saved(boards)), hosting: hosting.map(Arc::clone), ..self };
        if begins && others > 0 {
            Self { saved: Duration::ZERO, granting_from: looked.at + look_every, ..looked }
        } else {
            looked
        }
    }

    fn reading(&self) -> ShareReading {
        let pause = self.granting_from.saturating_sub(self.at);
        ShareReading { boards: self.boards, granted: self.granted, saved: self.saved, pause }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LOOK_EVERY: Duration = Duration::from_secs(2);

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn id(number: usize) -> Arc<str> {
        number.to_string().into()
    }

    fn saved(shared: &Shared) -> (u32, u64, u64) {
        (shared.boards.get(), shared.saved.as_secs(), shared.reading().pause.as_secs())
    }

    #[test]
    fn a_board_alone_has_the_whole_and_gives_an_equal_part_to_each_that_comes() {
        let alone = Shared::new(secs(5)).looked(0, Some(&id(0)), LOOK_EVERY);
        assert_eq!(saved(&alone), (1, 60, 0));
        let of_two = alone.at(secs(6)).looked(1, Some(&id(0)), LOOK_EVERY);
        assert_eq!(saved(&of_two), (2, 30, 0));
        let later = of_two.at(secs(16));
        assert_eq!((later.granted - of_two.granted, later.saved), (secs(5), secs(30)));
        assert_eq!(later.reading().wait_for(secs(5)), secs(10));
    }

    #[test]
    fn a_board_that_begins_where_others_are_has_nothing_until_they_have_looked() {
        let begun = Shared::new(secs(0)).at(secs(9)).looked(2, Some(&id(0)), LOOK_EVERY);
        assert_eq!(saved(&begun), (3, 0, 2));
        assert_eq!(begun.reading().wait_for(secs(4)), secs(2 + 12));
        assert_eq!(saved(&begun.at(secs(10))), (3, 0, 1));
        assert_eq!(saved(&begun.at(secs(11 + 30))), (3, 10, 0));
        assert_eq!(saved(&begun.at(secs(11 + 90))), (3, 20, 0));
    }

    #[test]
    fn a_board_without_agents_begins_when_it_has_one_and_so_does_another_board_with_the_same_share() {
        let client = Shared::new(secs(0)).looked(1, None, LOOK_EVERY);
        assert_eq!(saved(&client), (2, 30, 0));
        let hosting = client.at(secs(100)).looked(1, Some(&id(0)), LOOK_EVERY);
        assert_eq!(saved(&hosting), (2, 0, 2));
        let looked = hosting.at(secs(162)).looked(1, Some(&id(0)), LOOK_EVERY);
        assert_eq!(saved(&looked), (2, 30, 0), "it has begun once");
        assert_eq!(saved(&looked.looked(1, Some(&id(1)), LOOK_EVERY)), (2, 0, 2));
    }

    #[test]
    fn a_part_that_has_become_larger_is_not_full() {
        let of_two = Shared::new(secs(0)).looked(1, Some(&id(0)), LOOK_EVERY).at(secs(500));
        let alone = of_two.looked(0, Some(&id(0)), LOOK_EVERY);
        assert_eq!(saved(&alone), (1, 30, 0));
        assert_eq!(saved(&alone.at(secs(510))), (1, 40, 0));
    }

    /// A board of a simulated store.
    struct Simulated {
        shared: Shared,
        next_look: Duration,
    }

    impl Simulated {
        fn look(&mut self, now: Duration, me: usize, others: usize) {
            self.shared = self.shared.at(now).looked(others, Some(&id(me)), LOOK_EVERY);
            self.next_look = now + LOOK_EVERY;
        }
    }

    proptest! {
        /// Whatever boards do: in no window is more spent than what was saved at its begin and is granted in it.
        #[test]
        fn all_boards_together_never_have_more_than_a_minute_and_the_time_that_passes(
            steps in prop::collection::vec((0..4_u8, 0..3_000_u64, 0..8_usize), 1..120),
        ) {
            let (mut now, mut begun) = (Duration::ZERO, 0);
            let mut boards: Vec<(usize, Simulated)> = Vec::new();
            // For each earlier moment: what all had, and what was granted in all since.
            let mut windows: Vec<(Duration, Duration, Duration)> = Vec::new();
            for (what, millis, which) in steps {
                let until = now + Duration::from_millis(millis);
                // A board looks at its time at the latest, and some sooner.
                while let Some(next) = boards.iter().map(|(_, board)| board.next_look).min().filter(|next| *next <= until) {
                    pass(&mut boards, &mut windows, next);
                    let others = boards.len() - 1;
                    for (me, board) in &mut boards {
                        if board.next_look == next {
                            board.look(next, *me, others);
                        }
                    }
                }
                now = until;
                pass(&mut boards, &mut windows, now);
                match what {
                    0 if boards.len() < 6 => {
                        let mut board = Simulated { shared: Shared::new(now), next_look: now };
                        board.look(now, begun, boards.len());
                        boards.push((begun, board));
                        begun += 1;
                    }
                    1 if which < boards.len() => drop(boards.remove(which)),
                    2 if which < boards.len() => {
                        let others = boards.len() - 1;
                        let (me, board) = &mut boards[which];
                        board.look(now, *me, others);
                    }
                    _ => {}
                }
                let had = boards.iter().map(|(_, board)| board.shared.saved).sum();
                windows.push((now, had, Duration::ZERO));
                for (from, had, granted) in &windows {
                    let most = MINUTE + (now - *from);
                    prop_assert!(*had + *granted <= most, "from {from:?} to {now:?}: {had:?} and {granted:?}");
                }
            }
        }
    }

    fn pass(boards: &mut [(usize, Simulated)], windows: &mut [(Duration, Duration, Duration)], now: Duration) {
        let mut granted = Duration::ZERO;
        for (_, board) in boards {
            let later = board.shared.at(now);
            granted += later.granted - board.shared.granted;
            board.shared = later;
        }
        for (_, _, all) in windows {
            *all += granted;
        }
    }
}
