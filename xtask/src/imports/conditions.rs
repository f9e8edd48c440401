//! Attributes that decide whether code is compiled, and from which file.

use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, ExprLit, Lit, Meta, Token};

/// Whether a `cfg` leaves this out of every build that is not for tests (or for the tests of documentation).
pub(super) fn is_for_tests(attributes: &[Attribute]) -> bool {
    let conditions = attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    conditions.filter_map(|attribute| attribute.parse_args().ok()).any(|condition| holds(&condition) == Some(false))
}

/// Whether the condition holds in a build that is not for tests; `None` if that depends on features or the target.
fn holds(condition: &Meta) -> Option<bool> {
    match condition {
        Meta::Path(path) => (path.is_ident("test") || path.is_ident("doctest")).then_some(false),
        Meta::NameValue(_) => None,
        Meta::List(list) => {
            let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).ok()?;
            let parts: Vec<Option<bool>> = parts.iter().map(holds).collect();
            let decided_by = |value: bool| {
                if parts.contains(&Some(value)) {
                    Some(value)
                } else {
                    parts.iter().all(|&part| part == Some(!value)).then_some(!value)
                }
            };
            if list.path.is_ident("all") {
                decided_by(false)
            } else if list.path.is_ident("any") {
                decided_by(true)
            } else {
                parts.first().copied().flatten().map(|part| !part)
            }
        }
    }
}

/// What the `path` attributes of a module name, those under a condition too.
pub(super) fn paths(attributes: &[Attribute]) -> Vec<String> {
    let conditional = |attribute: &Attribute| {
        let parts = attribute.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
        parts.into_iter().flatten().skip(1).collect::<Vec<_>>()
    };
    let metas = attributes.iter().flat_map(|attribute| {
        if attribute.path().is_ident("cfg_attr") { conditional(attribute) } else { vec![attribute.meta.clone()] }
    });
    metas.filter_map(|meta| path(&meta)).collect()
}

fn path(meta: &Meta) -> Option<String> {
    match meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        Meta::Path(_) | Meta::List(_) | Meta::NameValue(_) => None,
    }
}
