//! Reads an agent that is a program: it has no model, so settings for models are refused.

use std::path::{Path, PathBuf};

use callboard_documents::toml::{Fields, Item, duration};
use callboard_documents::{Defect, Found, Place};

use crate::roles::{AgentGrant, Asked};
use crate::{process, program};

use super::fields::{authority, check_tier, on_unknown};
use crate::definition::process_settings::FolderError;
use crate::definition::{Definition, ProcessSettings, READY_WITHIN};

const EXAMPLE: &str = "write [agent.process], and below it command = [\"python3\", \"agent.py\"]";
const EXAMPLE_COMMAND: &str = "write command = [\"python3\", \"agent.py\"]: the program and its arguments";

/// The reason why a key does not apply to programs, and the advice.
type Thinking = (&'static str, &'static str, &'static str);

/// Keys for agents that use a model.
pub(super) const THINKING: [Thinking; 6] = [
    (
        "mode",
        "what a program does itself has no mode",
        "remove it; `authority` bounds what it may cause through others",
    ),
    ("system_prompt", "a program has no prompt", "remove it; its file gives it `command` and `env` alone"),
    ("sections", "a program has no prompt", "remove them; its file gives it `command` and `env` alone"),
    ("model", "a program asks models itself, if any", "remove [agent.model], or remove [agent.process]"),
    (
        "delegation",
        "a program decides itself what other agents receive",
        "remove [agent.delegation], or remove [agent.process]",
    ),
    ("output", "a program gives values itself", "remove [agent.output], or remove [agent.process]"),
];

/// The same below `capabilities`.
const THINKING_WITH_TOOLS: [Thinking; 5] = [
    ("allowed_tools", "a program has no tools of callboard", "remove it, or remove [agent.process]"),
    ("hidden_tools", "a program has no tools of callboard", "remove it, or remove [agent.process]"),
    ("ask", "a program has no tools of callboard", "remove it; the program asks people with `approve`"),
    (
        "idempotent",
        "a program has no tools of callboard",
        "remove it; the program says of each `step` what class it has",
    ),
    ("max_iterations", "a program asks models itself, if any", "remove it; `timeout` and `tokens` bound a turn"),
];

/// Reads the settings of a program. With `root`, it is checked that its files exist. It has only what its role, which is at this place,
/// grants.
pub(super) fn process(
    item: &Item<'_>,
    root: Option<&Path>,
    (grant, role): (&AgentGrant, Place),
    found: &mut Found,
) -> Option<ProcessSettings> {
    let mut fields = Fields::of("the program of an agent", item, EXAMPLE, found)?;
    let header: Place = Some(fields.place.clone());
    let before = found.len();
    let command = fields.required("command", EXAMPLE_COMMAND, found);
    let place = command.map(|(_, item)| item.span());
    let command = command.and_then(|field| program::command(field, EXAMPLE_COMMAND, found));
    let env = fields.get("env").map(|item| program::environment(item, &header, found)).unwrap_or_default();
    let env_from = fields.field("env_from").map(|field| program::variables(field, &header, found)).unwrap_or_default();
    // A line with variables is not shown, because a user may have written a secret there.
    let role = role.or_else(|| header.clone());
    let is_docker = env.iter().any(|(_, value)| process::names_docker(value))
        || env_from.iter().any(|name| std::env::var(name).is_ok_and(|value| process::names_docker(&value)));
    let variables = env_from.iter().map(|name| Asked::Variable(name));
    for asked in variables.chain(is_docker.then_some(Asked::DockerSocket)) {
        grant.defect(asked, &role).into_iter().for_each(|defect| found.add(defect));
    }
    let folder = fields.text("folder", found);
    let ready_within = fields.field("ready_within").and_then(|field| duration(field, found));
    fields.close(found);
    let settings = ProcessSettings {
        command: command?,
        env,
        env_from,
        folder: folder.as_ref().map(|folder| PathBuf::from(&folder.value)),
        ready_within: ready_within.map_or(READY_WITHIN, |time| time.value),
    };
    if let Some(root) = root
        && found.len() == before
    {
        look(&settings, root, [place, folder.and_then(|folder| folder.place), header], found);
    }
    Some(settings)
}

/// Checks that the folder, the program and the variables exist.
fn look(settings: &ProcessSettings, root: &Path, [command, folder, header]: [Place; 3], found: &mut Found) {
    for name in settings.env_from.iter().filter(|name| std::env::var_os(name).is_none()) {
        let problem = format!("the variable {name} of `env_from` is not set");
        found.add(Defect::new(&header, problem).advise("set it, or remove it here"));
    }
    let resolved = match settings.folder_below(root) {
        Ok(place) => place.resolved(),
        Err(error) => {
            return found.add(Defect::new(&folder.or(header), format!("its folder cannot be determined: {error}")));
        }
    };
    let place = match resolved {
        Ok(place) => place,
        Err(error) => {
            let defect = Defect::new(&folder.or(header), error.to_string());
            return found.add(match error {
                FolderError::Missing(_) => defect.advise("it is relative to the folder of all programs"),
                FolderError::Outside { .. } => {
                    defect.advise("name a folder below it, or start the board with another --root")
                }
                FolderError::Unusable { .. } => defect,
            });
        }
    };
    if let Err(defect) = process::find(settings, &place) {
        found.add(Defect { place: command, ..defect });
    }
}

/// Adds a defect for each of these keys that is present.
pub(super) fn refuse(fields: &mut Fields<'_>, keys: &[Thinking], found: &mut Found) {
    for (key, why, advice) in keys {
        if let Some(item) = fields.refused(key) {
            let problem =
                format!("`{key}` is for agents that think, and [agent.process] makes this one a program: {why}");
            found.add(Defect::new(&Some(item.span()), problem).advise(*advice));
        }
    }
}

/// Reads the authority of a program; it has no tools.
pub(super) fn capabilities(item: &Item<'_>, definition: &mut Definition, found: &mut Found) {
    const WHAT: &str = "the capabilities of a program";
    let Some(mut fields) = Fields::of(WHAT, item, "write [agent.capabilities], and below it authority = […]", found)
    else {
        return;
    };
    refuse(&mut fields, &THINKING_WITH_TOOLS, found);
    if let Some(authority) = fields.field("authority").and_then(|field| authority(field, &definition.grant, found)) {
        definition.authority = authority;
    }
    definition.on_unknown = fields.field("on_unknown").and_then(|field| on_unknown(field, found));
    definition.question_ttl =
        fields.field("question_ttl").and_then(|field| duration(field, found)).map(|ttl| ttl.value);
    if let Some(tier) = fields.field("trust_tier") {
        check_tier(tier, found);
    }
    fields.close(found);
}
