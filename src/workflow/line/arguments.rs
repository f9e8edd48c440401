//! The arguments in a node's brackets: their keys, and the types of their values.

use std::ops::Range;
use std::time::Duration;

use callboard_documents::{Place, Placed};
use callboard_text::{cut, did_you_mean, nearest};
use serde_json::{Map, Value};

use crate::messages::Condition;
use crate::workflow::draft::{GotoDraft, Node, RepeatDraft, WorkDraft};

use super::defects::DefectList;

/// A value in the text.
#[derive(Clone, Debug)]
pub(super) enum Given<'a> {
    /// A text, a number, true, false or null.
    Value(Value),
    List(Vec<Placed<Given<'a>>>),
    Object(Vec<(Placed<String>, Placed<Given<'a>>)>),
    /// `back("implement", 3)`
    Call(&'a str, Vec<Placed<Given<'a>>>),
    /// No value; the defect is in the list.
    Wrong,
}

pub(super) type Argument<'a> = (Placed<&'a str>, Placed<Given<'a>>);

/// The kind of a node, by its keyword.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A turn of an agent, or another workflow.
    Turn,
    Loop,
    Map,
    Block,
    Join,
}

/// Keys that every node has.
const KEYS: [&str; 8] = ["input", "when", "attempts", "timeout", "compensate", "interrupt", "goto", "save"];

/// The settings of repetition, by their keys.
#[derive(Default)]
struct Repeat {
    over: Option<Placed<String>>,
    until: Option<Placed<Condition>>,
    max: Option<Placed<u32>>,
    at_max: Option<Placed<bool>>,
}

impl Kind {
    fn keys(self) -> impl Iterator<Item = &'static str> {
        let own: &[&str] = match self {
            Self::Turn => &["agent", "workflow", "over", "until", "max", "at_max"],
            Self::Loop => &["until", "max", "at_max", "output"],
            Self::Map => &["over", "max", "output"],
            Self::Block => &["output"],
            Self::Join => &[],
        };
        own.iter().chain(&KEYS).copied()
    }

    /// Applies the arguments to a node. `word` is the position of the keyword that they belong to.
    pub(super) fn set(
        self,
        node: &mut Node,
        arguments: Vec<Argument<'_>>,
        word: &Range<usize>,
        found: &mut DefectList,
    ) {
        let mut seen: Vec<&str> = Vec::new();
        let mut repeat = Repeat::default();
        for (key, given) in arguments {
            let place = key.place.clone().unwrap_or_default();
            let Some(known) = self.keys().find(|known| *known == key.value) else {
                let problem = format!("there is no key `{}` here", cut(key.value));
                let keys = self.keys().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
                let advice = format!("the keys are {keys}");
                found.add(&place, problem + &did_you_mean(nearest(key.value, self.keys()).as_deref()), advice);
                continue;
            };
            if seen.contains(&known) || (known == "workflow" && seen.contains(&"agent")) {
                found.add(
                    &place,
                    format!("`{known}` is one too many"),
                    "a node has one agent or one workflow, and each key once",
                );
                continue;
            }
            seen.push(if known == "workflow" { "agent" } else { known });
            set(node, &mut repeat, known, given, found);
        }
        node.repeat = repeat.finish(self, &seen, word, found);
    }
}

fn set(node: &mut Node, repeat: &mut Repeat, key: &str, given: Placed<Given<'_>>, found: &mut DefectList) {
    match key {
        "agent" => node.work = text(given, found).map_or_else(|| node.work.clone(), WorkDraft::Agent),
        "workflow" => node.work = text(given, found).map_or_else(|| node.work.clone(), WorkDraft::Workflow),
        "input" => node.input = json(given, found),
        "when" => node.when = condition(given, found),
        "attempts" => node.attempts = number(given, found),
        "timeout" => node.timeout = timeout(given, found),
        "compensate" => node.compensation = text(given, found),
        "interrupt" => node.is_interrupted = choice(given, [("before", true)], found).is_some(),
        "goto" => node.goto = goto(given, found),
        "save" => node.saves = text(given, found),
        "over" => repeat.over = text(given, found),
        "until" => repeat.until = condition(given, found),
        "max" => repeat.max = number(given, found),
        "at_max" => repeat.at_max = choice(given, [("refuse", false), ("stop", true)], found),
        "output" => {
            if let WorkDraft::Nodes { output, .. } = &mut node.work {
                *output = json(given, found);
            }
        }
        _ => {}
    }
}

