//! The channels of a run that has ended.

use std::fmt;
use std::ops::Deref;
use std::sync::OnceLock;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::messages::Json;

use super::changes::changes_of_channels;
use super::{State, StateChange};

/// The channels of a run that has ended. It reads like the [`Json`] object of them, which is made when it is first
/// read: most results are asked for their output alone.
#[derive(Clone)]
pub struct FinalState {
    /// `None` if the state was created from JSON.
    channels: Option<State>,
    json: OnceLock<Json>,
}

impl FinalState {
    /// As [`StateChange::between`], without making either of them: their common parts are compared by where they are.
    #[must_use]
    pub fn changes(&self, after: &Self) -> Vec<StateChange> {
        match (&self.channels, &after.channels) {
            (Some(before), Some(after)) => changes_of_channels(before, after),
            (Some(_) | None, _) => StateChange::between(self, after),
        }
    }
}

impl From<State> for FinalState {
    fn from(channels: State) -> Self {
        Self { channels: Some(channels), json: OnceLock::new() }
    }
}

impl From<Json> for FinalState {
    fn from(json: Json) -> Self {
        Self { channels: None, json: OnceLock::from(json) }
    }
}

impl From<Value> for FinalState {
    fn from(json: Value) -> Self {
        Json::from(json).into()
    }
}

impl Deref for FinalState {
    type Target = Json;

    fn deref(&self) -> &Json {
        self.json.get_or_init(|| self.channels.as_ref().map(State::to_json).unwrap_or_default())
    }
}

impl PartialEq for FinalState {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl PartialEq<Value> for FinalState {
    fn eq(&self, other: &Value) -> bool {
        **self == *other
    }
}

impl fmt::Debug for FinalState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl Serialize for FinalState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Json::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for FinalState {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Json::deserialize(deserializer).map(Self::from)
    }
}
