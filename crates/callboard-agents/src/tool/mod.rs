//! Tools of models: one tool (here), its description for models (`spec`), and the tools of an agent (`toolset`).

mod gate;
mod spec;
mod toolset;
mod typed;

use std::fmt;
use std::sync::Arc;

use callboard::actors::{ContextAccess, Turn};
use callboard::messages::{AgentName, EffectClass, Intent, Json, Reconciled, TraceParent, TurnId};
use futures::FutureExt;
use futures::future::BoxFuture;

use super::roles::Names;

pub use spec::{ToolSpec, USUAL_OUTPUT, USUAL_TIMEOUT};
pub(crate) use toolset::Entry;
pub use toolset::{Tools, ToolsError};
pub use typed::{of_spec, tool};

/// An operation that a model can call: it takes JSON arguments and returns a text.
pub trait Tool: Send + Sync + 'static {
    /// Returns the tool's name, description and parameters, as models see them, and its effect and limits.
    fn spec(&self) -> ToolSpec;

    /// Looks at arguments that meet its schema before people are asked about them, so that nobody is asked about what cannot be
    /// done. It says the same whenever it is asked, and looks at nothing outside: what it lets through may still fail.
    ///
    /// # Errors
    /// What the model receives.
    fn check(&self, arguments: &Json) -> Result<(), ToolError> {
        let _ = arguments;
        Ok(())
    }

    /// Looks outside, before people are asked about a use, whether it would be refused there: where a path leads, for example, which links
    /// decide. What it finds is journaled. Meanwhile that may change, so the use looks again. `None` if there is nothing to look at.
    ///
    /// # Errors
    /// In the future: what the model receives.
    fn look(&self, arguments: &Json) -> Option<BoxFuture<'static, Result<(), ToolError>>> {
        let _ = arguments;
        None
    }

    /// Uses it. The arguments meet its schema. It is given up by dropping the future, when its time is over or its turn is
    /// cancelled.
    fn call(&self, arguments: Json, scope: ToolScope) -> BoxFuture<'static, Result<ToolOutput, ToolFailure>>;

    /// The tool as it is now, for one whose spec changes while a board runs: a turn of an agent asks for it as it begins, and uses
    /// what it gets until it ends. `None` in the future means that it is as it was. It keeps its name.
    fn renewed(&self) -> Option<BoxFuture<'static, Option<Arc<dyn Tool>>>> {
        None
    }

    /// Whether a use with these arguments may be repeated, if that is not what its spec says of all uses. It says the same
    /// whenever it is asked.
    fn class(&self, arguments: &Json) -> Option<EffectClass> {
        let _ = arguments;
        None
    }

    /// What is there before a use, for [`Tool::reconcile`] of a tool of the class [`EffectClass::Once`]: it is journaled before
    /// the use begins. Of a file this may be its hash.
    fn before(&self, arguments: Json) -> BoxFuture<'static, Json> {
        let _ = arguments;
        futures::future::ready(Json::null()).boxed()
    }

    /// Finds out what came of a use whose result was lost, for a tool of the class [`EffectClass::Once`]. It may take 30 s; an
    /// error or a panic means that it is unknown. The intent is what was journaled before the use; the arguments and the key
    /// of the scope are those of the use.
    fn reconcile(
        &self,
        intent: Intent,
        arguments: Json,
        scope: ToolScope,
    ) -> BoxFuture<'static, Result<Reconciled<ToolOutput>, ToolError>> {
        let _ = (intent, arguments, scope);
        futures::future::ready(Ok(Reconciled::Unknown)).boxed()
    }
}

/// What a use of a tool receives besides its arguments.
#[derive(Clone, Debug)]
pub struct ToolScope {
    /// The same for all tries of one use: an idempotency key for whatever is outside.
    pub key: Arc<str>,
    /// The shared context with the agent's grants; there is none outside a board.
    pub context: Option<ContextAccess>,
    /// The turn, as the programs see it that the tool starts ([`Turn::for_programs`]); there is none outside a board, and for an
    /// agent that does not have the tool `Task`.
    pub turn: Option<Turn>,
    /// The variables of the environment that the agent's role grants, of which those that end with `*` stand for all that begin so;
    /// `None` for an agent that is compiled in, whose tools decide themselves.
    pub variables: Option<Arc<[Arc<str>]>>,
    /// The span of the turn, to pass on to what the tool uses; there is none outside a board.
    pub trace_parent: Option<TraceParent>,
    /// The turn that uses it, for what the tool records; there is none outside a board.
    pub asker: Option<Asker>,
}

/// The turn that uses a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asker {
    /// Its agent.
    pub agent: AgentName,
    /// The turn.
    pub turn: TurnId,
    /// It has read untrusted input.
    pub is_tainted: bool,
}

impl ToolScope {
    /// Returns whether a tool may pass this variable of the environment on to what the agent uses.
    #[must_use]
    pub fn grants_variable(&self, name: &str) -> bool {
        self.variables.as_ref().is_none_or(|granted| Names(Arc::clone(granted)).have(name))
    }
}

/// The result of a use of a tool that did not fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolOutput {
    /// The answer; what a model sees of it is cut to [`ToolSpec::max_output`] bytes.
    pub text: String,
    /// It is untrusted input, and taints the run: what that does after reading it needs more care (SEMANTICS 13).
    pub is_untrusted: bool,
}

impl<T: Into<String>> From<T> for ToolOutput {
    fn from(text: T) -> Self {
        Self { text: text.into(), is_untrusted: false }
    }
}

/// Why a tool could not do what it was to do. The model reads it, and may try otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolError(pub String);

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: std::error::Error> From<E> for ToolError {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

/// Why a use of a tool has no result. The model receives the error, whichever variant it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToolFailure {
    /// The tool has answered that it could not do it.
    #[error("{0}")]
    Told(ToolError),
    /// What stands behind the tool has not answered in the time that the tool gives it. It counts as a use that took longer than
    /// the tool's timeout: a tool that is silent three times in a row is left alone for a while (SEMANTICS 3).
    #[error("{0}")]
    Silent(ToolError),
}

impl ToolFailure {
    /// Returns the error, which the model receives.
    #[must_use]
    pub fn error(&self) -> &ToolError {
        match self {
            Self::Told(error) | Self::Silent(error) => error,
        }
    }
}

impl From<ToolError> for ToolFailure {
    fn from(error: ToolError) -> Self {
        Self::Told(error)
    }
}