impl Repeat {
    fn finish(self, kind: Kind, seen: &[&str], word: &Range<usize>, found: &mut DefectList) -> Option<RepeatDraft> {
        let is_seen = |key| seen.contains(&key);
        let is_loop =
            kind == Kind::Loop || is_seen("until") || is_seen("at_max") || (is_seen("max") && !is_seen("over"));
        if is_seen("over") && (is_seen("until") || is_seen("at_max")) {
            found.add(
                word,
                "a node is repeated over a list or until something holds, not both",
                "put one into a block in the other",
            );
            return None;
        }
        if kind == Kind::Map && !is_seen("over") {
            found.add(word, "this `map` has no list", "write map(over=\"plan.output.files\")");
            return None;
        }
        if is_loop && kind != Kind::Map {
            if !is_seen("max") {
                found.add(word, "this loop has no bound", "write max=10 for at most ten iterations");
            }
            let ends_at_max = self.at_max.map_or(self.until.is_none(), |at_max| at_max.value);
            return Some(RepeatDraft::Loop { until: self.until, max: self.max?, ends_at_max });
        }
        Some(RepeatDraft::Map { over: self.over?, max: self.max })
    }
}

/// A text or `predicate("name")`.
pub(super) fn condition(given: Placed<Given<'_>>, found: &mut DefectList) -> Option<Placed<Condition>> {
    let place = given.place.clone();
    let value = match given.value {
        Given::Call("predicate", mut given) if given.len() == 1 => {
            Condition::Predicate(text(given.remove(0), found)?.value.into())
        }
        Given::Value(Value::String(expression)) => Condition::Expression(expression.into()),
        Given::Value(_) | Given::List(_) | Given::Object(_) | Given::Call(..) => {
            return wrong(&place, "a condition", "write \"state.score > 3\" or predicate(\"name\")", found);
        }
        Given::Wrong => return None,
    };
    Some(Placed { value, place })
}

fn text(given: Placed<Given<'_>>, found: &mut DefectList) -> Option<Placed<String>> {
    let place = given.place;
    match given.value {
        Given::Value(Value::String(value)) => Some(Placed { value, place }),
        Given::Value(_) | Given::List(_) | Given::Object(_) | Given::Call(..) => {
            wrong(&place, "a text", "write it in double quotes", found)
        }
        Given::Wrong => None,
    }
}

fn number(given: Placed<Given<'_>>, found: &mut DefectList) -> Option<Placed<u32>> {
    let place = given.place;
    match given.value {
        Given::Value(Value::Number(number)) => {
            let whole = number.as_u64().and_then(|number| u32::try_from(number).ok());
            match whole {
                Some(value) => Some(Placed { value, place }),
                None => wrong(&place, "a number that it can have", "write a whole number up to 4294967295", found),
            }
        }
        Given::Value(_) | Given::List(_) | Given::Object(_) | Given::Call(..) => {
            wrong(&place, "a number", "write a whole number, without quotes", found)
        }
        Given::Wrong => None,
    }
}

fn choice<T, const N: usize>(
    given: Placed<Given<'_>>,
    choices: [(&str, T); N],
    found: &mut DefectList,
) -> Option<Placed<T>> {
    let names: Vec<String> = choices.iter().map(|(name, _)| format!("\"{name}\"")).collect();
    let Placed { value, place } = text(given, found)?;
    match choices.into_iter().find(|(name, _)| *name == value) {
        Some((_, value)) => Some(Placed { value, place }),
        None => wrong(&place, "a choice that there is", &format!("write {}", names.join(" or ")), found),
    }
}

