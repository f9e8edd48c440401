//! The example agents of `callboard init`, which are also the starter team.

use callboard_agents::DefinitionSource;

/// The files, by path.
pub(super) const FILES: [(&str, &str); 5] = [
    ("agents/coordinator.toml", include_str!("coordinator.toml")),
    ("agents/researcher.toml", include_str!("researcher.toml")),
    ("agents/reviewer.toml", include_str!("reviewer.toml")),
    ("agents/coder.toml", include_str!("coder.toml")),
    ("mcp.toml", include_str!("mcp.toml")),
];

/// The agents, as they are read where no folder has any.
pub(super) fn sources() -> Vec<DefinitionSource> {
    let agents = FILES.into_iter().filter(|(name, _)| name.starts_with("agents/"));
    agents.map(|(name, text)| DefinitionSource { origin: name.to_owned(), bytes: text.into() }).collect()
}
