//! Definitions in TOML, read so that everything that is wrong with one is told at its place.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callboard::actors::Mode;
use callboard::messages::{AgentName, Authority, Effect, MAX_AGENT_NAME, OnUnknown};
use callboard_documents::toml::{DeTable, DeValue, Field, Fields, Item, count, duration, list, string, text, word};
use callboard_documents::{Defect, Defects, Found, Place, Placed, text_of};
use callboard_text::{check_name, check_own_name, did_you_mean, look_alike, nearest, quoted};

use super::Definition;
use super::board::{announces, context, limits};
use super::delegation::delegation;
use super::output::output;
use super::process;
use crate::catalog::ModelChoice;
use crate::meta::MetaTool;
use crate::permission::Tier;
use crate::prompt::{Prompt, Section};
use crate::tool::Tools;

const LONG: &str = "keep long texts for the prompt in files that the agent reads";
const HEADER: &str = "begin with [agent] and name = \"…\"; write [agent.model] and [agent.capabilities] below it";
const EXAMPLE_NAME: &str = "write name = \"…\" under [agent]";
const EXAMPLE_SECTION: &str = "write [[agent.sections]], and below it name = \"…\" and text = \"…\"";

/// A text that an agent is defined in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinitionSource {
    /// What the text is called in errors, a file's name for example.
    pub origin: String,
    /// The text, which should be UTF-8.
    pub bytes: Vec<u8>,
}

impl DefinitionSource {
    /// Reads a file of a folder of agents, called by its path: a regular file, or a link to one in that folder. Nothing is waited
    /// for.
    ///
    /// ```
    /// use callboard_agents::DefinitionSource;
    /// # let folder = tempfile::tempdir()?;
    /// # let folder = folder.path();
    /// std::fs::write(folder.join("poet.toml"), "[agent]\nname = \"poet\"")?;
    /// assert!(DefinitionSource::in_folder(folder, &folder.join("poet.toml"))?.bytes.starts_with(b"[agent]"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is something else, cannot be read, or is a link that leads to nothing or out of the folder: what is there may be nobody's
    /// to show.
    pub fn in_folder(folder: &Path, file: &Path) -> io::Result<Self> {
        let is_link = file.symlink_metadata()?.is_symlink();
        let place = file.canonicalize().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound if is_link => {
                io::Error::other("it is a link to nothing: remove it, or put the file there")
            }
            _ => error,
        })?;
        if is_link && !place.starts_with(folder.canonicalize()?) {
            return Err(io::Error::other("it is a link that leads out of its folder: put the file itself there"));
        }
        if !place.metadata()?.is_file() {
            let problem = "it is no regular file, so it is not read: remove it, or give it another name";
            return Err(io::Error::other(problem));
        }
        Ok(Self { origin: file.display().to_string(), bytes: callboard_documents::bytes_of(&place)? })
    }
}

/// Reads definitions, and checks them against what there is.
#[derive(Clone, Debug, Default)]
pub struct DefinitionReader {
    tools: Option<Tools>,
    models: Option<BTreeSet<String>>,
    root: Option<PathBuf>,
    tier: Tier,
}

/// What is wrong with a name that people cannot tell from one of these. A plain one is none that others are mistaken for.
pub(crate) fn name_alike<'a>(name: &AgentName, others: impl Iterator<Item = &'a AgentName>) -> Option<Defect> {
    let name = name.as_str();
    if name.is_ascii() {
        return None;
    }
    let other = look_alike(name, others.map(AgentName::as_str))?;
    let problem = format!("the name {} looks like that of the agent {}", quoted(name), quoted(other));
    Some(Defect::new(&None, problem).advise("give one of them another name"))
}

impl Definition {
    /// Reads one by itself: names of tools and models are not checked against anything.
    ///
    /// ```
    /// use callboard_agents::Definition;
    /// let reviewer = Definition::from_toml("reviewer.toml", r#"
    ///     [agent]
    ///     name = "reviewer"
    ///     mode = "explore"
    ///     system_prompt = "You review what {{ previous_agent }} has written."
    ///
    ///     [agent.model]
    ///     preferred = "claude-sonnet-4-5"
    /// "#)?;
    /// assert_eq!(reviewer.max_iterations, 25);
    /// # Ok::<(), callboard_agents::Defects>(())
    /// ```
    ///
    /// # Errors
    /// Everything that is wrong with the text.
    pub fn from_toml(origin: &str, text: &str) -> Result<Self, Defects> {
        DefinitionReader::default().read(origin, text)
    }

    /// A reader that knows what there is.
    #[must_use]
    pub fn reader() -> DefinitionReader {
        DefinitionReader::default()
    }
}