fn timeout(given: Placed<Given<'_>>, found: &mut DefectList) -> Option<Placed<Duration>> {
    const ADVICE: &str = "write \"500ms\", \"30s\", \"5m\", \"2h\", \"7d\", or a number of seconds";
    let place = given.place;
    let duration = match given.value {
        Given::Value(Value::Number(number)) => number.as_u64().map(Duration::from_secs),
        Given::Value(Value::String(text)) => duration(&text),
        Given::Value(_) | Given::List(_) | Given::Object(_) | Given::Call(..) => None,
        Given::Wrong => return None,
    };
    match duration {
        Some(value) => Some(Placed { value, place }),
        None => wrong(&place, "a time", ADVICE, found),
    }
}

/// `500ms`, `30s`, `5m`, `2h` or `7d`.
fn duration(text: &str) -> Option<Duration> {
    let unit = text.find(|c: char| !c.is_ascii_digit())?;
    let (count, unit) = (text[..unit].parse::<u64>().ok()?, &text[unit..]);
    match unit {
        "ms" => Some(Duration::from_millis(count)),
        "s" => Some(Duration::from_secs(count)),
        "m" => count.checked_mul(60).map(Duration::from_secs),
        "h" => count.checked_mul(3_600).map(Duration::from_secs),
        "d" => count.checked_mul(86_400).map(Duration::from_secs),
        _ => None,
    }
}

/// A list of names and `back("name", 3)`.
fn goto(given: Placed<Given<'_>>, found: &mut DefectList) -> Vec<GotoDraft> {
    const ADVICE: &str = "write goto=[\"later\", back(\"earlier\", 3)], with how often it may be begun in all";
    let place = given.place;
    match given.value {
        Given::List(targets) => targets.into_iter().filter_map(|given| target(given, ADVICE, found)).collect(),
        Given::Value(_) | Given::Object(_) | Given::Call(..) => {
            wrong(&place, "a list of nodes", ADVICE, found).unwrap_or_default()
        }
        Given::Wrong => Vec::new(),
    }
}

fn target(given: Placed<Given<'_>>, advice: &str, found: &mut DefectList) -> Option<GotoDraft> {
    match given.value {
        Given::Call("back", mut back) if back.len() == 2 => {
            let (max, to) = (back.pop()?, back.pop()?);
            Some(GotoDraft { to: text(to, found)?, max: Some(number(max, found)?) })
        }
        Given::Value(Value::String(to)) => Some(GotoDraft { to: Placed { value: to, place: given.place }, max: None }),
        Given::Value(_) | Given::List(_) | Given::Object(_) | Given::Call(..) => {
            wrong(&given.place, "a node that it may go to", advice, found)
        }
        Given::Wrong => None,
    }
}

fn json(given: Placed<Given<'_>>, found: &mut DefectList) -> Option<Placed<Value>> {
    let place = given.place;
    let value = match given.value {
        Given::Value(value) => value,
        Given::List(items) => {
            let items = items.into_iter().filter_map(|item| Some(json(item, found)?.value));
            Value::Array(items.collect())
        }
        Given::Object(fields) => {
            let mut object = Map::new();
            for (key, field) in fields {
                if object.contains_key(&key.value) {
                    let problem = format!("the key `{}` is there twice", cut(&key.value));
                    found.add(&key.place.unwrap_or_default(), problem, "write each key of an object once");
                }
                object.insert(key.value, json(field, found)?.value);
            }
            Value::Object(object)
        }
        Given::Call(name, _) => {
            let problem = format!("`{}(…)` is no JSON", cut(name));
            found.add(&place.unwrap_or_default(), problem, "write a text in double quotes");
            return None;
        }
        Given::Wrong => return None,
    };
    Some(Placed { value, place })
}

fn wrong<T>(place: &Place, expected: &str, advice: &str, found: &mut DefectList) -> Option<T> {
    found.add(&place.clone().unwrap_or_default(), format!("this is not {expected}"), advice);
    None
}
