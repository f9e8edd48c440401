//! `callboard check`.

use std::collections::BTreeSet;
use std::ops::Range;

use serde_json::{Value, json};

use callboard::env::Env;
use callboard::messages::visible;
use callboard_agents::tools::{Protection, ShellExec};
use callboard_agents::{
    BuiltIn, Defect, Defects, Definition, DefinitionSource, McpProblem, ModelChoice, Models, Tools,
};
use callboard_server::{Scope, Token, Tokens};

use crate::config::Config;
use crate::config::secret_source::Unusable;
use crate::exit::Exit;
use crate::knowledge::base;
use crate::page::{Failure, Page, count, json_text, note};
use crate::signals::Signals;
use crate::stores::Choice;
use crate::workflow::check::{defects_json, exit};

use super::arguments::{Check, DEFAULT_CONFIG};
use super::built_in::FAKE;
use super::load::{has_shell, of_unpriced, remark, unpriced};
use super::read::{self, Invalid, Mcp, Read};
use crate::quote::quoted;

/// The remedy for agents without a model, which is no option of this command.
const NAME_ONE_LATER: &str =
    "; or name one when they run, by --model of `run` and `serve`, as --model gpt-5-mini; --model fake needs no key";

/// Reports every defect in the agents of a folder.
pub(super) async fn check(arguments: &Check) -> Result<Page, Failure> {
    if arguments.schema {
        let schema = Definition::schema();
        return Ok(Page::new(format!("{}\n", json_text(&schema)), schema.into_value()));
    }
    // Without a folder of agents there may be settings.
    let has_settings =
        arguments.files.named_config().is_some() || arguments.files.default_file(DEFAULT_CONFIG).exists();
    let is_team = arguments.files.are_missing() && has_settings;
    if let Some(remark) = if is_team { remark(&arguments.files)? } else { arguments.files.remark()? } {
        note(&remark);
    }
    let mut signals = Signals::new()?;
    let stores = Choice { store: None }.stores().ok();
    let facts = stores.map(|stores| base::open_if_there(&stores)).transpose()?.flatten();
    let read = tokio::select! {
        biased;
        () = signals.next() => return Err(Failure::new(Exit::Interrupted, "a signal came before the check ended".to_owned())),
        read = read::read(&arguments.files, None, facts.as_ref()) => read?,
    };
    let names = read.names().into_iter().map(str::to_owned).collect();
    let Read { sources, definitions, tools, mcp, config, .. } = read;
    let models = read::models(&arguments.files)?;
    let mut report = Report::default();
    // Those of the starter team are in no file.
    for (source, read) in sources.iter().zip(definitions.iter().cloned()).filter(|_| !is_team) {
        match read {
            Ok(definition) => {
                let mut row = row(&source.origin, &definition);
                row["defects"] = json!([]);
                let of_models = models.as_ref().ok().map(|models| models_of(models, &definition, source));
                let of_prices = || of_unpriced(models.as_ref().ok()?, &definition, source, None);
                if let Some(found) = of_models.and_then(Result::err).or_else(of_prices) {
                    report.add_defects(&found);
                    row["defects"] = defects_json(&found).into();
                }
                report.text.push_str(&format!("{}: {}\n", visible(&source.origin), visible(&summary(&definition))));
                if let Some(granted) = definition.granted() {
                    report.text.push_str(&format!("  {}\n", visible(&granted)));
                }
                report.rows.push(row);
            }
            Err(found) => {
                let is_unknown = |defect: &Defect| {
                    mcp.is_err() && defect.problem.starts_with("there is no tool \"mcp__")
                        || config.is_err() && defect.problem.starts_with("the role ")
                };
                report.add_unread(&source.origin, &without(source, found, is_unknown));
            }
        }
    }
    report.text.push_str(&built_in(definitions.iter().flatten()));
    match &models {
        Ok(models) => report.add_missing_model(models, definitions.iter().flatten()),
        Err(Invalid { origin, defects }) => report.add_unread(origin, defects),
    }
    match &mcp {
        Ok(Some(mcp)) => {
            report.text.push_str(&format!("{}: {}\n", visible(&mcp.origin), of_servers(&tools)));
            for problem in &mcp.problems {
                report.remarks.push_str(&format!("{problem}\n\n"));
            }
            report.defects += mcp.problems.len();
            report.wrong += usize::from(!mcp.problems.is_empty());
            report.rows.push(servers_row(mcp, &tools));
        }
        Ok(None) => {}
        Err(Invalid { origin, defects }) => report.add_unread(origin, defects),
    }
    let unpriced = unpriced(&definitions.iter().flatten().cloned().collect::<Vec<_>>(), models.as_ref().ok(), None);
    let config = config.and_then(|config| {
        let (unset, usable) = config.check_secrets(&arguments.files.root);
        report.add_unset(&unset);
        config.check_serve()?;
        usable?;
        config.check_prices(&unpriced)?;
        let is_whole = mcp.as_ref().is_ok_and(|mcp| mcp.as_ref().is_none_or(|mcp| mcp.problems.is_empty()));
        let tokens = known_tokens();
        config.check_names(&tools, is_whole, &names, tokens.as_ref().map(|known| &known.names))?;
        let tokens = tokens.unwrap_or_default();
        report.add_warning(config.warning_of_rooms(&tokens.may_delegate));
        config.check_deciders(&tokens.owned).map(|()| config)
    });
    match &config {
        Ok(Config { file: Some(file), .. }) => {
            report.rows.push(json!({ "kind": "config", "file": file, "defects": [] }))
        }
        Ok(Config { file: None, .. }) => {}
        Err(Invalid { origin, defects }) => report.add_unread(origin, defects),
    }
    Ok(report.page(definitions.iter().flatten().any(has_shell)))
}

