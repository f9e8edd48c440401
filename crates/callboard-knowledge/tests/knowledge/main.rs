//! A base of facts, from outside.

mod facts;
mod search;
mod support;
