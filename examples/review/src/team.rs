//! The team: five agents that hand a tree to each other.
//!
//! The scout lists files. The analyzer measures them, and their score decides where control goes: back to the scout with
//! a reason and a narrower scope, or on to the planner. The planner has single files looked at by reviewers, side by side.
//! The writer asks for consent and writes the report. What is large stays on the [`Shelf`]; the agents hand over what it
//! is about.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callboard::actors::Mode;
use callboard::env::Env;
use callboard::prelude::*;
use serde::{Deserialize, Serialize};

use crate::comparing::{self, Changes};
use crate::escaping::visible;
use crate::faults::Faults;
use crate::findings::{Finding, Severity};
use crate::listing::{self, Listing, Scope, SkipReason, Skipped, SourceFile};
use crate::measuring::{self, Measurement};
use crate::reporting::{self, Review, counted};
use crate::reviewing::{self, CloserLook};
use crate::scoring::{self, ACCEPTABLE, Score};
use crate::shelf::{LastReview, NAMESPACE, Shelf};

/// Their names, in the order in which they usually get control.
pub(crate) const TEAM: [&str; 5] = ["scout", "analyzer", "planner", "reviewer", "writer"];

/// How often the scout is sent for a narrower scope.
const NARROWER: u32 = 2;

/// How many files reviewers look at.
const REVIEWS: u32 = 6;

/// Files that are measured in one step.
const BATCH: usize = 64;

/// What a run may use: everything that the team could need, and nothing more.
pub(crate) fn limits() -> Limits {
    let handoffs = 1 + 2 * NARROWER + 1 + REVIEWS + 1;
    Limits { handoffs, agents: TEAM.len() as u32, depth: 1, ..Limits::default() }
}

/// The agents, for a board.
pub(crate) fn members(faults: &Arc<Faults>, env: &Env) -> [AgentSpec; 5] {
    let member = || Member { faults: Arc::clone(faults), env: env.clone() };
    let spec = |spec: AgentSpec, mode| spec.mode(mode).namespaces([NAMESPACE]);
    let (scout, analyzer, planner, reviewer, writer) = (member(), member(), member(), member(), member());
    [
        spec(AgentSpec::new("scout", move || Scout(scout.clone())), Mode::Explore).blocking(),
        spec(AgentSpec::new("analyzer", move || Analyzer(analyzer.clone())), Mode::Explore).blocking(),
        spec(AgentSpec::new("planner", move || Planner(planner.clone())), Mode::Plan),
        spec(AgentSpec::new("reviewer", move || Reviewer(reviewer.clone())), Mode::Explore).blocking(),
        spec(AgentSpec::new("writer", move || Writer(writer.clone())), Mode::Build),
    ]
}

/// What the whole run is about: the input of its task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Assignment {
    pub(crate) root: PathBuf,
    pub(crate) output: PathBuf,
    /// Names the tree on the shelf.
    pub(crate) tree: String,
}

impl Assignment {
    /// The assignment of the run that a turn belongs to.
    fn of(turn: &Turn) -> Result<Self, TurnError> {
        turn.task().input.clone().unwrap_or_default().parse().map_err(|error| TurnError::terminal(error.to_string()))
    }
}

/// What the writer hands back at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Conclusion {
    /// There was nothing to review.
    NoSources { skipped: usize },
    /// The report is written.
    Written { path: PathBuf, summary: String },
}

/// To the scout: what to look for. The first turn of a run has the assignment instead, and looks for everything.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Search {
    scope: Scope,
    /// How many narrower scopes there have been, this one included.
    narrowed: u32,
}

/// To the analyzer: what there is.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Found {
    listing: Listing,
    search: Search,
}

/// To the planner: where to look closer.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Focus {
    scope: Scope,
}

/// To the writer: what reviewers said, and where they looked.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Plan {
    closer: Vec<CloserLook>,
    scope: Scope,
}

/// What every agent is made with.
#[derive(Clone)]
struct Member {
    faults: Arc<Faults>,
    env: Env,
}

struct Scout(Member);
struct Analyzer(Member);
struct Planner(Member);
struct Reviewer(Member);
struct Writer(Member);

