//! Which rule holds for a block.

use std::fs;

use super::pages::{Block, Page, root};

/// How a block is tested.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rule {
    /// rustdoc runs it.
    DocTest,
    /// Its commands run; of a transcript, what they print is compared (`transcripts.rs`).
    Commands { is_transcript: bool },
    /// It cannot run here: an entry of [`NOT_RUN`].
    NotRun(usize),
    /// It is a file that a command reads (`definitions.rs`).
    File(File),
    /// Another test reads it: an entry of [`ELSEWHERE`].
    Elsewhere(usize),
    /// A test has it as a snapshot: an entry of [`SNAPSHOTS`].
    Snapshot(usize),
    /// It is no code: an entry of [`FIGURES`].
    Figure(usize),
}

/// What reads a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum File {
    /// `callboard check`: an agent.
    Agent,
    /// `callboard check`: settings.
    Config,
    /// `callboard check`: a catalog of models.
    Models,
    /// `callboard workflow check`: a workflow in TOML.
    Workflow,
    /// `callboard workflow check`: the one-line syntax, a workflow in each line.
    Lines,
    /// cargo: dependencies of a package.
    Manifest,
    /// Python's compiler.
    Python,
}

/// Blocks that do not run (`not-run` on the fence): the page, the beginning of the block, and why.
pub(super) const NOT_RUN: [(&str, &str, &str); 9] = [
    ("README.md", "cargo xtask test", "it runs all tests, and this one among them"),
    ("cli/README.md", "cargo install callboard-cli", "it needs the network"),
    ("docs/models.md", "export ANTHROPIC_API_KEY=…", "it shows where a key is set, and has none"),
    ("docs/performance.md", "cargo bench --bench compare", "benchmarks take minutes"),
    ("docs/performance.md", "cargo bench -p callboard-knowledge --bench quality", "benchmarks take minutes"),
    ("docs/performance.md", "cargo bench -p callboard-server --bench pages", "benchmarks take minutes"),
    ("docs/postgres.md", "callboard store migrate", "it needs a database on another machine"),
    (
        "docs/releasing.md",
        "cargo xtask release-packages",
        "it builds the program for release, with tools from the network",
    ),
    ("docs/testing.md", "cargo install --path cli", "it builds the program for release, and installs it for the user"),
];

/// Blocks that another test reads: the page, the language, the file with the test, and its name.
pub(super) const ELSEWHERE: [(&str, &str, &str, &str); 6] = [
    (
        "docs/matrix.md",
        "json",
        "crates/callboard-channels/tests/matrix/messages.rs",
        "a_program_decides_by_the_event_of_the_guide",
    ),
    // `callboard check` would start these servers.
    (
        "docs/mcp.md",
        "toml",
        "crates/callboard-agents/tests/programs/mcp/rules.rs",
        "every_example_of_the_guide_is_a_document",
    ),
    (
        "docs/process-agents.md",
        "json",
        "crates/callboard-agents/src/process/protocol/tests.rs",
        "the_page_shows_every_line_of_callboard_as_it_is_written",
    ),
    (
        "docs/workflow-templates.md",
        "json",
        "crates/callboard-documents/src/template/tests.rs",
        "every_example_of_the_page_gives_the_stated_result",
    ),
    (
        "docs/workflow-templates.md",
        "text",
        "crates/callboard-documents/src/template/tests.rs",
        "every_example_of_the_page_gives_the_stated_result",
    ),
    // Keys of a task, which are no document.
    ("docs/workflow-toml.md", "toml", "src/workflow/toml/tests.rs", "the_guide_shows_what_is_taken"),
];

/// Blocks that are a snapshot of a test, word for word: the page, the beginning of the block, and the file with the test.
pub(super) const SNAPSHOTS: [(&str, &str, &str); 3] = [
    ("README.md", "$ callboard serve --model fake\n", "cli/tests/terminals/newcomer.rs"),
    ("README.md", "$ callboard store migrate\n", "cli/tests/stores/database.rs"),
    ("docs/testing.md", "the tree differs from its picture ", "tests/simulation/test_kit.rs"),
];

