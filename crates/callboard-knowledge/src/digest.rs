//! The digest of a JSON value, and how digests are written.

use callboard::messages::Json;
use sha2::{Digest, Sha256};

/// SHA-256 over the canonical text, in hexadecimal.
pub(crate) fn sha256(json: &Json) -> String {
    hex(&bytes(json))
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// SHA-256 over the canonical text.
pub(crate) fn bytes(json: &Json) -> [u8; 32] {
    Sha256::digest(json.canonical()).into()
}
