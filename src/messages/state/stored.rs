//! A state as stored data: flat, so that a binary format can read it back.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::messages::Json;

use super::{ChannelValue, State, Tree, merged, tree_value};

#[derive(Serialize, Deserialize)]
enum StoredChannel {
    Value(Json),
    List(Vec<Json>),
    Sum(Json),
    Leaf(Json),
    Object(Vec<(Arc<str>, StoredField)>),
}

/// Lists grow only at the top level of a channel; what lies deeper is plain JSON.
#[derive(Serialize, Deserialize)]
enum StoredField {
    List(Vec<Json>),
    Plain(Json),
}

impl From<&ChannelValue> for StoredChannel {
    fn from(channel: &ChannelValue) -> Self {
        match channel {
            ChannelValue::Value(value) => Self::Value(value.clone()),
            ChannelValue::List(items) => Self::List(items.iter().cloned().collect()),
            ChannelValue::Sum(sum) => Self::Sum(Json::from(Value::Number(sum.clone()))),
            ChannelValue::Tree(Tree::Leaf(value)) => Self::Leaf(value.clone()),
            ChannelValue::Tree(Tree::List(items)) => Self::List(items.iter().cloned().collect()),
            ChannelValue::Tree(Tree::Object(object)) => Self::Object(
                object
                    .iter()
                    .map(|(key, field)| {
                        let field = match field {
                            Tree::List(items) => StoredField::List(items.iter().cloned().collect()),
                            field => StoredField::Plain(Json::from(tree_value(field))),
                        };
                        (Arc::clone(key), field)
                    })
                    .collect(),
            ),
        }
    }
}

impl From<StoredChannel> for ChannelValue {
    fn from(stored: StoredChannel) -> Self {
        match stored {
            StoredChannel::Value(value) => Self::Value(value),
            StoredChannel::List(items) => Self::List(items.into_iter().collect()),
            StoredChannel::Sum(sum) => match sum.value() {
                Value::Number(sum) => Self::Sum(sum.clone()),
                _ => Self::Value(sum),
            },
            StoredChannel::Leaf(value) => Self::Tree(Tree::Leaf(value)),
            StoredChannel::Object(fields) => Self::Tree(Tree::Object(
                fields
                    .into_iter()
                    .map(|(key, field)| match field {
                        StoredField::List(items) => (key, Tree::List(items.into_iter().collect())),
                        StoredField::Plain(value) => (key, merged(Tree::Leaf(Json::null()), &value, None)),
                    })
                    .collect(),
            )),
        }
    }
}

impl Serialize for State {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.channels.iter().map(|(name, channel)| (name, StoredChannel::from(channel))))
    }
}

impl<'de> Deserialize<'de> for State {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let channels = Vec::<(Arc<str>, StoredChannel)>::deserialize(deserializer)?;
        Ok(Self { channels: channels.into_iter().map(|(name, channel)| (name, channel.into())).collect() })
    }
}