/// Blocks that are no code: the page, the beginning of the block, and what it is.
pub(super) const FIGURES: [(&str, &str, &str); 7] = [
    ("ARCHITECTURE.md", "callboard (one_for_one)\n├── storage ", "the supervision tree, with what each part does"),
    ("docs/testing.md", "seed 17 failed: ", "the report of a failed simulation, shortened"),
    ("docs/together.md", "task ──▶ researcher ", "a drawing of a pipeline"),
    ("docs/together.md", "task ──▶ planner ", "a drawing of a review"),
    ("docs/together.md", "            ┌── round ", "a drawing of peers"),
    ("docs/together.md", "               ┌─ Task ", "a drawing of a coordinator"),
    ("docs/workflow-expressions.md", "workflow     = ", "a grammar"),
];

/// The rule of a block, or why it has none.
pub(super) fn of(page: &Page, block: &Block) -> Result<Rule, String> {
    let is_here = |(path, beginning, _): &(&str, &str, &str)| *path == page.path && block.text.starts_with(beginning);
    let is_elsewhere =
        |(path, language, ..): &(&str, &str, &str, &str)| *path == page.path && *language == block.language;
    let elsewhere = || ELSEWHERE.iter().position(is_elsewhere).map(Rule::Elsewhere);
    let attributes: Vec<&str> = block.attributes.iter().map(String::as_str).collect();
    let rule = match (&*block.language, &attributes[..]) {
        ("rust", [] | ["no_run" | "should_panic"]) => Some(Rule::DocTest),
        ("sh", []) => Some(Rule::Commands { is_transcript: false }),
        ("console", []) => Some(Rule::Commands { is_transcript: true }),
        ("sh", ["not-run"]) => NOT_RUN.iter().position(is_here).map(Rule::NotRun),
        ("toml", []) => file_of(&block.text).map(Rule::File).or_else(elsewhere),
        ("flow", []) => Some(Rule::File(File::Lines)),
        ("python", []) => Some(Rule::File(File::Python)),
        ("json", []) => elsewhere(),
        ("text" | "ebnf", []) => {
            let figure = FIGURES.iter().position(is_here).map(Rule::Figure);
            figure.or_else(|| SNAPSHOTS.iter().position(is_here).map(Rule::Snapshot)).or_else(elsewhere)
        }
        _ => None,
    };
    rule.ok_or_else(|| {
        let fence = [&[&*block.language], &attributes[..]].concat().join(" ");
        format!(
            "no rule covers this block of `{fence}` ({}): see cli/tests/commands/docs/rules.rs. Output of a command belongs into a block \
             of `console`, below its command",
            block.first_line()
        )
    })
}

/// What kind of file a text of TOML is, by its first table; `None` if it is a part of one, or a document of another kind.
fn file_of(text: &str) -> Option<File> {
    let header = text.lines().find(|line| line.starts_with('['))?;
    match header.trim_start_matches('[').split(['.', ']']).next()? {
        "agent" => Some(File::Agent),
        "models" => Some(File::Models),
        "serve" | "telegram" | "matrix" | "email" | "channels" => Some(File::Config),
        "workflow" if text.contains("[[workflow.tasks]]") && text.contains("[workflow]\n") => Some(File::Workflow),
        "dependencies" | "dev-dependencies" => Some(File::Manifest),
        _ => None,
    }
}

/// What is wrong with the rules of a page.
pub(super) fn problems(page: &Page) -> Vec<String> {
    let problem = |block: &Block| match of(page, block) {
        Err(problem) => Some(problem),
        Ok(Rule::DocTest) => {
            (!is_doc_test(page)).then(|| "no `#[doc = include_str!(…)]` has rustdoc run this page".into())
        }
        Ok(Rule::Elsewhere(at)) => elsewhere_problem(page, block, at),
        Ok(Rule::Snapshot(at)) => {
            let (.., file) = SNAPSHOTS[at];
            (!is_within(&block.text, &read(file))).then(|| format!("{file} has no snapshot of this text"))
        }
        Ok(Rule::Commands { .. } | Rule::NotRun(_) | Rule::File(_) | Rule::Figure(_)) => None,
    };
    page.blocks.iter().filter_map(|block| Some(page.at(block.line, problem(block)?))).collect()
}

