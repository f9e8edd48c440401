//! `callboard.toml`: the settings of a project (docs/configuration.md). Each section is read by a module of its own, which takes its table.
//!
//! A setting has the value of its option, else of its variable, else of the file, else its default.

pub(crate) mod approvals;
pub(crate) mod channels;
pub(crate) mod email;
pub(crate) mod limits;
pub(crate) mod log;
pub(crate) mod matrix;
pub(crate) mod people;
mod precedence;
mod role_tools;
pub(crate) mod secret_source;
pub(crate) mod serve;
pub(crate) mod telegram;
pub(crate) mod tls;
mod values;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use callboard::messages::visible;
use callboard_agents::{Roles, Tools};
use callboard_documents::toml::{self, DeTable, Fields, misfit};
use callboard_documents::{Defect, Defects, Found};
use callboard_postgres::PostgresConfig;
use callboard_text::check_name;

use crate::agents::arguments::{DEFAULT_CONFIG, Files};
use crate::agents::read::{Invalid, document};
use crate::agents::trust::User;
use crate::exit::Exit;
use crate::page::{Failure, shown_path};
use crate::quote::quoted_path;
use crate::stores::database::Given;

use secret_source::{SecretSource, Unusable};

/// The longest name of a project, in characters, as boards have it.
const MAX_PROJECT: usize = 64;

/// The settings of a file.
#[derive(Debug, Default)]
pub(crate) struct Config {
    /// The path of the file, if there is one.
    pub(crate) file: Option<String>,
    /// The project that stores belong to.
    pub(crate) project: Option<String>,
    pub(crate) serve: serve::Section,
    /// The roles of agents: those that are built in, and those below `roles`.
    pub(crate) roles: Roles,
    role_tools: role_tools::Section,
    pub(crate) people: people::Section,
    pub(crate) telegram: Option<telegram::Section>,
    pub(crate) matrix: Option<matrix::Section>,
    pub(crate) email: Option<email::Section>,
    pub(crate) channels: channels::Section,
    pub(crate) approvals: approvals::Section,
    pub(crate) log: log::Section,
    pub(crate) limits: limits::Section,
    /// The text of the file, for defects that are found later.
    text: String,
}

impl Config {
    /// # Errors
    /// Money is limited, and the price of a model of these agents is not known: the names of agents, each with that of its model.
    pub(crate) fn check_prices(&self, unpriced: &[(String, String)]) -> Result<(), Invalid> {
        self.refused(self.limits.unpriced(unpriced).into_iter().collect())
    }

    /// # Errors
    /// `callboard serve` would refuse what the file sets.
    pub(crate) fn check_serve(&self) -> Result<(), Invalid> {
        self.refused(self.serve.refused())
    }

    /// Checks the secrets, and the certificate with its key, that `callboard serve` needs. Tools of agents work in `root`. Variables that are
    /// not set are returned: they may be set where the server runs.
    ///
    /// # Errors
    /// The server would refuse one that is there, or a file that is not.
    pub(crate) fn check_secrets(&self, root: &Path) -> (Vec<Unusable>, Result<(), Invalid>) {
        let telegram = self.telegram.iter().filter_map(|section| section.check(root).err());
        let matrix = self.matrix.iter().filter_map(|section| section.check(root).err());
        let email = self.email.iter().filter_map(|section| section.check(root).err());
        let of_channels = telegram.chain(matrix).chain(email).chain(self.channels.unusable(root));
        let all = of_channels.chain(self.serve.unusable(root));
        let (unset, refused): (Vec<_>, Vec<_>) = all.partition(|unusable| unusable.unset.is_some());
        (unset, self.refused(refused.into_iter().map(|unusable| unusable.defect).collect()))
    }

