//! The pages of a server without the feature: there are none.

use axum::extract::Request;
use axum::response::Response;

use crate::problem::Problem;
use crate::tokens::Caller;

pub(crate) enum Dashboard {}

impl Dashboard {
    pub(crate) fn caller(&self, _: &Request, _: impl FnOnce(&mut Caller)) -> Result<Option<Caller>, Problem> {
        match *self {}
    }

    pub(crate) async fn ended(&self, _: &[u8; 32]) {
        match *self {}
    }

    pub(crate) fn protected(&self, _: Response) -> Response {
        match *self {}
    }
}
