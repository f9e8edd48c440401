//! The join of concurrent branches (SEMANTICS 6).

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::messages::{Command, Json, TurnId, Update, Write};

use super::{Reducer, Reducers, State, StateError, StateRules};

/// The writes of one turn, kept until its branch joins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Delta {
    /// The turn.
    pub turn: TurnId,
    /// Its writes.
    pub update: Writes,
}

/// The writes of a [`Delta`]. Those of a turn's command are shared with it, and others are an update of their own; that makes no
/// difference.
#[derive(Clone)]
pub(crate) enum Writes {
    /// The update of a command.
    Of(Arc<Command>),
    /// An update.
    Own(Arc<Update>),
}

impl Deref for Writes {
    type Target = Update;

    fn deref(&self) -> &Update {
        match self {
            Self::Of(command) => &command.update,
            Self::Own(update) => update,
        }
    }
}

impl From<Update> for Writes {
    fn from(update: Update) -> Self {
        Self::Own(Arc::new(update))
    }
}

impl fmt::Debug for Writes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl PartialEq for Writes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Serialize for Writes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Update::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Writes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Update::deserialize(deserializer).map(Self::from)
    }
}

/// Applies the deltas of several writers to what they started from, writer by writer in plan order.
///
/// `concurrent(a, b)`, called with writers `a < b`, returns whether neither came before the other. Concurrent writers that
/// touch one last-value channel or one leaf of a merge channel are refused, also when the values are equal; so are two
/// overwrites of one channel. A single overwrite wins over the ordinary writes beside it, which are as if they had not been
/// made; what comes after it is applied to it.
///
/// # Errors
/// [`StateError::ConcurrentWrite`], or what a reducer refuses. The state is then unchanged.
pub(crate) fn join(
    base: &State,
    writers: &[impl AsRef<[Delta]>],
    concurrent: impl Fn(usize, usize) -> bool,
    rules: &StateRules,
) -> Result<State, StateError> {
    let writes_of = |writer: usize| writers[writer].as_ref().iter().flat_map(|delta| delta.update.writes());
    let beside = |one: usize, other: usize| one != other && concurrent(one.min(other), one.max(other));
    let loses = |write: &Write, writer: usize| {
        let wins = |other: &Write| other.overwrite && other.channel == write.channel;
        !write.overwrite && (0..writers.len()).any(|other| writes_of(other).any(wins) && beside(other, writer))
    };
    let has_overwrites = (0..writers.len()).any(|writer| writes_of(writer).any(|write| write.overwrite));
    let mut joined = base.clone();
    let (mut touched, mut reducers) = (BTreeMap::<&str, Touched>::new(), Reducers::of(rules));
    for (writer, deltas) in writers.iter().enumerate() {
        for delta in deltas.as_ref() {
            if writers.len() > 1 {
                let by = Toucher { writer, turn: delta.turn };
                for write in delta.update.writes() {
                    let clash = if write.overwrite {
                        touched.entry(&write.channel).or_default().overwrite(by, &concurrent)
                    } else {
                        let reducer = reducers.of_channel(&write.channel)?;
                        match reducer {
                            Reducer::Append | Reducer::Sum | Reducer::Custom(_) => Ok(()),
                            Reducer::LastValue | Reducer::Merge { .. } => {
                                touched.entry(&write.channel).or_default().touch(reducer, &write.value, by, &concurrent)
                            }
                        }
                    };
                    clash.map_err(|(path, other)| StateError::ConcurrentWrite {
                        place: std::iter::once(write.channel.to_string()).chain(path).collect::<Vec<_>>().join("."),
                        turns: (other.turn, delta.turn),
                    })?;
                }
            }
            let counts = delta.update.writes().iter().filter(|write| !(has_overwrites && loses(write, writer)));
            joined.apply_in_place(counts, &mut reducers)?;
        }
    }
    Ok(joined)
}

/// Replaces the writers' writes to some channels by those of a person.
pub(crate) fn overwrite<'a>(writers: impl Iterator<Item = &'a mut Vec<Delta>>, by: &Delta) {
    let mut last = None;
    for deltas in writers {
        for delta in deltas.iter_mut() {
            delta.update = delta.update.without(&by.update).into();
        }
        last = Some(deltas);
    }
    if let Some(last) = last {
        last.push(by.clone());
    }
}

#[derive(Clone, Copy)]
struct Toucher {
    writer: usize,
    turn: TurnId,
}

/// The last writer of each leaf of a channel. Every earlier writer of a leaf came before the one kept here.
#[derive(Default)]
struct Touched {
    leaf: Option<Toucher>,
    overwrite: Option<Toucher>,
    /// Writers that made it an object, or extended a list in it, without writing a leaf of it. They do not conflict with each
    /// other.
    entered: Vec<Toucher>,
    fields: BTreeMap<String, Touched>,
}

type Clash = Result<(), (Vec<String>, Toucher)>;

