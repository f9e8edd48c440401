//! The description of a tool for models.

use std::sync::Arc;
use std::time::Duration;

use callboard::messages::{Effect, EffectClass, Json, OnUnknown};
use schemars::JsonSchema;

/// A tool as models see it, and the bounds that hold for each use of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    /// Its name: letters, digits, `_` and `-`, at most 64, because providers take no others.
    pub name: Arc<str>,
    /// What it does, for the model.
    pub description: Arc<str>,
    /// A JSON Schema of an object: its arguments.
    pub parameters: Json,
    /// What it may change.
    pub effect: Effect,
    /// Whether it may run again when the result of a use was lost (what [`Effect::class`] says of its effect).
    pub class: EffectClass,
    /// What follows when it may have run and nobody can say whether it has; by default what its agent or its board has
    /// for it.
    pub on_unknown: Option<OnUnknown>,
    /// The argument that says what it is done to, such as a path, for people who are asked for consent.
    pub target: Option<Arc<str>>,
    /// How long a use may take (60 s).
    pub timeout: Duration,
    /// The most bytes of an answer that a model sees (32 KiB); the rest is cut, and said to be.
    pub max_output: usize,
    /// All that it answers is untrusted input, its errors too, whatever a single answer says (false).
    pub is_untrusted: bool,
}

/// How long a use of a tool may take if its spec does not say otherwise.
pub const USUAL_TIMEOUT: Duration = Duration::from_secs(60);

/// The most bytes that a model sees of an answer if the tool's spec does not say otherwise.
pub const USUAL_OUTPUT: usize = 32 << 10;

impl ToolSpec {
    /// A tool whose arguments are those of a type.
    #[must_use]
    pub fn of<A: JsonSchema>(name: &str, description: &str, effect: Effect) -> Self {
        let mut parameters = schemars::generate::SchemaSettings::draft2020_12()
            .with(|settings| {
                settings.inline_subschemas = true;
                settings.meta_schema = None;
            })
            .into_generator()
            .into_root_schema_for::<A>();
        // The type's description is for readers of the source.
        parameters.remove("title");
        parameters.remove("description");
        Self::new(name, description, parameters.to_value(), effect)
    }

    /// A tool with this schema for its arguments.
    #[must_use]
    pub fn new(name: &str, description: &str, parameters: impl Into<Json>, effect: Effect) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            parameters: parameters.into(),
            effect,
            class: effect.class(),
            on_unknown: None,
            target: None,
            timeout: USUAL_TIMEOUT,
            max_output: USUAL_OUTPUT,
            is_untrusted: false,
        }
    }

    /// Names the argument that says what it is done to.
    #[must_use]
    pub fn target(mut self, argument: &str) -> Self {
        self.target = Some(argument.into());
        self
    }

    /// Says whether it may run again when the result of a use was lost.
    #[must_use]
    pub fn class(mut self, class: EffectClass) -> Self {
        self.class = class;
        self
    }

    /// Says what follows when it may have run and nobody can say whether it has.
    #[must_use]
    pub fn on_unknown(mut self, on_unknown: OnUnknown) -> Self {
        self.on_unknown = Some(on_unknown);
        self
    }

    /// Its size in bytes, as a model reads it.
    #[must_use]
    pub fn size(&self) -> usize {
        self.name.len() + self.description.len() + self.parameters.size()
    }
}
