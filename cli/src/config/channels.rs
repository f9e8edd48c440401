//! `[channels.webhooks.NAME]`: other services that get approvals as signed messages, and the people in whose names they decide.

use std::collections::BTreeSet;
use std::path::Path;

use callboard_channels::webhooks::{Webhook, WebhookSecret, WebhooksConfig};
use callboard_documents::toml::{DeValue, Fields, Item, boolean, list, mismatch, string, text};
use callboard_documents::{Defect, Found, Placed};
use callboard_text::{check_name, did_you_mean, quoted, typo_of};

use super::secret_source::{SecretKeys, SecretSource, Unusable};
use crate::page::Failure;

const EXAMPLE: &str = "write [channels.webhooks.relay], and below it url = \"https://relay.example.org\" and secret_file = \"relay.secret\"";
/// The longest name of a webhook, in characters.
const MAX_NAME: usize = 64;

/// The webhooks of the file.
#[derive(Debug, Default)]
pub(crate) struct Section {
    pub(crate) webhooks: Vec<Receiver>,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) name: String,
    url: String,
    pub(crate) secret: SecretSource,
    people: Vec<Placed<String>>,
    is_insecure: bool,
}

impl Section {
    /// Relative paths are those of `folder`.
    pub(super) fn read(item: &Item<'_>, folder: &Path, found: &mut Found) -> Self {
        let mut section = Self::default();
        let Some(mut fields) = Fields::of("the section `channels`", item, EXAMPLE, found) else { return section };
        if let Some(item) = fields.get("webhooks") {
            let DeValue::Table(table) = item.get_ref() else {
                found.add(mismatch("the section `channels.webhooks`", "a table", item).advise(EXAMPLE));
                return section;
            };
            for (name, item) in table.iter() {
                if let Err(error) = check_name("webhook", name.get_ref(), MAX_NAME) {
                    found.add(Defect::new(&Some(name.span()), error.to_string()));
                }
                section.webhooks.extend(Receiver::read(name.get_ref(), item, folder, found));
            }
        }
        fields.close(found);
        section
    }

    /// The defects of people that are not there.
    pub(super) fn check(&self, people: &BTreeSet<String>, found: &mut Found) {
        let named = self.webhooks.iter().flat_map(|webhook| &webhook.people);
        for person in named.filter(|person| !people.contains(&person.value)) {
            let likely = did_you_mean(typo_of(&person.value, people.iter().map(String::as_str)));
            let problem = format!("there is no person {}{likely}", quoted(&person.value));
            found.add(Defect::new(&person.place, problem).advise("add them to [people], or remove them here"));
        }
    }

    /// The people in whose names receivers decide.
    pub(super) fn people(&self) -> impl Iterator<Item = &String> {
        self.webhooks.iter().flat_map(|webhook| &webhook.people).map(|person| &person.value)
    }

    /// Why secrets cannot be used. Tools of agents work in `root`.
    pub(super) fn unusable<'s>(&'s self, root: &'s Path) -> impl Iterator<Item = Unusable> + use<'s> {
        self.webhooks
            .iter()
            .filter_map(|webhook| webhook.secret.check(&secret_of(&webhook.name), root, WebhookSecret::new).err())
    }

    /// The settings of the channel, which keeps what it has sent in this folder; `None` without a webhook.
    ///
    /// # Errors
    /// A secret is missing or none.
    pub(crate) fn config(&self, folder: &Path) -> Result<Option<WebhooksConfig>, Failure> {
        let mut config = WebhooksConfig::new(folder);
        for webhook in &self.webhooks {
            config = config.webhook(webhook.webhook()?);
        }
        Ok((!self.webhooks.is_empty()).then_some(config))
    }
}

impl Receiver {
    fn read(name: &str, item: &Item<'_>, folder: &Path, found: &mut Found) -> Option<Self> {
        let mut fields = Fields::of("a webhook", item, EXAMPLE, found)?;
        let keys = SecretKeys {
            what: secret_of(name),
            file: "secret_file",
            variable: "secret_env",
            owner: format!("the webhook {}", quoted(name)),
            example: EXAMPLE,
        };
        let secret = SecretSource::read(&mut fields, &keys, folder, found);
        let is_insecure = fields.field("insecure").and_then(|field| boolean(field, found)).unwrap_or_default();
        let url = fields.required("url", EXAMPLE, found).and_then(|field| {
            let url = text(field, found)?;
            let Err(why) = Webhook::check_url(&url.value, is_insecure) else { return Some(url.value) };
            // The address is not repeated: it may have a secret.
            let problem = format!("the `url` of the webhook {} cannot be used: {why}", quoted(name));
            found.add(Defect::new(&url.place, problem).advise("write url = \"https://relay.example.org\""));
            None
        });
        let people = fields.field("people").map(|field| list(field, EXAMPLE, found)).unwrap_or_default().iter();
        let people = people.filter_map(|item| {
            let value = string("a person", "the name of one", item, found)?.to_owned();
            Some(Placed { value, place: Some(item.span()) })
        });
        let people = people.collect();
        fields.close(found);
        Some(Self { name: name.to_owned(), url: url?, secret: secret?, people, is_insecure })
    }

    fn webhook(&self) -> Result<Webhook, Failure> {
        let secret = self.secret.secret(&secret_of(&self.name), WebhookSecret::new)?;
        let webhook = Webhook::new(&self.name, &self.url, secret);
        let webhook = self.people.iter().fold(webhook, |webhook, person| webhook.person(&person.value));
        Ok(if self.is_insecure { webhook.without_tls() } else { webhook })
    }
}

/// The secret of a webhook, in words.
pub(crate) fn secret_of(name: &str) -> String {
    format!("the secret of the webhook {}", quoted(name))
}
