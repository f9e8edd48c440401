//! Programs as agents that are declared in files: checks that they exist, and runs them on a board.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use callboard::actors::AgentSpec;
use callboard_documents::Defect;
use callboard_text::quoted;

use crate::definition::{Definition, DefinitionError, ProcessSettings};
use crate::program::places;

use super::{ProcessAgent, StartFolder};

impl ProcessAgent {
    /// How a board runs the program that a definition declares (`[agent.process]`, docs/process-agents.md). It starts in `root`,
    /// or in the folder below it that the definition names; where that leads out of `root`, also through a symbolic link, its turns
    /// fail.
    ///
    /// ```
    /// use callboard::prelude::*;
    /// use callboard_agents::{Definition, ProcessAgent};
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let definition = Definition::from_toml("echo.toml", r#"
    ///     [agent]
    ///     name = "echo"
    ///     [agent.process]
    ///     command = ["sh", "-c", """
    ///         read hello; printf '%s\\n' '{"type":"ready","protocol":2}'
    ///         read turn; id=${turn#*'"id":"'}
    ///         printf '%s\\n' '{"type":"command","turn":"'${id%%'"'*}'","output":"done"}'
    ///     """]
    /// "#)?;
    /// let board = Callboard::builder().with(ProcessAgent::spec(&definition, ".".as_ref())?).start().await?;
    /// let run = board.submit(Task::new("anything")).await?;
    /// assert_eq!(run.result().await?.output, "done");
    /// # board.shutdown().await;
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// The definition declares no program, or there is no current folder that `root` could be relative to. Whether the program is
    /// there is found when a turn needs it; [`DefinitionReader::root`](crate::DefinitionReader::root) looks before.
    pub fn spec(definition: &Definition, root: &Path) -> Result<AgentSpec, DefinitionError> {
        spec(definition, root)
    }
}

/// As [`ProcessAgent::spec`].
pub(crate) fn spec(definition: &Definition, root: &Path) -> Result<AgentSpec, DefinitionError> {
    let agent = || definition.name.to_string();
    let Some(settings) = definition.process.clone() else {
        return Err(DefinitionError::NoProgram { agent: agent() });
    };
    let folder = settings.folder_below(root);
    let folder = folder.map_err(|error| DefinitionError::NoFolder { agent: agent(), error: error.to_string() })?;
    let (tokens, grant) = (definition.tokens, definition.grant.clone());
    let made = move || {
        let (program, arguments) =
            settings.command.split_first().map_or(("", [].as_slice()), |(first, rest)| (first, rest));
        let process = ProcessAgent { folder: StartFolder::Declared(folder.clone()), ..ProcessAgent::new(program) };
        let process = ProcessAgent { grant: grant.clone(), ..process };
        let process = process.args(arguments).ready_within(settings.ready_within);
        let process = settings.env.iter().fold(process, |process, (name, value)| process.env(name, value));
        settings.env_from.iter().fold(process, |process, name| process.env_from(name)).token_budget(tokens)
    };
    Ok(definition.on_a_board(AgentSpec::new(definition.name.as_str(), made)))
}

/// Checks that the program exists and can be started.
///
/// # Errors
/// The reason why it cannot.
pub(crate) fn find(settings: &ProcessSettings, folder: &Path) -> Result<(), Defect> {
    let program = settings.command.first().map_or("", String::as_str);
    if program.contains('/') {
        let place = PathBuf::from(located(program.as_ref(), folder));
        let shown = quoted(&place.display().to_string());
        if !place.is_file() {
            let advice =
                "a path is relative to the folder that the program starts in; a name alone is looked for in PATH";
            return Err(Defect::new(&None, format!("there is no program {shown}")).advise(advice));
        }
        if !can_run(&place) {
            let advice = "make it executable, or name what runs it, as command = [\"python3\", \"agent.py\"]";
            return Err(Defect::new(&None, format!("{shown} is not executable")).advise(advice));
        }
        return Ok(());
    }
    if places(program, &settings.env, folder).iter().any(|place| can_run(place)) {
        return Ok(());
    }
    let problem = format!("there is no program {} in PATH", quoted(program));
    Err(Defect::new(&None, problem).advise("install it, or write its path"))
}

/// A path is relative to the folder; a name is searched for in `PATH` when it is started.
pub(super) fn located(program: &OsStr, folder: &Path) -> OsString {
    if !program.as_bytes().contains(&b'/') {
        return program.to_owned();
    }
    // Normalized without `.`, because errors show it.
    folder.join(program).components().collect::<PathBuf>().into()
}

fn can_run(file: &Path) -> bool {
    file.metadata().is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
}
