//! Times in JSON: text by RFC 3339, in UTC with milliseconds.

use callboard::messages::Timestamp;
use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

/// The last time that has such a text, in milliseconds since 1970.
pub(crate) fn last() -> i64 {
    jiff::Timestamp::MAX.as_millisecond()
}

pub(crate) fn serialize<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(time)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
    let text = String::deserialize(deserializer)?;
    let time: jiff::Timestamp = text.parse().map_err(|_| D::Error::custom(not_a_time(&text)))?;
    let millis = u64::try_from(time.as_millisecond()).map_err(|_| D::Error::custom(not_a_time(&text)))?;
    Ok(Timestamp::from_millis(millis))
}

fn not_a_time(text: &str) -> String {
    format!("{text:?} is no time since 1970: write one as 2026-01-31T12:00:00Z")
}

/// A time that may be left out.
pub(crate) mod option {
    use callboard::messages::Timestamp;
    use serde::{Deserialize, Deserializer, Serializer};

    #[derive(Deserialize)]
    struct Time(#[serde(with = "super")] Timestamp);

    #[allow(clippy::ref_option, reason = "serde calls it so")]
    pub(crate) fn serialize<S: Serializer>(time: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => super::serialize(time, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
        Ok(Option::<Time>::deserialize(deserializer)?.map(|Time(time)| time))
    }
}
