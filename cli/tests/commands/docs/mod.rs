//! The pages of the repository (README.md, docs/ and the READMEs of packages): what they show runs, is read, or is compared.
//!
//! Each fenced block has a rule (`rules.rs`): commands run in order in one folder for each page, a `console` block also shows
//! what they print; files are read by the commands that read such files; Rust is run by rustdoc. A block without a rule fails.

mod definitions;
mod options;
mod pages;
mod recording;
mod rules;
mod transcripts;

use self::pages::{Block, Page};
use self::rules::Rule;

/// Fails with all of these problems.
fn assert_none(problems: &[String]) {
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

#[test]
fn every_block_of_every_page_has_a_rule_and_every_rule_has_a_block() {
    let pages = pages::all();
    let mut problems: Vec<String> = pages.iter().flat_map(rules::problems).collect();
    let blocks: Vec<(&Page, &Block)> =
        pages.iter().flat_map(|page| page.blocks.iter().map(move |block| (page, block))).collect();
    let rules: Vec<Rule> = blocks.iter().filter_map(|(page, block)| rules::of(page, block).ok()).collect();
    for unused in rules::unused(&rules) {
        problems.push(format!("{unused}: no page has such a block any more"));
    }
    assert_none(&problems);
    assert!(rules.len() > 100);
}

#[test]
fn commands_of_every_page_run_and_print_what_the_page_shows() {
    let pages = pages::all();
    let problems: Vec<String> = std::thread::scope(|scope| {
        let running: Vec<_> = pages.iter().map(|page| scope.spawn(|| transcripts::problems(page))).collect();
        running.into_iter().flat_map(|page| page.join().unwrap()).collect()
    });
    assert_none(&problems);
}

#[test]
fn files_of_every_page_are_read_without_a_defect() {
    assert_none(&pages::all().iter().flat_map(definitions::problems).collect::<Vec<_>>());
}

#[test]
fn commands_and_options_that_a_text_names_exist() {
    let known = options::Known::ask();
    assert_none(&pages::all().iter().flat_map(|page| known.problems(page)).collect::<Vec<_>>());
}
