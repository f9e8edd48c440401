//! Figures of the board and of the server, as text for Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use callboard::runtime::Load;
use parking_lot::Mutex;

use crate::context::Shared;
use crate::problem::ProblemCode;

/// How many requests were answered, by the status and the code of the problem.
#[derive(Clone, Default)]
pub(crate) struct Answered(Arc<Mutex<BTreeMap<(u16, &'static str), u64>>>);

impl Answered {
    pub(crate) fn count(&self, status: StatusCode, code: Option<ProblemCode>) {
        *self.0.lock().entry((status.as_u16(), code.map_or("", ProblemCode::as_str))).or_default() += 1;
    }
}

/// Text for Prometheus of what else the process measures.
pub(crate) type Measured = Arc<dyn Fn() -> String + Send + Sync>;

/// Answers with the figures.
pub(crate) async fn get(State(context): Shared) -> Response {
    let mut text = text(&context.board.load(), context.streams.count(), &context.answered.0.lock().clone());
    if let Some(measured) = &context.measured {
        text += &measured();
    }
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

fn text(load: &Load, streams: usize, answered: &BTreeMap<(u16, &str), u64>) -> String {
    let Load { runs, ready_turns, turns_at_work, waiting_turns, free_permits, pool, open_approvals, waits } = *load;
    let mut text = String::new();
    for (name, help, value) in [
        ("board_runs", "Runs that the board works on.", runs),
        ("board_ready_turns", "Turns in the queues of agents that have not begun.", ready_turns),
        ("board_turns_at_work", "Turns that hold a slot.", turns_at_work),
        ("board_waiting_turns", "Turns that wait for the runtime, without a slot.", waiting_turns),
        ("board_free_permits", "Permits of the pool that no turn holds.", free_permits),
        ("board_permits", "Permits of the pool.", pool),
        ("board_open_approvals", "Approvals that wait for a decision.", open_approvals),
        ("board_waits", "Edges of the graph of who waits for whom.", waits),
        ("http_event_streams", "Event streams that are open.", streams),
    ] {
        let _ =
            write!(text, "# HELP callboard_{name} {help}\n# TYPE callboard_{name} gauge\ncallboard_{name} {value}\n");
    }
    let name = "callboard_http_requests_total";
    let help = "Requests that were answered, by status and by the code of the problem.";
    let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} counter\n");
    for ((status, code), count) in answered {
        let _ = writeln!(text, "{name}{{status=\"{status}\",code=\"{code}\"}} {count}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_text_for_prometheus() {
        let load = Load {
            runs: 1,
            ready_turns: 2,
            turns_at_work: 3,
            waiting_turns: 4,
            free_permits: 5,
            pool: 6,
            open_approvals: 7,
            waits: 8,
        };
        let text = text(&load, 9, &BTreeMap::from([((200, ""), 10), ((429, "overloaded"), 11)]));
        let values: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = [
            "callboard_board_runs 1",
            "callboard_board_ready_turns 2",
            "callboard_board_turns_at_work 3",
            "callboard_board_waiting_turns 4",
            "callboard_board_free_permits 5",
            "callboard_board_permits 6",
            "callboard_board_open_approvals 7",
            "callboard_board_waits 8",
            "callboard_http_event_streams 9",
            "callboard_http_requests_total{status=\"200\",code=\"\"} 10",
            "callboard_http_requests_total{status=\"429\",code=\"overloaded\"} 11",
        ];
        assert_eq!(values, expected);
        let head = "# HELP callboard_board_runs Runs that the board works on.\n# TYPE callboard_board_runs gauge\n";
        assert!(text.starts_with(head) && text.ends_with('\n'), "{text}");
    }
}
