//! Asking people about what the runs of other boards wait for, on channels that those boards do not have (SEMANTICS 16). The board that
//! works on a run decides by its own rules.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use tokio::time::timeout;

use crate::actors::approvals::{AnswerElsewhere, ByPerson, ChannelView, OtherBoards};
use crate::actors::boards::{Ask, Reply};
use crate::messages::{ApprovalId, BoardEntry, BoardInfo, Pending, RunId};
use crate::supervision::runs::queue::RunMessage;

use super::handle::{Board, Callboard};
use super::reach::LISTED_WITHIN;

/// The most approvals that one reply has whole. The others are in the next one.
const MOST_AT_ONCE: usize = 32;

impl Callboard {
    /// Begins to look at what the runs of other boards wait for, unless a look is under way.
    pub(super) fn begin_to_show_for_others(&self) {
        if !self.board.channels.is_empty() {
            let board = self.clone();
            tokio::spawn(async move { board.show_for_others().await });
        }
    }

    /// Whether another board has a channel that this one does not have.
    fn has_other_channels(&self) -> bool {
        let here = ChannelView::asking(&self.board.channels);
        self.board.boards.others().iter().any(|other| other.info.channels.iter().any(|it| !here.contains(it)))
    }

    /// Looks at what the runs of other boards wait for that this board asks people about. Boards whose runs wait for no approval, and those
    /// about which another one asks, are not asked.
    async fn show_for_others(&self) {
        let (board, decider) = (&self.board, &self.board.decider);
        let Ok(_one_at_a_time) = decider.elsewhere().looking.try_lock() else { return };
        if board.is_closed() {
            return;
        }
        let (others, shown) = (board.boards.others(), decider.shown_for_others());
        let looks = others.iter().map(|other| {
            let known = shown.iter().filter(|(.., at)| *at == other.info.id).map(|(id, run, _)| (*id, *run)).collect();
            self.show_for(other, self.channels_for(&other.info, &others), known)
        });
        join_all(looks).await;
        for (id, run, _) in shown.iter().filter(|(.., at)| others.iter().all(|other| other.info.id != *at)) {
            self.find_owner(*id, *run).await;
        }
    }

    /// The channels of this board by which it asks about what the runs of another one wait for.
    fn channels_for(&self, owner: &BoardInfo, others: &[BoardEntry]) -> BTreeSet<Arc<str>> {
        let board = &self.board;
        let (id, channels) = (Arc::clone(board.ownership.board()), ChannelView::asking(&board.channels));
        let here = BoardInfo { id, channels, ..BoardInfo::default() };
        let asks = |channel: &&Arc<str>| {
            let boards = others.iter().map(|other| &other.info).chain([&here]);
            BoardInfo::asking(channel, owner, boards) == Some(&here.id)
        };
        here.channels.iter().filter(asks).cloned().collect()
    }

    /// Has channels show what the runs of another board wait for. `known` is what is shown already, as far as it is of that board.
    async fn show_for(&self, other: &BoardEntry, channels: BTreeSet<Arc<str>>, known: Vec<(ApprovalId, RunId)>) {
        if known.is_empty() && (channels.is_empty() || other.info.approvals == 0) {
            return;
        }
        let (decider, id) = (&self.board.decider, &other.info.id);
        let asked = self.board.boards.ask(id, Ask::Approvals { known: known.clone() });
        let (open, new) = match timeout(LISTED_WITHIN, asked).await {
            Ok(Ok(Reply::Approvals { open, others })) => (open.into_iter().collect::<BTreeSet<_>>(), others),
            // It is asked again, or is gone.
            Ok(Ok(_) | Err(_)) | Err(_) => return,
        };
        for (known, _) in known {
            match open.contains(&known) {
                true => decider.keep_shown(known, &channels),
                false => self.close_shown(known).await,
            }
        }
        for envelope in new {
            decider.show(envelope, id, &channels);
        }
    }

    /// Finds the board that works on the run of a question that is shown, because the one that did is gone.
    async fn find_owner(&self, id: ApprovalId, run: RunId) {
        let board = &self.board;
        match board.journal.owner_of(run).await {
            Ok(Some(owner)) if board.boards.lives(&owner) => board.decider.moved(id, &owner),
            Ok(Some(owner)) if owner == *board.ownership.board() => {
                if !self.waits_for(id, run).await {
                    self.close_shown(id).await;
                }
            }
            // No board has taken the run over yet.
            Ok(Some(_)) => {}
            Ok(None) => self.close_shown(id).await,
            Err(error) => {
                tracing::warn!(%id, %error, "the board cannot be found that works on a run that waits for people")
            }
        }
    }

    /// Closes a question with what was decided, if anything was.
    async fn close_shown(&self, id: ApprovalId) {
        match self.board.decider.decision(id).await {
            Ok(decision) => self.board.decider.close_shown(id, decision),
            Err(error) => tracing::warn!(%id, %error, "a stored approval cannot be read; it is read again"),
        }
    }

    /// The approvals that runs of this board wait for.
    pub(super) async fn approvals(&self, known: Vec<(ApprovalId, RunId)>) -> Reply {
        if self.board.is_closed() {
            return Reply::Failed("the board has ended, and leaves its runs to others".to_owned());
        }
        let mut open = Vec::new();
        for (id, run) in &known {
            if self.board.decider.is_open(*id) || self.waits_for(*id, *run).await {
                open.push(*id);
            }
        }
        let known: BTreeSet<ApprovalId> = known.into_iter().map(|(id, _)| id).collect();
        let mut others = self.people().approvals();
        others.retain(|envelope| !known.contains(&envelope.id()));
        others.truncate(MOST_AT_ONCE);
        Reply::Approvals { open, others }
    }

    /// Whether a run of this board waits for an approval, also one that is just being read.
    async fn waits_for(&self, id: ApprovalId, run: RunId) -> bool {
        let pending = self.ask_run(run, |reply| RunMessage::Pending { reply }).await;
        pending.is_none_or(|pending| pending.iter().any(|open| matches!(open, Pending::Approval(it) if it.id() == id)))
    }
}

/// The other boards on the store, for the channels and the gateway of a board.
pub(super) struct BoardsOnStore {
    pub(super) board: Weak<Board>,
    /// Whether what the board said last of itself has that its runs wait for approvals.
    pub(super) has_said: Arc<AtomicBool>,
}

impl BoardsOnStore {
    fn board(&self) -> Option<Callboard> {
        self.board.upgrade().map(|board| Callboard { board })
    }
}

impl OtherBoards for BoardsOnStore {
    fn asked(&self) {
        let Some(board) = self.board().filter(|board| board.has_other_channels()) else { return };
        if !self.has_said.swap(true, Ordering::AcqRel) {
            tokio::spawn(async move { board.say_what_is_here().await });
        }
    }

    fn ask(&self, asked: ByPerson) -> BoxFuture<'static, AnswerElsewhere> {
        let board = self.board();
        async move { board?.answered_elsewhere(asked).await }.boxed()
    }
}