impl Touched {
    fn overwrite(&mut self, by: Toucher, concurrent: &impl Fn(usize, usize) -> bool) -> Clash {
        if let Some(other) = self.overwrite.filter(|other| clashes(*other, by, concurrent)) {
            return Err((Vec::new(), other));
        }
        self.overwrite = Some(by);
        Ok(())
    }

    fn touch(
        &mut self,
        reducer: &Reducer,
        value: &Json,
        by: Toucher,
        concurrent: &impl Fn(usize, usize) -> bool,
    ) -> Clash {
        match reducer {
            Reducer::Append | Reducer::Sum | Reducer::Custom(_) => Ok(()),
            Reducer::LastValue => self.touch_leaf(by, concurrent),
            Reducer::Merge { appending, null_keeps } => match value.value() {
                Value::Object(fields) => {
                    let is_free = |(key, field): &(&String, &Value)| {
                        appending.iter().any(|name| **name == ***key) || (*null_keeps && field.is_null())
                    };
                    self.enter(fields.iter().filter(|field| !is_free(field)), by, concurrent)
                }
                _ => self.touch_leaf(by, concurrent),
            },
        }
    }

    fn touch_tree(&mut self, value: &Value, by: Toucher, concurrent: &impl Fn(usize, usize) -> bool) -> Clash {
        match value {
            Value::Object(fields) => self.enter(fields.iter(), by, concurrent),
            _ => self.touch_leaf(by, concurrent),
        }
    }

    /// Records a write further down, which must not be concurrent with a write of the whole.
    fn enter<'v>(
        &mut self,
        fields: impl Iterator<Item = (&'v String, &'v Value)>,
        by: Toucher,
        concurrent: &impl Fn(usize, usize) -> bool,
    ) -> Clash {
        self.pass(by, concurrent)?;
        let mut has_left_a_trace = false;
        for (key, field) in fields {
            self.touch_field(key, field, by, concurrent)?;
            has_left_a_trace = true;
        }
        if !has_left_a_trace {
            self.entered.push(by);
        }
        Ok(())
    }

    fn touch_field(
        &mut self,
        key: &str,
        field: &Value,
        by: Toucher,
        concurrent: &impl Fn(usize, usize) -> bool,
    ) -> Clash {
        let below = self.fields.entry(key.to_owned()).or_default();
        below
            .touch_tree(field, by, concurrent)
            .map_err(|(path, other)| (std::iter::once(key.to_owned()).chain(path).collect(), other))
    }

    fn pass(&self, by: Toucher, concurrent: &impl Fn(usize, usize) -> bool) -> Clash {
        match self.leaf.filter(|other| clashes(*other, by, concurrent)) {
            Some(other) => Err((Vec::new(), other)),
            None => Ok(()),
        }
    }

    /// Records a write of the whole, which must not be concurrent with a write of it or of anything below it.
    fn touch_leaf(&mut self, by: Toucher, concurrent: &impl Fn(usize, usize) -> bool) -> Clash {
        self.deepest_clash(by, concurrent)?;
        self.leaf = Some(by);
        self.entered.clear();
        self.fields.clear();
        Ok(())
    }

    fn deepest_clash(&self, by: Toucher, concurrent: &impl Fn(usize, usize) -> bool) -> Clash {
        self.pass(by, concurrent)?;
        for (key, below) in &self.fields {
            below
                .deepest_clash(by, concurrent)
                .map_err(|(path, other)| (std::iter::once(key.clone()).chain(path).collect::<Vec<_>>(), other))?;
        }
        match self.entered.iter().find(|other| clashes(**other, by, concurrent)) {
            Some(other) => Err((Vec::new(), *other)),
            None => Ok(()),
        }
    }
}

