//! What a server costs and how soon it answers: `cargo bench -p callboard-server --bench http`, or with words of the names of cases.
//! Its clients are in this process; where memory, overload or chains are measured, the server is in another.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a benchmark that cannot continue stops")]

#[path = "../../../../benches/compare/allocator.rs"]
mod allocator;
mod chain;
mod client;
#[path = "../../../../benches/compare/measure.rs"]
#[allow(dead_code, reason = "some of it is for other benchmarks")]
mod measure;
mod overload;
mod raw;
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
const CASES: [(&str, Measure); 8] = [
    ("requests in memory", requests::in_memory),
    ("requests on disk", requests::on_disk),
    ("chain in memory", chain::in_memory),
    ("chain on disk", chain::on_disk),
    ("acknowledgement", requests::acknowledgement),
    ("stream memory", streams::memory),
    ("stream delay", streams::delay),
    ("overload", overload::overload),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let Some(serves) = server::is_one() {
        server::serve(serves);
        return ExitCode::SUCCESS;
    }
    println!("allocator: {}", allocator::NAME);
    let mut report = Report::new(false);
    for (name, measure) in CASES {
        if arguments.is_empty() || arguments.iter().any(|word| name.contains(word.as_str())) {
            measure(&mut report);
        }
    }
    ExitCode::SUCCESS
}
