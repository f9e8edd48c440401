//! The prompt of a model: its author's text, and sections for the agent's mode and tools.
//!
//! A section is one text for all agents that have it. Mode and tools determine the sections of an agent, and priorities their
//! order.

mod knowledge;
mod section;
mod usual;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Weak};

use callboard::actors::Mode;
use callboard::messages::Json;
use callboard_documents::template::{Fault, Lookup, Names, Template};
use callboard_text::{did_you_mean, nearest, quoted};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::definition::Definition;
use super::teammate::Teammate;
use super::tool::Tools;

pub use section::Section;
use usual::USUAL;

/// The compiled templates of agents by their text: a compiled template is large, and many agents share one.
static COMPILED: LazyLock<Mutex<ByText>> = LazyLock::new(Mutex::default);

type ByText = HashMap<Box<str>, Weak<Template<PromptVar>>>;

fn compiled(text: &str) -> Result<Arc<Template<PromptVar>>, Fault> {
    if let Some(known) = COMPILED.lock().get(text).and_then(Weak::upgrade) {
        return Ok(known);
    }
    let template = Arc::new(Template::compile(&text.into(), &PromptNames)?);
    let mut known = COMPILED.lock();
    if known.len() == known.capacity() {
        known.retain(|_, template| template.strong_count() > 0);
    }
    known.insert(text.into(), Arc::downgrade(&template));
    Ok(template)
}

/// The priority of the author's own prompt.
const OWN: u16 = 10;

/// A compiled prompt.
#[derive(Clone, Debug)]
pub(super) struct Prompt(Arc<[(Arc<Template<PromptVar>>, Place)]>);

/// The origin of a text, for errors.
type Place = Cow<'static, str>;

/// The variables of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PromptVar {
    Agent,
    Tools,
    BoardTools,
    Team,
    Task,
    Input,
    State,
    PreviousAgent,
}

/// The variables by the names that authors write.
const NAMES: [(&str, PromptVar); 8] = [
    ("agent", PromptVar::Agent),
    ("tools", PromptVar::Tools),
    ("board_tools", PromptVar::BoardTools),
    ("team", PromptVar::Team),
    ("task", PromptVar::Task),
    ("input", PromptVar::Input),
    ("state", PromptVar::State),
    ("previous_agent", PromptVar::PreviousAgent),
];

/// The fields of the variable `agent`.
pub(super) const AGENT_FIELDS: [&str; 5] = ["name", "description", "mode", "role", "instructions"];

struct PromptNames;

impl Names<PromptVar> for PromptNames {
    fn resolve(&self, path: &[&str]) -> Result<(PromptVar, usize), Fault> {
        let Some((_, var)) = NAMES.iter().find(|(name, _)| path.first() == Some(name)) else {
            let name = path.first().copied().unwrap_or_default();
            let likely = nearest(name, NAMES.iter().map(|(name, _)| *name));
            let known: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
            let problem = format!("a prompt has no variable {}{}", quoted(name), did_you_mean(likely.as_deref()));
            return Err(Fault::new(problem).advise(format!("a prompt may name {}", known.join(", "))));
        };
        if let (PromptVar::Agent, Some(field)) = (var, path.get(1))
            && !AGENT_FIELDS.contains(field)
        {
            let likely = nearest(field, AGENT_FIELDS);
            let problem = format!("an agent has no {}{}", quoted(field), did_you_mean(likely.as_deref()));
            return Err(Fault::new(problem).advise(format!("it has {}", AGENT_FIELDS.join(", "))));
        }
        Ok((var.clone(), 1))
    }
}

/// The values of a turn.
pub(super) struct PromptValues<'a> {
    pub(super) agent: &'a Definition,
    pub(super) tools: &'a Tools,
    pub(super) board_tools: &'a Tools,
    pub(super) team: &'a [Teammate],
    pub(super) task: Json,
    pub(super) input: Json,
    pub(super) state: &'a dyn Fn() -> Json,
    pub(super) previous_agent: Json,
}