fn clashes(earlier: Toucher, later: Toucher, concurrent: &impl Fn(usize, usize) -> bool) -> bool {
    earlier.writer != later.writer && concurrent(earlier.writer, later.writer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{Command, RunId, Schema};
    use proptest::prelude::*;
    use serde_json::json;

    fn turn(number: u32) -> TurnId {
        TurnId { run: RunId(uuid::Uuid::nil()), number }
    }

    fn rules() -> StateRules {
        let schema = Schema::open()
            .channel("merge", Reducer::merge())
            .channel("list", Reducer::Append)
            .channel("sum", Reducer::Sum)
            .channel("artifacts", Schema::swarm().reducer("artifacts").unwrap().clone());
        StateRules { schema: Arc::new(schema), ..Default::default() }
    }

    fn joined(commands: &[Command], concurrent: impl Fn(usize, usize) -> bool) -> Result<Json, String> {
        let writers: Vec<[Delta; 1]> = commands
            .iter()
            .enumerate()
            .map(|(n, command)| [Delta { turn: turn(n as u32 + 1), update: command.update.clone().into() }])
            .collect();
        join(&State::default(), &writers, concurrent, &rules())
            .map(|state| state.to_json())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn concurrent_writes_to_one_place_name_the_place_and_both_turns() {
        let both = |a: Command, b: Command| joined(&[a, b], |_, _| true);
        let place = |result: Result<Json, String>| {
            let error = result.unwrap_err();
            error.split(": ").next().unwrap().trim_start_matches("concurrent writes to ").to_owned()
        };
        assert_eq!(place(both(Command::update("x", 1), Command::update("x", 1))), "x");
        let nested = |value| Command::update("merge", value);
        assert_eq!(place(both(nested(json!({ "a": { "b": 1 } })), nested(json!({ "a": { "b": 1 } })))), "merge.a.b");
        assert_eq!(place(both(nested(json!({ "a": { "b": 1 } })), nested(json!({ "a": 2 })))), "merge.a.b");
        assert_eq!(place(both(nested(json!({ "a": 2 })), nested(json!({ "a": { "b": 1 } })))), "merge.a");
        assert_eq!(place(both(Command::new().overwrite("x", 1), Command::new().overwrite("x", 2))), "x");
        assert!(joined(&[Command::update("x", 1), Command::update("x", 2)], |_, _| false).is_ok());
    }

    #[test]
    fn writers_of_different_places_join_in_plan_order() {
        let commands = [
            Command::update("merge", json!({ "a": { "b": 1 } })).with("list", 1).with("sum", 2),
            Command::update("merge", json!({ "a": { "c": 2 } })).with("list", json!([2, 3])).with("sum", 3),
            Command::update("artifacts", json!({ "plan": "p.md" })),
            Command::update("artifacts", json!({ "plan": null })),
        ];
        let expected = json!({ "merge": { "a": { "b": 1, "c": 2 } }, "list": [1, 2, 3], "sum": 5, "artifacts": { "plan": "p.md" } });
        assert_eq!(joined(&commands, |_, _| true).unwrap(), expected);
    }

    #[test]
    fn one_overwrite_wins_over_the_writes_beside_it_and_not_over_later_ones() {
        let commands =
            [Command::update("list", 1), Command::new().overwrite("list", json!([9])), Command::update("list", 2)];
        assert_eq!(joined(&commands, |_, _| true).unwrap(), json!({ "list": [9] }));
        assert_eq!(joined(&commands, |_, _| false).unwrap(), json!({ "list": [9, 2] }));
    }

    #[test]
    fn what_is_written_after_an_overwrite_stays_and_what_is_written_beside_it_does_not() {
        let commands = [
            Command::new().overwrite("list", json!([9])),
            Command::update("list", 1),
            Command::update("list", 2).with("sum", 5),
        ];
        // The second comes after the first; the third is concurrent to both.
        assert_eq!(joined(&commands, |_, later| later == 2).unwrap(), json!({ "list": [9, 1], "sum": 5 }));
    }

    #[test]
    fn a_write_of_the_whole_meets_every_write_inside_it_in_either_order() {
        let reducer = Reducer::Merge { appending: vec!["log".into()], null_keeps: true };
        let rules = StateRules::new(Schema::open().channel("c", reducer));
        let writing = |values: [&Value; 2]| {
            values.map(|value| {
                let update = Command::update("c", value.clone()).update.into();
                [Delta { turn: turn(1), update }]
            })
        };
        let whole = json!(5);
        for inside in [json!({}), json!({ "log": [1] }), json!({ "kept": null }), json!({ "deep": { "deeper": {} } })] {
            for (first, second) in [(&whole, &inside), (&inside, &whole)] {
                let writers = writing([first, second]);
                let joined = join(&State::default(), &writers, |_, _| true, &rules);
                assert!(matches!(joined, Err(StateError::ConcurrentWrite { .. })), "{first} beside {second}");
                assert!(join(&State::default(), &writers, |_, _| false, &rules).is_ok());
            }
            assert!(
                join(&State::default(), &writing([&inside, &inside]), |_, _| true, &rules).is_ok(),
                "{inside} beside itself"
            );
        }
    }

    #[test]
    fn what_a_person_writes_stands_in_the_place_of_what_writers_wrote_to_the_same_channels() {
        let delta = |number, command: Command| Delta { turn: turn(number), update: command.update.into() };
        let mut writers =
            [vec![delta(1, Command::update("x", 1).with("y", 1))], vec![delta(2, Command::update("x", 2))]];
        overwrite(writers.iter_mut(), &delta(3, Command::new().overwrite("x", 9)));
        let joined = join(&State::default(), &writers, |_, _| true, &rules()).unwrap();
        assert_eq!(joined.to_json(), json!({ "x": 9, "y": 1 }));
    }

    proptest! {
        /// Whatever the order in which branches finish, plan order decides; so a join equals applying one by one.
        #[test]
        fn a_join_without_clashes_is_sequential_application(writes in prop::collection::vec((0_u8..3, 0_i64..9), 0..20)) {
            let commands: Vec<Command> = writes.iter().enumerate().map(|(n, (kind, value))| match kind {
                0 => Command::update("list", *value),
                1 => Command::update("sum", *value),
                _ => Command::update("merge", json!({ (n.to_string()): value })),
            }).collect();
            let mut expected = State::default();
            for command in &commands {
                expected.apply(&command.update, &rules()).unwrap();
            }
            prop_assert_eq!(joined(&commands, |_, _| true).unwrap(), expected.to_json());
        }
    }
}
