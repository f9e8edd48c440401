//! Intents: one that reads (`query_truth`) and two that change (`submit_fact`, `invalidate_fact`).
//!
//! [`run_intent_loop`] owns whether a query is repeated; the orchestrators own the steps of a pass; front ends pass an envelope on. On a board,
//! the loop is a turn of the agent [`LOOP_AGENT`], and each pass is a turn of [`PASS_AGENT`] that it delegates to: a process that was killed
//! continues with the passes that are journaled.

mod agents;
mod answer;
pub(crate) mod asking;
mod envelope;
mod executor;
mod invalidate;
mod looping;
mod origin;
mod policy;
mod router;
mod shown;
mod submit;

pub use agents::{DEFAULT_NAMESPACE, LOOP_AGENT, PASS_AGENT, PROVIDER_AGENT, agents, agents_for, result_of, task};
pub use answer::{Answer, Claim, UncheckedAnswer};
pub use asking::IntentError;
pub use envelope::{
    ConsumerIntentEnvelope, Intent, IntentLoopConfig, IntentLoopResult, IntentResult, InvalidatePayload, QueryPayload,
    Refused, SubmitPayload,
};
pub use executor::{InPlace, Pass, PassResult, ToolExecutor};
pub use invalidate::InvalidateOrchestrator;
pub use looping::run_intent_loop;
pub use origin::Origin;
pub use policy::{Next, PassOptions, PassSummary, Stop, WIDER, next_pass};
pub use router::DefaultIntentRouter;
pub(crate) use shown::{ShownResult, shown};
pub use submit::SubmitOrchestrator;
