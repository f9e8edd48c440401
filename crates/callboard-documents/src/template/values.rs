//! Converts values of templates to JSON, within limits. minijinja shares parts of values, so a short template can make a value
//! whose JSON would be endless; its limit of steps does not detect that.

use minijinja::value::{Kwargs, Rest, Value as Read, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State};
use serde_json::Value;

use crate::MAX_DEPTH;

/// The longest text that a template renders, in bytes.
pub(super) const MAX_TEXT: usize = 8 << 20;

/// The size that a value counts besides its text, in bytes.
const EACH: usize = 16;

/// The value as JSON.
pub(super) fn json_of(value: &Read) -> Result<Value, Error> {
    walk(value, &mut MAX_TEXT.clone(), 0)
}

fn walk(value: &Read, left: &mut usize, depth: usize) -> Result<Value, Error> {
    let cost = EACH + value.as_str().map_or(0, str::len);
    *left = left.checked_sub(cost).ok_or_else(|| {
        Error::new(ErrorKind::InvalidOperation, format!("a value would have more than {MAX_TEXT} bytes"))
    })?;
    let refused = |error: serde_json::Error| Error::new(ErrorKind::BadSerialization, error.to_string());
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable | ValueKind::Map if depth > MAX_DEPTH => {
            let detail = format!("a value nests deeper than {MAX_DEPTH} levels");
            Err(Error::new(ErrorKind::InvalidOperation, detail))
        }
        ValueKind::Seq | ValueKind::Iterable => {
            value.try_iter()?.map(|item| walk(&item, left, depth + 1)).collect::<Result<_, _>>().map(Value::Array)
        }
        ValueKind::Map => {
            let fields = value.try_iter()?.map(|key| {
                let field = walk(&value.get_item(&key)?, left, depth + 1)?;
                let key = walk(&key, left, depth + 1)?;
                Ok((key.as_str().map_or_else(|| key.to_string(), str::to_owned), field))
            });
            fields.collect::<Result<_, Error>>().map(Value::Object)
        }
        _ => serde_json::to_value(value).map_err(refused),
    }
}

/// Filters that iterate over their whole input. Lists joined by `+` take no memory and no fuel before.
const BOUNDED: [&str; 23] = [
    "string",
    "join",
    "sum",
    "tojson",
    "pprint",
    "unique",
    "sort",
    "min",
    "max",
    "list",
    "length",
    "count",
    "last",
    "reverse",
    "dictsort",
    "groupby",
    "items",
    "zip",
    "map",
    "select",
    "reject",
    "selectattr",
    "rejectattr",
];

/// Has the filters that iterate over their whole input check its size first.
pub(super) fn bound_filters(environment: &mut Environment<'static>) {
    for name in BOUNDED {
        let original = environment.clone();
        environment.add_filter(name, move |state: &State, given: Rest<Read>, named: Kwargs| -> Result<Read, Error> {
            for argument in given.iter().filter(|argument| argument.try_iter().is_ok()) {
                json_of(argument)?;
            }
            let mut inner = original.empty_state();
            let mut given = given.0;
            // Filters without named arguments accept none at all, not even an empty set.
            if named.args().next().is_some() {
                given.push(named.into());
            }
            let result = inner.apply_filter(name, &given);
            state.consume_fuel(inner.fuel_levels().map_or(0, |(used, _)| used))?;
            result
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::environment::ENVIRONMENT;
    use super::*;

    fn value(source: &str) -> Result<Value, String> {
        let expression = ENVIRONMENT.compile_expression(source).map_err(|error| error.to_string())?;
        let value = expression.eval(()).map_err(|error| error.to_string())?;
        json_of(&value).map_err(|error| error.to_string())
    }

    #[test]
    fn values_that_share_parts_are_refused_before_they_are_written_out() {
        for source in [
            "[[1] * 10000] * 10000",
            "[range(10000) | list] * 200",
            "([[1] * 10000] * 10000) | string | length",
            "([[1] * 10000] * 10000) | join | length",
            "([range(100000) | list] * 1000) | sum(start=[]) | length",
            "([[[1] * 10000] * 10000] * 2) | unique | list | length",
        ] {
            let problem = value(source).unwrap_err();
            assert!(problem.contains("a value would have more than 8388608 bytes"), "{source}: {problem}");
        }
    }

    #[test]
    fn lists_that_double_are_refused_before_anybody_goes_through_them() {
        for filter in ["list | first", "last", "select | first"] {
            let text = format!(
                "{{% set ns = namespace(a=[1]) %}}{{% for i in range(24) %}}{{% set ns.a = ns.a + ns.a %}}{{% endfor %}}\
                 {{{{ ns.a | {filter} }}}}"
            );
            let problem = ENVIRONMENT.render_str(&text, ()).unwrap_err().to_string();
            assert!(problem.contains("a value would have more than 8388608 bytes"), "{filter}: {problem}");
        }
    }

    #[test]
    fn values_are_json_as_they_are() {
        let source = "{'a': [1, -2, 1.5, true, none, 'x'], 2: (1, 2), 'n': range(3), 'big': 18446744073709551615}";
        let big = 18_446_744_073_709_551_615_u64;
        assert_eq!(
            value(source).unwrap(),
            json!({ "a": [1, -2, 1.5, true, null, "x"], "2": [1, 2], "n": [0, 1, 2], "big": big })
        );
        assert_eq!(value("['b', 'a'] | sort | join(', ')").unwrap(), "a, b");
        assert_eq!(value("[{'x': 2}, {'x': 3}] | sum(attribute='x')").unwrap(), 5);
        assert_eq!(value("[3, 1] | min ~ [3, 1] | max").unwrap(), "13");
        assert_eq!(value("12 | string ~ [1] | pprint ~ 'a\"' | tojson").unwrap(), "12[\n    1,\n]\"a\\\"\"");
    }
}
