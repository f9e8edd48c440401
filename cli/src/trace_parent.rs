//! The span that this process is a part of, by the variables of the environment that programs pass spans on in.

use callboard::messages::TraceParent;

/// The span; what is malformed is as none.
pub(crate) fn of_environment() -> Option<TraceParent> {
    of(|name| std::env::var(name).ok())
}

fn of(variable: impl Fn(&str) -> Option<String>) -> Option<TraceParent> {
    Some(TraceParent::parse(&variable("TRACEPARENT")?)?.with_state(&variable("TRACESTATE").unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn a_malformed_span_is_as_none_and_a_state_needs_a_span() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let of = |parent: &str, state: &str| {
            let found = [("TRACEPARENT", parent), ("TRACESTATE", state)];
            let found = of(|name| found.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned()));
            found.map(|parent| (parent.to_string(), parent.state))
        };
        assert_eq!(of(good, "a=1"), Some((good.to_owned(), Some("a=1".into()))));
        assert_eq!(of(good, "A"), Some((good.to_owned(), None)));
        assert_eq!([of("", "a=1"), of("00-0-0-01", "a=1")], [None, None]);
    }
}
