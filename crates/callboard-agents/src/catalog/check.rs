//! Checks that the models of a catalog fit together. Pure.

use callboard_documents::{Defect, Place};
use callboard_text::{did_you_mean, is_unseen, nearest, quoted};

use crate::prices::Prices;

use super::entry::ModelEntry;

/// The checked parts of a model, with their positions in the text.
pub(crate) struct Facts<'a> {
    pub(crate) name: &'a str,
    pub(crate) place: Place,
    pub(crate) fallbacks: Vec<(&'a str, Place)>,
}

/// The longest name, in bytes.
const MAX_NAME: usize = 200;

impl<'a> Facts<'a> {
    pub(super) fn of(entry: &'a ModelEntry) -> Self {
        let fallbacks = entry.fallbacks.iter().map(|name| (&**name, None)).collect();
        Self { name: &entry.name, place: None, fallbacks }
    }
}

/// All defects of the models.
pub(crate) fn check(models: &[Facts<'_>]) -> Vec<Defect> {
    let mut defects = Vec::new();
    for (position, model) in models.iter().enumerate() {
        defects.extend(name(model.name, &model.place));
        if models[..position].iter().any(|other| other.name == model.name) {
            let problem = format!("two models are named {}", quoted(model.name));
            defects.push(Defect::new(&model.place, problem).advise("give one of them another name"));
        }
        for (fallback, place) in &model.fallbacks {
            if find(models, fallback).is_none() {
                let likely =
                    nearest(fallback, models.iter().map(|other| other.name).filter(|name| *name != model.name));
                let problem = format!(
                    "{} falls back to {}, which is not there{}",
                    quoted(model.name),
                    quoted(fallback),
                    did_you_mean(likely.as_deref())
                );
                defects.push(Defect::new(place, problem));
            }
        }
    }
    defects.extend(circles(models));
    defects
}

/// The defect of a name.
fn name(name: &str, place: &Place) -> Option<Defect> {
    let is_strange = |c: char| c.is_whitespace() || c.is_control() || is_unseen(c);
    let problem = if name.is_empty() {
        "a model needs a name".to_owned()
    } else if name.len() > MAX_NAME {
        format!("the name of a model has at most {MAX_NAME} bytes; {} has {}", quoted(name), name.len())
    } else if name.chars().any(is_strange) {
        format!("the name of a model has no spaces and nothing that is not seen; {} has", quoted(name))
    } else {
        return None;
    };
    Some(Defect::new(place, problem))
}

/// The defect of a model's prices.
pub(crate) fn prices(name: &str, prices: Prices, place: &Place) -> Option<Defect> {
    let is_price = |price: f64| price.is_finite() && price >= 0.0;
    if is_price(prices.input) && is_price(prices.output) {
        return None;
    }
    let name = quoted(name);
    let problem = format!("a price of {name} is below zero or no number: it is in dollars for a million tokens");
    Some(Defect::new(place, problem).advise("leave the prices out if they are not known"))
}

fn find(models: &[Facts<'_>], name: &str) -> Option<usize> {
    models.iter().position(|model| model.name == name)
}

/// A defect for each cycle of fallbacks, reported once, at the first of its models.
fn circles(models: &[Facts<'_>]) -> Vec<Defect> {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        Not,
        OnTheWay,
        Done,
    }
    let mut seen = vec![Seen::Not; models.len()];
    let mut defects = Vec::new();
    for start in 0..models.len() {
        if seen[start] != Seen::Not {
            continue;
        }
        // Iterative, because a chain of fallbacks may be as long as the file.
        let mut way = vec![(start, 0)];
        seen[start] = Seen::OnTheWay;
        while let Some((at, next)) = way.last_mut() {
            let Some((fallback, place)) = models[*at].fallbacks.get(*next) else {
                seen[*at] = Seen::Done;
                way.pop();
                continue;
            };
            *next += 1;
            let Some(target) = find(models, fallback) else { continue };
            match seen[target] {
                Seen::Done => {}
                Seen::Not => {
                    seen[target] = Seen::OnTheWay;
                    way.push((target, 0));
                }
                Seen::OnTheWay => {
                    let circle = way.iter().map(|(at, _)| *at).skip_while(|at| *at != target).chain([target]);
                    let circle = circle.map(|at| quoted(models[at].name)).collect::<Vec<_>>().join(" → ");
                    let defect = Defect::new(place, format!("fallbacks lead in a circle: {circle}"));
                    defects.push(defect.advise("leave one of them out"));
                }
            }
        }
    }
    defects
}
