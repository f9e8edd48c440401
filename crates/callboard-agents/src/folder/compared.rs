//! Compares files with the agents in effect. Pure.

use std::collections::{BTreeMap, BTreeSet};

use callboard::actors::AgentSpec;
use callboard::messages::AgentName;
use callboard_text::{quoted, visible};

use crate::definition::{Definition, DefinitionReader, DefinitionSource, name_alike};
use crate::teammate::Teammate;

use super::catalog::{Bytes, Catalog, Current};
use super::{AcceptedAgent, AgentFolder, FileChange, FileReport, Files, Known};

/// The changes that a board has to make, and their reports.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Agents whose files are gone, to be stopped.
    pub(crate) gone: Vec<AgentName>,
    /// Agents to be added or replaced.
    pub(crate) put: Vec<Put>,
    /// The reports about each file, by name, if all changes succeed.
    pub(crate) reports: Vec<FileReport>,
    files: BTreeMap<String, Known>,
    /// The catalog after the changes.
    catalog: Option<Catalog>,
}

/// An agent to be added or replaced.
#[derive(Debug)]
pub(crate) struct Put {
    pub(crate) file: String,
    pub(crate) agent: AgentName,
    pub(crate) spec: AgentSpec,
}

/// Definitions by their files.
type ByFile<'a, T> = BTreeMap<&'a str, T>;

impl AgentFolder {
    /// What the files contain, each read by itself.
    pub(super) fn definitions(&self, read: &Files) -> impl Iterator<Item = Result<Definition, String>> {
        let reader = Definition::reader().tools(&self.tools).root(&self.root).roles(&self.roles);
        read.agents.iter().map(move |(file, bytes)| {
            let bytes = bytes.as_ref().map_err(|error| format!("{}: {error}", visible(file)))?;
            definition(&reader, file, bytes)
        })
    }

    /// The changes that make the agents match these files.
    pub(crate) fn compare(&self, read: &Files) -> Changes {
        let (mut new, mut refused): (ByFile<'_, Definition>, ByFile<'_, String>) = Default::default();
        for (file, definition) in read.agents.keys().zip(self.definitions(read)) {
            match definition.and_then(|definition| self.may_permit(file, self.may_declare(file, definition)?)) {
                Ok(definition) => drop(new.insert(file, definition)),
                Err(why) => drop(refused.insert(file, why)),
            }
        }
        let (catalog, report) = self.models_now(&self.resulting(&new, &refused), read.catalog.as_ref()).unzip();
        // A refused file keeps its older agent, whose name may conflict with others.
        loop {
            let resulting = self.resulting(&new, &refused);
            match self.made(&resulting, &new, catalog.as_ref()) {
                Ok(made) => {
                    let mut changes = self.changes(&resulting, made, &refused);
                    changes.reports.splice(..0, report);
                    return Changes { catalog, ..changes };
                }
                Err((file, why)) => {
                    new.remove(file);
                    refused.insert(file, format!("{}: {why}", visible(file)));
                }
            }
        }
    }

    /// The definition, unless it declares a program that may not be added now.
    fn may_declare(&self, file: &str, definition: Definition) -> Result<Definition, String> {
        if definition.process.as_ref().is_none_or(|process| self.programs.have(process)) {
            return Ok(definition);
        }
        let name = quoted(definition.name.as_str());
        Err(format!(
            "{}: the program of {name} is not one that was declared when the folder was loaded, and tools can write in this \
             folder\n  advice: look at the file; a new program takes effect at the next start",
            visible(file)
        ))
    }

    /// The definition, unless it permits more than may be added now.
    fn may_permit(&self, file: &str, definition: Definition) -> Result<Definition, String> {
        match self.permissions.loaded().and_then(|loaded| loaded.beyond(&definition)) {
            None => Ok(definition),
            Some(more) => Err(format!(
                "{}: {} would be permitted more than at the start: {more}\n  advice: look at the file; such a change takes effect \
                 at the next start",
                visible(file),
                quoted(definition.name.as_str())
            )),
        }
    }

    /// The models, unless one is called at an address or with a key that may not be added now, or costs less than it did.
    fn may_ask(&self, catalog: &Catalog, offered: Current) -> Result<Current, String> {
        let Some(loaded) = self.permissions.loaded().and_then(|loaded| loaded.models.as_ref()) else {
            return Ok(offered);
        };
        let (elsewhere, cheaper) = (offered.models.elsewhere(loaded), offered.models.cheaper(loaded));
        let (what, models) = match (elsewhere.is_empty(), cheaper.is_empty()) {
            (true, true) => return Ok(offered),
            (false, _) => ("another `provider`, `url` or `key_variable`", elsewhere),
            (true, false) => ("lower `prices`", cheaper),
        };
        let models: Vec<_> = models.iter().map(|name| quoted(name)).collect();
        Err(format!(
            "{}: {what} than at the start: {}\n  advice: look at the file; such a change takes effect at the next start",
            visible(&catalog.name()),
            models.join(", ")
        ))
    }

