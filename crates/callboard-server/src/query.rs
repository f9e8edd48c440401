//! What a query has: pairs of names and values, decoded.

use std::borrow::Cow;

use callboard::messages::visible;

use crate::problem::Problem;

/// The pairs of a query.
pub(crate) fn pairs(query: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    form_urlencoded::parse(query.as_bytes())
}

/// The values of these names. Each is there once at most, and there are no others.
pub(crate) fn values<'q, const N: usize>(
    query: Option<&'q str>,
    names: [&str; N],
) -> Result<[Option<Cow<'q, str>>; N], Problem> {
    let mut values = [const { None }; N];
    for (name, value) in pairs(query.unwrap_or_default()) {
        let known = names.iter().position(|known| *known == name).and_then(|at| values.get_mut(at));
        match known {
            Some(known @ None) => *known = Some(value),
            Some(Some(_)) => return Err(Problem::bad(format!("the query has {name} twice"))),
            None => {
                let detail = format!("the query {} is not known: there is {}", visible(&name), names.join(", "));
                return Err(Problem::bad(detail));
            }
        }
    }
    Ok(values)
}
