//! The value of `--limits`.

use serde_json::{Map, Value, json};

use callboard::messages::{Complexity, Cost, Limits, visible};
use callboard_documents::json::{self, JsonError};

use crate::values::{similar, text_in};

/// A class of limits, or single limits.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum LimitChoice {
    Class(Complexity),
    Figures(Figures),
}

/// Single limits; `None` keeps the earlier or the default one.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    handoffs: Option<u32>,
    tokens: Option<u64>,
    agents: Option<u32>,
    depth: Option<usize>,
    repeat_window: Option<usize>,
    attempts: Option<u32>,
    cost: Option<Cost>,
}

/// The names of the limits in JSON.
const NAMES: [&str; 7] = ["handoffs", "tokens", "agents", "depth", "repeat_window", "attempts", "cost"];

/// What the errors of JSON end with.
const EXAMPLE: &str = r#"write limits as in '{"tokens": 50000}'"#;

impl Figures {
    /// Reads an object. Zero is a limit of what a run can do without: handoffs, a delegation, and the check for repeated handoffs.
    fn of(object: &Map<String, Value>) -> Result<Self, String> {
        let mut figures = Self::default();
        for (name, value) in object {
            match &**name {
                "handoffs" => figures.handoffs = Some(number(name, value, 0)?),
                "tokens" => figures.tokens = Some(number(name, value, 1)?),
                "agents" => figures.agents = Some(number(name, value, 1)?),
                "depth" => figures.depth = Some(number(name, value, 0)?),
                "repeat_window" => figures.repeat_window = Some(number(name, value, 0)?),
                "attempts" => figures.attempts = Some(number(name, value, 1)?),
                "cost" => figures.cost = Some(dollars(value)?),
                _ => {
                    let tip = similar(name, NAMES).map(|name| format!("; did you mean {name}?")).unwrap_or_default();
                    let known = NAMES.join(", ");
                    return Err(visible(&format!("there is no limit {name}{tip}; the limits are {known}; {EXAMPLE}")));
                }
            }
        }
        Ok(figures)
    }

    /// The object that has the same figures.
    fn object(&self) -> Value {
        let Self { handoffs, tokens, agents, depth, repeat_window, attempts, cost } = self;
        let cost = json!(cost.map(Cost::decimal));
        let all =
            [json!(handoffs), json!(tokens), json!(agents), json!(depth), json!(repeat_window), json!(attempts), cost];
        NAMES.into_iter().zip(all).filter(|(_, value)| !value.is_null()).collect()
    }
}

/// A number of US dollars above zero: a text, which is exact, or a whole number.
fn dollars(value: &Value) -> Result<Cost, String> {
    let text = value.as_str().map(str::to_owned).or_else(|| value.as_u64().map(|dollars| dollars.to_string()));
    let cost: Option<Cost> = text.and_then(|text| text.parse().ok());
    match cost {
        Some(Cost(0)) => Err("the limit cost has to be above zero: with 0 no model can be asked".to_owned()),
        Some(cost) => Ok(cost),
        None => Err(visible(&format!(
            "the limit cost has to be a text of US dollars, not {value}; write it as in '{{\"cost\": \"2.50\"}}'"
        ))),
    }
}

/// A whole number from `least` on.
fn number<T: TryFrom<u64>>(name: &str, value: &Value, least: u64) -> Result<T, String> {
    let Some(number) = value.as_u64() else {
        return Err(visible(&format!("the limit {name} has to be a whole number, not {value}; {EXAMPLE}")));
    };
    if number < least {
        return Err(format!(
            "the limit {name} has to be {least} or more: with {number} nothing is left for the first turn"
        ));
    }
    T::try_from(number).map_err(|_| format!("the limit {name} is too large: {number}"))
}

impl LimitChoice {
    /// The limits of a new run: defaults where nothing is named.
    pub(crate) fn of_new_run(&self) -> Limits {
        self.over(&Limits::default())
    }

    /// The value of `--limits` that has the same meaning.
    pub(crate) fn argument(&self) -> String {
        let json = match self {
            Self::Class(class) => json!(class),
            Self::Figures(figures) => figures.object(),
        };
        json.as_str().map_or_else(|| json.to_string(), str::to_owned)
    }

    /// The limits of a run that continues another one: a class replaces all, single limits replace those that they name.
    pub(crate) fn over(&self, before: &Limits) -> Limits {
        match self {
            Self::Class(class) => Limits::of(*class),
            Self::Figures(figures) => {
                let Figures { handoffs, tokens, agents, depth, repeat_window, attempts, cost } = figures;
                Limits {
                    handoffs: handoffs.unwrap_or(before.handoffs),
                    tokens: tokens.unwrap_or(before.tokens),
                    agents: agents.unwrap_or(before.agents),
                    depth: depth.unwrap_or(before.depth),
                    repeat_window: repeat_window.unwrap_or(before.repeat_window),
                    attempts: attempts.unwrap_or(before.attempts),
                    cost: cost.or(before.cost),
                }
            }
        }
    }
}

