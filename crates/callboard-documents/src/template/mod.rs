//! Templates and expressions over a run: strict, and bounded in time and length. A value that they read is never read as a
//! template again.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, LazyLock};

use callboard_text::cut;
use minijinja::value::{Serde, Value as Read};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Expression, UndefinedBehavior};
use serde_json::Value;

use crate::MAX_DEPTH;

mod calls;
mod signs;
#[cfg(test)]
mod tests;
mod values;

use self::values::json_of;

/// The longest text that a template makes, in bytes.
const MAX_TEXT: usize = 8 << 20;

/// The longest template or expression, in bytes.
const MAX_SOURCE: usize = 64 << 10;

/// What a template may do, in steps of its machine.
const FUEL: u64 = 1_000_000;

/// The longest source that is read on the stack of whoever asks, in bytes.
const SHORT: usize = 256;

/// The stack for any other: room for one that nests as deep as [`MAX_SOURCE`] lets it. What of it is not used takes no memory.
const STACK: usize = 512 << 20;

/// The name of a text template in its environment.
const TEXT: &str = "template";

static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(FUEL));
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_formatter(|out, _, value| {
        let text = match value.as_str() {
            Some(text) => text.into(),
            None if value.is_undefined() => return Err(ErrorKind::UndefinedError.into()),
            None => std::borrow::Cow::Owned(json_of(value)?.to_string()),
        };
        out.write_str(&text).map_err(Error::from)
    });
    values::bound_filters(&mut environment);
    environment
});

/// What a template may name; `V` is how whoever has the values calls them.
pub trait Names<V> {
    /// What a path means, and how many of its parts say so.
    ///
    /// # Errors
    /// Nobody produces it.
    fn resolve(&self, path: &[&str]) -> Result<(V, usize), Fault>;
}

/// What is wrong with a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What is wrong.
    pub problem: String,
    /// What to do.
    pub advice: Option<String>,
}

impl Fault {
    /// A fault without advice.
    pub fn new(problem: impl Into<String>) -> Self {
        Self { problem: problem.into(), advice: None }
    }

    /// The same fault with advice: what to write in its place.
    #[must_use]
    pub fn advise(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }
}

/// Where the values are.
pub trait Lookup<V> {
    /// The value; null if nothing has been produced.
    ///
    /// # Errors
    /// There is no such value.
    fn lookup(&self, var: &V) -> Result<Arc<Value>, String>;
}

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

/// An expression, compiled.
#[derive(Debug)]
pub struct Compiled<V> {
    source: Arc<str>,
    kind: Kind<V>,
}

#[derive(Debug)]
enum Kind<V> {
    /// A value, or a part of it, as it is.
    Path(V, Box<[String]>),
    Machine(Box<Expression<'static, 'static>>, Reads<V>),
}

/// What is read, with the names by which the source calls it.
type Reads<V> = Vec<(Vec<String>, V)>;

impl<V: Send> Template<V> {
    /// Compiles a value.
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
        // A single expression gives its value, whatever that is.
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

impl<V: Send> Compiled<V> {
    /// Compiles an expression.
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

    /// The value that it has.
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
                let value = expression.eval(context(reads, lookup)?).map_err(|error| self.told(&error))?;
                if value.is_undefined() {
                    return Err(format!("`{}` is not there", cut(&self.source)));
                }
                let value = json_of(&value).map_err(|error| self.told(&error))?;
                if is_too_deep(&value, MAX_DEPTH) {
                    return Err(format!("`{}` nests deeper than {MAX_DEPTH} levels", cut(&self.source)));
                }
                Ok(Arc::new(value))
            }
        }
    }

    /// Whether it holds: false, null, zero and what is empty do not.
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

    fn told(&self, error: &Error) -> String {
        format!("`{}`: {}", cut(&self.source), text_of(error))
    }
}

/// A name that the language has for itself.
fn is_word(name: &str) -> bool {
    ["true", "false", "none", "True", "False", "None", "not", "and", "or", "in", "is", "if", "else"].contains(&name)
}