    /// The resulting agents: the new ones, and the older ones of refused files.
    fn resulting<'a>(&self, new: &ByFile<'a, Definition>, refused: &ByFile<'a, String>) -> ByFile<'a, Definition> {
        let older = refused.keys().filter_map(|file| Some((*file, self.older(file)?.definition.clone())));
        older.chain(new.clone()).collect()
    }

    /// The catalog after reading its file, and the report about it.
    fn models_now(&self, resulting: &ByFile<'_, Definition>, bytes: Option<&Bytes>) -> Option<(Catalog, FileReport)> {
        let mut catalog = self.catalog.clone()?;
        let agents = resulting.iter().map(|(file, definition)| (*file, definition));
        let offered = catalog.offered(bytes?).and_then(|offered| self.may_ask(&catalog, offered));
        let offered = offered.and_then(|offered| catalog.fitting(offered, agents));
        let change = catalog.take(offered);
        let file = catalog.name();
        Some((catalog, FileReport { file, change }))
    }

    /// The agent in effect for a file.
    fn older(&self, file: &str) -> Option<&AcceptedAgent> {
        self.files.get(file)?.agent.as_ref()
    }

    /// The agent of this name whose file is gone: its file was renamed.
    fn moved(&self, name: &AgentName, files: &BTreeSet<&str>) -> Option<&AcceptedAgent> {
        let gone = self.files.iter().filter(|(file, _)| !files.contains(&***file));
        gone.filter_map(|(_, known)| known.agent.as_ref()).find(|agent| agent.definition.name == *name)
    }

