//! A base of facts, from outside.

mod facts;
mod intents;
mod policy;
mod search;
mod support;
