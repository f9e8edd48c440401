//! One expression: a path to a value, or a computation.

use std::sync::Arc;

use callboard_text::cut;
use minijinja::{Error, Expression};
use serde_json::Value;

use super::environment::ENVIRONMENT;
use super::fault::Fault;
use super::names::{Lookup, Names, is_name, is_word};
use super::reads::{Reads, context, reads};
use super::source::{check_length, text_of, with_room};
use super::values::json_of;
use super::{calls, signs};
use crate::MAX_DEPTH;

/// A compiled expression. `V` identifies the values that it reads: [`Names`] returns it, and [`Lookup`] takes it.
#[derive(Debug)]
pub struct Compiled<V> {
    source: Arc<str>,
    kind: Kind<V>,
}

#[derive(Debug)]
enum Kind<V> {
    /// A value, and the path of fields to the part that is read.
    Path(V, Box<[String]>),
    Machine(Box<Expression<'static, 'static>>, Reads<V>),
}

impl<V: Send> Compiled<V> {
    /// Compiles an expression, which stands without its braces.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn of(source: &str, names: &dyn Names<V>) -> Result<Self, Fault> {
        check_length(source)?;
        signs::check_expression(source)?;
        let path: Vec<&str> = source.trim().split('.').collect();
        let kind = if path.iter().all(|part| is_name(part)) && !is_word(path[0]) {
            let (var, used) = names.resolve(&path)?;
            Kind::Path(var, path[used..].iter().map(|part| (*part).to_owned()).collect())
        } else {
            let (compiled, read) = with_room(source, || {
                let compiled = ENVIRONMENT.compile_expression_owned(source.to_owned())?;
                let read = match ENVIRONMENT.compile_expression(&calls::unsliced_expression(source)) {
                    Ok(unsliced) => unsliced.undeclared_variables(true),
                    Err(_) => compiled.undeclared_variables(true),
                };
                Ok((compiled, read))
            })?;
            calls::check_expression(source)?;
            Kind::Machine(compiled.into(), reads(read, names)?)
        };
        Ok(Self { source: source.trim().into(), kind })
    }

    /// Returns the value that it has, computed of the values that `lookup` returns.
    ///
    /// # Errors
    /// As for a template.
    pub fn value(&self, lookup: &dyn Lookup<V>) -> Result<Arc<Value>, String> {
        match &self.kind {
            Kind::Path(var, rest) => {
                let value = lookup.lookup(var)?;
                if rest.is_empty() {
                    return Ok(value);
                }
                let missing = || format!("`{}` is not there: the value has no such field", cut(&self.source));
                let fields = rest.iter().try_fold(&*value, |value, field| value.get(field));
                fields.cloned().map(Arc::new).ok_or_else(missing)
            }
            Kind::Machine(expression, reads) => {
                let value = expression.eval(context(reads, lookup)?).map_err(|error| self.reported(&error))?;
                if value.is_undefined() {
                    return Err(format!("`{}` is not there", cut(&self.source)));
                }
                let value = json_of(&value).map_err(|error| self.reported(&error))?;
                if is_too_deep(&value, MAX_DEPTH) {
                    return Err(format!("`{}` nests deeper than {MAX_DEPTH} levels", cut(&self.source)));
                }
                Ok(Arc::new(value))
            }
        }
    }

    /// Returns whether its value holds: false, null, zero and what is empty do not.
    ///
    /// # Errors
    /// As for a template.
    pub fn holds(&self, lookup: &dyn Lookup<V>) -> Result<bool, String> {
        Ok(match &*self.value(lookup)? {
            Value::Null => false,
            Value::Bool(holds) => *holds,
            Value::Number(number) => number.as_f64() != Some(0.0),
            Value::String(text) => !text.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::Object(fields) => !fields.is_empty(),
        })
    }

    fn reported(&self, error: &Error) -> String {
        format!("`{}`: {}", cut(&self.source), text_of(error))
    }
}

/// Whether it is nested deeper than so many levels.
fn is_too_deep(value: &Value, depth: usize) -> bool {
    match value {
        Value::Array(items) => depth == 0 || items.iter().any(|item| is_too_deep(item, depth - 1)),
        Value::Object(fields) => depth == 0 || fields.values().any(|field| is_too_deep(field, depth - 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
