//! Commands that the pages show, run by a shell: all of a page in one folder, in their order.
//!
//! In a block of `sh` each line is a command that has to succeed. A block of `console` is a transcript: a line that begins with
//! `$ ` is a command, and the lines below it are all that it prints. There, `…` stands for any text within a line, and a line `…`
//! for any lines. Other ids of runs, other times, and wider spaces make no difference. Agents have the model `fake` where a line
//! names none.

use std::io::Read as _;
use std::process::Command;

use callboard::messages::RunId;

use super::pages::{Block, Page, root};
use super::rules::{self, Rule};
use crate::support::{CALLBOARD, command};

/// The commands `callboard`, of the program under test, and `cargo run -p callboard-cli`.
const PRELUDE: &str = r#"
callboard() {
    case " $* " in
        *' --model '*) ;;
        ' run '* | ' workflow run '*' --agents '*) set -- "$@" --model fake ;;
    esac
    "$CALLBOARD" "$@"
}
cargo() {
    case "$*" in
        'run --release -p callboard-cli -- '*) shift 5 && callboard "$@" ;;
        *) echo "no test runs: cargo $*" && return 9 ;;
    esac
}
"#;

/// What the commands of a page need.
struct Setup {
    page: &'static str,
    /// Commands that run first, one a line.
    before: &'static str,
    /// Words of the page that stand for something that a reader has: the shell's variables of these names.
    variables: &'static [&'static str],
    /// The beginnings of commands that end with another exit code than 0, with that code.
    codes: &'static [(&'static str, i32)],
}