impl Agent for Scout {
    async fn turn(&self, turn: Turn) -> Result<Command, TurnError> {
        self.0.faults.strike("scout");
        let assignment = Assignment::of(&turn)?;
        let search = match turn.previous_agent() {
            Some(_) => turn.input()?,
            None => Search { scope: Scope::Everything, narrowed: 0 },
        };
        let listing = listing::list(&assignment.root, &search.scope)?;
        let skipped = match listing.skipped.len() {
            0 => String::new(),
            count => format!(", {count} skipped"),
        };
        turn.notice(&format!("{} of source in {}{skipped}", size(listing.bytes()), files(listing.files.len())));
        if listing.files.is_empty() {
            let conclusion = Conclusion::NoSources { skipped: listing.skipped.len() };
            return Ok(Command::output(Json::of(conclusion)?).end());
        }
        Ok(Command::output(Json::of(Found { listing, search })?).goto("analyzer"))
    }
}

impl Agent for Analyzer {
    async fn turn(&self, turn: Turn) -> Result<Command, TurnError> {
        let assignment = Assignment::of(&turn)?;
        let shelf = Shelf::new(&turn, &assignment.tree);
        let Found { listing, search: Search { scope: searched, narrowed } } = turn.input()?;
        let run = turn.id().run;
        if narrowed == 0 {
            self.survey(&turn, &shelf, &listing).await?;
        }
        let listed: HashSet<&str> = listing.files.iter().map(|file| file.path.as_str()).collect();
        let mut measurements: Vec<Measurement> = shelf.take(run, "measurements").await?;
        measurements.retain(|measurement| listed.contains(&*measurement.file));
        let mut findings: Vec<Finding> = shelf.take(run, "repeated").await?;
        findings.retain(|finding| listed.contains(&*finding.file));
        findings.extend(measurements.iter().flat_map(|measurement| measurement.findings.iter().cloned()));
        let score = Score::new(&findings, measurements.iter().map(|measurement| measurement.code_lines).sum());
        let scope = scoring::narrower_scope(&findings, &listing);
        Ok(match scope.filter(|_| !score.is_acceptable() && narrowed < NARROWER) {
            Some(scope) => {
                let reason = format!("score {} is below {ACCEPTABLE}: narrow down to {}", score.value(), shown(&scope));
                let search = Search { scope, narrowed: narrowed + 1 };
                Command::output(Json::of(search)?).with("reason", reason).goto("scout")
            }
            None => {
                let highs = findings.iter().filter(|finding| finding.severity == Severity::High).count();
                let found =
                    format!("score {} of 100, {}", score.value(), counted(highs, "high finding", "high findings"));
                let reason = match (score.is_acceptable(), narrowed) {
                    (_, 1..) => format!("{found} in {}; reviewers look only there", shown(&searched)),
                    (true, 0) => format!("{found} in the whole tree"),
                    (false, 0) => format!("{found}, and nothing narrower to look at"),
                };
                Command::output(Json::of(Focus { scope: searched })?).with("reason", reason).goto("planner")
            }
        })
    }
}

impl Analyzer {
    /// Measures everything. Each batch is a step, so that what is measured stays measured when this turn has to begin
    /// again.
    async fn survey(&self, turn: &Turn, shelf: &Shelf<'_>, listing: &Listing) -> Result<(), TurnError> {
        let (mut measurements, mut skipped) = (Vec::with_capacity(listing.files.len()), listing.skipped.clone());
        for (number, batch) in listing.files.chunks(BATCH).enumerate() {
            let work = async { Ok::<_, TurnError>(measure(listing, batch)) };
            let (measured, unreadable) = turn.step(&format!("measure batch {}", number + 1), work).await?;
            measurements.extend(measured);
            skipped.extend(unreadable);
            if number == 0 {
                self.0.faults.strike("analyzer");
            }
        }
        turn.notice(&format!("measured {}", files(measurements.len())));
        measuring::settle(&mut measurements);
        let repeated = turn
            .step("compare blocks", async {
                // Measurements that come from the journal do not hold their lines.
                for measurement in measurements.iter_mut().filter(|measurement| measurement.significant.is_empty()) {
                    let file = listing.files.iter().find(|file| file.path == measurement.file);
                    let again = file.and_then(|file| Some(measuring::measure(file, &listing.read(file).ok()?)));
                    measurement.significant = again.map(|again| again.significant).unwrap_or_default();
                }
                Ok::<_, TurnError>(measuring::repeated_blocks(&measurements))
            })
            .await?;
        turn.step("keep what was measured", async {
            let run = turn.id().run;
            shelf.begin(run).await?;
            shelf.put(run, "files", &listing.files).await?;
            shelf.put(run, "skipped", &skipped).await?;
            shelf.put(run, "measurements", &measurements).await?;
            shelf.put(run, "repeated", &repeated).await
        })
        .await
    }
}

