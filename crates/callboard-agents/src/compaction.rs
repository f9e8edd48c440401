//! Compacts a long conversation: which messages are summed up, and what replaces them. Pure.
//!
//! The task stays, and the newest messages, beginning with an answer of the model: so a call is never separated from its result.
//! Task and summary are one message, because some models refuse two successive messages of one role.

use std::ops::Range;
use std::sync::Arc;

use callboard::messages::Message;

use super::model::estimated_tokens;

/// The messages that are summed up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// The index of the task, which stays.
    task: usize,
    /// The index of the first of the newest messages, which stay.
    newest: usize,
}

/// A conversation that was compacted before.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Default))]
pub(super) struct Compacted {
    /// The task, word for word.
    task: Arc<str>,
    summary: Arc<str>,
}

/// The messages to sum up in a conversation that has become too long for `room` tokens. `begun_with` is the number of messages
/// before the first answer: the last message of people among them is the task. The newest messages that stay have at most half of
/// the room, or are one answer with its results; before the first answer, only the task stays. `None` if the rest has less than a
/// quarter of the room, because little would be gained.
pub(super) fn cut(history: &[Message], begun_with: usize, room: u64) -> Option<Cut> {
    let is_user = |message: &Message| matches!(message, Message::User { .. });
    let task = history.get(..begun_with)?.iter().rposition(is_user)?;
    let answers = (task + 1..history.len()).rev().filter(|place| matches!(history[*place], Message::Assistant { .. }));
    let mut newest = None;
    for place in answers {
        if newest.is_some() && tokens(&history[place..]) > room / 2 {
            break;
        }
        newest = Some(place);
    }
    // Only messages before the task, from earlier runs of the conversation, are summed up.
    let newest = newest.or((task > 0).then_some(history.len()))?;
    let cut = Cut { task, newest };
    let older: u64 = cut.older(history).map(|range| tokens(&history[range])).into_iter().sum();
    (older > 0 && older >= room / 4).then_some(cut)
}

impl Cut {
    /// The messages that are summed up, before the task and after it.
    fn older(&self, history: &[Message]) -> [Range<usize>; 2] {
        debug_assert!(self.newest <= history.len());
        [0..self.task, self.task + 1..self.newest]
    }

    /// The messages that are summed up, with the summary of those before them.
    pub(super) fn summed_up(&self, history: &[Message], before: Option<&Compacted>) -> Vec<Message> {
        let earlier =
            before.map(|before| Message::user(format!("Of what came before, this is a summary:\n{}", before.summary)));
        let older = self.older(history).into_iter().flat_map(|range| &history[range]);
        earlier.into_iter().chain(older.cloned()).collect()
    }

    /// The number of messages that are summed up.
    pub(super) fn len(&self, history: &[Message]) -> usize {
        self.older(history).into_iter().map(|range| range.len()).sum()
    }

    /// The task, word for word.
    pub(super) fn task(&self, history: &[Message], before: Option<&Compacted>) -> Arc<str> {
        match (before, &history[self.task]) {
            (Some(before), _) => Arc::clone(&before.task),
            (None, Message::User { text }) => Arc::clone(text),
            (None, Message::Assistant { .. } | Message::Tool { .. }) => "".into(),
        }
    }

    /// The conversation with the summary in place of those messages.
    pub(super) fn apply(
        &self,
        history: &[Message],
        before: Option<&Compacted>,
        summary: &str,
    ) -> (Vec<Message>, Compacted) {
        let compacted = Compacted { task: self.task(history, before), summary: summary.into() };
        let first = Message::user(compacted.message());
        let history = std::iter::once(first).chain(history[self.newest..].iter().cloned()).collect();
        (history, compacted)
    }
}

impl Compacted {
    fn message(&self) -> String {
        format!(
            "{}\n\n[The older part of this conversation is left out here. This is a summary of it, and the newest part follows.]\n{}",
            self.task, self.summary
        )
    }
}