/// The tokens of the project.
#[derive(Default)]
struct KnownTokens {
    /// Each with its owner.
    owned: Vec<(String, Option<String>)>,
    /// Those that have not expired and may give tasks.
    may_delegate: Vec<(String, Option<String>)>,
    /// The names of all, also of those that were revoked: their runs stay those of their people.
    names: BTreeSet<String>,
}

/// The tokens of the project; `None` if it has had no server, or they cannot be read.
fn known_tokens() -> Option<KnownTokens> {
    let stores = Choice { store: None }.stores().ok()?;
    let file = stores.of_server("tokens.json");
    file.exists().then_some(())?;
    let tokens = Tokens::open(&file, Env::system()).ok()?;
    let (known, now) = (tokens.list().ok()?, Env::system().now().wall);
    let may = |token: &&Token| token.scopes.contains(&Scope::Delegate) && token.expires_at.is_none_or(|at| now < at);
    let owned = |token: &Token| (token.name.clone(), token.owner.clone());
    Some(KnownTokens {
        owned: known.iter().map(owned).collect(),
        may_delegate: known.iter().filter(may).map(owned).collect(),
        names: known.iter().map(|token| token.name.clone()).chain(tokens.revoked().ok()?).collect(),
    })
}

/// What `check` prints.
#[derive(Default)]
struct Report {
    text: String,
    remarks: String,
    /// Lines about what is no defect: agents without a model, which the command line can name, and variables that are set elsewhere.
    notice: String,
    rows: Vec<Value>,
    defects: usize,
    /// How many files have defects.
    wrong: usize,
}

impl Report {
    fn add_defects(&mut self, found: &Defects) {
        if !found.list().is_empty() {
            self.remarks.push_str(&format!("{found}\n\n"));
            (self.defects, self.wrong) = (self.defects + found.list().len(), self.wrong + 1);
        }
    }

    /// A file that cannot be used.
    fn add_unread(&mut self, origin: &str, found: &Defects) {
        self.add_defects(found);
        self.rows.push(json!({ "kind": "unread", "file": origin, "defects": defects_json(found) }));
    }

