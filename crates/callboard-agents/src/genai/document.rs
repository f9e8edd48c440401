//! A catalog as TOML: `[[models]]` and `[providers.NAME]` (docs/models.md).

use std::num::NonZeroU32;
use std::sync::Arc;

use callboard::env::Env;
use callboard_documents::toml::{
    DeInteger, DeTable, DeValue, Field, Fields, Item, count, list, misfit, mismatch, string,
};
use callboard_documents::{Defect, Defects, Found, Place, Placed};
use callboard_text::{did_you_mean, nearest, quoted};

use crate::catalog::check::{self, Facts};
use crate::catalog::{ModelEntry, Models, Prices};

use super::environment::{Variables, with_environment};
use super::provider::{ProviderError, check_variable};
use super::web::Web;
use super::{GenaiModel, Timeouts};

const ADVICE: &str = "split it into several catalogs";
const EXAMPLE: &str = "write [[models]], and below it name = \"…\", provider = \"…\" and model = \"…\"";
const EXAMPLE_PROVIDER: &str = "write [providers.NAME], and below it requests_per_minute = 60";

/// Settings into which a user may write a key by mistake. Errors do not show their lines.
const KEYS_OF_KEYS: [&str; 6] = ["key", "api_key", "apikey", "api-key", "token", "secret"];

impl Models {
    /// Reads a catalog (docs/models.md). Keys come from the environment. `origin` is what the text is called in errors, as the
    /// path of its file.
    ///
    /// # Errors
    /// Everything that is wrong with it, with the places.
    pub fn from_toml(env: &Env, origin: &str, text: &str) -> Result<Self, Defects> {
        Self::from_toml_with(env, origin, text, |name| std::env::var(name).ok())
    }

    /// As [`Models::from_toml`], with variables from elsewhere.
    ///
    /// # Errors
    /// As for [`Models::from_toml`].
    pub fn from_toml_with(
        env: &Env,
        origin: &str,
        text: &str,
        variables: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Result<Self, Defects> {
        let variables: Variables = Arc::new(variables);
        let mut found = Found::default();
        let catalog = callboard_documents::toml::read(text, ADVICE, &mut found, |document, found| {
            read(document, &variables, found)
        });
        let defects = |list| Defects::of(origin, Some(text), list);
        let catalog = found.or(catalog).map_err(defects)?;
        let models = Self::of(env, catalog.models)?;
        let with_rate = |models: Self, (provider, rate): (String, _)| models.with_provider_rate(&provider, rate);
        Ok(catalog.rates.into_iter().fold(models, with_rate))
    }
}

#[derive(Default)]
struct Catalog {
    models: Vec<ModelEntry>,
    rates: Vec<(String, NonZeroU32)>,
}

/// The fields of a model as they are written.
#[derive(Default)]
struct Written {
    name: Placed<String>,
    fallbacks: Vec<Placed<String>>,
    entry: Option<ModelEntry>,
}

fn read(document: &DeTable<'_>, variables: &Variables, found: &mut Found) -> Catalog {
    for key in document.keys().filter(|key| !["models", "providers"].contains(&key.get_ref().as_ref())) {
        let likely = nearest(key.get_ref(), ["models", "providers"]);
        let problem = format!("{} is not part of a catalog{}", quoted(key.get_ref()), did_you_mean(likely.as_deref()));
        found.add(Defect::new(&Some(key.span()), problem).advise(EXAMPLE));
    }
    let web = Web::new(Timeouts::default().connect);
    let mut written = Vec::new();
    match document.get("models") {
        Some(item) => {
            for item in list(("models", item), EXAMPLE, found) {
                written.extend(model(item, variables, &web, found));
            }
        }
        // The defect of another key is more precise.
        None if !found.is_empty() => {}
        None => found.add(Defect::new(&Some(0..0), "there are no models in this text").advise(EXAMPLE)),
    }
    let facts: Vec<_> = written.iter().map(facts).collect();
    for defect in check::check(&facts) {
        found.add(defect);
    }
    let providers: Vec<_> = written.iter().filter_map(|model| Some(&*model.entry.as_ref()?.provider)).collect();
    let rates = document.get("providers").map(|item| rates(item, &providers, found)).unwrap_or_default();
    Catalog { models: written.into_iter().filter_map(|model| model.entry).collect(), rates }
}

fn facts(model: &Written) -> Facts<'_> {
    let fallbacks = model.fallbacks.iter().map(|name| (name.value.as_str(), name.place.clone())).collect();
    Facts { name: &model.name.value, place: model.name.place.clone(), fallbacks }
}

