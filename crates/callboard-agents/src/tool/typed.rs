//! Tools made from functions.

use std::future::Future;
use std::marker::PhantomData;

use callboard::messages::{Effect, Json};
use futures::future::BoxFuture;
use futures::{FutureExt, TryFutureExt};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::{Tool, ToolError, ToolFailure, ToolOutput, ToolScope, ToolSpec};

/// A tool made from a function.
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