    /// Names the agents that have no model unless the command line names one.
    fn add_missing_model<'a>(&mut self, models: &Models, definitions: impl Iterator<Item = &'a Definition>) {
        let Err(error) = models.candidates(&ModelChoice::default()) else { return };
        let needs_one =
            |definition: &&Definition| definition.process.is_none() && definition.model == ModelChoice::default();
        let agents: Vec<&str> = definitions.filter(needs_one).map(|definition| definition.name.as_str()).collect();
        if !agents.is_empty() {
            let why = format!("{error}{NAME_ONE_LATER}");
            let (noun, names) = (if agents.len() == 1 { "agent" } else { "agents" }, visible(&agents.join(", ")));
            self.notice += &format!("no model is configured for the {noun} {names}: {why}\n");
            self.rows.push(json!({ "kind": "no_model", "agents": agents, "why": why }));
        }
    }

    /// Names the variables that `callboard serve` needs and that are not set here.
    fn add_unset(&mut self, unset: &[Unusable]) {
        for unusable in unset {
            self.notice += &format!("warning: {unusable}\n");
            let (variable, why) = (unusable.unset.as_deref(), unusable.to_string());
            self.rows.push(json!({ "kind": "unset", "variable": variable, "why": why }));
        }
    }

    /// Adds what is no defect, because it may change without the files.
    fn add_warning(&mut self, why: Option<&str>) {
        if let Some(why) = why {
            self.notice += &format!("warning: {why}\n");
            self.rows.push(json!({ "kind": "warning", "why": why }));
        }
    }

    fn page(mut self, has_shell: bool) -> Page {
        if self.defects > 0 {
            let files = self.rows.iter().filter(|row| row["file"].is_string()).count();
            let (defects, files) = (count(self.defects, "defect"), count(files, "file"));
            self.remarks.push_str(&format!("{defects} in {} of {files}\n", self.wrong));
        }
        self.remarks.push_str(&self.notice);
        if has_shell {
            let parts = ShellExec::confinement();
            self.text.push_str(&format!("commands of ShellExec, on this machine:\n{}", confinement(&parts)));
            let rows: Vec<Value> = parts.iter().map(confinement_row).collect();
            self.rows.push(json!({ "kind": "confinement", "confinement": rows }));
        }
        Page { exit: exit(self.defects > 0), remarks: self.remarks, ..Page::new(self.text, Value::from(self.rows)) }
    }
}

/// The defects without those that are unknown: they are about tools of servers, or about roles, whose file has defects itself.
fn without(source: &DefinitionSource, found: Defects, is_unknown: impl Fn(&Defect) -> bool) -> Defects {
    let list = found.list().iter().filter(|defect| !is_unknown(defect)).cloned().collect();
    Defects::of(&source.origin, found.source().map(|(_, text)| text), list)
}

/// The defects in the models that a definition names. A definition that names none gets its model from the command line.
fn models_of(models: &Models, definition: &Definition, source: &DefinitionSource) -> Result<(), Defects> {
    let choice = &definition.model;
    if *choice == ModelChoice::default() || choice.preferred.as_deref() == Some(FAKE) {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&source.bytes);
    let at = |word: &str, problem: String| Defect { problem, advice: None, place: place_of(&text, word) };
    let names = choice.preferred.iter().chain(&choice.fallback);
    let mut found: Vec<Defect> =
        names.filter_map(|name| Some(at(name, models.candidates(&ModelChoice::of(name)).err()?.to_string()))).collect();
    let is_there = |tag: &str| models.entries().any(|entry| entry.tags.iter().any(|there| **there == *tag));
    for tag in choice.tags.iter().filter(|tag| !is_there(tag)) {
        found.push(at(tag, format!("no model has the tag {tag:?}")));
    }
    if found.is_empty()
        && let Err(error) = models.candidates(choice)
    {
        found.push(Defect { problem: error.to_string(), advice: None, place: None });
    }
    if found.is_empty() { Ok(()) } else { Err(Defects::of(&source.origin, Some(&text), found)) }
}

