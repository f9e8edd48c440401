//! In whose name people give tasks from elsewhere: from rooms of Matrix, where the server knows the person and not a token.

use callboard::messages::{AgentName, visible};

use crate::knowledge::reserved;
use crate::problem::{Problem, ProblemCode};
use crate::routes::Server;
use crate::tokens::Scope;

impl Server {
    /// Returns in whose name a person gives an agent a task from elsewhere than over HTTP, such as in a room of Matrix: the first of the
    /// person's tokens, by name, that has the scope `delegate` and has not expired. It counts as one request of that token.
    ///
    /// What the task uses counts against the limits of the token, if [`Task::from_agent`](callboard::messages::Task::from_agent) is that name.
    /// Nobody has proved to this server who asks, so the task has to be
    /// [untrusted](callboard::messages::Task::is_untrusted), whatever the token allows.
    ///
    /// # Errors
    /// The person has no such token, or it has sent too many requests; the agent takes no tasks from delegations; or the tokens cannot be read.
    pub fn requester(&self, person: &str, agent: &str) -> Result<AgentName, Problem> {
        let context = &self.context;
        if reserved::is_reserved(context, agent) {
            let detail = format!("the agent {} takes no tasks from delegations", visible(agent));
            return Err(Problem::new(ProblemCode::Refused, detail));
        }
        let is_of_person = |token: &str, owner: Option<&str>| {
            let known = context.people.get(token).map(|person| &**person);
            known.or(owner) == Some(person)
        };
        let found = context.tokens.first_with(Scope::Delegate, is_of_person);
        let mut caller = found.map_err(|error| Problem::of_tokens(&error))?.ok_or_else(|| {
            let detail = format!("{} has no token with the scope {}", visible(person), Scope::Delegate);
            Problem::new(ProblemCode::MissingScope, detail)
        })?;
        caller.person = Some(person.into());
        context.rates.count(&caller, context.now())?;
        caller.requester()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::time::Duration;

    use callboard::env::Env;
    use callboard::prelude::*;

    use super::*;
    use crate::tokens::{TokenSpec, Tokens};

    #[tokio::test]
    async fn a_person_asks_in_the_name_of_the_first_token_that_may_delegate_and_within_its_limits() {
        let board = Callboard::builder().start().await.unwrap();
        let tokens = Tokens::new(Env::system());
        tokens.add(TokenSpec::new("a-reads", [Scope::Read]).owner("ann")).unwrap();
        tokens.add(TokenSpec::new("b-old", [Scope::Delegate]).owner("ann").lifetime(Duration::ZERO)).unwrap();
        tokens.add(TokenSpec::new("c-bobs", [Scope::Delegate]).owner("ann")).unwrap();
        tokens.add(TokenSpec::new("d-laptop", [Scope::Delegate]).owner("ann").requests_a_minute(1)).unwrap();
        tokens.add(TokenSpec::new("e-phone", [Scope::Delegate]).owner("ann")).unwrap();
        let people = [("c-bobs".to_owned(), "bob".to_owned())];
        let server = Server::new(board.clone(), tokens.clone()).people(people);
        let asks = |person: &str| server.requester(person, "writer").map(|name| name.to_string());
        assert_eq!(asks("ann").unwrap(), "d-laptop");
        assert_eq!(asks("ann").unwrap_err().code, ProblemCode::Overloaded);
        assert_eq!(asks("bob").unwrap(), "c-bobs");
        tokens.revoke("c-bobs").unwrap();
        let refused = asks("bob").unwrap_err();
        assert_eq!(
            (refused.code, &*refused.detail),
            (ProblemCode::MissingScope, "bob has no token with the scope delegate")
        );
        assert_eq!(asks("d-laptop").unwrap_err().code, ProblemCode::MissingScope, "a token is no person");
        board.shutdown().await;
    }
}
