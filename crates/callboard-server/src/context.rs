//! What handlers use.

use std::sync::Arc;

use axum::extract::State;
use callboard::Callboard;
use callboard::env::Env;
use tokio::sync::watch;

use crate::origins::Origins;
use crate::tokens::Tokens;

/// The board and the settings of the server.
pub(crate) struct Context {
    pub(crate) board: Callboard,
    pub(crate) tokens: Tokens,
    pub(crate) env: Env,
    pub(crate) origins: Origins,
    /// Whether event streams are to end.
    pub(crate) is_stopping: watch::Sender<bool>,
}

impl Context {
    pub(crate) fn new(board: Callboard, tokens: Tokens, env: Env, origins: Origins) -> Self {
        Self { board, tokens, env, origins, is_stopping: watch::Sender::new(false) }
    }

    /// The same with these origins, and with event streams of its own.
    pub(crate) fn renewed(&self, origins: Origins) -> Self {
        Self::new(self.board.clone(), self.tokens.clone(), self.env.clone(), origins)
    }
}

/// The context, as handlers extract it.
pub(crate) type Shared = State<Arc<Context>>;