impl DefinitionReader {
    /// The tools that there are, beside those of the loop itself.
    #[must_use]
    pub fn tools(mut self, tools: &Tools) -> Self {
        self.tools = Some(tools.clone());
        self
    }

    /// The names of the models that there are. Without them any name is taken for one.
    #[must_use]
    pub fn models<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.models = Some(names.into_iter().map(str::to_owned).collect());
        self
    }

    /// The folder that programs start in. With it, programs that agents are, their folders and the variables that they are passed
    /// have to be there.
    #[must_use]
    pub fn root(mut self, folder: impl Into<PathBuf>) -> Self {
        self.root = Some(folder.into());
        self
    }

    /// What it reads is compiled in: no text can say that of itself.
    pub(crate) fn built_in(mut self) -> Self {
        self.tier = Tier::BuiltIn;
        self
    }

    /// Reads one.
    ///
    /// # Errors
    /// Everything that is wrong with the text.
    pub fn read(&self, origin: &str, text: &str) -> Result<Definition, Defects> {
        let mut found = Found::default();
        let read =
            callboard_documents::toml::read(text, LONG, &mut found, |document, found| self.document(document, found));
        match found.or(read) {
            Ok(Some(definition)) => Ok(definition),
            // Nothing is made of a text without a defect.
            Ok(None) => {
                Err(Defects::of(origin, Some(text), vec![Defect::new(&None, "there is no agent in this text")]))
            }
            Err(defects) => Err(Defects::of(origin, Some(text), defects)),
        }
    }

    /// Reads several, which must have names of their own.
    #[must_use]
    pub fn all(&self, sources: &[DefinitionSource]) -> Vec<Result<Definition, Defects>> {
        let mut owners: BTreeMap<AgentName, &str> = BTreeMap::new();
        let read = sources.iter().map(|DefinitionSource { origin, bytes }| {
            let text = text_of(bytes)
                .map_err(|defect| Defects::of(origin, Some(&String::from_utf8_lossy(bytes)), vec![defect]))?;
            let definition = self.read(origin, text)?;
            if let Some(owner) = owners.insert(definition.name.clone(), origin) {
                let problem = format!("{owner} has an agent of the name {} too", quoted(definition.name.as_str()));
                let defect = Defect::new(&None, problem).advise("give one of them another name");
                return Err(Defects::of(origin, Some(text), vec![defect]));
            }
            Ok(definition)
        });
        let mut read: Vec<Result<Definition, Defects>> = read.collect();
        let names: Vec<AgentName> = read.iter().flatten().map(|definition| definition.name.clone()).collect();
        for (definition, source) in read.iter_mut().zip(sources) {
            let alike = definition.as_ref().ok().and_then(|it| name_alike(&it.name, names.iter()));
            if let Some(defect) = alike {
                *definition = Err(Defects::of(&source.origin, text_of(&source.bytes).ok(), vec![defect]));
            }
        }
        read
    }

    fn document(&self, document: &DeTable<'_>, found: &mut Found) -> Option<Definition> {
        for key in document.keys().filter(|key| key.get_ref() != "agent") {
            let likely = nearest(key.get_ref(), ["agent"]);
            let problem =
                format!("{} is not part of an agent{}", quoted(key.get_ref()), did_you_mean(likely.as_deref()));
            found.add(Defect::new(&Some(key.span()), problem).advise("everything stands under `agent`"));
        }
        match document.get("agent") {
            Some(item) => self.agent(item, found),
            None => {
                if document.is_empty() {
                    found.add(Defect::new(&Some(0..0), "there is no agent in this text").advise(HEADER));
                }
                None
            }
        }
    }

    fn agent(&self, item: &Item<'_>, found: &mut Found) -> Option<Definition> {
        let mut fields = Fields::of("an agent", item, "write [agent], with one pair of brackets", found)?;
        let name = fields.required("name", EXAMPLE_NAME, found).and_then(|field| text(field, found));
        let name = name.and_then(|name| checked("agent", name, found));
        // What is wrong elsewhere is told also of an agent without a name.
        let made = name.as_ref().and_then(|name| AgentName::new(&name.value).ok());
        let placeholder = || AgentName::new("agent").ok();
        let mut definition = Definition::new(made.or_else(placeholder)?, self.tier);
        if let Some(description) = fields.text("description", found) {
            definition.description = description.value;
        }
        match fields.get("process") {
            Some(item) => {
                definition.process = process::process(item, self.root.as_deref(), found).map(Arc::new);
                process::refuse(&mut fields, &process::THINKING, found);
                if let Some(item) = fields.get("capabilities") {
                    process::capabilities(item, &mut definition, found);
                }
            }
            None => self.thinking(&mut fields, &mut definition, found),
        }
        if let Some(item) = fields.get("announces") {
            announces(item, &mut definition, found);
        }
        if let Some(item) = fields.get("limits") {
            limits(item, &mut definition, found);
        }
        if let Some(item) = fields.get("context") {
            context(item, &mut definition, found);
        }
        fields.close(found);
        name.map(|_| definition)
    }

    /// What is said of an agent that thinks with a model.
    fn thinking(&self, fields: &mut Fields<'_>, definition: &mut Definition, found: &mut Found) {
        if let Some(mode) = fields.field("mode").and_then(|field| mode(field, found)) {
            definition.mode = mode;
        }
        let prompt = fields.text("system_prompt", found);
        let sections = fields.field("sections").map(|field| sections(field, found)).unwrap_or_default();
        if let Some(item) = fields.get("model") {
            self.model(item, definition, found);
        }
        if let Some(item) = fields.get("capabilities") {
            self.capabilities(item, definition, found);
        }
        if let Some(item) = fields.get("delegation") {
            delegation(item, definition, found);
        }
        if let Some(item) = fields.get("output") {
            definition.output = output(item, found);
        }
        self.check_prompt(definition, prompt, sections, found);
    }

    fn model(&self, item: &Item<'_>, definition: &mut Definition, found: &mut Found) {
        const WHAT: &str = "the model of an agent";
        let Some(mut fields) = Fields::of(WHAT, item, "write [agent.model], and below it preferred = \"…\"", found)
        else {
            return;
        };
        // Of several, the first is preferred, and the others are its fallbacks, before those that are named so.
        let mut fallback = fields.field("preferred").map(|field| one_or_several(field, found)).unwrap_or_default();
        let preferred = (!fallback.is_empty()).then(|| fallback.remove(0));
        fallback.extend(fields.field("fallback").map(|field| texts(field, found)).unwrap_or_default());
        let tags = fields.field("provider_tags").map(|field| texts(field, found)).unwrap_or_default();
        if let Some(tokens) = fields.field("max_tokens").and_then(|field| count(field, found)) {
            definition.max_tokens = tokens.value;
        }
        definition.compact_at =
            fields.field("compact_at").and_then(|field| count(field, found)).map(|tokens| tokens.value);
        fields.close(found);
        let mut seen = BTreeSet::new();
        for model in preferred.iter().chain(&fallback) {
            if !seen.insert(&model.value) {
                let problem = format!(
                    "the model {} stands here twice: it would be asked again after it failed",
                    quoted(&model.value)
                );
                found.add(Defect::new(&model.place, problem).advise("name another one, or none"));
            }
            if let Some(models) = &self.models
                && !models.contains(&model.value)
            {
                let likely = nearest(&model.value, models.iter().map(String::as_str));
                let problem = format!("there is no model {}{}", quoted(&model.value), did_you_mean(likely.as_deref()));
                found.add(Defect::new(&model.place, problem));
            }
        }
        definition.model = ModelChoice {
            preferred: preferred.map(|model| model.value.into()),
            fallback: values(fallback),
            tags: values(tags),
        };
    }

    fn capabilities(&self, item: &Item<'_>, definition: &mut Definition, found: &mut Found) {
        const WHAT: &str = "the capabilities of an agent";
        let Some(mut fields) =
            Fields::of(WHAT, item, "write [agent.capabilities], and below it allowed_tools = […]", found)
        else {
            return;
        };
        let allowed = fields.field("allowed_tools").map(|field| texts(field, found));
        let hidden = fields.field("hidden_tools").map(|field| texts(field, found)).unwrap_or_default();
        let ask = fields.field("ask").map(|field| texts(field, found)).unwrap_or_default();
        let idempotent = fields.field("idempotent").map(|field| texts(field, found)).unwrap_or_default();
        definition.on_unknown = fields.field("on_unknown").and_then(|field| on_unknown(field, found));
        definition.question_ttl =
            fields.field("question_ttl").and_then(|field| duration(field, found)).map(|ttl| ttl.value);
        if let Some(times) = fields.field("max_iterations").and_then(|field| count(field, found)) {
            definition.max_iterations = times.value;
        }
        if let Some(authority) = fields.field("authority").and_then(|field| authority(field, found)) {
            definition.authority = authority;
        }
        if let Some(tier) = fields.field("trust_tier") {
            check_tier(tier, found);
        }
        fields.close(found);
        for tool in allowed.iter().flatten() {
            self.check_tool(tool, definition.mode, found);
        }
        for tool in hidden.iter().chain(&ask).chain(&idempotent) {
            match &allowed {
                Some(allowed) if allowed.iter().all(|one| one.value != tool.value) => {
                    let likely = nearest(&tool.value, allowed.iter().map(|one| one.value.as_str()));
                    let problem = format!(
                        "{} is not among the allowed tools{}",
                        quoted(&tool.value),
                        did_you_mean(likely.as_deref())
                    );
                    found.add(Defect::new(&tool.place, problem).advise("add it to `allowed_tools`, or remove it here"));
                }
                Some(_) => {}
                None => self.check_tool(tool, definition.mode, found),
            }
        }
        (definition.allowed_tools, definition.hidden_tools) = (allowed.map(values), values(hidden));
        (definition.ask, definition.idempotent) = (values(ask), values(idempotent));
    }

    fn check_tool(&self, tool: &Placed<String>, mode: Mode, found: &mut Found) {
        let Some(tools) = &self.tools else { return };
        if MetaTool::of(&tool.value).is_some() {
            return;
        }
        let Some(entry) = tools.get(&tool.value) else {
            let known: Vec<&str> = tools.names().chain(MetaTool::ALL.map(MetaTool::name)).collect();
            let likely = nearest(&tool.value, known.iter().copied());
            let problem = format!("there is no tool {}{}", quoted(&tool.value), did_you_mean(likely.as_deref()));
            let mut defect = Defect::new(&tool.place, problem);
            if likely.is_none() {
                defect = defect.advise(format!("there are {}", known.join(", ")));
            }
            found.add(defect);
            return;
        };
        if !entry.spec.effect.fits(mode) {
            let problem = format!("an agent of the mode {} has no tool {}", mode.name(), quoted(&tool.value));
            found.add(Defect::new(&tool.place, problem).advise("give the agent the mode build, or remove the tool"));
        }
    }

    /// Makes the prompt ready once, to see that nothing in it is missing.
    fn check_prompt(
        &self,
        definition: &mut Definition,
        prompt: Option<Placed<String>>,
        sections: Vec<Placed<Section>>,
        found: &mut Found,
    ) {
        let (prompt_place, prompt) = prompt.map(|prompt| (prompt.place, prompt.value)).unwrap_or_default();
        // All of them, whatever the mode: another definition may take this one's place in another mode.
        let mut wrong = |place: &Place, own: &str, sections: &[Section]| {
            let mode = sections.first().and_then(|section| section.modes.first()).copied();
            if let Err((_, fault)) = Prompt::of(own, sections, mode.unwrap_or(definition.mode), &Tools::new()) {
                found.add(Defect { problem: fault.problem, advice: fault.advice, place: place.clone() });
            }
        };
        wrong(&prompt_place, &prompt, &[]);
        let mut names = BTreeSet::new();
        for section in &sections {
            wrong(&section.place, "", std::slice::from_ref(&section.value));
        }
        for section in &sections {
            if !names.insert(section.value.name.clone()) {
                let problem = format!("two sections are named {}", quoted(&section.value.name));
                found.add(Defect::new(&section.place, problem).advise("give one of them another name"));
            }
        }
        definition.system_prompt = prompt;
        definition.sections = sections.into_iter().map(|section| section.value).collect();
    }
}

