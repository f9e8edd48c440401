//! What a query finds: facts and passages, ranked, with what explains each rank.

mod candidates;
mod found;
mod fulltext;
mod graph;
mod retrieving;
mod score;
mod terms;

pub use found::{
    Checkpoint, Depth, Found, Grounded, MAX_LIMIT, MAX_QUERY, ReadFacts, Retrieved, Status, USUAL_LIMIT, Why,
};
pub use retrieving::{Retriever, StagedText};
pub use score::{Confidence, confidence};
