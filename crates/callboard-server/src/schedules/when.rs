//! When a schedule fires: by a line of cron in a time zone, at a time, or in an interval.
//!
//! `croner` decides about the two days of a year on which clocks are changed. A line with one second, minute and hour fires once a
//! day: a time that does not exist fires at the first moment after the gap, and one that exists twice fires the first time. A line
//! with several or with steps fires whenever the clock shows such a time: not in the gap, and in both of the repeated hours.

use callboard::messages::{Timestamp, visible};
use callboard_signatures::Scheme;
use callboard_text::{did_you_mean, nearest, quoted};
use croner::Cron;
use croner::errors::CronError;
use jiff::civil::DateTime;
use jiff::tz::{self, AmbiguousOffset, TimeZone};
use jiff::{Timestamp as Moment, Zoned};
use serde::{Deserialize, Serialize};

/// The shortest and the longest interval, in milliseconds.
const MIN_EVERY: u64 = 1_000;
const MAX_EVERY: u64 = 366 * 24 * 60 * 60 * 1_000;
/// The longest line of cron, in bytes.
const MAX_LINE: usize = 256;
/// The time zone of a line or a time without one.
const UTC: &str = "UTC";

/// When a schedule fires, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum When {
    Cron {
        line: String,
        time_zone: String,
    },
    At(Timestamp),
    /// In intervals that are counted from a time.
    Every {
        ms: u64,
        from: Timestamp,
    },
    /// With each delivery that is signed so.
    Webhook(Scheme),
}

/// When a schedule is to fire, as a request has it: one of `cron`, `at`, `every_ms` and `webhook`.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    pub(crate) cron: Option<String>,
    pub(crate) time_zone: Option<String>,
    pub(crate) at: Option<String>,
    pub(crate) every_ms: Option<u64>,
    pub(crate) webhook: Option<Scheme>,
}

/// What [`When`] says, read.
pub(crate) enum Rule {
    Cron(Box<Cron>, TimeZone),
    At(Timestamp),
    Every {
        ms: u64,
        from: Timestamp,
    },
    /// At no time.
    Delivered,
}

impl When {
    /// Reads when a schedule is to fire. It has to fire at least once after `now`.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub(crate) fn of(asked: Asked, now: Timestamp) -> Result<Self, String> {
        let when = match asked {
            Asked { cron: None, time_zone: None, at: None, every_ms: None, webhook: Some(scheme) } => {
                return Ok(Self::Webhook(scheme));
            }
            Asked { cron: Some(line), time_zone, at: None, every_ms: None, webhook: None } => {
                Self::Cron { line, time_zone: time_zone.unwrap_or_else(|| UTC.to_owned()) }
            }
            Asked { cron: None, time_zone, at: Some(at), every_ms: None, webhook: None } => {
                Self::At(time_of(&at, time_zone.as_deref())?)
            }
            Asked { cron: None, time_zone: None, at: None, every_ms: Some(ms), webhook: None } => {
                Self::Every { ms, from: now }
            }
            Asked { cron: None, time_zone: Some(_), at: None, every_ms: Some(_), webhook: None } => {
                return Err("an interval has no `time_zone`".to_owned());
            }
            _ => return Err("a schedule has one of `cron`, `at`, `every_ms` and `webhook`".to_owned()),
        };
        if when.rule()?.next(now).is_none() {
            return Err(match &when {
                Self::Cron { line, .. } => format!("the line {} never fires", quoted(line)),
                Self::At(at) => format!("{at} has passed: it is {now}"),
                Self::Every { .. } | Self::Webhook(_) => "it never fires".to_owned(),
            });
        }
        Ok(when)
    }

    /// Reads it.
    ///
    /// # Errors
    /// What is wrong with it, for people; also of one that is stored, as when a time zone was removed from the system.
    pub(crate) fn rule(&self) -> Result<Rule, String> {
        match self {
            Self::Cron { line, time_zone } => Ok(Rule::Cron(Box::new(cron(line)?), zone(time_zone)?)),
            Self::At(at) => Ok(Rule::At(*at)),
            Self::Every { ms, .. } if *ms < MIN_EVERY => {
                Err(format!("an interval has at least {MIN_EVERY} ms, and not {ms}"))
            }
            Self::Every { ms, .. } if *ms > MAX_EVERY => {
                Err(format!("an interval has at most {MAX_EVERY} ms (366 days), and not {ms}"))
            }
            Self::Every { ms, from } => Ok(Rule::Every { ms: *ms, from: *from }),
            Self::Webhook(_) => Ok(Rule::Delivered),
        }
    }
}

