use std::fmt::Write as _;

use super::*;

const MARKDOWN: &str = r"---
title: Leases
---

# Leases

A lease is held for *sixty seconds*. It is renewed by [the storage actor](storage.md#renewal), see also <https://example.org/leases>.

## `Lease::renew`

Fails with `LeaseError::Expired` if the lease has expired:

```rust
board.renew(lease_id)?;
```

| state | next |
|---|---|
| held | released |

## Limits

### Of time

- at most an hour
- [at least][least] a second

[least]: ../limits.md
";

const RUST: &str = r"//! Leases of runs.

use std::time::Duration;

/// How long a lease is held.
pub const HELD_FOR: Duration = Duration::from_secs(60);

/// Why a lease was not renewed; see [`Lease`].
#[derive(Debug)]
pub enum LeaseError {
    /// It has expired.
    Expired,
}

impl Lease {
    /// Renews the lease.
    pub fn renew(&mut self, now: Duration) -> Result<(), LeaseError> {
        self.held_since = now;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_lease_is_renewed() {}
}
";

/// A document as text, without its hash.
fn shown(document: &Document) -> String {
    let mut shown = format!("{}: {}\n", document.path, document.title);
    for passage in &document.passages {
        let Passage { ordinal, title, anchor, other_anchors, text, lines, entities } = passage;
        writeln!(
            shown,
            "\n{ordinal}. {title} | #{anchor} {other_anchors:?} | lines {} to {}",
            lines.start(),
            lines.end()
        )
        .unwrap();
        for Mention { kind, entity, relation } in entities {
            writeln!(shown, "   {relation:?} {kind:?} {entity}").unwrap();
        }
        for line in text.lines() {
            writeln!(shown, "   | {line}").unwrap();
        }
    }
    for Link { passage, to, anchor, text } in &document.links {
        writeln!(shown, "\n{passage} -> {to} {anchor:?}: {text}").unwrap();
    }
    shown
}

#[test]
fn markdown_is_read_as_before() {
    insta::assert_snapshot!("markdown", shown(&read("docs/leases.md", MARKDOWN)));
}

#[test]
fn rust_is_read_as_before() {
    insta::assert_snapshot!("rust", shown(&read("src/leases.rs", RUST)));
}
