//! The requests to a model, and the tools in them.

use std::sync::Arc;

use callboard::messages::{AgentEvent, Authority, Handoffs};
use parking_lot::Mutex;

use crate::meta::MetaTool;
use crate::model::ModelRequest;
use crate::tool::ToolSpec;

use super::AgentLoop;
use super::context::LoopContext;
use super::finish::Finish;
use super::host::Host;

impl AgentLoop {
    /// Begins an iteration: the request, and the tokens that it may need. `Err` is the end.
    pub(super) fn next_request(
        &self,
        host: &dyn Host,
        context: &Mutex<LoopContext>,
    ) -> Result<(ModelRequest, u64), Finish> {
        let mut context = context.lock();
        // The agent that sums up may have read untrusted input.
        context.is_tainted |= host.is_tainted();
        if context.iteration == self.settings.max_iterations {
            return Err(Finish::IterationLimit);
        }
        context.iteration += 1;
        let (messages, request) = (context.measure(), self.request(host, &context));
        let needed = request.estimated_tokens_with(messages) + u64::from(request.max_tokens);
        let used = context.usage.total();
        if let Some(budget) = self.settings.token_budget.filter(|budget| used + needed > *budget) {
            let why = format!(
                "the agent may use {budget} tokens in a turn, has used {used}, and may need {needed} more: raise its \
                 `tokens`, or lower its `max_tokens`"
            );
            return Err(Finish::Failed(why.into()));
        }
        host.show(AgentEvent::Iteration { iteration: context.iteration });
        Ok((request, needed))
    }

    /// The least reservation for a call: for the answer, and for the tools that an agent of this authority has in every run.
    /// Prompt and messages are added to it.
    pub(crate) fn least_reservation(&self, authority: Authority) -> u64 {
        let own = self.settings.tools.specs().filter(|spec| !self.settings.hidden.contains(&spec.name));
        // Handoff tools are only shown where handoffs are allowed.
        let meta = self.settings.meta.iter().filter(|(tool, _)| !tool.is_handoff()).map(|(_, spec)| spec);
        let tools = own.chain(meta).filter(|spec| authority.allows(spec.effect)).cloned().collect();
        let (system, messages, max_tokens) = ("".into(), Arc::default(), self.settings.max_tokens);
        let request =
            ModelRequest { system, messages, tools, max_tokens, idempotency_key: "".into(), trace_parent: None };
        request.estimated_tokens() + u64::from(max_tokens)
    }

    pub(super) fn request(&self, host: &dyn Host, context: &LoopContext) -> ModelRequest {
        let authority = host.authority();
        let is_there = |spec: &&Arc<ToolSpec>| authority.allows(spec.effect) && self.is_shown(&spec.name, context);
        let own = self.settings.tools.specs().filter(is_there);
        let meta = self.meta_there(host).map(|(_, spec)| spec);
        let mut tools: Vec<_> = own.chain(meta).cloned().collect();
        // The request is kept until the model has answered.
        tools.shrink_to_fit();
        ModelRequest {
            system: self.instructions(),
            messages: Arc::clone(&context.history),
            tools,
            max_tokens: self.settings.max_tokens,
            idempotency_key: host.key(&format!("model-{}", context.iteration)),
            // The call has a span once its tokens are reserved.
            trace_parent: None,
        }
    }

    /// The tools of the loop itself in a request: handoff tools only where handoffs are allowed.
    pub(super) fn meta_there(&self, host: &dyn Host) -> impl Iterator<Item = &(MetaTool, Arc<ToolSpec>)> {
        let (is_off, authority) = (host.handoffs() == Handoffs::Off, host.authority());
        let is_there = move |(tool, spec): &&(MetaTool, Arc<ToolSpec>)| {
            authority.allows(spec.effect) && !(is_off && tool.is_handoff())
        };
        self.settings.meta.iter().filter(is_there)
    }

    pub(super) fn is_shown(&self, tool: &Arc<str>, context: &LoopContext) -> bool {
        !self.settings.hidden.contains(tool) || context.activated.contains(tool)
    }
}