impl Rule {
    /// The first time after this one.
    pub(crate) fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Cron(cron, zone) => time(&cron.find_next_occurrence(&second(after, zone)?, false).ok()?),
            Self::At(at) => Some(*at).filter(|at| *at > after),
            Self::Every { ms, from } => {
                let passed = after.as_millis().saturating_sub(from.as_millis()) / ms;
                let next = from.as_millis().checked_add(ms.checked_mul(passed + 1)?)?;
                Some(Timestamp::from_millis(next))
            }
            Self::Delivered => None,
        }
    }

    /// The last time up to this one.
    fn last(&self, until: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Cron(cron, zone) => time(&cron.find_previous_occurrence(&second(until, zone)?, true).ok()?),
            Self::At(at) => Some(*at).filter(|at| *at <= until),
            Self::Every { ms, from } => {
                let passed = until.as_millis().checked_sub(from.as_millis())? / ms;
                (passed > 0).then(|| Timestamp::from_millis(from.as_millis() + ms * passed))
            }
            Self::Delivered => None,
        }
    }

    /// The times after `after` and up to `until`, the newest first, at most `most`.
    pub(crate) fn passed(&self, after: Timestamp, until: Timestamp, most: usize) -> Vec<Timestamp> {
        let (mut times, mut until) = (Vec::new(), Some(until));
        while times.len() < most
            && let Some(time) = until.and_then(|until| self.last(until)).filter(|time| *time > after)
        {
            times.push(time);
            until = time.as_millis().checked_sub(1).map(Timestamp::from_millis);
        }
        times
    }
}

/// The second that has begun at a time, in a zone.
fn second(at: Timestamp, zone: &TimeZone) -> Option<Zoned> {
    let seconds = i64::try_from(at.as_millis() / 1_000).ok()?;
    Some(Moment::from_second(seconds).ok()?.to_zoned(zone.clone()))
}

fn time(found: &Zoned) -> Option<Timestamp> {
    moment(found.timestamp())
}

fn moment(found: Moment) -> Option<Timestamp> {
    u64::try_from(found.as_millisecond()).ok().map(Timestamp::from_millis)
}

fn cron(line: &str) -> Result<Cron, String> {
    if line.len() > MAX_LINE {
        return Err(format!("the line of cron has more than {MAX_LINE} bytes"));
    }
    line.parse().map_err(|error: CronError| {
        let why = match error {
            CronError::EmptyPattern => "it is empty".to_owned(),
            CronError::InvalidPattern(why) | CronError::IllegalCharacters(why) | CronError::ComponentError(why) => why,
            error @ (CronError::InvalidDate | CronError::InvalidTime | CronError::TimeSearchLimitExceeded) => {
                error.to_string()
            }
        };
        format!("{} is no line of cron: {}", quoted(line), visible(why.trim_end_matches('.')))
    })
}

fn zone(name: &str) -> Result<TimeZone, String> {
    TimeZone::get(name).map_err(|_| {
        let known: Vec<String> = tz::db().available().map(|name| name.as_str().to_owned()).collect();
        let meant = nearest(name, known.iter().map(String::as_str));
        format!("there is no time zone {}{}", quoted(name), did_you_mean(meant.as_deref()))
    })
}

