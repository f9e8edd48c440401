//! How a server gets its pages.

use std::sync::Arc;

use super::origin::{DashboardError, PagesAt};
use super::state::Dashboard;
use crate::context::Context;
use crate::routes::Server;

impl Server {
    /// Has pages for people, at the root of this server. A process of this user gets links to sign in over the private socket
    /// (`POST /v1/sign-in`). Sessions are kept beside the tokens, so people stay signed in when the server starts again; with tokens in memory
    /// they are in memory too.
    ///
    /// # Errors
    /// See [`DashboardError`].
    pub fn dashboard(self, at: &PagesAt) -> Result<Self, DashboardError> {
        let dashboard = Dashboard::open(at, &self.context.tokens)?;
        let origins = self.context.origins.clone().with(dashboard.origin.as_str())?;
        let dashboard = Some(Arc::new(dashboard));
        Ok(Self { context: Arc::new(Context { dashboard, ..self.context.renewed(origins) }) })
    }

    /// Returns the origin of the pages, as `http://cb-….localhost:7420`; `None` if there are none.
    #[must_use]
    pub fn pages(&self) -> Option<&str> {
        self.context.dashboard.as_ref().map(|dashboard| dashboard.origin.as_str())
    }
}
