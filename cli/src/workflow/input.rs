//! The input and the channel values of a run, from the command line.

use serde_json::{Map, Value};

use callboard::messages::{Json, Update, visible};
use callboard::workflow::Workflow;

use crate::page::Failure;
use crate::values::Setting;

use super::arguments::Field;

/// The input: the whole value, or an object of the fields, which may be empty.
pub(crate) fn whole(fields: Vec<Field>, whole: Option<Value>) -> Result<Value, Failure> {
    if let Some(whole) = whole {
        return Ok(whole);
    }
    let mut object = Map::new();
    for Field { key, value } in fields {
        if object.contains_key(&key) {
            return Err(Failure::usage(format!("--input is given twice for {}", visible(&key))));
        }
        object.insert(key, value);
    }
    Ok(Value::Object(object))
}

/// Checks that the input has the fields that the workflow's templates read.
pub(crate) fn check(workflow: &Workflow, input: &Value) -> Result<(), Failure> {
    let missing: Vec<&str> = workflow.inputs().filter(|field| input.get(field).is_none()).collect();
    let [first, ..] = missing.as_slice() else { return Ok(()) };
    let text =
        format!("the input lacks {}; give it as in --input {first}=TEXT or --input {first}=@FILE", missing.join(", "));
    Err(Failure::usage(visible(&text)))
}

/// The writes to channels.
pub(crate) fn update(settings: &[Setting]) -> Result<Update, Failure> {
    let mut update = Update::default();
    for (position, Setting { channel, value }) in settings.iter().enumerate() {
        if settings[..position].iter().any(|before| before.channel == *channel) {
            return Err(Failure::usage(format!("--set is given twice for {channel:?}: one of them would be lost")));
        }
        update.push(channel, Json::from(value.clone()), true);
    }
    Ok(update)
}
