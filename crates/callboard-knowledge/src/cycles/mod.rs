//! Cycles: commands of several passes in a fixed order, as workflows of the engine.
//!
//! [`init_workflow`] brings a folder into a base. Each node is a cycle:
//!
//! | node | what it does | output |
//! |---|---|---|
//! | `read_inputs` | asks people the request's questions, and indexes and links the files | [`ReadInputs`] with the [`InitContext`] |
//! | `pass1` | has the model write a document about each topic, in parallel | [`CandidateDoc`] for each |
//! | `pass2` | finds what is missing (`gaps`), asks people what only they know (`ask`), and refines and adds documents (`refine`) | [`CandidateDoc`] for each |
//! | `pass_enrich` | has the model add claims, names and relations to each document, in parallel | [`CandidateDoc`] for each |
//! | `pass3` | has the model review all documents, and leaves out the claims that it refuses | [`CandidateDoc`] for each |
//! | `write` | writes the documents into the base, and ends those of earlier times | [`Summaries`] |
//! | `pass_graph` | adds their names, relations and citations to the graph | |
//!
//! Without a provider, only `read_inputs` runs. A process that is killed continues with the nodes that have not ended: their turns are journaled.
//!
//! [`publish_workflow`] publishes the site of a namespace.
//!
//! What a model writes is checked before it is kept: a claim cites what the model was shown, or it is left out; a name is written in a claim,
//! or it is no entity; what was written from untrusted input is untrusted. Paths of these documents begin with `summary:`.

mod agent;
mod asked;
mod documents;
mod passages;
mod publish;
mod types;
mod workflow;
mod writing;

pub use agent::{CYCLE_AGENT, InitInputs, init_agent};
pub use documents::{documents_of, end_documents};
pub use publish::{PUBLISH_AGENT, PublishRequest, publish_agent, publish_result, publish_task, publish_workflow};
pub use types::{
    Answered, CandidateDoc, InitContext, InitRequest, Initialised, MAX_QUESTIONS, MAX_TOPICS, QUESTIONS, ReadInputs,
    Related, Summaries, TOPICS,
};
pub use workflow::{init_result, init_task, init_workflow};
