//! `[limits]`: what may be used in a day, and in a run.

use jiff::Timestamp as Instant;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use callboard::actors::DayLimits;
use callboard::messages::{Cost, PerDay, PerRun, Timestamp};
use callboard_documents::toml::{Fields, Item, count};
use callboard_documents::{Defect, Found, Place};

use super::values::parsed;

const EXAMPLE: &str = "write [limits], and below it cost_per_day = \"20.00\"";

/// What the file sets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Section {
    zone: Option<TimeZone>,
    board: PerDay,
    /// Of each run.
    pub(crate) per_run: PerRun,
    /// Where a limit of money stands.
    cost_at: Place,
}

impl Section {
    pub(super) fn read(item: &Item<'_>, found: &mut Found) -> Option<Self> {
        let mut fields = Fields::of("the section `limits`", item, EXAMPLE, found)?;
        let zone = fields.field("time_zone").and_then(|field| parsed(field, "the name of a time zone", zone, found));
        let tokens = fields.field("tokens_per_day").and_then(|field| count(field, found));
        let tokens_of_run = fields.field("tokens_per_run").and_then(|field| count(field, found));
        let agents = fields.field("agents_per_run").and_then(|field| count(field, found));
        let [of_day, of_run] = ["cost_per_day", "cost_per_run"].map(|key| fields.field(key));
        let cost_at = of_day.or(of_run).map(|(_, item)| item.span());
        let [of_day, of_run] = [of_day, of_run]
            .map(|cost| cost.and_then(|field| parsed(field, "an amount of US dollars", dollars, found)));
        fields.close(found);
        let board = PerDay { tokens: tokens.map(|tokens| tokens.value.into()), cost: of_day };
        let per_run = PerRun {
            tokens: tokens_of_run.map(|tokens| tokens.value.into()),
            cost: of_run,
            agents: agents.map(|agents| agents.value),
        };
        Some(Self { zone, board, per_run, cost_at })
    }

    /// These limits, for a board.
    pub(crate) fn of_days(&self, days: DayLimits) -> DayLimits {
        let days = days.board(self.board);
        match self.zone.clone() {
            Some(zone) => days.days(move |at| day_of(&zone, at)),
            None => days,
        }
    }

    /// A limit of money refuses all calls of models without prices: the defect, if agents have such models.
    pub(super) fn unpriced(&self, unpriced: &[(String, String)]) -> Option<Defect> {
        let (agent, model) = self.board.cost.or(self.per_run.cost).and(unpriced.first())?;
        let problem = format!("money is limited, and the price of the model {model} of agent {agent} is not known");
        Some(Defect::new(&self.cost_at, problem).advise("give it `prices` in models.toml, or limit tokens instead"))
    }
}

fn zone(name: &str) -> Result<TimeZone, String> {
    TimeZone::get(name).map_err(|_| "write a name of the IANA database, as \"Europe/Berlin\" or \"UTC\"".to_owned())
}

fn dollars(text: &str) -> Result<Cost, String> {
    let advice = || "write an amount above zero, as \"20.00\"".to_owned();
    text.parse().ok().filter(|cost: &Cost| cost.0 > 0).ok_or_else(advice)
}

/// The day in a time zone, counted from 1970-01-01.
fn day_of(zone: &TimeZone, at: Timestamp) -> u32 {
    const FIRST: Date = Date::constant(1970, 1, 1);
    let millis = i64::try_from(at.as_millis()).unwrap_or(i64::MAX);
    let date = Instant::from_millisecond(millis).unwrap_or(Instant::MAX).to_zoned(zone.clone()).date();
    u32::try_from(date.duration_since(FIRST).as_hours() / 24).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    /// 2026-03-29 has 23 hours in Berlin.
    #[test]
    fn a_day_begins_at_midnight_of_its_time_zone_also_where_the_clock_is_changed() {
        let berlin = zone("Europe/Berlin").unwrap();
        let at = |text: &str| Timestamp::from_millis(text.parse::<Instant>().unwrap().as_millisecond() as u64);
        let day = |text: &str| day_of(&berlin, at(text)) - day_of(&berlin, at("2026-03-28T12:00:00Z"));
        assert_eq!([day("2026-03-28T22:59:59Z"), day("2026-03-28T23:00:00Z")], [0, 1]);
        assert_eq!([day("2026-03-29T21:59:59Z"), day("2026-03-29T22:00:00Z")], [1, 2]);
        let utc = at("2026-03-28T23:30:00Z");
        assert_eq!(day_of(&TimeZone::UTC, utc), u32::try_from(utc.as_millis() / 86_400_000).unwrap());
        assert!(zone("Europe/Berlni").is_err());
    }
}