    /// Builds the agents that differ from those in effect, in themselves, in the other agents that they know or in their models.
    ///
    /// # Errors
    /// The first file that cannot be accepted, and the reason.
    fn made<'a>(
        &self,
        resulting: &ByFile<'a, Definition>,
        new: &ByFile<'a, Definition>,
        catalog: Option<&Catalog>,
    ) -> Result<ByFile<'a, (AcceptedAgent, AgentSpec)>, (&'a str, String)> {
        self.check_names(resulting, new)?;
        let mut made = BTreeMap::new();
        for (file, definition) in resulting {
            let others = resulting.values().filter(|other| other.name != definition.name);
            let team =
                others.map(|other| Teammate { name: other.name.to_string(), description: other.description.clone() });
            // A program has no list of other agents, so it is not rebuilt when they change.
            let is_program = definition.process.is_some();
            let team = if is_program { Vec::new() } else { team.collect() };
            let models = catalog.filter(|_| !is_program).map_or(0, Catalog::generation);
            let wanted = AcceptedAgent { definition: definition.clone(), team, models };
            if self.older(file) == Some(&wanted) {
                continue;
            }
            match self.agent(&wanted, catalog) {
                Ok(spec) => drop(made.insert(*file, (wanted, spec))),
                Err(why) if new.contains_key(file) => return Err((*file, why)),
                // The older definition remains.
                Err(_) => {}
            }
        }
        Ok(made)
    }

    /// Checks that each name occurs once. The agent that had it before keeps it.
    fn check_names<'a>(
        &self,
        resulting: &ByFile<'a, Definition>,
        new: &ByFile<'a, Definition>,
    ) -> Result<(), (&'a str, String)> {
        let had = |file: &str, name: &AgentName| self.older(file).is_some_and(|older| older.definition.name == *name);
        let (keep, take): (Vec<_>, Vec<_>) =
            resulting.iter().partition(|(file, definition)| had(file, &definition.name));
        let mut owners: BTreeMap<&AgentName, &str> = BTreeMap::new();
        for (file, definition) in keep.into_iter().chain(take) {
            let others = resulting.values().map(|other| &other.name);
            if let Some(defect) = name_alike(&definition.name, others).filter(|_| new.contains_key(file)) {
                let advice = defect.advice.map(|advice| format!("\n  advice: {advice}")).unwrap_or_default();
                return Err((file, defect.problem + &advice));
            }
            if let Some(owner) = owners.insert(&definition.name, file)
                && new.contains_key(file)
            {
                let (owner, name) = (visible(owner), quoted(definition.name.as_str()));
                let advice = "give one of them another name";
                return Err((*file, format!("{owner} has an agent of the name {name} too\n  advice: {advice}")));
            }
        }
        Ok(())
    }

    /// The changes and reports, file by file.
    fn changes<'a>(
        &self,
        resulting: &ByFile<'a, Definition>,
        mut made: ByFile<'a, (AcceptedAgent, AgentSpec)>,
        refused: &ByFile<'a, String>,
    ) -> Changes {
        let mut changes = Changes::default();
        let files: BTreeSet<&str> = resulting.keys().chain(refused.keys()).copied().collect();
        for file in &files {
            let (why, older) = (refused.get(file), self.older(file));
            let change = match (why, resulting.get(file)) {
                (Some(why), stays) => self.refused(file, why, stays),
                (None, Some(definition)) if self.leaves(&definition.name) => FileChange::Unchanged,
                (None, Some(definition)) => {
                    let before = older.or_else(|| self.moved(&definition.name, &files));
                    changed(before.map(|before| &before.definition), definition)
                }
                (None, None) => FileChange::Unchanged,
            };
            changes.reports.push(FileReport { file: (*file).to_owned(), change });
            let mut agent = older.cloned();
            if let Some((accepted, spec)) = made.remove(file) {
                let name = accepted.definition.name.clone();
                if !self.leaves(&name) {
                    changes.put.push(Put { file: (*file).to_owned(), agent: name, spec });
                }
                agent = Some(accepted);
            }
            changes.files.insert((*file).to_owned(), Known { refusal: why.cloned(), agent });
        }
        let here: BTreeSet<&AgentName> = resulting.values().map(|definition| &definition.name).collect();
        for (file, known) in &self.files {
            let Some(agent) = known.agent.as_ref().map(|agent| &agent.definition.name) else { continue };
            if self.leaves(agent) {
                continue;
            }
            if !files.contains(&**file) && !here.contains(agent) {
                let change = FileChange::Removed { agent: agent.clone() };
                changes.reports.push(FileReport { file: file.clone(), change });
            }
            if !here.contains(agent) {
                changes.gone.push(agent.clone());
            }
        }
        changes.reports.sort_by(|one, other| one.file.cmp(&other.file));
        changes
    }

    fn leaves(&self, agent: &AgentName) -> bool {
        self.left.contains(agent.as_str())
    }

    /// A reason for refusing a file is reported once.
    fn refused(&self, file: &str, why: &str, stays: Option<&Definition>) -> FileChange {
        match self.files.get(file).and_then(|known| known.refusal.as_deref()) {
            Some(before) if before == why => FileChange::Unchanged,
            Some(_) | None => {
                FileChange::Refused { why: why.to_owned(), stays: stays.map(|definition| definition.name.clone()) }
            }
        }
    }

    /// Records the changes as made.
    pub(crate) fn take(&mut self, changes: Changes) {
        (self.files, self.catalog) = (changes.files, changes.catalog);
    }
}

impl Changes {
    /// Whether there is a catalog that was never accepted.
    pub(super) fn lacks_models(&self) -> bool {
        self.catalog.as_ref().is_some_and(|catalog| catalog.current().is_none())
    }

    /// Records that the board could not make a change: the state of the file remains.
    pub(crate) fn fail(&mut self, folder: &AgentFolder, file: &str, error: &str) {
        let why = format!("{}: {error}", visible(file));
        let older = folder.older(file).cloned();
        if let Some(report) = self.reports.iter_mut().find(|report| report.file == file) {
            report.change = folder.refused(file, &why, older.as_ref().map(|older| &older.definition));
        }
        self.files.insert(file.to_owned(), Known { refusal: Some(why), agent: older });
    }
}

/// A file read by itself. Its name is compared with the names of all other agents in [`AgentFolder::check_names`].
fn definition(reader: &DefinitionReader, file: &str, bytes: &[u8]) -> Result<Definition, String> {
    let source = DefinitionSource { origin: file.to_owned(), bytes: bytes.to_vec() };
    reader.read_source(&source).map_err(|defects| defects.to_string())
}

fn changed(before: Option<&Definition>, now: &Definition) -> FileChange {
    let agent = now.name.clone();
    match before {
        None => FileChange::Added { agent },
        Some(before) if before == now => FileChange::Unchanged,
        Some(before) => {
            FileChange::Changed { before: Some(before.name.clone()).filter(|before| *before != agent), agent }
        }
    }
}
