//! The composition root: a builder, and the handle of a running board.

// Before and at the start:
// - `builder`, `settings`: what a board is made of, and its limits, intervals and timeouts.
// - `starting`: makes and supervises everything, and resumes the runs of an earlier process.
// - `dormant_agents`: the actors of agents, and when those of dormant ones come and go. `workflow_agents`: workflows that are agents. `placed_turns`: agents of other boards. `reach`: what boards ask each other for. `announcing`: when they get to know which agents this one has. `differences`: agents that they declare differently. `draining`: runs that go to other boards at the end. `process`: which process a board is in.
// `classifier`: chooses the limits of tasks without any.
// The handles:
// - `handle`: a running board: submits tasks, finds runs, shuts down. `run_handle`: one run. `completing`: callers that wait for one and take its turns. `changing`: what is changed about it, `children`: runs below it. `watching`: events, tree, load.
// - `listing`: which runs there are. `agents`, `asking`: the agents of a board, and typed requests to them.
// - `people`: what runs wait for people with. `answering`: what people respond to runs of other boards. `showing`: what channels ask that boards without them wait for.
// - `workflows`, `conversations`: what the store keeps beside runs.
// - `forking`, `dead_letters`: runs that begin from old ones.
// `figures` checks the figures of docs/semantics.md against the code.
mod agents;
mod announcing;
mod answering;
mod asking;
mod builder;
mod changing;
mod children;
mod classifier;
mod completing;
mod conversations;
mod dead_letters;
mod differences;
mod dormant_agents;
mod draining;
#[cfg(test)]
mod figures;
mod forking;
mod handle;
mod listing;
mod people;
mod placed_turns;
mod process;
mod reach;
mod run_handle;
mod settings;
mod showing;
mod starting;
mod watching;
mod workflow_agents;
mod workflows;

pub use agents::{AgentError, AgentsHandle};
pub use asking::AskError;
pub use builder::{BuildError, Builder};
pub use completing::CompleteError;
pub use conversations::{ConversationError, ConversationInfo, ConversationRun, ConversationsHandle};
pub use dead_letters::DeadLettersHandle;
pub use handle::Callboard;
pub use people::PeopleHandle;
pub use run_handle::{RunError, RunHandle};
pub use settings::{Capacity, Retention, Timings, Unfinished};
pub use watching::Load;
pub use workflows::{WorkflowStoreError, Workflows};
