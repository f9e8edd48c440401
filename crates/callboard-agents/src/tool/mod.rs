//! What a model can do besides talking: one tool, and a box of them.

mod gate;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use callboard::actors::Mode;
use callboard::actors::context::ContextAccess;
use callboard::messages::{Effect, EffectClass, Intent, Json, OnUnknown, Reconciled};
use callboard_documents::schema::{self, Validator};
use callboard_text::{cut, quoted};
use futures::future::{BoxFuture, join_all};
use futures::{FutureExt, TryFutureExt};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::meta::MetaTool;
use gate::Gate;

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
    /// What follows when it may have run and nobody can say whether it has; what its agent or its board says if nothing is
    /// said here.
    pub on_unknown: Option<OnUnknown>,
    /// The argument that says what it is done to, such as a path, for people who are asked for consent.
    pub target: Option<Arc<str>>,
    /// How long a use may take (60 s).
    pub timeout: Duration,
    /// The most bytes of an answer that a model sees (32 KiB); the rest is cut, and said to be.
    pub max_output: usize,
    /// All that it answers comes from strangers, its errors too, whatever a single answer says (false).
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
        // What is said of the type is for whoever reads the source.
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

/// Something that a model can use.
pub trait Tool: Send + Sync + 'static {
    /// How models see it.
    fn spec(&self) -> ToolSpec;

    /// Looks at arguments that meet its schema before people are asked about them, so that nobody is asked about what cannot be
    /// done. It says the same whenever it is asked, and looks at nothing outside: what it lets through may still fail.
    ///
    /// # Errors
    /// What the model is told.
    fn check(&self, arguments: &Json) -> Result<(), ToolError> {
        let _ = arguments;
        Ok(())
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

/// For whom a tool is used.
#[derive(Clone, Debug)]
pub struct ToolScope {
    /// The same for all tries of one use: an idempotency key for whatever is outside.
    pub key: Arc<str>,
    /// The shared context with the agent's grants; there is none outside a board.
    pub context: Option<ContextAccess>,
}

/// What a tool answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolOutput {
    /// The answer.
    pub text: String,
    /// It comes from strangers: what the run does after reading it needs more care (SEMANTICS 13).
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

/// How a use of a tool failed.
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
    /// What the model is told.
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

/// A tool made of a function.
struct Typed<F, A> {
    spec: ToolSpec,
    call: F,
    arguments: PhantomData<fn(A)>,
}

/// Makes a tool of a function. The schema of its arguments is that of their type.
///
/// ```
/// use callboard_agents::{Effect, Tools, tool};
/// use schemars::JsonSchema;
/// use serde::Deserialize;
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Sum { /** What is added up. */ numbers: Vec<f64> }
///
/// let sum = tool("sum", "Adds numbers.", Effect::Reads, |sum: Sum, _scope| async move {
///     Ok(sum.numbers.iter().sum::<f64>().to_string().into())
/// });
/// let tools = Tools::new().with(sum)?;
/// assert_eq!(tools.names().collect::<Vec<_>>(), ["sum"]);
/// # Ok::<(), callboard_agents::ToolsError>(())
/// ```
pub fn tool<A, F, Fut>(name: &str, description: &str, effect: Effect, call: F) -> impl Tool
where
    A: JsonSchema + DeserializeOwned + 'static,
    F: Fn(A, ToolScope) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
{
    of_spec(ToolSpec::of::<A>(name, description, effect), call)
}

/// As [`tool`], with everything that can be said about it.
pub fn of_spec<A, F, Fut>(spec: ToolSpec, call: F) -> impl Tool
where
    A: DeserializeOwned + 'static,
    F: Fn(A, ToolScope) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
{
    Typed { spec, call, arguments: PhantomData }
}

impl<A, F, Fut> Tool for Typed<F, A>
where
    A: DeserializeOwned + 'static,
    F: Fn(A, ToolScope) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
{
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn call(&self, arguments: Json, scope: ToolScope) -> BoxFuture<'static, Result<ToolOutput, ToolFailure>> {
        match arguments.parse() {
            Ok(arguments) => (self.call)(arguments, scope).err_into().boxed(),
            Err(error) => {
                let error = ToolError(format!("the arguments do not fit: {error}"));
                futures::future::ready(Err(error.into())).boxed()
            }
        }
    }
}

/// The tools of an agent, by name. A cheap clone.
#[derive(Clone, Default)]
pub struct Tools(Arc<BTreeMap<Arc<str>, Entry>>);

/// A tool with its schema made ready.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) spec: Arc<ToolSpec>,
    validator: Arc<Validator>,
    /// Shared by all who have the tool.
    pub(super) gate: Arc<Gate>,
    pub(super) tool: Arc<dyn Tool>,
}

/// Why a tool was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolsError {
    /// Providers would not take its name.
    #[error("a tool's name has 1 to 64 letters, digits, `_` and `-`; {} has not", quoted(.0))]
    Name(String),
    /// The name is one of the runtime's own actions.
    #[error("no tool can be named {}: the runtime has the name for itself; choose another one", quoted(.0))]
    Reserved(String),
    /// Two tools have one name.
    #[error("two tools are named {}; give one of them another name", quoted(.0))]
    Twice(String),
    /// The schema of its arguments cannot be used.
    #[error("the schema of the tool {}: {problem}", quoted(name))]
    Schema {
        /// The tool.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
}

const MAX_NAME: usize = 64;

/// What actions of the runtime are called, about which people and policies decide.
const RESERVED: [&str; 2] = ["handoff", "delegation"];

