//! Where a span belongs in a trace: the `traceparent` of W3C Trace Context, and its `tracestate`.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// The longest `tracestate`, in bytes.
const MAX_STATE: usize = 512;

/// The most members of a `tracestate`.
const MAX_MEMBERS: usize = 32;

/// A span of a trace, as another program passes it on in the headers `traceparent` and `tracestate`.
///
/// ```
/// use callboard::messages::TraceParent;
///
/// let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// let parent = TraceParent::parse(text).unwrap();
/// assert_eq!(parent.span, 0xb7ad_6b71_6920_3331);
/// assert_eq!(parent.to_string(), text);
/// assert_eq!(TraceParent::parse("00-0-0-01"), None);
/// assert_eq!(parent.with_state("vendor=1, other=2").state.as_deref(), Some("vendor=1,other=2"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceParent {
    /// The id of the trace, which is not 0.
    pub trace: u128,
    /// The id of the span, which is not 0.
    pub span: u64,
    /// Whether the trace is recorded.
    pub is_sampled: bool,
    /// What systems of the trace know of it, for those of them that are used later: the value of `tracestate`. A store has it beside the
    /// span.
    #[serde(skip)]
    pub state: Option<Arc<str>>,
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
        (is_known && trace != 0 && span != 0).then_some(Self { trace, span, is_sampled: flags & 1 == 1, state: None })
    }

    /// The span with the value of `tracestate`, of whose members the first are kept that have 512 bytes together. A malformed one is none.
    #[must_use]
    pub fn with_state(self, text: &str) -> Self {
        Self { state: state(text).filter(|state| !state.is_empty()).map(Into::into), ..self }
    }

    /// The span of the try that follows when that of this span has failed.
    #[must_use]
    pub fn next_try(&self) -> Self {
        Self { span: xxh3_64(&self.span.to_be_bytes()).max(1), ..self.clone() }
    }
}

/// The members of a `tracestate`, without spaces around them.
fn state(text: &str) -> Option<String> {
    let (mut kept, mut keys, mut is_full) = (String::new(), BTreeSet::new(), false);
    // Members may be empty.
    for member in text.split(',').map(|member| member.trim_matches([' ', '\t'])).filter(|member| !member.is_empty()) {
        let (key, value) = member.split_once('=')?;
        if !is_key(key) || !is_value(value) || !keys.insert(key) || keys.len() > MAX_MEMBERS {
            return None;
        }
        let separator = if kept.is_empty() { "" } else { "," };
        is_full |= kept.len() + separator.len() + member.len() > MAX_STATE;
        if !is_full {
            kept.extend([separator, member]);
        }
    }
    Some(kept)
}

/// The key of a member: a name, or that of a tenant and a system with `@` between them.
fn is_key(key: &str) -> bool {
    let is = |part: &str, begins: fn(u8) -> bool, most: usize| {
        let fits = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/');
        part.bytes().next().is_some_and(begins) && part.bytes().all(fits) && part.len() <= most
    };
    let letter = |byte: u8| byte.is_ascii_lowercase();
    match key.split_once('@') {
        Some((tenant, system)) => {
            is(tenant, |byte| byte.is_ascii_lowercase() || byte.is_ascii_digit(), 241) && is(system, letter, 14)
        }
        None => is(key, letter, 256),
    }
}

fn is_value(value: &str) -> bool {
    let fits = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b',' | b'=');
    (1..=256).contains(&value.len()) && value.bytes().all(fits)
}

/// So many digits of lower case.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let is_hex = text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_hex.then(|| u128::from_str_radix(text, 16).ok())?
}

/// Writes the value of the header.
impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace, span, is_sampled, state: _ } = self;
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

    #[test]
    fn the_state_of_a_trace_is_kept_within_its_bounds_and_a_malformed_one_is_none() {
        let parent = || TraceParent { trace: 1, span: 1, is_sampled: true, state: None };
        let of = |text: &str| parent().with_state(text).state.map(|state| state.to_string());
        for (text, kept) in [
            ("a=1", "a=1"),
            (" a=1 ,\t, b=2,", "a=1,b=2"),
            ("a-b_c*/9=!~;\"", "a-b_c*/9=!~;\""),
            ("1tenant@system=x y", "1tenant@system=x y"),
        ] {
            assert_eq!(of(text).as_deref(), Some(kept));
        }
        let long = "v".repeat(257);
        for bad in [
            "",
            ",",
            "a",
            "=1",
            "a=",
            "A=1",
            "1=1",
            "a=1=2",
            "a=\u{e9}",
            "a=1\r\nx: y",
            "a=\u{7f}",
            "a=1,a=2",
            "a@=1",
            "@b=1",
            "a@B=1",
            "a@1=1",
            "a@b@c=1",
            "a b=1",
        ] {
            assert_eq!(of(bad), None, "{bad:?}");
        }
        for bad in [format!("a={long}"), format!("{long}=1"), format!("a@{}=1", "b".repeat(15))] {
            assert_eq!(of(&bad), None, "{bad}");
        }
        let members = |number: usize, length: usize| {
            let members: Vec<_> = (0..number).map(|number| format!("k{number:02}={}", "v".repeat(length))).collect();
            members.join(",")
        };
        assert_eq!(of(&members(32, 1)), Some(members(32, 1)));
        assert_eq!(of(&members(33, 1)), None);
        // Each has 104 bytes, and the commas count.
        assert_eq!(of(&members(6, 100)), Some(members(4, 100)));
        // What does not fit ends it: a later member that would fit is left out as well.
        assert_eq!(of(&format!("{},z=1", members(5, 100))), Some(members(4, 100)));
    }
}
