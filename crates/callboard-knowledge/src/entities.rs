//! What documents and facts name: entities, and how they are named and joined.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How an entity, or what states something of it, is joined to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    /// It says what it is, or has its name as a heading. What defines an entity also mentions it, and has only this relation.
    Defines,
    /// It names it.
    Mentions,
    /// It refers to it.
    Links,
    /// It is a part of it.
    PartOf,
    /// It takes its place.
    Supersedes,
}

impl Relation {
    /// Its name, as in JSON and in the store.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mentions => "mentions",
            Self::Links => "links",
            Self::Defines => "defines",
            Self::PartOf => "part_of",
            Self::Supersedes => "supersedes",
        }
    }

    /// The relation of a predicate in normal form: "part of" and "defines" have their own, and any other one links.
    #[must_use]
    pub fn of_predicate(form: &str) -> Self {
        match form {
            "part of" | "is part of" | "part_of" => Self::PartOf,
            "defines" => Self::Defines,
            _ => Self::Links,
        }
    }
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What an entity is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EntityKind {
    /// A name in a program, or an option of one.
    Identifier,
    /// The text of a heading.
    Heading,
    /// A name of a file, possibly with folders.
    File,
    /// A document.
    Document,
    /// A fact.
    Fact,
    /// A subject or value of a fact, or what a model found.
    Thing,
}

impl EntityKind {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Identifier, Self::Heading, Self::File, Self::Document, Self::Fact, Self::Thing];

    /// Its name, as in JSON and in the store.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Identifier => "identifier",
            Self::Heading => "heading",
            Self::File => "file",
            Self::Document => "document",
            Self::Fact => "fact",
            Self::Thing => "thing",
        }
    }
}

/// An entity that a row names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Named {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: EntityKind,
    /// How the row names it.
    pub relation: Relation,
}
