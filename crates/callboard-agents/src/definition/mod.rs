//! Agents as people declare them: in TOML, or in Rust with the same parts (docs/agents.md).

mod error;
pub(crate) mod process_settings;
mod reading;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use callboard::actors::{AgentSpec, Mode};
use callboard::messages::{AgentName, Authority, ConversationStrategy, Cost, Json, OnUnknown, PerDay};

use super::builtin_agents::BuiltIn;
use super::catalog::ModelChoice;
use super::output::OutputSchema;
use super::permission::Tier;
use super::prompt::Section;
use super::roles::AgentGrant;

pub use error::DefinitionError;
pub use process_settings::ProcessSettings;
pub(crate) use process_settings::READY_WITHIN;
pub(crate) use reading::name_alike;
pub use reading::{DefinitionReader, DefinitionSource};

/// The default limit of tokens of a conversation that another agent receives.
pub(super) const CONVERSATION_TOKENS: u32 = 8_000;

/// What an agent is: everything that a file may say about one.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Definition {
    /// The name that boards, people and other agents have for it.
    pub name: AgentName,
    /// What it is for, in a sentence: people and other agents choose it by that.
    pub description: String,
    /// What it may do by itself ([`Mode::General`]): it has only tools whose effects its mode permits.
    pub mode: Mode,
    /// Its model's prompt: a template (docs/agents.md has what it may name).
    pub system_prompt: String,
    /// Further parts of the prompt, and replacements of the usual ones.
    pub sections: Vec<Section>,
    /// The models that may answer for it; an empty choice means the first model of the catalog.
    pub model: ModelChoice,
    /// How many tokens one answer of the model may have (4,096).
    pub max_tokens: u32,
    /// Its older messages are summed up when a request would have more tokens than this, as an estimate; by default they
    /// never are.
    pub compact_at: Option<u32>,
    /// The tools that it may use, of those that its mode may have; by default all of these.
    pub allowed_tools: Option<Vec<Arc<str>>>,
    /// Of these, those that its model sees only once it has searched for them.
    pub hidden_tools: Vec<Arc<str>>,
    /// Tools that people are asked about each time, beside those that its tier asks about.
    pub ask: Vec<Arc<str>>,
    /// Tools that may be used again when the result of a use was lost, such as a shell that only builds and tests.
    pub idempotent: Vec<Arc<str>>,
    /// What follows when an effect that must not be repeated may have happened; by default what the board
    /// has for it.
    pub on_unknown: Option<OnUnknown>,
    /// How long its questions to people wait before it continues without an answer; without an end by default.
    pub question_ttl: Option<Duration>,
    /// How often its model is asked in one turn (25).
    pub max_iterations: u32,
    /// A role that tasks may be addressed to instead of its name; `None` if it announces none. A file with a role is read within
    /// what the role grants ([`Roles`](crate::Roles)); setting it here changes nothing of that.
    pub role: Option<Arc<str>>,
    /// Capabilities that tasks may be addressed to instead of its name.
    pub capabilities: Vec<Arc<str>>,
    /// Projects that it works on, announced for those who look for an agent of one.
    pub projects: Vec<Arc<str>>,
    /// How many of its turns run at once (5).
    pub concurrency: usize,
    /// How long a turn may take (10 minutes).
    pub timeout: Duration,
    /// What it may use in a day, over all runs; without a limit by default.
    pub per_day: PerDay,
    /// The most tokens of its turns, and of those of agents that it makes, together in one run; without a limit by default.
    pub tokens_per_run: Option<u64>,
    /// What these may cost; without a limit by default.
    pub cost_per_run: Option<Cost>,
    /// How often it may be rebuilt, and within which time (5 in 60 s).
    pub restarts: (u32, Duration),
    /// The most tokens of one turn; by default those of the run.
    pub tokens: Option<u64>,
    /// The context namespaces that it may use besides its own memory; without a list, that of its run, `run`.
    pub namespaces: Option<Vec<Arc<str>>>,
    /// What it may cause, by itself or through others; by default everything.
    pub authority: Authority,
    /// What those that it gives tasks to receive of its conversation, unless its model says otherwise (nothing).
    pub passed_context: ConversationStrategy,
    /// How many tokens that may have, as an estimate (8,000).
    pub reported_tokens: u32,
    /// Built-in agents that its model knows of, beside its team.
    pub built_in_team: Vec<BuiltIn>,
    /// What its answer must look like, and is then: a value; by default text.
    pub output: Option<OutputSchema>,
    /// The program that it is, if it is one: then no model thinks for it, and nothing counts here that is for models.
    pub process: Option<Arc<ProcessSettings>>,
    tier: Tier,
    /// What it may be given at most; what stands above is within it.
    pub(crate) grant: AgentGrant,
    /// The prompt of an agent that another agent created; it is no template.
    instructions: Option<Arc<str>>,
}

