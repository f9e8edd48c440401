//! The errors of building an agent from a definition.

/// Why an agent cannot be made of a definition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DefinitionError {
    /// Its prompt, or a section of it, cannot be used.
    #[error("agent {agent}: {}: {problem}", section.as_deref().unwrap_or("system_prompt"))]
    Prompt {
        /// The name of the agent.
        agent: String,
        /// The name of the section; `None` for the prompt itself.
        section: Option<String>,
        /// What is wrong with the template, as a clause without a full stop.
        problem: String,
    },
    /// What it may use in a turn is less than its first call of a model may need, so that every turn would fail.
    #[error(
        "agent {agent}: its budget of {budget} tokens in a turn is less than one call of its model may need, {needed}: {max_tokens} \
         for the answer and about {} for its tools; raise `tokens` under [agent.limits] to {needed} or more, or lower \
         `max_tokens` under [agent.model]", needed - u64::from(*max_tokens)
    )]
    Budget {
        /// The name of the agent.
        agent: String,
        /// The most tokens that one turn may use: [`Definition::tokens`](super::Definition::tokens).
        budget: u64,
        /// The tokens that are reserved for one call at least: `max_tokens`, and an estimate for its tools.
        needed: u64,
        /// How many of the needed tokens are for the answer: [`Definition::max_tokens`](super::Definition::max_tokens).
        max_tokens: u32,
    },
    /// [`Definition::allowed_tools`](super::Definition::allowed_tools) names a tool that is neither among the given
    /// tools nor one of the loop itself.
    #[error("agent {agent} may use the tool {tool:?}, and there is none")]
    UnknownTool {
        /// The name of the agent.
        agent: String,
        /// The name that the definition has for it.
        tool: String,
    },
    /// [`Definition::allowed_tools`](super::Definition::allowed_tools) names a tool that the role of the agent does not grant.
    #[error("agent {agent}: {problem}\n  advice: {advice}")]
    NotGranted {
        /// The name of the agent.
        agent: String,
        /// The role, and the tool that it does not grant, as a clause without a full stop.
        problem: String,
        /// What the role grants, and what to do, in the same form.
        advice: String,
    },
    /// It is a program: no model thinks for it.
    #[error(
        "agent {agent} is a program, and thinks with no model: make it with ProcessAgent::spec, or have an AgentFolder make it"
    )]
    IsProgram {
        /// The name of the agent.
        agent: String,
    },
    /// The definition has no `[agent.process]`, so no process agent can be made of it.
    #[error("agent {agent} is no program, it has no [agent.process]: make it with LlmAgent::new")]
    NoProgram {
        /// The name of the agent.
        agent: String,
    },
    /// The folder that its program starts in is unknown.
    #[error("agent {agent}: the folder of its program cannot be determined: {error}")]
    NoFolder {
        /// The name of the agent.
        agent: String,
        /// Why the current folder is not known, as the system says it.
        error: String,
    },
    /// It is a program, and this build has none.
    #[error("agent {agent} is a program: build callboard-agents for Unix, with its cargo feature `process`")]
    NoProcesses {
        /// The name of the agent.
        agent: String,
    },
}