fn mode(field: Field<'_>, found: &mut Found) -> Option<Mode> {
    let words = [Mode::Build, Mode::Plan, Mode::Explore, Mode::General].map(|mode| (mode.name(), mode));
    word(field, &words, found)
}

/// What follows when an effect that must not be repeated may have happened.
pub(super) fn on_unknown(field: Field<'_>, found: &mut Found) -> Option<OnUnknown> {
    let words = [OnUnknown::Ask, OnUnknown::Report, OnUnknown::Fail, OnUnknown::Repeat].map(|rule| (rule.name(), rule));
    word(field, &words, found)
}

/// The effects that it may cause.
pub(super) fn authority(field: Field<'_>, found: &mut Found) -> Option<Authority> {
    let words = Effect::ALL.map(|effect| (effect.name(), effect));
    let items = list(field, "write authority = [\"reads\", \"notes\"]", found);
    let effects: Vec<Option<Effect>> = items.iter().map(|item| word((field.0, item), &words, found)).collect();
    effects.into_iter().collect::<Option<Vec<_>>>().map(Authority::of)
}

pub(super) fn check_tier(field: Field<'_>, found: &mut Found) {
    let (_, item) = field;
    let claimed = match item.get_ref().as_str() {
        Some("built_in") => "agents that are compiled in",
        Some("dynamic") => "agents that other agents make",
        Some(_) | None => {
            word(field, &[("user_defined", ())], found);
            return;
        }
    };
    let problem = format!("a file cannot claim this tier: it is for {claimed}");
    found.add(Defect::new(&Some(item.span()), problem).advise("write \"user_defined\", or nothing"));
}