/// Whether it nests deeper than so many levels.
fn is_too_deep(value: &Value, depth: usize) -> bool {
    match value {
        Value::Array(items) => depth == 0 || items.iter().any(|item| is_too_deep(item, depth - 1)),
        Value::Object(fields) => depth == 0 || fields.values().any(|field| is_too_deep(field, depth - 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Whether a template can name it.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let is_first = |c: char| c.is_ascii_alphabetic() || c == '_';
    name.chars().next().is_some_and(is_first) && name.chars().all(|c| is_first(c) || c.is_ascii_digit())
}

/// Whether a node may be named so: a template can name it, and it means nothing else there.
#[must_use]
pub fn is_free_name(name: &str) -> bool {
    const TAKEN: [&str; 12] = [
        "state",
        "input",
        "item",
        "index",
        "iteration",
        "previous",
        "loop",
        "self",
        "range",
        "dict",
        "debug",
        "namespace",
    ];
    is_name(name) && !is_word(name) && !TAKEN.contains(&name)
}

fn check_length(source: &str) -> Result<(), Fault> {
    if source.len() > MAX_SOURCE {
        return Err(Fault::new(format!("the template has {} bytes; at most {MAX_SOURCE} are allowed", source.len())));
    }
    Ok(())
}

/// Has a source read where its depth does no harm: minijinja goes down a call for each sign of a long row of them.
fn with_room<T: Send>(source: &str, read: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Fault> {
    let wrong = |error: &Error| fault(source, error);
    if source.len() <= SHORT {
        return read().map_err(|error| wrong(&error));
    }
    let broken = || Fault::new("the template cannot be read: there is no room for it");
    let read = std::thread::scope(|scope| {
        let reader = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, read).ok()?;
        reader.join().ok()
    });
    read.ok_or_else(broken)?.map_err(|error| wrong(&error))
}

fn reads<V>(names_read: impl IntoIterator<Item = String>, names: &dyn Names<V>) -> Result<Reads<V>, Fault> {
    let mut paths: Vec<String> = names_read.into_iter().collect();
    // In a hash set until here.
    paths.sort_unstable();
    let mut reads = Reads::<V>::new();
    for path in paths {
        let parts: Vec<&str> = path.split('.').collect();
        if ENVIRONMENT.globals().any(|(name, _)| name == parts[0]) {
            continue;
        }
        let (var, used) = names.resolve(&parts)?;
        let read: Vec<String> = parts[..used].iter().map(|part| (*part).to_owned()).collect();
        // A whole comes before its parts.
        if !reads.iter().any(|(earlier, _)| read.starts_with(earlier)) {
            reads.push((read, var));
        }
    }
    Ok(reads)
}

fn context<V>(reads: &Reads<V>, lookup: &dyn Lookup<V>) -> Result<Read, String> {
    let mut top: BTreeMap<&str, Read> = BTreeMap::new();
    let mut inner: BTreeMap<&str, BTreeMap<&str, Read>> = BTreeMap::new();
    for (path, var) in reads {
        let value = Read::from(Serde(&*lookup.lookup(var)?));
        match path.as_slice() {
            [name] => drop(top.insert(name, value)),
            [name, field, ..] => drop(inner.entry(name).or_default().insert(field, value)),
            [] => {}
        }
    }
    for (name, fields) in inner {
        top.insert(name, Read::from_pairs(fields));
    }
    Ok(Read::from_pairs(top))
}

fn fault(source: &str, error: &Error) -> Fault {
    let at = error.range().and_then(|range| source.get(range)).filter(|part| !part.trim().is_empty());
    let near = at.map(|part| format!(" at `{}`", cut(part.trim()))).unwrap_or_default();
    Fault::new(format!("the template cannot be read{near}: {}", text_of(error)))
}

fn text_of(error: &Error) -> String {
    // What bounds the text says so itself.
    if let (ErrorKind::WriteFailure, Some(reason)) = (error.kind(), std::error::Error::source(error)) {
        return reason.to_string();
    }
    if error.kind() == ErrorKind::OutOfFuel {
        return format!("it takes more than {FUEL} steps: give it less to go through");
    }
    let detail = error.detail().map(|detail| format!(": {}", cut(detail))).unwrap_or_default();
    format!("{}{detail}", error.kind())
}

/// Text up to a bound.
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