fn model(item: &Item<'_>, variables: &Variables, web: &Web, found: &mut Found) -> Option<Written> {
    let mut fields = Fields::of("a model", item, EXAMPLE, found)?;
    let header: Place = Some(fields.place.clone());
    let name = fields.required("name", "write name = \"…\": agents choose it by this name", found);
    let name = name.and_then(|field| callboard_documents::toml::text(field, found));
    let provider = fields.required("provider", "write provider = \"openai\", or another one", found);
    let provider = provider.and_then(|field| callboard_documents::toml::text(field, found));
    let id = fields.text("model", found);
    let url = fields.text("url", found);
    let key_variable = fields.field("key_variable");
    let tags = fields.field("tags").map(|field| texts(field, "a tag", found)).unwrap_or_default();
    let fallbacks = fields.field("fallback").map(|field| texts(field, "a fallback", found)).unwrap_or_default();
    let prices = fields.get("prices").and_then(|item| prices(name.as_ref().map(|name| &*name.value), item, found));
    let max_output = fields.field("max_output_tokens").and_then(|field| count(field, found));
    let requests = fields.field("requests_per_minute").and_then(|field| count(field, found));
    for key in KEYS_OF_KEYS {
        if fields.refused(key).is_some() {
            let problem = format!("a model has no key `{key}`");
            let advice = "put the key into a variable of the environment, and write key_variable = \"ITS_NAME\"";
            found.add(Defect::new(&header, problem).advise(advice));
        }
    }
    fields.close(found);
    let name = name?;
    let mut written = Written { name: name.clone(), fallbacks: fallbacks.clone(), entry: None };
    let Some(provider) = provider else { return Some(written) };

    let mut reported = |place: &Place, error: ProviderError| found.add(Defect::new(place, error.to_string()));
    let id = id.map_or_else(|| name.value.clone(), |id| id.value);
    let made = match GenaiModel::new(&provider.value, &id) {
        Ok(made) => made.named(&name.value).sharing(web),
        Err(error) => {
            reported(&provider.place, error);
            return Some(written);
        }
    };
    // A line with an address or a key may have to stay hidden, so its defects are reported at the model.
    let made = match &url {
        Some(url) => made.at(&url.value),
        None => Ok(made),
    };
    let made = made.map_err(|error| reported(&header, error)).ok()?;
    if made.provider.is_compatible() && url.is_none() {
        let defect = Defect::new(&provider.place, "a model of a compatible server needs `url`");
        found.add(defect.advise("write url = \"http://127.0.0.1:8000/v1\""));
        return Some(written);
    }
    let made = match key_variable {
        Some((_, item)) => {
            let variable = item.get_ref().as_str().unwrap_or_default();
            match check_variable(variable).and_then(|()| made.key_from(variable, |name| variables(name))) {
                Ok(made) => made,
                Err(error) => {
                    found.add(Defect::new(&header, format!("`key_variable`: {error}")));
                    return Some(written);
                }
            }
        }
        None => made,
    };
    let made = with_environment(made, variables);
    let mut entry = ModelEntry::from(made);
    entry.tags = tags.into_iter().map(|tag| tag.value.into()).collect();
    entry.fallbacks = fallbacks.into_iter().map(|name| name.value.into()).collect();
    entry.prices = prices;
    entry.max_output = max_output.map(|tokens| tokens.value);
    entry.requests_per_minute = requests.and_then(|requests| NonZeroU32::new(requests.value));
    written.entry = Some(entry);
    Some(written)
}

/// A text, or several.
fn texts((key, item): Field<'_>, what: &str, found: &mut Found) -> Vec<Placed<String>> {
    let one = |item: &Item<'_>, found: &mut Found| {
        let text = string(what, "a string", item, found)?;
        Some(Placed::at(text.to_owned(), item.span()))
    };
    match item.get_ref() {
        DeValue::String(_) => one(item, found).into_iter().collect(),
        DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_)
        | DeValue::Array(_)
        | DeValue::Table(_) => {
            let advice = format!("write {key} = \"…\", or {key} = [\"…\", \"…\"]");
            list((key, item), &advice, found).iter().filter_map(|item| one(item, found)).collect()
        }
    }
}

fn prices(name: Option<&str>, item: &Item<'_>, found: &mut Found) -> Option<Prices> {
    const EXAMPLE: &str = "write prices = { input = 3.0, output = 15.0 }: US dollars for a million tokens";
    let mut fields = Fields::of("prices", item, EXAMPLE, found)?;
    let input = fields.required("input", EXAMPLE, found).and_then(|field| price(field, found));
    let output = fields.required("output", EXAMPLE, found).and_then(|field| price(field, found));
    fields.close(found);
    let prices = Prices { input: input?, output: output? };
    if let Some(defect) = check::prices(name.unwrap_or_default(), prices, &Some(item.span())) {
        found.add(defect);
        return None;
    }
    Some(prices)
}

fn price((key, item): Field<'_>, found: &mut Found) -> Option<f64> {
    let whole = |number: &DeInteger<'_>| i64::from_str_radix(number.as_str(), number.radix()).ok();
    let price = match item.get_ref() {
        // The cast is exact for all realistic prices.
        DeValue::Integer(number) => whole(number).map(|number| number as f64),
        DeValue::Float(number) => number.as_str().parse().ok(),
        DeValue::String(_) | DeValue::Boolean(_) | DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => None,
    };
    if price.is_none() {
        found.add(misfit(key, "a number of US dollars, as 0.25", item));
    }
    price
}

fn rates(item: &Item<'_>, providers: &[&str], found: &mut Found) -> Vec<(String, NonZeroU32)> {
    let DeValue::Table(table) = item.get_ref() else {
        found.add(mismatch("`providers`", "a table", item).advise(EXAMPLE_PROVIDER));
        return Vec::new();
    };
    let mut rates = Vec::new();
    for (name, item) in table.iter() {
        let Some(mut fields) = Fields::of("a provider", item, EXAMPLE_PROVIDER, found) else { continue };
        let rate = fields.required("requests_per_minute", EXAMPLE_PROVIDER, found);
        let rate = rate.and_then(|field| count(field, found)).and_then(|rate| NonZeroU32::new(rate.value));
        fields.close(found);
        let written = name.get_ref().replace('_', "-");
        if providers.contains(&&*written) {
            rates.extend(rate.map(|rate| (written, rate)));
        } else {
            let likely = nearest(&written, providers.iter().copied());
            let problem = format!(
                "no model here is of the provider {}{}",
                quoted(name.get_ref()),
                did_you_mean(likely.as_deref())
            );
            found.add(Defect::new(&Some(name.span()), problem));
        }
    }
    rates
}