/// Whether a package has rustdoc run the Rust code of a page.
fn is_doc_test(page: &Page) -> bool {
    let name = page.path.rsplit('/').next().unwrap();
    let libraries = ["src/guides.rs".to_owned()].into_iter().chain(
        ["agents", "confine", "documents", "knowledge", "server", "shared-store", "text"]
            .map(|package| format!("crates/callboard-{package}/src/lib.rs")),
    );
    libraries.into_iter().any(|library| {
        let folder = root().join(&library).parent().unwrap().to_owned();
        read(&library).split("#[doc = include_str!(\"").skip(1).any(|rest| {
            let included = rest.split('"').next().unwrap();
            included.ends_with(name)
                && folder.join(included).canonicalize().unwrap() == root().join(&page.path).canonicalize().unwrap()
        })
    })
}

fn elsewhere_problem(page: &Page, block: &Block, at: usize) -> Option<String> {
    let (_, language, file, test) = ELSEWHERE[at];
    let text = read(file);
    let name = page.path.rsplit('/').next().unwrap();
    if !text.contains(&format!("fn {test}()")) || !text.contains(name) {
        return Some(format!("{file} has no test {test} that reads {name}"));
    }
    let values = serde_json::Deserializer::from_str(&block.text).into_iter::<serde_json::Value>();
    let error = values.filter_map(Result::err).next().filter(|_| language == "json");
    error.map(|error| format!("this is no JSON: {error}"))
}

/// Whether lines are among those of another text, where they may be indented.
fn is_within(lines: &str, text: &str) -> bool {
    let lines: Vec<&str> = lines.lines().collect();
    let all: Vec<&str> = text.lines().collect();
    all.windows(lines.len()).any(|found| {
        let indent = found[0].len() - found[0].trim_start().len();
        found.iter().zip(&lines).all(|(found, line)| found.get(indent..) == Some(*line))
    })
}

/// The entries of the lists that no block has.
pub(super) fn unused(rules: &[Rule]) -> Vec<String> {
    let not_run = NOT_RUN.iter().enumerate().map(|(at, entry)| (Rule::NotRun(at), format!("{entry:?}")));
    let elsewhere = ELSEWHERE.iter().enumerate().map(|(at, entry)| (Rule::Elsewhere(at), format!("{entry:?}")));
    let snapshots = SNAPSHOTS.iter().enumerate().map(|(at, entry)| (Rule::Snapshot(at), format!("{entry:?}")));
    let figures = FIGURES.iter().enumerate().map(|(at, entry)| (Rule::Figure(at), format!("{entry:?}")));
    let all = not_run.chain(elsewhere).chain(snapshots).chain(figures);
    all.filter(|(rule, _)| !rules.contains(rule)).map(|(_, entry)| entry).collect()
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

#[test]
fn a_block_that_no_rule_covers_is_a_problem() {
    let problems = |path, text| problems(&Page::parsed(path, text));
    for block in [
        "```yaml\na: 1\n```\n",
        "```json\n{}\n```\n",
        "```text\nsomething\n```\n",
        "```toml\nname = \"a part of a file\"\n```\n",
        "```toml\n[unknown]\n```\n",
        "```sh not-run\ncallboard check\n```\n",
        "```sh ignore\ncallboard check\n```\n",
        "```rust,ignore\nfn f() {}\n```\n",
        "```\nnothing\n```\n",
    ] {
        let found = problems("docs/index.md", block);
        assert!(found.len() == 1 && found[0].starts_with("docs/index.md:1: no rule covers"), "{block}: {found:?}");
    }
    let found = problems("docs/index.md", "text\n\n```rust\nfn f() {}\n```\n");
    assert!(found.len() == 1 && found[0].starts_with("docs/index.md:3: no `#[doc = include_str!"), "{found:?}");
    let found = problems("docs/process-agents.md", "```json\n{\"a\": 1}\n{\"b\"}\n```\n");
    assert!(found.len() == 1 && found[0].contains("this is no JSON: expected `:` at line 2"), "{found:?}");
    let found = problems("docs/testing.md", "```text\nthe tree differs from its picture (- expected)\n```\n");
    assert!(found.len() == 1 && found[0].contains("has no snapshot of this text"), "{found:?}");
    assert!(unused(&[]).len() == unused(&[Rule::NotRun(0)]).len() + 1);
}