/// The place of the word in quotes, from the table `[agent.model]` on.
fn place_of(text: &str, word: &str) -> Option<Range<usize>> {
    let from = text.find("[agent.model]").unwrap_or_default();
    let places = ['"', '\''].into_iter().filter_map(|quote| {
        let written = format!("{quote}{word}{quote}");
        let start = from + text[from..].find(&written)?;
        Some(start..start + written.len())
    });
    places.min_by_key(|place| place.start)
}

/// Lines that list the built-in agents, and those that a file replaces.
fn built_in<'a>(own: impl Iterator<Item = &'a Definition>) -> String {
    let own: Vec<&str> = own.map(|definition| definition.name.as_str()).collect();
    let (replaced, there): (Vec<&str>, Vec<&str>) =
        BuiltIn::ALL.map(BuiltIn::name).into_iter().partition(|name| own.contains(name));
    let line = |what: &str, names: Vec<&str>| {
        if names.is_empty() { String::new() } else { format!("{what}: {}\n", names.join(", ")) }
    };
    line("built in", there) + &line("built in, and replaced by a file", replaced)
}

fn summary(definition: &Definition) -> String {
    let description = if definition.description.is_empty() { "" } else { ": " };
    let named = format!("{}{description}{}", definition.name, definition.description);
    if let Some(process) = &definition.process {
        let command: Vec<String> = process.command.iter().map(|word| quoted(word)).collect();
        return format!("{named} (program; {})", command.join(" "));
    }
    let tools = match &definition.allowed_tools {
        Some(tools) if tools.is_empty() => "no tools".to_owned(),
        Some(tools) => tools.join(", "),
        None => "all tools of its mode".to_owned(),
    };
    format!("{named} ({}; {tools})", definition.mode.name())
}

fn row(origin: &str, definition: &Definition) -> Value {
    if let Some(process) = &definition.process {
        return json!({
            "kind": "program",
            "file": origin,
            "agent": definition.name,
            "description": definition.description,
            "program": process.command,
            "grant": definition.granted(),
        });
    }
    json!({
        "kind": "agent",
        "file": origin,
        "agent": definition.name,
        "description": definition.description,
        "mode": definition.mode.name(),
        "tools": definition.allowed_tools,
        "grant": definition.granted(),
        "models": definition.model.preferred.iter().chain(&definition.model.fallback).collect::<Vec<_>>(),
    })
}

/// A line for each part of the confinement of commands: what it does, or why it does not hold on this machine.
fn confinement(parts: &[Protection]) -> String {
    let line = |part: &Protection| format!("  {}: {}\n", part.name, part.lacks.as_deref().unwrap_or(part.means));
    parts.iter().map(line).collect()
}

fn confinement_row(part: &Protection) -> Value {
    json!({ "name": part.name, "holds": part.lacks.is_none(), "means": part.means, "lacks": part.lacks })
}

/// The names of the tools of MCP servers.
fn of_servers(tools: &Tools) -> String {
    let names: Vec<&str> = server_tools(tools).collect();
    if names.is_empty() { "no tools".to_owned() } else { names.join(", ") }
}

fn server_tools(tools: &Tools) -> impl Iterator<Item = &str> {
    tools.names().filter(|name| name.starts_with("mcp__"))
}

fn servers_row(Mcp { origin, problems }: &Mcp, tools: &Tools) -> Value {
    let problem = |problem: &McpProblem| {
        let McpProblem { server, place, reached_by, tool, problem } = problem;
        json!({ "server": server, "place": place, "reached_by": reached_by, "tool": tool, "problem": problem })
    };
    json!({
        "kind": "servers",
        "file": origin,
        "tools": server_tools(tools).collect::<Vec<_>>(),
        "problems": problems.iter().map(problem).collect::<Vec<_>>(),
    })
}