const SETUPS: [Setup; 9] = [
    Setup {
        page: "docs/conversations.md",
        before: r#"
mkdir agents && printf '[agent]\nname = "support"\n' > agents/support.toml
printf '[workflow]\nname = "triage"\n[[workflow.tasks]]\nname = "sort"\nagent = "support"\n' > triage.toml
"#,
        variables: &[],
        codes: &[],
    },
    Setup {
        page: "docs/dashboard.md",
        before: r#"
mkfifo served
"$CALLBOARD" serve --model fake --listen 127.0.0.1:0 > served 2> log & trap "kill $!" EXIT
read LINE < served
"#,
        variables: &[],
        codes: &[],
    },
    Setup {
        page: "docs/http.md",
        // The program itself and not the function, so that its id is that of the server.
        before: r#"
callboard init
printf '[agent]\nname = "slow"\n[agent.process]\ncommand = ["sh", "-c", "read hello; read turn"]\n' > agents/slow.toml
mkfifo served
"$CALLBOARD" serve --model fake --listen 127.0.0.1:0 > served 2> log & trap "kill $!" EXIT
read LINE < served && URL=${LINE##* }
"#,
        variables: &[],
        codes: &[],
    },
    Setup {
        page: "docs/process-agents.md",
        before: "mkdir examples && cp -r \"$ROOT/examples/process\" examples",
        variables: &[],
        codes: &[],
    },
    Setup {
        page: "docs/serve.md",
        before: r#"
mkfifo served
"$CALLBOARD" serve --model fake --listen 127.0.0.1:0 > served 2> log & trap "kill $!" EXIT
read LINE < served
"#,
        variables: &[],
        codes: &[],
    },
    Setup {
        page: "docs/stores.md",
        before: r#"
callboard init
callboard run 'fix the parser' --to coordinator
callboard run 'fix the lexer' --to coordinator
RUN=$(callboard runs list --text parser --json | sed -n 's/.*"run": "\(.*\)",/\1/p') && [ ${#RUN} = 36 ]
OTHER=$(callboard runs list --text lexer --json | sed -n 's/.*"run": "\(.*\)",/\1/p') && [ ${#OTHER} = 36 ]
FILE=exported
callboard run 'fix the writer' --to coordinator --limits '{"tokens": 100}' || [ $? = 1 ]
"#,
        variables: &["FILE", "RUN", "OTHER"],
        codes: &[
            // The newest run is one that has failed by a limit, and fails by it again.
            ("callboard run --resume @last", 1),
            ("callboard run --retry @last   ", 1),
        ],
    },
    Setup {
        page: "docs/testing.md",
        // A workflow of three nodes, whose second one writes a verdict.
        before: r#"
printf '[workflow]\nname = "review"\n[workflow.channels]\nverdict = "last_value"\n' > review.toml
printf '[[workflow.tasks]]\nname = "%s"\nagent = "a"\ndepends_on = [%s]\n' plan '' judge '"plan"' write '"judge"' >> review.toml
FOLDER=store
callboard workflow run review.toml --input-json '"a text"' --agent a=cat --store "$FOLDER"
RUN=$(callboard runs list --data "$FOLDER" --json | sed -n 's/.*"run": "\(.*\)",/\1/p') && [ ${#RUN} = 36 ]
callboard workflow run review.toml --input-json '"another text"' --agent a=cat --store "$FOLDER"
OTHER=@last
"#,
        variables: &["FOLDER", "RUN", "OTHER"],
        // They differ.
        codes: &[("callboard runs diff ", 1)],
    },
    Setup { page: "docs/together.md", before: "callboard init", variables: &[], codes: &[] },
    Setup {
        page: "docs/workflow-command.md",
        // The workflow is the first of the page on TOML.
        before: r#"
awk '/^```toml$/ { inside = 1; next } /^```$/ && inside { exit } inside' "$ROOT/docs/workflow-toml.md" > review.toml
mkdir src && echo 'fn main() {}' > src/main.rs
echo 'import sys; print(len(sys.stdin.read()), "characters")' | tee analyze.py > review.py
"#,
        variables: &[],
        codes: &[],
    },
];

/// A command of a page.
#[derive(Debug, PartialEq)]
struct Step {
    /// Of the page; 0 if the page does not show it.
    line: usize,
    command: String,
    /// What the page shows below it.
    shown: Option<String>,
}

/// What is wrong with the commands of a page.
pub(super) fn problems(page: &Page) -> Vec<String> {
    let steps: Vec<Step> = page.blocks.iter().flat_map(|block| steps(page, block)).collect();
    if steps.is_empty() {
        return Vec::new();
    }
    let setup = SETUPS.iter().find(|setup| setup.page == page.path);
    let before = setup.into_iter().flat_map(|setup| setup.before.lines()).filter(|line| !line.is_empty());
    let before = before.map(|line| Step { line: 0, command: line.to_owned(), shown: None });
    let steps: Vec<Step> = before.chain(steps).collect();
    let (variables, codes) = setup.map_or((&[][..], &[][..]), |setup| (setup.variables, setup.codes));
    let ends =
        run(steps.iter().map(|step| with_variables(&step.command, if step.line == 0 { &[] } else { variables })));
    let mut problems: Vec<String> = steps
        .iter()
        .zip(&ends)
        .filter_map(|(step, (printed, code))| {
            let expected = codes
                .iter()
                .find(|(beginning, _)| step.line > 0 && step.command.starts_with(beginning))
                .map_or(0, |(_, code)| *code);
            let problem = if *code != expected {
                format!("its exit code is {code} and not {expected}; it prints:\n{printed}")
            } else if step.shown.as_ref().is_some_and(|shown| !matches(shown, printed)) {
                format!("it prints:\n{printed}")
            } else {
                return None;
            };
            Some(page.at(step.line, format!("{}: {problem}", step.command)))
        })
        .collect();
    for (beginning, _) in
        codes.iter().filter(|(beginning, _)| !steps.iter().any(|step| step.command.starts_with(beginning)))
    {
        problems.push(page.at(0, format!("no command begins with {beginning:?}")));
    }
    if let Some(step) = steps.get(ends.len()) {
        problems.push(page.at(step.line, format!("{}: the shell ends here", step.command)));
    }
    problems
}

/// The commands of a block, if they can run.
fn steps(page: &Page, block: &Block) -> Vec<Step> {
    let Ok(Rule::Commands { is_transcript }) = rules::of(page, block) else { return Vec::new() };
    let mut steps: Vec<Step> = Vec::new();
    for (line, text) in (block.line + 1..).zip(block.text.lines()) {
        let is_continued = steps.last().is_some_and(|step| step.command.ends_with('\\'));
        match (text.strip_prefix("$ "), steps.last_mut()) {
            (_, Some(last)) if is_continued => last.command = format!("{}\n{text}", last.command),
            (Some(text), _) if is_transcript => {
                steps.push(Step { line, command: text.to_owned(), shown: Some(String::new()) });
            }
            (None, last) if is_transcript => match last.and_then(|last| last.shown.as_mut()) {
                Some(shown) => *shown += &format!("{text}\n"),
                // It has no command above it: no command has printed it.
                None => steps.push(Step { line, command: format!("false # {text}"), shown: None }),
            },
            _ => steps.push(Step { line, command: text.to_owned(), shown: None }),
        }
    }
    steps
}

/// The command with the variables in place of these words.
fn with_variables(command: &str, variables: &[&str]) -> String {
    let word = |word| if variables.contains(&word) { format!("\"${word}\"") } else { word.to_owned() };
    command.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// Runs commands in a new folder. Returns what each has printed, on both of its streams, and its exit code; it returns fewer if
/// the shell has ended before the last.
fn run(commands: impl Iterator<Item = String>) -> Vec<(String, i32)> {
    let folder = tempfile::tempdir().unwrap();
    let [project, state] = ["project", "state"].map(|name| folder.path().join(name));
    std::fs::create_dir(&project).unwrap();
    // The end of a command is a character that no command prints, and its exit code.
    let script: String = commands.map(|command| format!("{command}\nprintf '\\036%s\\036' \"$?\"\n")).collect();
    let (mut printed, output) = std::io::pipe().unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{PRELUDE}{script}")]).current_dir(&project);
    shell.env_clear().envs(command(&project, &[]).get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell
        .env("CALLBOARD", CALLBOARD)
        .env("HOME", &project)
        .env("XDG_STATE_HOME", state)
        .env("ROOT", root().canonicalize().unwrap());
    shell.stdin(std::process::Stdio::null()).stdout(output.try_clone().unwrap()).stderr(output);
    let mut running = shell.spawn().unwrap();
    // It has the other end of the pipe too.
    drop(shell);
    let mut text = String::new();
    printed.read_to_string(&mut text).unwrap();
    running.wait().unwrap();
    let mut parts = text.split('\u{1e}');
    let mut ends = Vec::new();
    while let (Some(printed), Some(code)) = (parts.next(), parts.next()) {
        ends.push((printed.to_owned(), code.parse().unwrap()));
    }
    ends
}

/// Whether a text is what a page shows.
fn matches(shown: &str, printed: &str) -> bool {
    let lines = |text: &str| text.trim_end().lines().map(without_times).collect::<Vec<_>>();
    lines_match(&lines(shown), &lines(printed))
}

/// A line with one space between its words, with the same id in place of each id of a run, and zeros for digits of times.
pub(super) fn without_times(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let is_duration = |at: usize| words.get(at + 1).is_some_and(|next| next.trim_end_matches([':', ',', ';']) == "s");
    let word = |(at, word): (usize, &&str)| {
        let zeros: String = word.chars().map(|letter| if letter.is_ascii_digit() { '0' } else { letter }).collect();
        match () {
            () if is_duration(at) && zeros.contains("0.0") => "0.0".to_owned(),
            () if zeros.contains("0000-00-00") || zeros.contains("00:00:00") => zeros,
            () => without_ids(word),
        }
    };
    words.iter().enumerate().map(word).collect::<Vec<_>>().join(" ")
}

fn without_ids(word: &str) -> String {
    let is_whole = |part: &&str| part.parse::<RunId>().is_ok();
    let is_short = |part: &&str| {
        part.strip_prefix("req-").is_some_and(|digits| digits.chars().all(|digit| digit.is_ascii_hexdigit()))
    };
    let id_at = |at: usize| word.get(at..at + 36).filter(is_whole).or(word.get(at..at + 16).filter(is_short));
    match (0..word.len()).find_map(|at| id_at(at).map(|id| (at, id.len()))) {
        Some((at, length)) => format!("{}ID{}", &word[..at], without_ids(&word[at + length..])),
        None => word.to_owned(),
    }
}

fn lines_match(shown: &[String], printed: &[String]) -> bool {
    match shown {
        [] => printed.is_empty(),
        [any, rest @ ..] if any == "…" => (0..=printed.len()).any(|from| lines_match(rest, &printed[from..])),
        [first, rest @ ..] => {
            printed.first().is_some_and(|line| line_matches(first, line)) && lines_match(rest, &printed[1..])
        }
    }
}

fn line_matches(shown: &str, printed: &str) -> bool {
    let mut parts = shown.split('…');
    let Some(mut rest) = printed.strip_prefix(parts.next().unwrap()) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

#[test]
fn output_that_differs_from_what_is_shown_does_not_match() {
    for (shown, printed, expected) in [
        ("a\nb\n", "a\nb", true),
        ("a  b", " a b", true),
        ("ab", "a b", false),
        ("a 0.1 s: b", "a 12.345 s: b", true),
        ("a 0.1 m", "a 0.2 m", false),
        ("on 2026-01-02 03:04:05", "on 2027-11-12 13:14:15", true),
        ("on 2026-01-02", "on 2027-11", false),
        ("\"0192f0c1-2345-7abc-8def-0123456789ab\",", "\"0192f0c1-2345-7abc-8def-0123456789ac\",", true),
        ("0192f0c1-2345-7abc-8def-0123456789ab", "0192f0c1", false),
        ("a", "a\nb", false),
        ("a\nb", "a", false),
        ("", "", true),
        ("", "a", false),
        ("a … c", "a b c", true),
        ("a … c", "a b d", false),
        ("a … c … e", "a b c d e", true),
        ("a … c … e", "a b d e", false),
        ("a…", "a", true),
        ("…\nb", "a\na\nb", true),
        ("…\nb", "a\na", false),
        ("a\n…", "a", true),
        ("a\n…\nd", "a\nb\nc", false),
    ] {
        assert_eq!(matches(shown, printed), expected, "{shown:?} {printed:?}");
    }
}

#[test]
fn every_setup_is_for_a_page_with_commands() {
    let pages = super::pages::all();
    for setup in &SETUPS {
        let page = pages.iter().find(|page| page.path == setup.page);
        assert!(
            page.is_some_and(|page| page.blocks.iter().any(|block| !steps(page, block).is_empty())),
            "{}",
            setup.page
        );
    }
}

#[test]
fn commands_that_fail_or_print_something_else_are_problems() {
    for (block, problem) in [
        ("```sh\ncallboard nonsense\n```", "docs/index.md:2: callboard nonsense: its exit code is 2 and not 0"),
        ("```sh\ncallboard --version\ncallboard run x --to nobody\n```", "docs/index.md:3: callboard run x"),
        ("```sh\ncargo test\n```", "no test runs: cargo test"),
        ("```sh\necho 'a\n```", "the shell ends here"),
        ("```console\n$ callboard --version\ncallboard 0.0.0\n```", "it prints:\ncallboard "),
        ("```console\n$ echo a\n```", "it prints:\na"),
        ("```console\n$ false\n```", "its exit code is 1"),
        ("```console\na line without a command\n```", "its exit code is 1"),
    ] {
        let problems = problems(&Page::parsed("docs/index.md", block));
        assert!(problems.len() == 1 && problems[0].contains(problem), "{block}: {problems:?}");
    }
    let right =
        "```sh\nmkdir a \\\n  b # two\ncd a\n```\n\n```console\n$ pwd\n/…/a\n$ echo b \\\n  c >&2\nb c\n$ true\n```\n";
    assert_eq!(problems(&Page::parsed("docs/index.md", right)), Vec::<String>::new());
}