fn measure(listing: &Listing, batch: &[SourceFile]) -> (Vec<Measurement>, Vec<Skipped>) {
    let (mut measured, mut unreadable) = (Vec::new(), Vec::new());
    for file in batch {
        match listing.read(file) {
            Ok(text) => measured.push(measuring::measure(file, &text)),
            Err(_) => unreadable.push(Skipped { path: file.path.clone(), reason: SkipReason::Unreadable }),
        }
    }
    (measured, unreadable)
}

impl Agent for Planner {
    async fn turn(&self, turn: Turn) -> Result<Command, TurnError> {
        self.0.faults.strike("planner");
        let assignment = Assignment::of(&turn)?;
        let Focus { scope } = turn.input()?;
        let shelf = Shelf::new(&turn, &assignment.tree);
        let measurements: Vec<Measurement> = shelf.take(turn.id().run, "measurements").await?;
        let in_focus: Vec<&Measurement> =
            measurements.iter().filter(|measurement| scope.covers(&measurement.file)).collect();
        let picked = reviewing::worth_a_closer_look(&in_focus, REVIEWS as usize);
        let asked: Vec<_> = picked
            .iter()
            .map(|file| turn.delegate("reviewer", &visible(&file.file)).input(file.file.as_str()))
            .collect();
        let mut closer: Vec<CloserLook> = Vec::new();
        for answer in futures::future::join_all(asked).await {
            closer.extend(answer?.parse::<Option<CloserLook>>()?);
        }
        Ok(Command::output(Json::of(Plan { closer, scope })?).goto("writer"))
    }
}

impl Agent for Reviewer {
    async fn turn(&self, turn: Turn) -> Result<Command, TurnError> {
        self.0.faults.strike("reviewer");
        let assignment = Assignment::of(&turn)?;
        let path: String = turn.input()?;
        let shelf = Shelf::new(&turn, &assignment.tree);
        let measurements: Vec<Measurement> = shelf.take(turn.id().run, "measurements").await?;
        let measurement = measurements.iter().find(|measurement| measurement.file == path);
        let text = fs::read_to_string(assignment.root.join(&path));
        let (Some(measurement), Ok(text)) = (measurement, text) else {
            turn.notice(&format!("{} cannot be read any more", visible(&path)));
            return Ok(Command::output(Json::null()));
        };
        let look = reviewing::closer_look(measurement, &text);
        if let Some(look) = &look {
            let (score, after, spots) = (look.score.value(), look.after.value(), look.spots.len());
            let without = if spots == 1 { "its worst spot".to_owned() } else { format!("its {spots} worst spots") };
            turn.notice(&format!("{} scores {score}, {after} without {without}", visible(&path)));
        }
        Ok(Command::output(Json::of(look)?))
    }
}

/// A report, ready to be written.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Report {
    text: String,
    summary: String,
    date: String,
    /// The review that it was compared with.
    before: Option<LastReview>,
}