/// Reads a time with its offset, or as clocks in a time zone show it: the first of two such moments, and where there is none the
/// first moment after the gap.
fn time_of(text: &str, time_zone: Option<&str>) -> Result<Timestamp, String> {
    let unread =
        || format!("{} is no time, such as 2026-01-31T12:00:00Z, or 2026-01-31T12:00 with a `time_zone`", quoted(text));
    if let Ok(found) = text.parse::<Moment>() {
        if time_zone.is_some() {
            return Err(format!("{} has its offset, and so no `time_zone`", quoted(text)));
        }
        return moment(found).ok_or_else(unread);
    }
    let (local, zone) = (text.parse::<DateTime>().map_err(|_| unread())?, zone(time_zone.unwrap_or(UTC))?);
    let ambiguous = zone.to_ambiguous_timestamp(local);
    let is_in_gap = matches!(ambiguous.offset(), AmbiguousOffset::Gap { .. });
    let found = ambiguous.compatible().map_err(|_| unread())?;
    let after_gap = is_in_gap.then(|| found.as_millisecond().checked_add(1)).flatten();
    let after_gap = after_gap.and_then(|after| Moment::from_millisecond(after).ok());
    let changed = after_gap.and_then(|after| zone.preceding(after).next().map(|change| change.timestamp()));
    moment(changed.unwrap_or(found)).ok_or_else(unread)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    fn at(text: &str) -> Timestamp {
        moment(text.parse().unwrap()).unwrap()
    }

    fn of_cron(line: &str, time_zone: &str) -> Rule {
        When::Cron { line: line.to_owned(), time_zone: time_zone.to_owned() }.rule().unwrap()
    }

    /// The times between two, as clocks there show them, with their offsets.
    fn times(line: &str, (from, to): (&str, &str)) -> Vec<String> {
        let rule = of_cron(line, "Europe/Berlin");
        let (from, to) = (at(from), at(to));
        let forward: Vec<Timestamp> =
            std::iter::successors(rule.next(from), |time| rule.next(*time)).take_while(|time| *time <= to).collect();
        let mut backward = rule.passed(from, to, 1_000);
        backward.reverse();
        assert_eq!(forward, backward, "{line}: a server that was down finds the same times");
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        let shown = |time: &Timestamp| second(*time, &zone).unwrap().strftime("%d. %H:%M%:z").to_string();
        forward.iter().map(shown).collect()
    }

    /// Clocks in Berlin go from 2:00 to 3:00 on 29 March 2026.
    const SPRING: (&str, &str) = ("2026-03-28T00:00:00Z", "2026-03-30T12:00:00Z");
    /// Clocks in Berlin go from 3:00 back to 2:00 on 25 October 2026.
    const AUTUMN: (&str, &str) = ("2026-10-24T00:00:00Z", "2026-10-26T12:00:00Z");

    #[test]
    fn a_time_of_day_that_does_not_exist_fires_once_after_the_gap() {
        assert_eq!(times("30 2 * * *", SPRING), ["28. 02:30+01:00", "29. 03:00+02:00", "30. 02:30+02:00"]);
        assert_eq!(times("0 3 * * *", SPRING), ["28. 03:00+01:00", "29. 03:00+02:00", "30. 03:00+02:00"]);
    }

    #[test]
    fn a_time_of_day_that_exists_twice_fires_the_first_time() {
        assert_eq!(times("30 2 * * *", AUTUMN), ["24. 02:30+02:00", "25. 02:30+02:00", "26. 02:30+01:00"]);
    }

    #[test]
    fn a_line_with_several_times_follows_the_clock() {
        let night = ("2026-03-29T00:30:00Z", "2026-03-29T02:00:00Z");
        assert_eq!(times("*/30 * * * *", night), ["29. 03:00+02:00", "29. 03:30+02:00", "29. 04:00+02:00"]);
        let night = ("2026-10-25T00:00:00Z", "2026-10-25T02:00:00Z");
        let twice = ["25. 02:30+02:00", "25. 02:00+01:00", "25. 02:30+01:00", "25. 03:00+01:00"];
        assert_eq!(times("*/30 * * * *", night), twice);
    }

    #[test]
    fn intervals_are_counted_from_the_beginning() {
        let (from, rule) = (at("2026-03-28T00:00:00.500Z"), Asked { every_ms: Some(60_000), ..Asked::default() });
        let rule = When::of(rule, from).unwrap().rule().unwrap();
        assert_eq!(rule.next(from), Some(at("2026-03-28T00:01:00.500Z")));
        assert_eq!(rule.next(at("2026-03-28T00:01:00.500Z")), Some(at("2026-03-28T00:02:00.500Z")));
        let passed = rule.passed(from, at("2026-03-28T00:03:00Z"), 10);
        assert_eq!(passed, [at("2026-03-28T00:02:00.500Z"), at("2026-03-28T00:01:00.500Z")]);
        assert_eq!(rule.passed(from, at("2026-03-30T00:03:00Z"), 2).len(), 2);
    }

    #[test]
    fn a_time_is_read_with_its_offset_or_in_a_zone() {
        let read = |text: &str, zone: Option<&str>| time_of(text, zone).unwrap();
        assert_eq!(read("2026-12-01T09:00:00+01:00", None), at("2026-12-01T08:00:00Z"));
        assert_eq!(read("2026-12-01T09:00", None), at("2026-12-01T09:00:00Z"));
        assert_eq!(read("2026-12-01T09:00", Some("Europe/Berlin")), at("2026-12-01T08:00:00Z"));
        for gone in ["2026-03-29T02:00", "2026-03-29T02:30", "2026-03-29T02:59:59", "2026-03-29T03:00"] {
            assert_eq!(read(gone, Some("Europe/Berlin")), at("2026-03-29T01:00:00Z"), "{gone}");
        }
        assert_eq!(read("2026-10-25T02:30", Some("Europe/Berlin")), at("2026-10-25T00:30:00Z"), "the first of two");
    }

    #[test]
    fn what_cannot_fire_is_refused_with_what_is_wrong() {
        let now = at("2026-01-01T00:00:00Z");
        let cron = |line: &str, zone: &str| Asked {
            cron: Some(line.to_owned()),
            time_zone: Some(zone.to_owned()),
            ..Asked::default()
        };
        let time = |text: &str, zone: Option<&str>| Asked {
            at: Some(text.to_owned()),
            time_zone: zone.map(str::to_owned),
            ..Asked::default()
        };
        let every = |ms| Asked { every_ms: Some(ms), ..Asked::default() };
        let refused = [
            cron("0 0 30 2 *", "UTC"),
            cron("0 0 0 1 1 * 2020", "UTC"),
            cron("61 * * * *", "UTC"),
            cron("* * * *", "UTC"),
            cron("", "UTC"),
            cron("@sometimes", "UTC"),
            cron("0 3 * * *", "Europe/Berln"),
            cron("0 3 * * *", "Nowhere"),
            time("2025-12-31T23:59:59Z", None),
            time("tomorrow", None),
            time("2026-12-01T09:00:00Z", Some("UTC")),
            time("2026-12-01T09:00", Some("Mars")),
            every(999),
            every(u64::MAX),
            Asked { time_zone: Some("UTC".to_owned()), ..every(1_000) },
            Asked::default(),
            Asked { every_ms: Some(1_000), ..cron("* * * * *", "UTC") },
        ];
        let answers = refused.map(|asked| When::of(asked, now).unwrap_err());
        insta::assert_snapshot!(answers.join("\n"), @r#"
        the line "0 0 30 2 *" never fires
        the line "0 0 0 1 1 * 2020" never fires
        "61 * * * *" is no line of cron: Number out of bounds
        "* * * *" is no line of cron: Pattern must have between 5 and 7 fields
        "" is no line of cron: it is empty
        "@sometimes" is no line of cron: Pattern must have between 5 and 7 fields
        there is no time zone "Europe/Berln"; did you mean "Europe/Berlin"?
        there is no time zone "Nowhere"
        2025-12-31T23:59:59.000Z has passed: it is 2026-01-01T00:00:00.000Z
        "tomorrow" is no time, such as 2026-01-31T12:00:00Z, or 2026-01-31T12:00 with a `time_zone`
        "2026-12-01T09:00:00Z" has its offset, and so no `time_zone`
        there is no time zone "Mars"
        an interval has at least 1000 ms, and not 999
        an interval has at most 31622400000 ms (366 days), and not 18446744073709551615
        an interval has no `time_zone`
        a schedule has one of `cron`, `at`, `every_ms` and `webhook`
        a schedule has one of `cron`, `at`, `every_ms` and `webhook`
        "#);
    }
}