    /// # Errors
    /// Nobody could decide about what a rule of approvals is about, or on Telegram. `tokens` are those that there are, each with its owner.
    pub(crate) fn check_deciders(&self, tokens: &[(String, Option<String>)]) -> Result<(), Invalid> {
        let on_matrix = self.matrix.as_ref().is_some_and(matrix::Section::asks);
        let on_telegram = self.telegram.is_some();
        let mut able = self.people.able(on_telegram, on_matrix);
        able.extend(self.channels.people().cloned());
        let owner = [(people::OWNER.to_owned(), None)];
        let voters = tokens.iter().chain(&owner).map(|(token, owner)| self.people.of_token(token, owner.as_deref()));
        able.extend(voters.map(str::to_owned));
        let found = self.approvals.undecidable(&able).into_iter();
        let of_telegram = self.telegram.iter().filter_map(|telegram| telegram.undecidable(&self.people));
        self.refused(found.chain(of_telegram).collect())
    }

    /// Why nobody could give agents tasks in their rooms on Matrix, if they have any. `may_delegate` are tokens with the scope for that, each with
    /// its owner.
    pub(crate) fn warning_of_rooms(&self, may_delegate: &[(String, Option<String>)]) -> Option<&'static str> {
        let owner = [(people::OWNER.to_owned(), None)];
        let able =
            may_delegate.iter().chain(&owner).map(|(token, owner)| self.people.of_token(token, owner.as_deref()));
        self.matrix.as_ref()?.undelegable(&self.people, &able.map(str::to_owned).collect())
    }

    /// # Errors
    /// A role has a tool, a person a token, or a rule of approvals an agent or an action, that is not there. `are_whole` says that the tools of servers are known; what tokens there
    /// are may be unknown.
    pub(crate) fn check_names(
        &self,
        tools: &Tools,
        are_whole: bool,
        agents: &BTreeSet<String>,
        tokens: Option<&BTreeSet<String>>,
    ) -> Result<(), Invalid> {
        let of_roles = self.role_tools.unknown(tools, are_whole);
        let of_people = tokens.into_iter().flat_map(|tokens| self.people.unknown(tokens));
        let of_rules = self.approvals.unknown(tools, are_whole, agents);
        let of_rooms = self.matrix.iter().flat_map(|matrix| matrix.unknown(agents));
        self.refused(of_roles.chain(of_people).chain(of_rules).chain(of_rooms).collect())
    }

    fn refused(&self, found: Vec<Defect>) -> Result<(), Invalid> {
        if found.is_empty() {
            return Ok(());
        }
        let origin = self.file.clone().unwrap_or_default();
        Err(Invalid { defects: Defects::of(&origin, Some(&self.text), found), origin })
    }

    /// The same, read from this text: errors of later show where it names what.
    fn of_file(mut self, origin: String, text: String) -> Self {
        let locate = |secret: &mut SecretSource| secret.locate(&origin, &text);
        self.telegram.iter_mut().for_each(|section| locate(&mut section.token));
        self.matrix.iter_mut().for_each(|section| locate(&mut section.token));
        self.email.iter_mut().filter_map(|section| section.password.as_mut()).for_each(locate);
        self.channels.webhooks.iter_mut().for_each(|webhook| locate(&mut webhook.secret));
        self.serve.locate(&origin, &text);
        Self { file: Some(origin), text, ..self }
    }
}

/// Reads the file that was named, or that of the project; without one nothing is set.
///
/// # Errors
/// It is no file that may be read, or another user may have changed that of the project; the inner error is that it has defects.
pub(crate) fn read(files: &Files) -> Result<Result<Config, Invalid>, Failure> {
    let named = files.named_config();
    // One that somebody makes from now on is not used.
    let default = Some(files.default_file(DEFAULT_CONFIG)).filter(|file| file.symlink_metadata().is_ok());
    if let Some(default) = default.as_ref().filter(|_| named.is_none() && files.agents.is_none()) {
        check_trusted(default)?;
    }
    let Some((origin, text)) = document(named.as_deref(), default)? else { return Ok(Ok(Config::default())) };
    let mut found = Found::default();
    let read = toml::read(&text, "remove what is not a setting", &mut found, |document, found| {
        sections(document, Path::new(&origin).parent().unwrap_or(Path::new("")), found)
    });
    Ok(match found.or(read) {
        Ok(config) => Ok(config.of_file(origin, text)),
        Err(list) => Err(Invalid { defects: Defects::of(&origin, Some(&text), list), origin }),
    })
}