/// The estimated tokens of messages, as in a request.
pub(super) fn tokens(messages: &[Message]) -> u64 {
    estimated_tokens(messages.iter().map(|message| message.size() + 16).sum())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use callboard::messages::ToolCall;

    /// One answer of a model: the sizes of its calls' results, and of its text.
    type Round = (usize, Vec<usize>, bool);

    fn conversation(earlier: &[Round], rounds: &[Round]) -> (Vec<Message>, usize) {
        let mut history = Vec::new();
        let mut number = 0;
        let mut add = |history: &mut Vec<Message>, (said, answers, is_asked): &Round| {
            let calls: Vec<_> = answers
                .iter()
                .map(|_| {
                    number += 1;
                    ToolCall::new(&number.to_string(), "x", serde_json::json!({}))
                })
                .collect();
            history.push(Message::Assistant { text: "a".repeat(*said).into(), calls: calls.clone() });
            for (call, size) in calls.into_iter().zip(answers) {
                let text = "t".repeat(*size).into();
                history.push(Message::Tool { call: call.id, name: call.name, text, is_error: false });
            }
            if *is_asked {
                history.push(Message::user("Again, please."));
            }
        };
        if !earlier.is_empty() {
            history.push(Message::user("Hello."));
        }
        for round in earlier {
            add(&mut history, round);
        }
        history.push(Message::user("THE TASK"));
        let begun_with = history.len();
        for round in rounds {
            add(&mut history, round);
        }
        (history, begun_with)
    }

    /// Each call is answered at once and in order, and each answer has its call.
    fn assert_whole(history: &[Message]) {
        let mut open: BTreeSet<Arc<str>> = BTreeSet::new();
        for message in history {
            match message {
                Message::User { .. } => assert!(open.is_empty(), "calls without answers: {history:#?}"),
                Message::Assistant { calls, .. } => {
                    assert!(open.is_empty(), "calls without answers: {history:#?}");
                    open = calls.iter().map(|call| Arc::clone(&call.id)).collect();
                }
                Message::Tool { call, .. } => assert!(open.remove(call), "an answer without a call: {history:#?}"),
            }
        }
        assert!(open.is_empty(), "calls without answers: {history:#?}");
    }

    fn rounds(most: usize) -> impl Strategy<Value = Vec<Round>> {
        prop::collection::vec((0_usize..300, prop::collection::vec(0_usize..600, 0..4), any::<bool>()), 0..most)
    }

    proptest! {
        #[test]
        fn a_call_stays_with_its_answer_and_the_task_stays(
            earlier in rounds(4), rounds in rounds(12), more in rounds(6), room in 1_u64..1_500,
        ) {
            let (mut history, mut begun_with) = conversation(&earlier, &rounds);
            let mut before: Option<Compacted> = None;
            // What comes later may be cut again.
            for later in [vec![], more] {
                let (added, _) = conversation(&[], &later);
                history.extend(added.into_iter().skip(1).map(|message| renamed(message, begun_with)));
                let Some(cut) = cut(&history, begun_with, room) else { continue };
                let summed_up = cut.summed_up(&history, before.as_ref());
                prop_assert_eq!(summed_up.len(), cut.len(&history) + usize::from(before.is_some()));
                // Nothing is lost: all that was not summed up is the task and the end of the conversation.
                let (short, compacted) = cut.apply(&history, before.as_ref(), "SUMMARY");
                prop_assert_eq!(short.len() + cut.len(&history), history.len());
                prop_assert_eq!(&short[1..], &history[history.len() - short.len() + 1..]);
                assert_whole(&short);
                assert_whole(&summed_up);
                let Message::User { text } = &short[0] else { panic!("{short:?}") };
                prop_assert!(text.starts_with("THE TASK\n\n[") && text.ends_with("\nSUMMARY"), "{}", text);
                prop_assert_eq!(text.matches("THE TASK").count(), 1);
                // Both roles alternate at the cut.
                let is_answer = short.get(1).is_none_or(|next| matches!(next, Message::Assistant { .. }));
                prop_assert!(is_answer);
                (history, begun_with, before) = (short, 1, Some(compacted));
            }
        }
    }

    fn renamed(message: Message, salt: usize) -> Message {
        let new = |id: &Arc<str>| -> Arc<str> { format!("later-{salt}-{id}").into() };
        match message {
            Message::User { text } => Message::User { text },
            Message::Assistant { text, calls } => {
                let calls = calls.into_iter().map(|call| ToolCall { id: new(&call.id), ..call }).collect();
                Message::Assistant { text, calls }
            }
            Message::Tool { call, name, text, is_error } => Message::Tool { call: new(&call), name, text, is_error },
        }
    }

    #[test]
    fn the_newest_half_stays_and_little_is_not_summed_up() {
        let rounds: Vec<Round> = (0..10).map(|_| (0, vec![300], false)).collect();
        let (history, begun_with) = conversation(&[], &rounds);
        let all = tokens(&history);
        let (short, _) = cut(&history, begun_with, all).unwrap().apply(&history, None, "s");
        assert!((all / 3..=all / 2 + 60).contains(&tokens(&short)), "{} of {all}", tokens(&short));
        // The newest answer alone is too much, and the rest is not much.
        let (history, begun_with) = conversation(&[], &[(10, vec![], false), (0, vec![6_000], false)]);
        assert_eq!(cut(&history, begun_with, 1_000), None);
        // There is but one answer, or none.
        let (history, begun_with) = conversation(&[], &[(9_000, vec![], false)]);
        assert_eq!(cut(&history, begun_with, 1_000), None);
        assert_eq!(cut(&[Message::user("x".repeat(9_000))], 1, 10), None);
        assert_eq!(cut(&[], 0, 10), None);
    }

    #[test]
    fn a_conversation_from_before_is_summed_up_too_and_the_task_is_what_was_said_last() {
        let (history, begun_with) = conversation(&[(3_000, vec![], false)], &[(100, vec![100], false)]);
        let cut = cut(&history, begun_with, 500).unwrap();
        let (short, _) = cut.apply(&history, None, "s");
        assert!(matches!(&short[0], Message::User { text } if text.starts_with("THE TASK")), "{short:?}");
        assert_eq!((cut.len(&history), short.len()), (2, 3));
    }

    #[test]
    fn earlier_runs_are_summed_up_before_the_first_answer() {
        let (history, begun_with) = conversation(&[(3_000, vec![], false)], &[]);
        let cut = cut(&history, begun_with, 500).unwrap();
        let (short, _) = cut.apply(&history, None, "s");
        assert!(matches!(&short[..], [Message::User { text }] if text.starts_with("THE TASK")), "{short:?}");
    }

    #[test]
    fn a_summary_is_summed_up_with_what_came_after_it() {
        let before = Compacted { task: "THE TASK".into(), summary: "first".into() };
        let (history, begun_with) = conversation(&[], &[(2_000, vec![], false), (10, vec![10], false)]);
        let cut = cut(&history, begun_with, 300).unwrap();
        let summed_up = cut.summed_up(&history, Some(&before));
        assert!(matches!(&summed_up[0], Message::User { text } if text.ends_with("\nfirst")), "{summed_up:?}");
        assert_eq!(&*cut.task(&history, Some(&before)), "THE TASK");
    }
}
