//! `[telegram]`: the bot by which people are asked for approvals.

use std::collections::BTreeSet;
use std::path::Path;

use callboard_channels::telegram::{BotToken, TelegramConfig};
use callboard_documents::toml::{Fields, Item, list, misfit, text};
use callboard_documents::{Defect, Found, Place};

use super::people;
use super::secret_source::{SecretKeys, SecretSource, Unusable};
use super::values::integer;
use crate::page::Failure;

/// The secret, in words.
pub(crate) const TOKEN: &str = "the token of the bot";

const EXAMPLE: &str = "write [telegram], and below it token_file = \"bot.token\"";
const EXAMPLE_CHATS: &str = "write chats = [12345]";

/// What the file sets.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) token: SecretSource,
    chats: Vec<(i64, Place)>,
    api: Option<String>,
    place: Place,
}

impl Section {
    /// Relative paths are those of `folder`.
    pub(super) fn read(item: &Item<'_>, folder: &Path, found: &mut Found) -> Option<Self> {
        let mut fields = Fields::of("the section `telegram`", item, EXAMPLE, found)?;
        let keys = SecretKeys {
            what: TOKEN.to_owned(),
            file: "token_file",
            variable: "token_env",
            owner: "the section `telegram`".to_owned(),
            example: EXAMPLE,
        };
        let token = SecretSource::read(&mut fields, &keys, folder, found);
        let chats = fields.field("chats").map(|field| {
            let chat = |item| Some((chat(item, found)?, Some(item.span())));
            list(field, EXAMPLE_CHATS, &mut Found::default()).iter().filter_map(chat).collect()
        });
        let api = fields.field("api").and_then(|field| {
            let url = text(field, found)?.value;
            let refused = TelegramConfig::check_api(&url).err();
            let refused =
                refused.map(|error| misfit("api", "the address of a server", field.1).advise(error.to_string()));
            refused.map_or(Some(url), |defect| {
                found.add(defect);
                None
            })
        });
        let place = Some(fields.place.clone());
        fields.close(found);
        Some(Self { token: token?, chats: chats.unwrap_or_default(), api, place })
    }

    /// # Errors
    /// `callboard serve` would refuse the token. Tools of agents work in `root`.
    pub(super) fn check(&self, root: &Path) -> Result<(), Unusable> {
        self.token.check(TOKEN, root, BotToken::new)
    }

    /// The defect of a bot that asks nobody who could decide. The server starts with it: it logs the accounts that write to the bot.
    pub(super) fn undecidable(&self, people: &people::Section) -> Option<Defect> {
        let problem = "nobody in [people] has an account on Telegram, so nobody could decide there";
        let advice = "write `telegram = 123456789` for a person; the log of `callboard serve` has the number of an account that writes to the \
                      bot, with `filter = \"callboard::audit=info\"` below [log]";
        people.accounts().next().is_none().then(|| Defect::new(&self.place, problem).advise(advice))
    }

    /// The defects of chats in which nobody could decide: the private ones of accounts that no person has.
    pub(super) fn unknown(&self, people: &people::Section) -> Vec<Defect> {
        let accounts: BTreeSet<i64> = people.accounts().map(|(account, _)| account).collect();
        let unknown = self.chats.iter().filter(|(chat, _)| *chat > 0 && !accounts.contains(chat));
        let defect = |(chat, place): &(i64, Place)| {
            Defect::new(place, format!("{chat} is the account of nobody in [people], so nobody could decide there"))
                .advise(format!("write `telegram = {chat}` for a person; the number of a group is negative"))
        };
        unknown.map(defect).collect()
    }

    /// The settings of the channel, which keeps what it has sent in this folder.
    ///
    /// # Errors
    /// There is no token.
    pub(crate) fn config(&self, people: &people::Section, folder: &Path) -> Result<TelegramConfig, Failure> {
        let token = self.token.secret(TOKEN, BotToken::new)?;
        let mut config = TelegramConfig::new(token, folder);
        for (account, person) in people.accounts() {
            config = config.person(account, person);
        }
        config = self.chats.iter().fold(config, |config, (chat, _)| config.chat(*chat));
        Ok(self.api.iter().fold(config, |config, url| config.api(url)))
    }
}

/// The number of a chat.
fn chat(item: &Item<'_>, found: &mut Found) -> Option<i64> {
    const EXPECTED: &str = "a list of numbers of chats";
    let number = integer(("chats", item), EXPECTED, found)?;
    if number == 0 {
        let advice = "write the number of an account, which is above zero, or of a group, which is below it";
        found.add(misfit("chats", EXPECTED, item).advise(advice));
    }
    (number != 0).then_some(number)
}
