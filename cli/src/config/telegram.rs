//! `[telegram]`: the bot by which people are asked for approvals.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use callboard_channels::telegram::{BotToken, TelegramConfig};
use callboard_documents::toml::{Fields, Item, list, misfit, text};
use callboard_documents::{Defect, Found, Place};

use super::people;
use super::values::integer;
use crate::exit::Exit;
use crate::page::{Failure, shown_path};
use crate::values::variable;

const EXAMPLE: &str = "write [telegram], and below it token_file = \"bot.token\"";
const EXAMPLE_CHATS: &str = "write chats = [12345]";

/// What the file sets.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) token: TokenSource,
    chats: Vec<(i64, Place)>,
    api: Option<String>,
}

/// Where the token of the bot is.
#[derive(Debug)]
pub(crate) enum TokenSource {
    File(PathBuf),
    /// The variable of this name.
    Variable(String),
}

impl Section {
    /// Relative paths are those of `folder`.
    pub(super) fn read(item: &Item<'_>, folder: &Path, found: &mut Found) -> Option<Self> {
        let mut fields = Fields::of("the section `telegram`", item, EXAMPLE, found)?;
        let file = fields.field("token_file").and_then(|field| text(field, found)).map(|file| folder.join(file.value));
        let variable = fields.field("token_env").and_then(|field| text(field, found)).map(|name| name.value);
        let is_named_twice = file.is_some() && variable.is_some();
        let token = file.map(TokenSource::File).or(variable.map(TokenSource::Variable)).filter(|_| !is_named_twice);
        if token.is_none() {
            let problem = if is_named_twice {
                "the token of the bot is in one place: `token_file` or `token_env`"
            } else {
                "the section `telegram` needs `token_file` or `token_env`"
            };
            found.add(Defect::new(&Some(item.span()), problem).advise(EXAMPLE));
        }
        let chats = fields.field("chats").map(|field| {
            let chat = |item| Some((integer(("chats", item), "a list of numbers of chats", found)?, Some(item.span())));
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
        fields.close(found);
        Some(Self { token: token?, chats: chats.unwrap_or_default(), api })
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
        let mut config = TelegramConfig::new(self.token.read()?, folder);
        for (account, person) in people.accounts() {
            config = config.person(account, person);
        }
        config = self.chats.iter().fold(config, |config, (chat, _)| config.chat(*chat));
        Ok(self.api.iter().fold(config, |config, url| config.api(url)))
    }
}

impl TokenSource {
    fn read(&self) -> Result<BotToken, Failure> {
        let (text, place) = match self {
            Self::File(path) => {
                let text = fs::read_to_string(path);
                let text = text.map_err(|error| {
                    Failure::file(&error, format!("the token of the bot: {}: {error}", shown_path(path)))
                })?;
                (text, shown_path(path))
            }
            Self::Variable(name) => {
                let value = variable(name).ok_or_else(|| {
                    Failure::usage(format!("the token of the bot: the variable {name} of callboard.toml is not set"))
                })?;
                (value.to_string_lossy().into_owned(), format!("the variable {name}"))
            }
        };
        // What is there is not shown: it may be most of a token.
        BotToken::new(&text).map_err(|error| Failure::new(Exit::Usage, format!("{place}: {error}")))
    }
}