/// What the file of settings says about the store.
#[derive(Debug, Default)]
pub(crate) struct OfStore {
    /// The URL of the database that it names.
    pub(crate) url: Option<String>,
    /// The project that the store has to belong to.
    pub(crate) project: Option<String>,
}

/// What the file of settings says about the store: the file that was named, or the default one. What else is wrong with it is
/// reported by commands that use it.
///
/// # Errors
/// It is no file that may be read, or no TOML, or another user may have changed the default one.
pub(crate) fn store_of(named: Option<&Path>, default: PathBuf) -> Result<OfStore, Failure> {
    let default = Some(default).filter(|file| file.symlink_metadata().is_ok());
    let Some((origin, text)) = document(named, default.clone())? else { return Ok(OfStore::default()) };
    let mut found = Found::default();
    let read = toml::read(&text, "remove what is not a setting", &mut found, |document, found| {
        let mut fields = Fields::document("the configuration", document);
        OfStore { url: store(&mut fields, found), project: project(&mut fields, found) }
    });
    match found.or(read) {
        Ok(of_store) => {
            if of_store.url.is_some() {
                default.filter(|_| named.is_none()).map_or(Ok(()), |default| check_trusted(&default))?;
            }
            Ok(of_store)
        }
        Err(list) => Err(Invalid { defects: Defects::of(&origin, Some(&text), list), origin }.into()),
    }
}

/// The name of the project.
fn project(fields: &mut Fields<'_>, found: &mut Found) -> Option<String> {
    let (name, value) = fields.field("project")?;
    let project = value.get_ref().as_str().filter(|project| check_name("project", project, MAX_PROJECT).is_ok());
    if project.is_none() {
        found.add(misfit(name, "the name of the project, in at most 64 characters", value));
    }
    project.map(str::to_owned)
}

/// The URL of a database. A password has no place in the file, which tools of agents can read.
fn store(fields: &mut Fields<'_>, found: &mut Found) -> Option<String> {
    let field = fields.field("store")?;
    let read = |url: &str| match Given::from(OsString::from(url)) {
        Given::Url(_) => match PostgresConfig::from_url(url) {
            Ok(config) if config.has_password() => {
                Err("leave the password out, and put it into ~/.pgpass or the file that PGPASSFILE names".to_owned())
            }
            Ok(_) => Ok(url.to_owned()),
            Err(error) => Err(error.to_string()),
        },
        Given::Folder(_) => {
            Err("write store = \"postgres://USER@HOST/DATABASE\"; a folder is named with --store".to_owned())
        }
    };
    let Some(url) = field.1.get_ref().as_str() else {
        found.add(misfit(field.0, "the URL of a database", field.1));
        return None;
    };
    // Not with its value or its place, by which the line would be shown: it may have a password.
    let defect =
        |advice: String| Defect::new(&None, "`store` must be the URL of a database, without a password").advise(advice);
    read(url).map_err(|advice| found.add(defect(advice))).ok()
}

