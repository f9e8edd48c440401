//! Templates and expressions over a run: strict, and bounded in time and length. A value that they read is never read as a
//! template again.

mod calls;
mod environment;
mod expression;
mod fault;
mod names;
mod reads;
mod signs;
mod source;
#[cfg(test)]
mod tests;
mod values;

use std::io;
use std::sync::Arc;

use minijinja::Environment;
use serde_json::Value;

use environment::ENVIRONMENT;
pub use expression::Compiled;
pub use fault::Fault;
pub use names::{Lookup, Names, is_free_name, is_name};
use reads::{Reads, context, reads};
use source::{check_length, text_of, with_room};
use values::MAX_TEXT;

/// The name of a text template in its environment.
const TEXT: &str = "template";

/// JSON in which strings are templates, compiled.
#[derive(Debug)]
pub struct Template<V>(Part<V>);

#[derive(Debug)]
enum Part<V> {
    Constant(Arc<Value>),
    Expression(Compiled<V>),
    Text { environment: Box<Environment<'static>>, reads: Reads<V> },
    List(Vec<Part<V>>),
    Object(Vec<(String, Part<V>)>),
}

impl<V: Send> Template<V> {
    /// Compiles the templates in the strings of a JSON value.
    ///
    /// # Errors
    /// What is wrong with the first of its templates that cannot be read.
    pub fn compile(value: &Value, names: &dyn Names<V>) -> Result<Self, Fault> {
        Part::compile(value, names).map(Self)
    }

    /// The value that it makes.
    ///
    /// # Errors
    /// Something that it reads is not there, it needs a part that a value does not have, or it is too long.
    pub fn render(&self, lookup: &dyn Lookup<V>) -> Result<Arc<Value>, String> {
        self.0.render(lookup)
    }
}

impl<V: Send> Part<V> {
    fn compile(value: &Value, names: &dyn Names<V>) -> Result<Self, Fault> {
        match value {
            Value::String(text) => Self::of_text(text, names),
            Value::Array(items) => {
                Ok(Self::List(items.iter().map(|item| Self::compile(item, names)).collect::<Result<_, _>>()?))
            }
            Value::Object(fields) => {
                let compiled = fields.iter().map(|(key, field)| Ok((key.clone(), Self::compile(field, names)?)));
                Ok(Self::Object(compiled.collect::<Result<_, _>>()?))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => Ok(Self::Constant(Arc::new(value.clone()))),
        }
    }

    fn of_text(text: &str, names: &dyn Names<V>) -> Result<Self, Fault> {
        if !["{{", "{%", "{#"].iter().any(|sign| text.contains(sign)) {
            return Ok(Self::Constant(Arc::new(text.into())));
        }
        check_length(text)?;
        signs::check_text(text)?;
        // A single expression results in its value, of any type.
        let inside = text.trim().strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}"));
        if let Some(inside) = inside.filter(|inside| !inside.contains("{{") && !inside.contains("}}"))
            && !inside.starts_with(['-', '+'])
            && !inside.ends_with('-')
        {
            return Ok(Self::Expression(Compiled::of(inside, names)?));
        }
        let (environment, read) = with_room(text, || {
            let mut environment = ENVIRONMENT.clone();
            environment.add_template_owned(TEXT, text.to_owned())?;
            let read = match ENVIRONMENT.template_from_str(&calls::unsliced_text(text)) {
                Ok(unsliced) => unsliced.undeclared_variables(true),
                Err(_) => environment.get_template(TEXT)?.undeclared_variables(true),
            };
            Ok((environment, read))
        })?;
        calls::check_text(text)?;
        Ok(Self::Text { environment: environment.into(), reads: reads(read, names)? })
    }

    fn render(&self, lookup: &dyn Lookup<V>) -> Result<Arc<Value>, String> {
        match self {
            Self::Constant(value) => Ok(value.clone()),
            Self::Expression(expression) => expression.value(lookup),
            Self::Text { environment, reads } => {
                let template = environment.get_template(TEXT).map_err(|error| text_of(&error))?;
                let mut text = Bounded(Vec::new());
                template.render_captured_to(context(reads, lookup)?, &mut text).map_err(|error| text_of(&error))?;
                Ok(Arc::new(String::from_utf8_lossy(&text.0).into_owned().into()))
            }
            Self::List(items) => {
                let values = items.iter().map(|item| Ok(Arc::unwrap_or_clone(item.render(lookup)?)));
                Ok(Arc::new(Value::Array(values.collect::<Result<_, String>>()?)))
            }
            Self::Object(fields) => {
                let values =
                    fields.iter().map(|(key, field)| Ok((key.clone(), Arc::unwrap_or_clone(field.render(lookup)?))));
                Ok(Arc::new(Value::Object(values.collect::<Result<_, String>>()?)))
            }
        }
    }
}

/// Collects text up to a limit.
struct Bounded(Vec<u8>);

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_TEXT {
            return Err(io::Error::other(format!("the text would have more than {MAX_TEXT} bytes")));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