impl Lookup<PromptVar> for PromptValues<'_> {
    fn lookup(&self, var: &PromptVar) -> Result<Arc<Value>, String> {
        let value: Json = match var {
            PromptVar::Agent => json!({
                "name": self.agent.name,
                "description": self.agent.description,
                "mode": self.agent.mode.name(),
                "role": self.agent.role,
                "instructions": self.agent.instructions(),
            })
            .into(),
            PromptVar::Tools => listed(self.tools.specs().map(|spec| (&*spec.name, &*spec.description))),
            PromptVar::BoardTools => listed(self.board_tools.specs().map(|spec| (&*spec.name, &*spec.description))),
            PromptVar::Team => listed(self.team.iter().map(|mate| (&*mate.name, &*mate.description))),
            PromptVar::Task => self.task.clone(),
            PromptVar::Input => self.input.clone(),
            PromptVar::State => (self.state)(),
            PromptVar::PreviousAgent => self.previous_agent.clone(),
        };
        Ok(value.into_shared())
    }
}

fn listed<'a>(of: impl Iterator<Item = (&'a str, &'a str)>) -> Json {
    of.map(|(name, description)| Json::from(json!({ "name": name, "description": description }))).collect()
}

impl Prompt {
    /// The prompt of an agent.
    ///
    /// # Errors
    /// What is wrong with the author's text (`None`), or with a section of this name.
    pub(super) fn of(
        own: &str,
        sections: &[Section],
        mode: Mode,
        tools: &Tools,
    ) -> Result<Self, (Option<String>, Fault)> {
        let mut chosen: Vec<(u16, Option<Place>, Cow<'_, str>)> = vec![(OWN, None, own.into())];
        for section in sections.iter().filter(|section| section.modes.is_empty() || section.modes.contains(&mode)) {
            chosen.push((section.priority_in(mode), Some(section.name.clone()), section.text.as_ref().into()));
        }
        for (when, name, priority, text) in USUAL {
            if when.holds(mode, tools) && sections.iter().all(|section| section.name != name) {
                chosen.push((priority, Some(name.into()), text.into()));
            }
        }
        if let Some(text) = knowledge::text(mode, tools)
            && sections.iter().all(|section| section.name != knowledge::NAME)
        {
            chosen.push((knowledge::PRIORITY, Some(knowledge::NAME.into()), text.into()));
        }
        // A stable sort: sections of equal priority keep their order.
        chosen.sort_by_key(|(priority, ..)| *priority);
        let made = chosen.into_iter().filter(|(.., text)| !text.trim().is_empty()).map(|(_, name, text)| {
            let template = compiled(text.trim());
            let place = || name.as_ref().map(|name| name.to_string());
            Ok((template.map_err(|fault| (place(), fault))?, name.clone().unwrap_or("system_prompt".into())))
        });
        Ok(Self(made.collect::<Result<_, _>>()?))
    }

    /// Renders the prompt with these values.
    ///
    /// # Errors
    /// A value that it names is not there, or it is too long.
    pub(super) fn text(&self, values: &PromptValues<'_>) -> Result<String, String> {
        let parts = self.0.iter().map(|(template, place)| {
            let rendered = template.render(values).map_err(|problem| format!("the prompt, in {place}: {problem}"))?;
            Ok(rendered.as_str().map_or_else(|| rendered.to_string(), str::to_owned))
        });
        Ok(parts.collect::<Result<Vec<_>, String>>()?.join("\n\n"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;
    use crate::{ToolScope, tool};
    use callboard::messages::Effect;

    fn tools(effects: &[Effect]) -> Tools {
        #[derive(serde::Deserialize, schemars::JsonSchema)]
        struct None {}
        effects.iter().fold(Tools::new(), |tools, effect| {
            let made = tool(&format!("{effect:?}"), "", *effect, |_: None, _: ToolScope| async { Ok("".into()) });
            tools.with(made).unwrap()
        })
    }

    fn ann() -> Definition {
        Definition::from_toml("ann.toml", "[agent]\nname = \"ann\"").unwrap()
    }

    fn values<'a>(agent: &'a Definition, none: &'a Tools) -> PromptValues<'a> {
        PromptValues {
            agent,
            tools: none,
            board_tools: none,
            team: &[],
            task: "go".into(),
            input: json!({ "path": "src" }).into(),
            state: &|| json!({ "notes": 1 }).into(),
            previous_agent: Json::null(),
        }
    }

    #[test]
    fn modes_and_tools_toggle_sections() {
        let names = |mode, effects: &[Effect]| -> Vec<String> {
            let prompt = Prompt::of("own", &[], mode, &tools(effects)).unwrap();
            prompt.0.iter().map(|(_, place)| place.to_string()).collect()
        };
        assert_eq!(names(Mode::General, &[]), ["system_prompt", "default"]);
        assert_eq!(names(Mode::Plan, &[Effect::Reads]), ["system_prompt", "tools", "planning"]);
        assert_eq!(names(Mode::Explore, &[Effect::Reads]), ["system_prompt", "tools", "research"]);
        let facts = Tools::new().with(crate::tools::context_get()).unwrap();
        let prompt = Prompt::of("own", &[], Mode::Explore, &facts).unwrap();
        let places: Vec<&str> = prompt.0.iter().map(|(_, place)| &**place).collect();
        assert_eq!(places, ["system_prompt", "tools", "knowledge", "research"]);
        let all = [Effect::Reads, Effect::Writes, Effect::Executes];
        assert_eq!(names(Mode::Build, &all), ["system_prompt", "tools", "files", "shell"]);
    }

    #[test]
    fn sections_of_the_author_stand_where_they_say_and_take_the_place_of_ours() {
        let section = |name: &'static str, priority, modes: &[Mode], text: &'static str| Section {
            name: name.into(),
            priority,
            priorities: Vec::new(),
            modes: modes.to_vec(),
            text: text.into(),
        };
        let sections = [
            section("first", 0, &[], "You are {{ agent.name }}."),
            section("default", 60, &[], "In {{ input.path }}."),
            section("never", 5, &[Mode::Plan], "{{ state.notes }}"),
        ];
        let prompt = Prompt::of("Do {{ task }}.", &sections, Mode::General, &Tools::new()).unwrap();
        let (agent, none) = (ann(), Tools::new());
        assert_eq!(prompt.text(&values(&agent, &none)).unwrap(), "You are ann.\n\nDo go.\n\nIn src.");
    }

    #[test]
    fn a_section_stands_elsewhere_in_another_mode() {
        let section = Section {
            name: "steps".into(),
            priority: 60,
            priorities: vec![(Mode::Plan, 5), (Mode::Build, 15)],
            modes: Vec::new(),
            text: "In steps.".into(),
        };
        let text = |mode| {
            let prompt = Prompt::of("Do it.", std::slice::from_ref(&section), mode, &tools(&[Effect::Reads])).unwrap();
            let (agent, none) = (ann(), Tools::new());
            let text = prompt.text(&values(&agent, &none)).unwrap();
            text.split("\n\n").position(|part| part == "In steps.").unwrap()
        };
        // Besides the prompt itself: the section about tools, and that of the mode.
        assert_eq!([Mode::Plan, Mode::Build, Mode::Explore].map(text), [0, 1, 3]);
    }

    #[test]
    fn an_unknown_name_is_reported_before_and_a_missing_value_then() {
        let wrong = |text: &str| Prompt::of(text, &[], Mode::General, &Tools::new()).unwrap_err();
        let (place, fault) = wrong("{{ taks }}");
        assert_eq!(
            (place, fault.problem.as_str()),
            (None, "a prompt has no variable \"taks\"; did you mean \"task\"?")
        );
        assert!(wrong("{{ agent.nam }}").1.problem.contains("did you mean \"name\""));
        let prompt = Prompt::of("{{ input.nothing }}", &[], Mode::General, &Tools::new()).unwrap();
        let (agent, none) = (ann(), Tools::new());
        let problem = prompt.text(&values(&agent, &none)).unwrap_err();
        assert!(problem.starts_with("the prompt, in system_prompt: "), "{problem}");
    }

    #[test]
    fn the_text_of_an_input_is_not_read_as_a_template() {
        let prompt = Prompt::of("{{ task }}", &[], Mode::Build, &Tools::new()).unwrap();
        let (agent, none) = (ann(), Tools::new());
        let hostile = PromptValues { task: "{{ state }}{% for".into(), ..values(&agent, &none) };
        assert_eq!(prompt.text(&hostile).unwrap(), "{{ state }}{% for");
    }
}