fn sections(field: Field<'_>, found: &mut Found) -> Vec<Placed<Section>> {
    let items = list(field, EXAMPLE_SECTION, found);
    let section = |item: &Item<'_>, found: &mut Found| {
        let mut fields = Fields::of("a section of a prompt", item, EXAMPLE_SECTION, found)?;
        let name = fields.required("name", EXAMPLE_SECTION, found).and_then(|field| text(field, found));
        let said = fields.required("text", EXAMPLE_SECTION, found).and_then(|field| text(field, found));
        let priorities = fields.field("priority").map(|field| priorities(field, found));
        let (priority, priorities) = priorities.unwrap_or_default();
        let modes = fields.field("modes").map(|(key, item)| {
            let modes = list((key, item), "write modes = [\"build\"]", found);
            modes.iter().filter_map(|item| mode(("modes", item), found)).collect()
        });
        fields.close(found);
        let (name, said) = (name?, said?);
        let section = Section {
            name: name.value.into(),
            priority: priority.unwrap_or(60),
            priorities,
            modes: modes.unwrap_or_default(),
            text: said.value.into(),
        };
        Some(Placed { value: section, place: said.place })
    };
    items.iter().filter_map(|item| section(item, found)).collect()
}

/// The most that a priority may be.
const MAX_PRIORITY: u32 = 1_000;

