//! What stands in for the room `knowledge` where its feature is off: no routes, no tools, and no reserved agents.

pub(crate) mod base;

use std::sync::Arc;

use axum::routing::MethodRouter;

use crate::context::Context;
use crate::tokens::Scope;

type Handler = fn() -> MethodRouter<Arc<Context>>;

pub(crate) const ROUTES: &[(&str, &str, Scope, Handler)] = &[];

pub(crate) mod reserved {
    use callboard::messages::Task;
    use callboard::runtime::RunHandle;

    use crate::context::Context;
    use crate::problem::Problem;

    #[expect(clippy::unnecessary_wraps, reason = "the room may refuse")]
    pub(crate) fn check(_: &Context, _: &Task) -> Result<(), Problem> {
        Ok(())
    }

    #[expect(clippy::unused_async, reason = "the room reads the run")]
    pub(crate) async fn check_repeated(_: &Context, _: &RunHandle, _: bool) -> Result<(), Problem> {
        Ok(())
    }

    pub(crate) fn is_reserved(context: &Context, _: &str) -> bool {
        context.facts.reserves()
    }
}

#[allow(dead_code, reason = "the room mcp has these, where its feature is on")]
pub(crate) mod tools {
    use callboard::messages::{RunId, TraceParent};
    use serde_json::{Map, Value};

    use crate::context::Context;
    use crate::problem::Problem;
    use crate::tokens::{Caller, Scope};

    pub(crate) const DEFAULT_NAMESPACE: &str = "default";

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum KnowledgeTool {}

    pub(crate) struct Call {
        pub(crate) arguments: Map<String, Value>,
        pub(crate) run: Option<RunId>,
        pub(crate) parent: Option<TraceParent>,
        pub(crate) decides: bool,
    }

    impl KnowledgeTool {
        pub(crate) const ALL: [Self; 0] = [];

        pub(crate) const fn name(self) -> &'static str {
            match self {}
        }

        pub(crate) const fn scope(self) -> Scope {
            match self {}
        }

        pub(crate) const fn only_reads(self) -> bool {
            match self {}
        }

        pub(crate) const fn destroys(self) -> bool {
            match self {}
        }

        pub(crate) const fn description(self) -> &'static str {
            match self {}
        }

        pub(crate) fn arguments(self) -> (Value, &'static [&'static str]) {
            match self {}
        }

        pub(crate) async fn call(self, _: &Context, _: &Caller, _: Call) -> Result<Value, Problem> {
            match self {}
        }
    }
}
