//! What a server costs and how soon it answers: `cargo bench -p callboard-server --bench http`, or with words of the names of cases.
//! Its clients are in this process; where memory or overload is measured, the server is in another.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a benchmark that cannot continue stops")]

mod client;
#[path = "../../../../benches/compare/measure.rs"]
#[allow(dead_code, reason = "some of it is for other benchmarks")]
mod measure;
mod overload;
#[path = "../../../../benches/compare/report.rs"]
#[allow(dead_code, reason = "some of it is for other benchmarks")]
mod report;
mod requests;
mod server;
mod streams;

use std::process::ExitCode;

use report::Report;

/// Measures one case.
type Measure = fn(&mut Report);

/// The cases, by the names that a filter is compared with.
const CASES: [(&str, Measure); 6] = [
    ("requests in memory", requests::in_memory),
    ("requests on disk", requests::on_disk),
    ("acknowledgement", requests::acknowledgement),
    ("stream memory", streams::memory),
    ("stream delay", streams::delay),
    ("overload", overload::overload),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if server::is_one() {
        server::serve();
        return ExitCode::SUCCESS;
    }
    let mut report = Report::new(false);
    for (name, measure) in CASES {
        if arguments.is_empty() || arguments.iter().any(|word| name.contains(word.as_str())) {
            measure(&mut report);
        }
    }
    ExitCode::SUCCESS
}