/// Whether the runtime has this name for itself, in whatever case: for its actions, or for a tool of the loop.
fn is_reserved(name: &str) -> bool {
    let of_loop = MetaTool::ALL.map(MetaTool::name);
    RESERVED.iter().chain(&of_loop).any(|reserved| name.eq_ignore_ascii_case(reserved))
}

impl Tools {
    /// No tools.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// These and another one.
    ///
    /// # Errors
    /// See [`ToolsError`]. A schema whose references lead outside it is refused: nothing is fetched.
    pub fn with(mut self, tool: impl Tool) -> Result<Self, ToolsError> {
        self.add(Arc::new(tool))?;
        Ok(self)
    }

    /// As [`Tools::with`], in place.
    ///
    /// # Errors
    /// As there.
    pub fn add(&mut self, tool: Arc<dyn Tool>) -> Result<(), ToolsError> {
        let entry = Entry::of(tool)?;
        if self.0.contains_key(&entry.spec.name) {
            return Err(ToolsError::Twice(entry.spec.name.to_string()));
        }
        Arc::make_mut(&mut self.0).insert(Arc::clone(&entry.spec.name), entry);
        Ok(())
    }

    /// Whether one of them may change while a board runs.
    pub(super) fn may_change(&self) -> bool {
        self.0.values().any(|entry| entry.tool.renewed().is_some())
    }

    /// The tools as they are now, if one of them has changed. One whose new schema cannot be used stays as it was.
    pub(super) async fn renewed(&self) -> Option<Self> {
        let asked = self.0.values().filter_map(|entry| entry.tool.renewed());
        let changed: Vec<Arc<dyn Tool>> = join_all(asked).await.into_iter().flatten().collect();
        let mut renewed = self.clone();
        for tool in changed {
            let Ok(new) = Entry::of(tool) else { continue };
            if let Some(entry) = Arc::make_mut(&mut renewed.0).get_mut(&new.spec.name) {
                *entry = Entry { gate: Arc::clone(&entry.gate), ..new };
            }
        }
        (!Arc::ptr_eq(&renewed.0, &self.0)).then_some(renewed)
    }

    /// Those that an agent of this mode may have, of those that it is allowed; all of them if nothing is said.
    #[must_use]
    pub fn for_agent(&self, mode: Mode, allowed: Option<&[Arc<str>]>) -> Self {
        let is_allowed = |entry: &Entry| {
            entry.spec.effect.fits(mode) && allowed.is_none_or(|allowed| allowed.contains(&entry.spec.name))
        };
        if self.0.values().all(is_allowed) {
            return self.clone();
        }
        let entries = self.0.iter().filter(|(_, entry)| is_allowed(entry));
        Self(Arc::new(entries.map(|(name, entry)| (Arc::clone(name), entry.clone())).collect()))
    }

    /// Their names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(|name| &**name)
    }

    /// How models see them, sorted by name.
    pub fn specs(&self) -> impl Iterator<Item = &Arc<ToolSpec>> {
        self.0.values().map(|entry| &entry.spec)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn get(&self, name: &str) -> Option<&Entry> {
        self.0.get(name)
    }
}

impl Entry {
    fn of(tool: Arc<dyn Tool>) -> Result<Self, ToolsError> {
        let spec = Arc::new(tool.spec());
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if spec.name.is_empty() || spec.name.len() > MAX_NAME || !spec.name.chars().all(is_plain) {
            return Err(ToolsError::Name(spec.name.to_string()));
        }
        if is_reserved(&spec.name) {
            return Err(ToolsError::Reserved(spec.name.to_string()));
        }
        let wrong = |problem| ToolsError::Schema { name: spec.name.to_string(), problem };
        if spec.parameters.get("type").and_then(|kind| kind.as_str()) != Some("object") {
            return Err(wrong("the arguments of a tool are an object: write \"type\": \"object\"".to_owned()));
        }
        let validator = Arc::new(schema::ready(spec.parameters.value()).map_err(wrong)?);
        Ok(Self { spec, validator, gate: Arc::default(), tool })
    }

    /// Whether a use with these may be repeated.
    pub(super) fn class(&self, arguments: &Json) -> EffectClass {
        self.tool.class(arguments).unwrap_or(self.spec.class)
    }

    /// Whether it may be used with these.
    ///
    /// # Errors
    /// Why not, for the model.
    pub(super) fn check(&self, arguments: &Json) -> Result<(), ToolError> {
        let name = &self.spec.name;
        if let Some(text) = arguments.as_str() {
            return Err(ToolError(format!("the arguments of {name} are not JSON: {}", cut(text))));
        }
        schema::check(&self.validator, arguments.value())
            .map_err(|problem| ToolError(format!("the arguments of {name} do not fit{problem}")))?;
        self.tool.check(arguments)
    }
}

impl fmt::Debug for Tools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize, JsonSchema)]
    struct Nothing {}

    fn with(name: &str) -> Result<Tools, ToolsError> {
        Tools::new().with(tool(name, "Does nothing.", Effect::Reads, |_: Nothing, _| async { Ok("done".into()) }))
    }

    #[test]
    fn no_tool_has_a_name_that_the_runtime_has_for_itself() {
        let names = ["handoff", "Handoff", "delegation", "task", "HANDOFF_TO_AGENT"];
        for name in names.into_iter().chain(MetaTool::ALL.map(MetaTool::name)) {
            assert!(matches!(with(name), Err(ToolsError::Reserved(refused)) if refused == name), "{name}");
            // Whatever a server calls its tools, models and people see the server's name before it.
            assert!(with(&format!("mcp__files__{name}")).is_ok(), "{name}");
        }
        assert!(with("hand_off").is_ok());
    }
}
