//! Where a span belongs in a trace: the `traceparent` of W3C Trace Context.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A span of a trace, as another program passes it on in the header `traceparent`.
///
/// ```
/// use callboard::messages::TraceParent;
///
/// let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// let parent = TraceParent::parse(text).unwrap();
/// assert_eq!(parent.span, 0xb7ad_6b71_6920_3331);
/// assert_eq!(parent.to_string(), text);
/// assert_eq!(TraceParent::parse("00-0-0-01"), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceParent {
    /// The id of the trace, which is not 0.
    pub trace: u128,
    /// The id of the span, which is not 0.
    pub span: u64,
    /// Whether the trace is recorded.
    pub is_sampled: bool,
}

impl TraceParent {
    /// The value of a header, of this or a later version of the format; `None` if it is malformed.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(5, '-');
        let mut part = |digits| hex(parts.next()?, digits);
        let (version, trace, span, flags) = (part(2)?, part(32)?, u64::try_from(part(16)?).ok()?, part(2)?);
        // Only later versions may have more parts.
        let is_known = version == 0 && parts.next().is_none() || (1..0xff).contains(&version);
        (is_known && trace != 0 && span != 0).then_some(Self { trace, span, is_sampled: flags & 1 == 1 })
    }
}

/// So many digits of lower case.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let is_hex = text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_hex.then(|| u128::from_str_radix(text, 16).ok())?
}

/// Writes the value of the header.
impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace, span, is_sampled } = self;
        write!(f, "00-{trace:032x}-{span:016x}-{:02x}", u8::from(*is_sampled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_trace_parent_is_none() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
        assert_eq!(TraceParent::parse(good).map(|parent| parent.is_sampled), Some(false));
        let later = "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03-more";
        assert_eq!(TraceParent::parse(later).map(|parent| parent.is_sampled), Some(true));
        for bad in [
            String::new(),
            "é".repeat(60),
            format!("{good}-more"),
            format!("{good} "),
            good.to_uppercase(),
            good.replacen("00", "ff", 1),
            good.replacen("00", "+0", 1),
            good.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            good.replace("b7ad6b7169203331", &"0".repeat(16)),
            good[..54].to_owned(),
            good.replace("b7ad6b7169203331", "b7ad6b71692033310"),
        ] {
            assert_eq!(TraceParent::parse(&bad), None, "{bad}");
        }
    }
}
