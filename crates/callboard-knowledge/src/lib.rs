//! A base of facts that the agents of a board share.

pub mod documents;
pub mod words;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