/// Relative paths are those of `folder`.
fn sections(document: &DeTable<'_>, folder: &Path, found: &mut Found) -> Config {
    let mut fields = Fields::document("the configuration", document);
    // What it names is used where the store is opened, by [`store_of`].
    let _ = store(&mut fields, found);
    let project = project(&mut fields, found);
    let serve = fields.get("serve").and_then(|item| serve::Section::read(item, folder, found)).unwrap_or_default();
    let roles = fields.get("roles").map(|item| Roles::from_item(item, found)).unwrap_or_default();
    let role_tools = fields.get("roles").map(role_tools::Section::read).unwrap_or_default();
    let people = fields.get("people").map(|item| people::Section::read(item, found)).unwrap_or_default();
    let telegram = fields.get("telegram").and_then(|item| telegram::Section::read(item, folder, found));
    telegram.iter().flat_map(|telegram| telegram.unknown(&people)).for_each(|defect| found.add(defect));
    let matrix = fields.get("matrix").and_then(|item| matrix::Section::read(item, folder, found));
    matrix.iter().filter_map(|matrix| matrix.undecidable(&people)).for_each(|defect| found.add(defect));
    let email = fields.get("email").and_then(|item| email::Section::read(item, folder, found));
    email.iter().filter_map(|email| email.unread(&people)).for_each(|defect| found.add(defect));
    let channels = fields.get("channels").map(|item| channels::Section::read(item, folder, found)).unwrap_or_default();
    channels.check(&people.names(), found);
    let mut approvals = approvals::Section::default();
    if let Some(item) = fields.get("groups") {
        approvals.read_groups(item, found);
    }
    if let Some(item) = fields.get("approvals") {
        approvals.read_rules(item, found);
    }
    approvals.check(&people.names(), found);
    let log = fields.get("log").and_then(|item| log::Section::read(item, found)).unwrap_or_default();
    let limits = fields.get("limits").and_then(|item| limits::Section::read(item, found)).unwrap_or_default();
    fields.close(found);
    Config {
        file: None,
        project,
        serve,
        roles,
        role_tools,
        people,
        telegram,
        matrix,
        email,
        channels,
        approvals,
        log,
        limits,
        text: String::new(),
    }
}