impl Definition {
    /// An agent that is compiled in. What is not said is as it is in a file that does not say it.
    #[must_use]
    pub fn built_in(name: AgentName) -> Self {
        Self::new(name, Tier::BuiltIn)
    }

    /// A JSON Schema of the files that define agents, for editors.
    #[must_use]
    pub fn schema() -> Json {
        static SCHEMA: LazyLock<Json> = LazyLock::new(|| {
            let text = include_str!("schema.json");
            // It is compiled in, and a test reads it.
            serde_json::from_str::<serde_json::Value>(text).unwrap_or_default().into()
        });
        SCHEMA.clone()
    }

    fn new(name: AgentName, tier: Tier) -> Self {
        Self {
            name,
            description: String::new(),
            mode: Mode::General,
            system_prompt: String::new(),
            sections: Vec::new(),
            model: ModelChoice::default(),
            max_tokens: 4_096,
            compact_at: None,
            allowed_tools: None,
            hidden_tools: Vec::new(),
            ask: Vec::new(),
            idempotent: Vec::new(),
            on_unknown: None,
            question_ttl: None,
            max_iterations: 25,
            role: None,
            capabilities: Vec::new(),
            projects: Vec::new(),
            concurrency: 5,
            timeout: Duration::from_secs(600),
            restarts: (5, Duration::from_secs(60)),
            tokens: None,
            per_day: PerDay::default(),
            tokens_per_run: None,
            cost_per_run: None,
            namespaces: None,
            authority: Authority::ALL,
            passed_context: ConversationStrategy::default(),
            reported_tokens: CONVERSATION_TOKENS,
            built_in_team: Vec::new(),
            output: None,
            process: None,
            tier,
            grant: AgentGrant::of_code(),
            instructions: None,
        }
    }

    /// An agent that another one makes.
    pub(super) fn dynamic(name: AgentName, instructions: &str) -> Self {
        // The text is a value of this template: it is written out as it is.
        let system_prompt = "{{ agent.instructions }}".to_owned();
        Self { system_prompt, instructions: Some(instructions.into()), ..Self::new(name, Tier::Dynamic) }
    }

    /// Applies the settings that a board needs of any kind of agent.
    pub(super) fn on_a_board(&self, spec: AgentSpec) -> AgentSpec {
        let (max, within) = self.restarts;
        let mut spec = spec
            .mode(self.mode)
            .concurrency(self.concurrency)
            .timeout(self.timeout)
            .restarts(max, within)
            .per_day(self.per_day)
            .per_run(self.tokens_per_run, self.cost_per_run)
            .authority(self.authority);
        if let Some(on_unknown) = self.on_unknown {
            spec = spec.on_unknown(on_unknown);
        }
        if let Some(ttl) = self.question_ttl {
            spec = spec.question_ttl(ttl);
        }
        if let Some(role) = &self.role {
            spec = spec.role(role);
        }
        if let Some(namespaces) = &self.namespaces {
            spec = spec.namespaces(namespaces.iter().map(|name| &**name));
        }
        let spec = self.capabilities.iter().fold(spec, |spec, capability| spec.capability(capability));
        self.projects.iter().fold(spec, |spec, project| spec.project(project))
    }

    pub(super) fn instructions(&self) -> Option<&str> {
        self.instructions.as_deref()
    }

    /// Returns one line about what its role grants; `None` without a role, and for an agent that is compiled in.
    #[must_use]
    pub fn granted(&self) -> Option<String> {
        self.grant.text()
    }

    /// Where it comes from; it cannot be set (SEMANTICS 13).
    #[must_use]
    pub fn tier(&self) -> Tier {
        self.tier
    }
}