/// Reads a class, JSON, or `@FILE` with one of them.
pub(crate) fn limit_choice(text: &str) -> Result<LimitChoice, String> {
    let read = text.strip_prefix('@').map(text_in).transpose()?;
    let text = read.as_deref().unwrap_or(text).trim();
    if text.starts_with('{') {
        return match json::parse(text.as_bytes()) {
            Ok(Value::Object(object)) => Figures::of(&object).map(LimitChoice::Figures),
            Ok(_) => Err(EXAMPLE.to_owned()),
            Err(JsonError::Syntax(problem)) => Err(format!("the limits are not JSON: {problem}; {EXAMPLE}")),
            Err(JsonError::Repeated(problem)) => Err(problem),
        };
    }
    text.parse().map(LimitChoice::Class).map_err(|problem: String| format!("{problem}, or {EXAMPLE}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::io::Write as _;

    use super::*;

    #[test]
    fn limits_are_a_class_or_single_limits_also_from_a_file() {
        let limits = |text: &str| limit_choice(text).map(|choice| choice.of_new_run());
        assert_eq!(limits("simple").map(|limits| limits.tokens), Ok(10_000));
        assert_eq!(limits("{\"attempts\": 1}").map(|limits| (limits.attempts, limits.tokens)), Ok((1, 150_000)));
        assert!(limits("huge").is_err_and(|error| error.contains("use simple, medium or complex")));
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "{{\"tokens\": 7}}").unwrap();
        assert_eq!(limits(&format!("@{}", file.path().display())).map(|limits| limits.tokens), Ok(7));
    }

    #[test]
    fn wrong_limits_are_refused_with_what_is_wrong_and_an_example() {
        let problem = |text: &str| limit_choice(text).unwrap_err();
        let all = "the limits are handoffs, tokens, agents, depth, repeat_window, attempts, cost; write limits as in '{\"tokens\": 50000}'";
        assert_eq!(problem("{\"atempts\": 1}"), format!("there is no limit atempts; did you mean attempts?; {all}"));
        for (text, expected) in [
            ("{\"tokens\": \"many\"}", "the limit tokens has to be a whole number, not \"many\"; write limits as in "),
            ("{\"tokens\": -1}", "the limit tokens has to be a whole number, not -1; "),
            (
                "{\"cost\": 2.5}",
                "the limit cost has to be a text of US dollars, not 2.5; write it as in '{\"cost\": \"2.50\"}'",
            ),
            ("{\"cost\": \"2,50\"}", "the limit cost has to be a text of US dollars, not \"2,50\"; "),
            ("{\"cost\": 0}", "the limit cost has to be above zero: with 0 no model can be asked"),
            ("{\"attempts\": 4294967296}", "the limit attempts is too large: 4294967296"),
            ("{\"tokens\": 1", "the limits are not JSON: column 12: EOF while parsing an object; write limits as in "),
            ("{\"tokens\": 1, \"tokens\": 2}", "column 22: the key \"tokens\" is repeated; keep one of them"),
            ("huge", "unknown complexity class \"huge\"; use simple, medium or complex, or write limits as in "),
            ("@/nowhere", "/nowhere: there is no such file"),
            ("@/", "/: it is not a file"),
        ] {
            assert!(problem(text).starts_with(expected), "{}", problem(text));
        }
    }

    #[test]
    fn zero_is_a_limit_of_what_a_run_can_do_without() {
        for name in NAMES.into_iter().filter(|name| *name != "cost") {
            let choice = limit_choice(&format!("{{\"{name}\": 0}}"));
            if ["handoffs", "depth", "repeat_window"].contains(&name) {
                assert_eq!(choice.unwrap().argument(), format!("{{\"{name}\":0}}"));
            } else {
                let problem =
                    format!("the limit {name} has to be 1 or more: with 0 nothing is left for the first turn");
                assert_eq!(choice, Err(problem));
            }
        }
    }

    #[test]
    fn limits_are_written_as_they_are_read() {
        for text in ["simple", "{\"handoffs\":2,\"tokens\":7}", "{\"cost\":\"0.50\"}"] {
            assert_eq!(limit_choice(text).unwrap().argument(), text);
        }
    }

    #[test]
    fn single_limits_replace_those_that_they_name_and_a_class_replaces_all() {
        let all =
            r#"{"handoffs": 1, "tokens": 2, "agents": 3, "depth": 4, "repeat_window": 5, "attempts": 6, "cost": 7}"#;
        let cost = Some(Cost(7_000_000_000));
        let before = Limits { handoffs: 1, tokens: 2, agents: 3, depth: 4, repeat_window: 5, attempts: 6, cost };
        let over = |text: &str| limit_choice(text).unwrap().over(&before);
        assert_eq!(limit_choice(all).unwrap().of_new_run(), before);
        assert_eq!(over("{\"tokens\": 20}"), Limits { tokens: 20, ..before.clone() });
        assert_eq!(over("medium"), Limits::of(Complexity::Medium));
    }
}
