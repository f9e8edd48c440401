//! The tools that `[roles]` names: what a role grants is read by the crate of agents, which does not know what tools there are.

use callboard::messages::Effect;
use callboard_agents::{MetaTool, Tools};
use callboard_documents::toml::{DeValue, Item};
use callboard_documents::{Defect, Place};
use callboard_text::{did_you_mean, nearest, quoted};

/// The names of tools, each with its place.
#[derive(Clone, Debug, Default)]
pub(super) struct Section(Vec<(String, Place)>);

impl Section {
    /// Beginnings of names (`mcp__tickets__*`) and effects are no names.
    pub(super) fn read(item: &Item<'_>) -> Self {
        let DeValue::Table(roles) = item.get_ref() else { return Self::default() };
        let tools = roles.values().filter_map(|role| role.get_ref().as_table()?.get("tools")?.get_ref().as_array());
        let names = tools.flat_map(|tools| tools.iter()).filter_map(|tool| {
            let name = tool.get_ref().as_str()?;
            let is_name = !name.ends_with('*') && !Effect::ALL.iter().any(|effect| effect.name() == name);
            is_name.then(|| (name.to_owned(), Some(tool.span())))
        });
        Self(names.collect())
    }

    /// The defects of tools that are not there; `are_whole` says that those of servers are known.
    pub(super) fn unknown<'s>(&'s self, tools: &'s Tools, are_whole: bool) -> impl Iterator<Item = Defect> + use<'s> {
        let known = || tools.names().chain(MetaTool::ALL.map(MetaTool::name));
        let may_be_there = move |name: &str| !are_whole && name.starts_with("mcp__");
        self.0.iter().filter(move |(name, _)| !may_be_there(name) && known().all(|there| there != name)).map(
            move |(name, place)| {
                let likely = nearest(name, known());
                Defect::new(place, format!("there is no tool {}{}", quoted(name), did_you_mean(likely.as_deref())))
            },
        )
    }
}
