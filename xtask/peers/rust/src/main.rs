//! Sides of `cargo xtask compare-peers`: the arguments are the name of a side and of a case. For each line that it reads it measures
//! once, and answers with a line of numbers.

mod actors_of_kameo;
mod actors_of_ractor;
mod measure;
mod orchestrations;
mod recorded;
mod state;

use std::io::{BufRead, Write};

/// That of callboard's side.
#[global_allocator]
static MIMALLOC: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let [side, case] = [1, 2].map(|at| std::env::args().nth(at).unwrap());
    for line in std::io::stdin().lock().lines() {
        line.unwrap();
        let numbers = match side.as_str() {
            "ractor" => actors_of_ractor::measure(&case),
            "kameo" => actors_of_kameo::measure(&case),
            "duroxide" => orchestrations::measure(&case),
            "salvor" => recorded::measure(&case),
            other => panic!("there is no side {other}"),
        };
        println!("{numbers}");
        std::io::stdout().flush().unwrap();
    }
}
