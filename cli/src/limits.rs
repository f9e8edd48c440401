//! The value of `--limits`.

use serde::Deserialize;

use callboard::messages::{Complexity, Limits};

use crate::values::text_in;

/// A class of limits, or single limits.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum LimitChoice {
    Class(Complexity),
    Figures(Figures),
}

/// Single limits; `None` keeps the earlier or the default one.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Figures {
    handoffs: Option<u32>,
    tokens: Option<u64>,
    agents: Option<u32>,
    depth: Option<usize>,
    repeat_window: Option<usize>,
    attempts: Option<u32>,
}

impl LimitChoice {
    /// The limits of a new run: defaults where nothing is named.
    pub(crate) fn of_new_run(&self) -> Limits {
        self.over(&Limits::default())
    }

    /// The limits of a run that continues another one: a class replaces all, single limits replace those that they name.
    pub(crate) fn over(&self, before: &Limits) -> Limits {
        match self {
            Self::Class(class) => Limits::of(*class),
            Self::Figures(figures) => {
                let Figures { handoffs, tokens, agents, depth, repeat_window, attempts } = figures;
                Limits {
                    handoffs: handoffs.unwrap_or(before.handoffs),
                    tokens: tokens.unwrap_or(before.tokens),
                    agents: agents.unwrap_or(before.agents),
                    depth: depth.unwrap_or(before.depth),
                    repeat_window: repeat_window.unwrap_or(before.repeat_window),
                    attempts: attempts.unwrap_or(before.attempts),
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
        return serde_json::from_str(text).map(LimitChoice::Figures).map_err(|error| error.to_string());
    }
    text.parse().map(LimitChoice::Class)
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
        assert!(limits("{\"atempts\": 1}").is_err_and(|error| error.contains("unknown field")));
        assert!(limits("huge").is_err_and(|error| error.contains("use simple, medium or complex")));
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "{{\"tokens\": 7}}").unwrap();
        assert_eq!(limits(&format!("@{}", file.path().display())).map(|limits| limits.tokens), Ok(7));
    }

    #[test]
    fn single_limits_replace_those_that_they_name_and_a_class_replaces_all() {
        let all = r#"{"handoffs": 1, "tokens": 2, "agents": 3, "depth": 4, "repeat_window": 5, "attempts": 6}"#;
        let before = Limits { handoffs: 1, tokens: 2, agents: 3, depth: 4, repeat_window: 5, attempts: 6 };
        let over = |text: &str| limit_choice(text).unwrap().over(&before);
        assert_eq!(limit_choice(all).unwrap().of_new_run(), before);
        assert_eq!(over("{\"tokens\": 20}"), Limits { tokens: 20, ..before.clone() });
        assert_eq!(over("medium"), Limits::of(Complexity::Medium));
    }
}
