//! A base of facts that the agents of a board share.

pub mod cycles;
mod digest;
pub mod documents;
pub mod entities;
pub mod facts;
pub mod indexing;
pub mod intents;
#[cfg(feature = "tools")]
pub mod provider;
pub mod publishing;
mod regular_file;
pub mod search;
pub mod site;
mod site_marker;
pub mod store;
mod times;
#[cfg(feature = "tools")]
pub mod tools;
pub mod words;

pub use store::{KnowledgeBase, KnowledgeError};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/knowledge.md")]
struct Guide;