/// # Errors
/// Another user may have changed the file of the project, or a folder on the way to it.
fn check_trusted(file: &Path) -> Result<(), Failure> {
    let user = User::current();
    let Some(untrusted) = std::path::absolute(file).ok().and_then(|path| user.untrusted(&path)) else { return Ok(()) };
    let text = format!(
        "{} is not used: another user may have changed {} ({}); to use it: --config {}",
        shown_path(file),
        shown_path(&untrusted),
        user.reason(&untrusted),
        visible(&quoted_path(file))
    );
    Err(Failure::new(Exit::Denied, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defects(text: &str) -> String {
        let mut found = Found::default();
        toml::read(text, "", &mut found, |document, found| sections(document, Path::new("/etc"), found));
        Defects::of("callboard.toml", Some(text), found.into_defects()).to_string()
    }

    #[test]
    fn what_is_not_a_setting_is_reported_with_its_place() {
        for (text, expected) in [
            (
                "[serve]\nlisten = \"127.0.0.1:1\"\ntls_cert = \"c\"\ntrusted_proxies = [\"::1\"]\nturns = 20\n[serve.limits]\nbody_time = \"1m\"\n",
                "",
            ),
            (
                "[people]\nann = { tokens = [\"laptop\"] }\n[log]\nformat = \"json\"\nfilter = \"info,callboard::audit=debug\"\n",
                "",
            ),
            ("project = \"shop\"", ""),
            ("project = 1", "1:11: `project` must be the name of the project, in at most 64 characters, not 1"),
            ("project = \" shop\"", "1:11: `project` must be the name of the project, in at most 64 characters, not"),
            ("serve = 1", "1:9: the section `serve` must be a table, not an integer"),
            (
                "[serve]\ntrusted_proxies = [\"10.0.0.0/8\", \"proxy\"]",
                "2:34: `trusted_proxies` must be a list of networks, not \"proxy\"",
            ),
            ("[serve]\nturns = 10001", "2:9: `turns` must be a whole number from 1 to 10000, not 10001"),
            ("[serve]\nturns = 0", "2:9: `turns` must be a whole number from 1 to 10000, not 0"),
            ("[serve]\nturns = \"a\"", "2:9: `turns` must be a whole number from 1 to 10000, not \"a\""),
            ("[serve]\ninsecure = \"yes\"", "2:12: `insecure` must be true or false, not \"yes\""),
            (
                "[serve.limits]\nheader_bytes = 100",
                "2:16: `header_bytes` must be a whole number from 8192 to 1073741824, not 100",
            ),
            ("[serve.limits]\nanswer_time = \"2m\"", "2:15: `answer_time` must be a time up to \"1m\", not \"2m\""),
            ("[serve.limits]\nbodies = 1", "2:1: the section `serve.limits` has no key \"bodies\""),
            (
                "[people]\nann = { token = [\"laptop\"] }",
                "2:7: a person needs `tokens`, or an account: `telegram` or `matrix`",
            ),
            ("[people]\nann = { telegram = 12 }\n[telegram]\ntoken_env = \"BOT\"\nchats = [12, -100200]", ""),
            (
                "[people]\nann = { telegram = 12 }\nbob = { telegram = 12, tokens = [\"b\"] }",
                "3:20: the account 12 is of \"ann\" too",
            ),
            (
                "[people]\nann = { telegram = -1 }",
                "2:20: `telegram` must be the number of an account on Telegram, which is above zero, not -1",
            ),
            (
                "[people]\nann = { telegram = \"12\" }",
                "2:20: `telegram` must be the number of an account on Telegram, not \"12\"",
            ),
            (
                "[people]\nann = { matrix = [\"@ann:example.org\"] }\n[matrix]\nhomeserver = \"https://example.org\"\ntoken_env = \"T\"\nrooms = [\"!a:example.org\"]",
                "",
            ),
            (
                "[people]\nann = { matrix = [\"ann\"] }",
                "2:19: `matrix` must be a list of ids of accounts on Matrix, not \"ann\"",
            ),
            (
                "[people]\nann = { matrix = [\"@a:b\"] }\nbob = { matrix = [\"@a:b\"] }",
                "3:19: the account \"@a:b\" is of \"ann\" too",
            ),
            (
                "[matrix]\nhomeserver = \"https://example.org\"\ntoken_env = \"T\"\nrooms = [\"!a:example.org\"]",
                "1:1: nobody in [people] has an account on Matrix, so nobody could decide in the rooms",
            ),
            (
                "[people]\nann = { matrix = [\"@a:b\"] }\n[matrix]\nhomeserver = \"https://example.org\"\ntoken_env = \"T\"\nrooms = [\"#a:example.org\"]",
                "6:10: `rooms` must be a list of ids of rooms, not \"#a:example.org\"",
            ),
            (
                "[people]\nann = { matrix = [\"@a:b\"] }\n[matrix]\nhomeserver = \"https://example.org\"\ntoken_env = \"T\"\nrooms = []",
                "6:9: there are 0 rooms, and there may be from 1 to 16",
            ),
            (
                "[people]\nann = { matrix = [\"@a:b\"] }\n[matrix]\nhomeserver = \"https://example.org\"\ntoken_env = \"T\"\nrooms = [\"!\"]",
                "6:10: `rooms` must be a list of ids of rooms, not \"!\"",
            ),
            (
                "[people]\nann = { matrix = [\"@a:b\"] }\n[matrix]\nhomeserver = \"https://example.org\"\ntoken_env = \"T\"\nrooms = [\"!a:b\", \"!a:b\"]",
                "6:18: the room \"!a:b\" is there twice",
            ),
            (
                "[matrix]\nhomeserver = \"http://example.org\"\ntoken_env = \"T\"\nrooms = [\"!a:b\"]",
                "2:14: `homeserver` must be the address of a homeserver, not \"http://example.org\"",
            ),
            (
                "[people]\nann = { matrix = [\"@a:b\"] }\n[matrix]\nhomeserver = \"https://example.org\"\ntoken_env = \"T\"\nrooms = [\"!a:b\"]\nevent_type = \"m.x\"",
                "7:14: `event_type` must be a type of events, not \"m.x\"",
            ),
            (
                "[people]\nann = { matrix = [\"@a:b\"] }\n[matrix]\nhomeserver = \"https://example.org\"\ntoken_env = \"T\"\nspace = \"!s:b\"\nevent_prefix = \"org.example\"\n[matrix.agents]\ncoder = \"!a:b\"",
                "",
            ),
            (
                "[matrix]\nhomeserver = \"https://example.org\"\ntoken_env = \"T\"\nagents = { coder = \"!a:b\" }",
                "1:1: nobody in [people] has an account on Matrix, so nobody could give tasks in the rooms",
            ),
            (
                "[people]\nann = { matrix = [\"@a:b\"] }\n[matrix]\nhomeserver = \"https://example.org\"\ntoken_env = \"T\"\nrooms = [\"!a:b\"]\n[matrix.agents]\ncoder = \"!a:b\"",
                "8:9: the room \"!a:b\" is there twice",
            ),
            (
                "[people]\nann = { matrix = [\"@a:b\"] }\n[matrix]\nhomeserver = \"https://example.org\"\ntoken_env = \"T\"\n[matrix.agents]\ncoder = \"!a:b\"\nscout = \"!a:b\"",
                "8:9: the room \"!a:b\" is there twice",
            ),
            (
                "[people]\nann = { matrix = [\"@a:b\"] }\n[matrix]\nhomeserver = \"https://example.org\"\ntoken_env = \"T\"\n[matrix.agents]\ncoder = \"#a:b\"",
                "7:9: `coder` must be the id of the room of an agent, not \"#a:b\"",
            ),
            (
                "[people]\nann = { matrix = [\"@a:b\"] }\n[matrix]\nhomeserver = \"https://example.org\"\ntoken_env = \"T\"\nagents = {}",
                "6:10: there are 0 agents, and there may be from 1 to 64",
            ),
            ("[matrix]\ntoken_env = \"T\"\nrooms = [\"!a:b\"]", "1:1: the section `matrix` needs `homeserver`"),
            (
                "[matrix]\nhomeserver = \"https://example.org\"\ntoken = \"T\"\nrooms = [\"!a:b\"]",
                "1:1: the section `matrix` needs `token_file` or `token_env`",
            ),
            (
                "[people]\nann = { tokens = [], email = \"ann@example.org\" }\nbob = { tokens = [], email = [\"bob@example.org\", \"b@example.com\"] }\n[email]\nserver = \"mail.example.org\"\nport = 2525\nfrom = \"the board <board@example.org>\"\nuser = \"board\"\npassword_env = \"P\"\narguments = true",
                "",
            ),
            (
                "[people]\nann = { tokens = [], email = \"ann@example.org\" }\n[email]\nserver = \"localhost\"\nfrom = \"board@example.org\"\ntls = \"none\"",
                "",
            ),
            (
                "[email]\nserver = \"mail.example.org\"\nfrom = \"board@example.org\"",
                "1:1: nobody in [people] has an address of mail, so nobody would be asked",
            ),
            (
                "[people]\nann = { tokens = [], email = \"ann\" }",
                "2:30: `email` must be an address of mail, or a list of them, not \"ann\"",
            ),
            (
                "[people]\nann = { tokens = [], email = [\"ann@example.org\\r\\nBcc: eve@example.org\"] }",
                "2:31: `email` must be an address of mail, or a list of them, not ",
            ),
            (
                "[people]\nann = { tokens = [], email = \"a@b.org\" }\nbob = { tokens = [], email = [\"A@b.org\"] }",
                "3:31: the address \"A@b.org\" is of \"ann\" too",
            ),
            ("[people]\nann = { email = \"a@b.org\" }", "2:7: a person needs `tokens`"),
            (
                "[email]\nserver = \"mail.example.org\"\nfrom = \"board@example.org\"\ntls = \"none\"",
                "2:10: `server` must be the name of a server, not \"mail.example.org\"",
            ),
            (
                "[email]\nserver = \"smtp://mail.example.org\"\nfrom = \"board@example.org\"",
                "2:10: `server` must be the name of a server, not \"smtp://mail.example.org\"",
            ),
            (
                "[email]\nserver = \"mail.example.org\"\nfrom = \"board@example.org\"\ntls = \"ssl\"",
                "4:7: `tls` must be \"starttls\", \"implicit\" or \"none\", not \"ssl\"",
            ),
            (
                "[email]\nserver = \"mail.example.org\"\nfrom = \"board\"",
                "3:8: `from` must be the address of a sender, not \"board\"",
            ),
            (
                "[email]\nserver = \"mail.example.org\"\nfrom = \"board@example.org\"\nport = 65536",
                "4:8: `port` must be a port from 1 to 65535, not 65536",
            ),
            (
                "[email]\nserver = \"mail.example.org\"\nfrom = \"board@example.org\"\nuser = \"board\"",
                "1:1: the `user` of the section `email` needs `password_file` or `password_env`",
            ),
            (
                "[email]\nserver = \"mail.example.org\"\nfrom = \"board@example.org\"\npassword_env = \"P\"",
                "4:16: `password_env` needs `user`",
            ),
            (
                "[email]\nserver = \"mail.example.org\"\nfrom = \"board@example.org\"\nuser = \"board\"\npassword = \"x\"",
                "1:1: the `user` of the section `email` needs `password_file` or `password_env`",
            ),
            ("[telegram]\nchats = []", "1:1: the section `telegram` needs `token_file` or `token_env`"),
            (
                "[telegram]\ntoken_env = \"BOT\"\ntoken_file = \"bot\"",
                "1:1: the token of the bot is in one place: `token_file` or `token_env`",
            ),
            (
                "[telegram]\ntoken_env = \"BOT\"\nchats = [12]",
                "3:10: 12 is the account of nobody in [people], so nobody could decide there",
            ),
            ("[telegram]\ntoken_env = \"BOT\"\nchats = [0]", "3:10: `chats` must be a list of numbers of chats, not 0"),
            (
                "[telegram]\ntoken_env = \"BOT\"\nchats = [\"@team\"]",
                "3:10: `chats` must be a list of numbers of chats, not \"@team\"",
            ),
            (
                "[telegram]\ntoken_env = \"BOT\"\napi = \"http://bots.example.org\"",
                "3:7: `api` must be the address of a server, not \"http://bots.example.org\"",
            ),
            (
                "[people]\nann = { tokens = [] }\n[channels.webhooks.relay]\nurl = \"https://relay.example.org/a?b=c\"\nsecret_env = \"S\"\npeople = [\"ann\"]",
                "",
            ),
            ("[channels.webhooks.relay]\nurl = \"http://relay.example.org\"\nsecret_env = \"S\"\ninsecure = true", ""),
            (
                "[channels.webhooks.relay]\nurl = \"http://relay.example.org/SECRET\"\nsecret_env = \"S\"",
                "2:7: the `url` of the webhook \"relay\" cannot be used: without TLS it could be read on the way; write https://",
            ),
            ("[channels.webhooks.relay]\nsecret_env = \"S\"", "1:1: a webhook needs `url`"),
            (
                "[channels.webhooks.relay]\nurl = \"https://relay.example.org\"",
                "1:1: the webhook \"relay\" needs `secret_file` or `secret_env`",
            ),
            (
                "[channels.webhooks.relay]\nurl = \"https://a.example\"\nsecret_env = \"S\"\nsecret_file = \"s\"",
                "1:1: the secret of the webhook \"relay\" is in one place: `secret_file` or `secret_env`",
            ),
            (
                "[people]\nann = { tokens = [] }\n[channels.webhooks.relay]\nurl = \"https://a.example\"\nsecret_env = \"S\"\npeople = [\"an\"]",
                "6:11: there is no person \"an\"",
            ),
            (
                "[channels.webhooks.relay]\nurl = \"https://a.example\"\nsecret_env = \"S\"\nsecret = \"whsec_\"",
                "4:1: a webhook has no key \"secret\"",
            ),
            ("[channels.webhooks.\"a/../b\"]\nurl = \"https://a.example\"\nsecret_env = \"S\"", "1:20: "),
            ("[channels]\nwebhook = 1", "2:1: the section `channels` has no key \"webhook\""),
            ("[telegram]\ntoken = \"1:a\"", "1:1: the section `telegram` needs `token_file` or `token_env`"),
            (
                "[people]\nann = { tokens = [\"a\"] }\nbob = { tokens = [\"a\"] }",
                "3:19: the token \"a\" is of \"ann\" too",
            ),
            ("[people]\n\"a/../b\" = { tokens = [] }", "2:1: "),
            ("[people]\nann = { tokens = [] }\n[groups]\nops = [\"an\"]", "4:8: there is no person \"an\""),
            (
                "[people]\nowner = { tokens = [\"laptop\"] }",
                "2:1: the commands of this user decide as the token \"owner\"",
            ),
            (
                "[people]\nann = { tokens = [] }\nbob = { tokens = [] }\n[groups]\nops = [\"ann\", \"bob\"]\n[[approvals]]\ngroup = \"ops\"\n\
                 at_least = 2\nexclude_requester = true",
                "7:9: what one of \"ops\" asks for could not be approved: 2 others have to, and there are 1",
            ),
            (
                "[people]\nann = { tokens = [] }\n[groups]\nops = [\"ann\"]\n[[approvals]]\ngroup = \"ops\"\nat_least = 2",
                "6:9: 2 of \"ops\" have to approve, which has 1",
            ),
            ("[[approvals]]\ngroup = \"ops\"", "2:9: there is no group \"ops\""),
            (
                "[[approvals]]\nactions = [\"ShellExec\"]\n[[approvals]]\n[[approvals]]\nagents = [\"coder\"]\nat_least = 2",
                "4:1: this rule never counts: rule 2 is before it, and about the same",
            ),
            ("approvals = [{ escalate_after = \"1h\" }]", "1:14: `escalate_after` and `escalate_to` belong together"),
            ("[[approvals]]\nagents = []", "2:10: `agents` is empty"),
            ("[[approvals]]\nactions = []", "2:11: `actions` is empty"),
            (
                "[[approvals]]\nkind = \"handoff\"\nactions = [\"handoff\", \"FileWrite\"]",
                "3:23: a rule about handoffs is never about the action \"FileWrite\"",
            ),
            (
                "[log]\nformat = \"jason\"",
                "2:10: `format` must be \"text\" or \"json\", not \"jason\"; did you mean \"json\"?",
            ),
            ("[log]\nfilter = \"callboard=loud\"", "2:10: `filter` must be a filter, not \"callboard=loud\""),
        ] {
            let found = defects(text);
            let expected = if expected.is_empty() { String::new() } else { format!("callboard.toml:{expected}") };
            assert!(found.starts_with(&expected) && found.is_empty() == expected.is_empty(), "{text}: {found}");
        }
    }

    #[test]
    fn an_escalation_by_which_nobody_more_could_decide_has_one_defect() {
        let people = "[people]\nann = { tokens = [] }\n[groups]\nops = [\"ann\"]\nleads = [\"ann\"]\n[[approvals]]\n";
        for (rule, expected) in [
            ("group = \"ops\"\nescalate_to = \"leads\"\nescalate_after = \"167h\"", ""),
            (
                "group = \"ops\"\nescalate_to = \"ops\"\nescalate_after = \"1h\"",
                "8:15: the group \"ops\" decides from the beginning, so `escalate_to` adds nobody",
            ),
            (
                "escalate_to = \"ops\"\nescalate_after = \"1h\"",
                "7:15: without `group` everybody decides from the beginning, so `escalate_to` adds nobody",
            ),
            (
                "group = \"ops\"\nescalate_to = \"leads\"\nescalate_after = \"7d\"",
                "9:18: approvals expire after 7d, so nobody would decide after `escalate_after`",
            ),
            (
                "group = \"ops\"\nescalate_to = \"leads\"\nescalate_after = \"2x\"",
                "9:18: `escalate_after` must be a time above zero, as \"30s\", not \"2x\"",
            ),
        ] {
            let found = defects(&format!("{people}{rule}"));
            let is_expected = found.strip_prefix("callboard.toml:").unwrap_or_default().starts_with(expected);
            let count = usize::from(!expected.is_empty());
            assert!(is_expected && found.matches("callboard.toml:").count() == count, "{rule}: {found}");
        }
    }
}