impl Agent for Writer {
    async fn turn(&self, turn: Turn) -> Result<Command, TurnError> {
        self.0.faults.strike("writer");
        let assignment = Assignment::of(&turn)?;
        let run = turn.id().run;
        let shelf = Shelf::new(&turn, &assignment.tree);
        let report = turn.step("write the text", self.report(&turn, &shelf, &assignment)).await?;
        let action = Action::new("write_file", &assignment.output.to_string_lossy(), report.text.as_str());
        // What comes back is what was approved: its bytes are written, and no others.
        let approved = turn.people().approve(action).await?;
        turn.step("write the file", async {
            let text = approved.arguments.as_str().unwrap_or_default();
            replace(Path::new(&*approved.target), text)
                .map_err(|error| TurnError::terminal(format!("{} cannot be written: {error}", approved.target)))
        })
        .await?;
        turn.notice(&format!("wrote {}", visible(&approved.target)));
        turn.step("remember the findings", async {
            shelf.set_last(&LastReview { run, date: report.date }).await?;
            match report.before.filter(|before| before.run != run) {
                Some(before) => shelf.forget(before.run).await.map_err(TurnError::from),
                None => Ok(()),
            }
        })
        .await?;
        let conclusion = Conclusion::Written { path: assignment.output, summary: report.summary };
        Ok(Command::output(Json::of(conclusion)?))
    }
}

impl Writer {
    async fn report(&self, turn: &Turn, shelf: &Shelf<'_>, assignment: &Assignment) -> Result<Report, TurnError> {
        let run = turn.id().run;
        let root = assignment.root.clone();
        let listing =
            Listing { root, files: shelf.take(run, "files").await?, skipped: shelf.take(run, "skipped").await? };
        let measurements: Vec<Measurement> = shelf.take(run, "measurements").await?;
        let repeated: Vec<Finding> = shelf.take(run, "repeated").await?;
        let Plan { closer, scope } = turn.input()?;
        let title = assignment.root.file_name().map_or_else(|| "/".into(), |name| name.to_string_lossy());
        let date = self.0.env.now().wall.to_string()[..10].to_owned();
        let review = Review {
            title: &title,
            date: &date,
            listing: &listing,
            measurements: &measurements,
            repeated: &repeated,
            closer: &closer,
            scope: &scope,
            changes: None,
        };
        let before = shelf.last().await?;
        let changes = match &before {
            Some(before) => changes(turn, shelf, before.run, &review).await?,
            None => None,
        };
        let review = Review { changes: changes.as_ref(), ..review };
        Ok(Report { text: reporting::markdown(&review), summary: reporting::terminal(&review), date, before })
    }
}

/// What has changed since the last review; `None` if that one cannot be read any more.
async fn changes(
    turn: &Turn,
    shelf: &Shelf<'_>,
    before: RunId,
    review: &Review<'_>,
) -> Result<Option<Changes>, TurnError> {
    let earlier = async {
        let measurements: Vec<Measurement> = shelf.take(before, "measurements").await?;
        let mut findings: Vec<Finding> = shelf.take(before, "repeated").await?;
        findings.extend(measurements.into_iter().flat_map(|measurement| measurement.findings));
        Ok::<_, TurnError>(findings)
    };
    let earlier = match earlier.await {
        Ok(earlier) => earlier,
        Err(error) => {
            turn.notice(&format!("the last review cannot be compared with: {error}"));
            return Ok(None);
        }
    };
    let now: Vec<Finding> = review.findings().into_iter().cloned().collect();
    let skipped = &review.listing.skipped;
    Ok(Some(comparing::compare(&earlier, &now, |file| !skipped.iter().any(|skipped| skipped.path == file))))
}

/// Writes a file whole or not at all.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let name = path.file_name().ok_or_else(|| io::Error::other("it names no file"))?;
    let unfinished = folder.join(format!(".{}.unfinished", name.to_string_lossy()));
    fs::write(&unfinished, text)?;
    fs::rename(&unfinished, path)
}

fn files(count: usize) -> String {
    counted(count, "file", "files")
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} bytes"),
        1_024..1_048_576 => format!("{} KiB", bytes >> 10),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

fn shown(scope: &Scope) -> String {
    match scope {
        Scope::Everything => "everything".to_owned(),
        Scope::Folders(folders) => {
            let names = folders.iter().map(|folder| if folder.is_empty() { ".".to_owned() } else { visible(folder) });
            names.collect::<Vec<_>>().join(", ")
        }
    }
}