/// One for all modes, or one for each mode that is named.
fn priorities((key, item): Field<'_>, found: &mut Found) -> (Option<u16>, Vec<(Mode, u16)>) {
    if !matches!(item.get_ref(), DeValue::Table(_)) {
        return (priority((key, item), found), Vec::new());
    }
    const EXAMPLE: &str = "write priority = { plan = 5, build = 70 }";
    let Some(mut fields) = Fields::of("the priority of a section", item, EXAMPLE, found) else {
        return Default::default();
    };
    let modes = [Mode::Build, Mode::Plan, Mode::Explore, Mode::General];
    let named = modes.into_iter().filter_map(|mode| {
        let field = fields.field(mode.name())?;
        Some((mode, priority(field, found)?))
    });
    let named = named.collect();
    fields.close(found);
    (None, named)
}

fn priority(field: Field<'_>, found: &mut Found) -> Option<u16> {
    let (_, item) = field;
    let number = item.get_ref().as_integer().and_then(|number| number.as_str().parse::<u32>().ok());
    let number = number.filter(|number| *number <= MAX_PRIORITY);
    if number.is_none() {
        let problem = format!("`priority` must be a whole number from 0 to {MAX_PRIORITY}");
        found.add(Defect::new(&Some(item.span()), problem));
    }
    number.and_then(|number| u16::try_from(number).ok())
}

/// A text, or a list of texts.
fn one_or_several(field: Field<'_>, found: &mut Found) -> Vec<Placed<String>> {
    let (_, item) = field;
    match item.get_ref() {
        DeValue::Array(_) => texts(field, found),
        _ => text(field, found).into_iter().collect(),
    }
}

/// A list of texts with their places.
pub(super) fn texts((key, item): Field<'_>, found: &mut Found) -> Vec<Placed<String>> {
    let items = list((key, item), &format!("put it in brackets: {key} = [\"…\"]"), found);
    let one = |item: &Item<'_>, found: &mut Found| {
        let text = string(&format!("an entry of `{key}`"), "a string", item, found)?;
        Some(Placed::at(text.to_owned(), item.span()))
    };
    items.iter().filter_map(|item| one(item, found)).collect()
}

pub(super) fn values(texts: Vec<Placed<String>>) -> Vec<Arc<str>> {
    texts.into_iter().map(|text| text.value.into()).collect()
}

/// A name that keeps the rule for names.
pub(super) fn checked(kind: &'static str, name: Placed<String>, found: &mut Found) -> Option<Placed<String>> {
    let max = match kind {
        "project" => 128,
        "namespace" => 64,
        _ => MAX_AGENT_NAME,
    };
    let check = if kind == "agent" { check_own_name } else { check_name };
    match check(kind, &name.value, max) {
        Ok(()) => Some(name),
        Err(error) => {
            found.add(Defect::new(&name.place, error.to_string()));
            None
        }
    }
}
