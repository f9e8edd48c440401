//! Problems as errors of the protocol.

use rmcp::model::{ErrorCode, ErrorData};
use serde_json::json;

use crate::problem::{Problem, ProblemCode};

/// A problem as an error of the protocol.
pub(super) fn error(problem: Problem) -> ErrorData {
    let code = match problem.code {
        ProblemCode::NotFound => ErrorCode::RESOURCE_NOT_FOUND,
        ProblemCode::Internal | ProblemCode::Unavailable | ProblemCode::Overloaded => ErrorCode::INTERNAL_ERROR,
        ProblemCode::Unauthenticated | ProblemCode::MissingScope => ErrorCode::INVALID_REQUEST,
        _ => ErrorCode::INVALID_PARAMS,
    };
    let data = json!({ "code": problem.code.as_str(), "retry_after_s": problem.retry_after.map(|wait| wait.as_secs().max(1)) });
    ErrorData::new(code, problem.detail, Some(data))
}
