//! The digest of a JSON value.

use callboard::messages::Json;
use sha2::{Digest, Sha256};

/// SHA-256 over the canonical text, in hexadecimal.
pub(crate) fn sha256(json: &Json) -> String {
    Sha256::digest(json.canonical()).iter().map(|byte| format!("{byte:02x}")).collect()
}
