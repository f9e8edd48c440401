//! Servers as TOML: `[[servers]]` (docs/mcp.md).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use callboard::env::Env;
use callboard::messages::Effect;
use callboard_documents::toml::{
    DeTable, DeValue, Field, Fields, Item, count, duration, list, misfit, mismatch, text, word,
};
use callboard_documents::{Defect, Defects, Found, Place, Placed};
use callboard_text::{did_you_mean, nearest, quoted};
use reqwest::Url;

use super::McpServers;
use super::connection::Connection;
use super::names::{MAX_SERVER, is_server};
use super::settings::{Named, Reached, Settings};
use crate::program::{self, environment, words};
use crate::secret::Secret;
use crate::web;

const ADVICE: &str = "split it into several documents";
const EXAMPLE: &str = "write [[servers]], and below it name = \"…\" and command = [\"…\"] or url = \"https://…\"";
const EXAMPLE_COMMAND: &str = "write command = [\"npx\", \"-y\", \"a-server\"]: the program and its arguments";
const EXAMPLE_EFFECTS: &str = "write effects = { a_tool = \"reads\" }, with the names that the server has";

/// The most servers of a document.
const MAX_SERVERS: usize = 64;

/// The most bytes of an answer that a document may ask for.
const MAX_OUTPUT: u32 = 1 << 20;

const EFFECTS: [(&str, Effect); 5] = [
    ("reads", Effect::Reads),
    ("notes", Effect::Notes),
    ("sends", Effect::Sends),
    ("writes", Effect::Writes),
    ("executes", Effect::Executes),
];

/// Settings into which a user may write a secret by mistake. Errors do not show their lines.
const KEYS_OF_SECRETS: [&str; 7] = ["bearer", "token", "key", "api_key", "secret", "password", "headers"];

type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The document and the line of a byte position in it.
type Places<'a> = &'a dyn Fn(usize) -> Arc<str>;

impl McpServers {
    /// Reads a document (docs/mcp.md). Secrets come from the environment; nothing is started. `origin` is what the text is called
    /// in errors, as the path of its file. A text without servers is one with none.
    ///
    /// # Errors
    /// Everything that is wrong with it, with the places.
    pub fn from_toml(env: &Env, origin: &str, text: &str) -> Result<Self, Defects> {
        Self::from_toml_with(env, origin, text, |name| std::env::var(name).ok())
    }

    /// As [`McpServers::from_toml`], with variables from elsewhere.
    ///
    /// ```
    /// use callboard::env::Env;
    /// use callboard_agents::McpServers;
    ///
    /// let text = "[[servers]]\nname = \"search\"\nurl = \"https://mcp.example.org/mcp\"\nbearer_from = \"SEARCH_TOKEN\"";
    /// let variables = |name: &str| (name == "SEARCH_TOKEN").then(|| "…".to_owned());
    /// let servers = McpServers::from_toml_with(&Env::system(), "mcp.toml", text, variables)?;
    /// assert_eq!(servers.names().collect::<Vec<_>>(), ["search"]);
    /// # Ok::<(), callboard_agents::Defects>(())
    /// ```
    ///
    /// # Errors
    /// As for [`McpServers::from_toml`].
    pub fn from_toml_with(
        env: &Env,
        origin: &str,
        text: &str,
        variables: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Defects> {
        let mut found = Found::default();
        let place = |at: usize| {
            let line = text.get(..at).unwrap_or(text).matches('\n').count() + 1;
            format!("{origin}:{line}").into()
        };
        let read = |document: &DeTable<'_>, found: &mut Found| read(document, &variables, &place, found);
        let servers = callboard_documents::toml::read(text, ADVICE, &mut found, read);
        let servers = found.or(servers).map_err(|list| Defects::of(origin, Some(text), list))?;
        Ok(Self(servers.into_iter().map(|settings| Arc::new(Connection::new(settings, env))).collect()))
    }
}

fn read(document: &DeTable<'_>, variables: Variables<'_>, place: Places<'_>, found: &mut Found) -> Vec<Settings> {
    for key in document.keys().filter(|key| key.get_ref() != "servers") {
        let likely = nearest(key.get_ref(), ["servers"]);
        let problem =
            format!("{} is not part of a list of servers{}", quoted(key.get_ref()), did_you_mean(likely.as_deref()));
        found.add(Defect::new(&Some(key.span()), problem).advise(EXAMPLE));
    }
    let Some(item) = document.get("servers") else { return Vec::new() };
    let items = list(("servers", item), EXAMPLE, found);
    if items.len() > MAX_SERVERS {
        let problem = format!("there are {} servers; at most {MAX_SERVERS} are allowed", items.len());
        found.add(Defect::new(&Some(item.span()), problem).advise(ADVICE));
        return Vec::new();
    }
    let (mut servers, mut names) = (Vec::new(), BTreeSet::new());
    for item in items {
        let Some((name, settings)) = server(item, variables, found) else { continue };
        if !names.insert(name.value.clone()) {
            let problem = format!("two servers are named {}", quoted(&name.value));
            found.add(Defect::new(&name.place, problem).advise("give one of them another name"));
        }
        servers.extend(settings.map(|settings| Settings { place: place(item.span().start), ..settings }));
    }
    servers
}

fn server(item: &Item<'_>, variables: Variables<'_>, found: &mut Found) -> Option<(Placed<String>, Option<Settings>)> {
    let mut fields = Fields::of("a server", item, EXAMPLE, found)?;
    let header: Place = Some(fields.place.clone());
    let name = fields.required("name", "write name = \"…\": the names of its tools begin with it", found);
    let name = name.and_then(|field| text(field, found));
    let reached = reached(&mut fields, variables, found);
    let tools = fields.field("tools").map(|field| words(field, "the name of a tool", found));
    let effect = fields.field("effect").and_then(|field| word(field, &EFFECTS, found));
    let effects = fields.get("effects").map(|item| effects(item, tools.as_deref(), found)).unwrap_or_default();
    let timeout = fields.field("timeout").and_then(|field| duration(field, found));
    let start_timeout = fields.field("start_timeout").and_then(|field| duration(field, found));
    let max_output = fields.field("max_output").and_then(|field| max_output(field, found));
    let setting = match &reached {
        Some(Reached::Program { .. }) => "env_from = [\"ITS_NAME\"]",
        Some(Reached::Address { .. }) => "bearer_from = \"ITS_NAME\"",
        None => "env_from = [\"ITS_NAME\"] for a `command`, bearer_from = \"ITS_NAME\" for a `url`",
    };
    for key in KEYS_OF_SECRETS {
        if fields.refused(key).is_some() {
            let defect = Defect::new(&header, format!("a server has no key `{key}`"));
            found.add(defect.advise(format!("put it into a variable of the environment, and write {setting}")));
        }
    }
    fields.close(found);
    let name = name?;
    if !is_server(&name.value) {
        let problem = format!(
            "a server's name has 1 to {MAX_SERVER} letters, digits, `-` and single `_` between them; {} has not",
            quoted(&name.value)
        );
        found.add(Defect::new(&name.place, problem).advise("write a short word, as name = \"github\""));
    }
    let settings = reached.map(|reached| {
        let mut settings = Settings::new(&name.value, reached);
        settings.tools = tools.map(|tools| tools.into_iter().map(|tool| tool.value).collect());
        settings.effects = effects;
        settings.effect = effect.unwrap_or(settings.effect);
        settings.timeout = timeout.map_or(settings.timeout, |time| time.value);
        settings.start_timeout = start_timeout.map_or(settings.start_timeout, |time| time.value);
        settings.max_output = max_output.unwrap_or(settings.max_output);
        settings
    });
    Some((name, settings))
}

/// The address or program of a server: `command` with `env` and `env_from`, or `url` with `bearer_from`.
fn reached(fields: &mut Fields<'_>, variables: Variables<'_>, found: &mut Found) -> Option<Reached> {
    let header: Place = Some(fields.place.clone());
    let command = fields.field("command");
    let env = fields.get("env");
    let env_from = fields.field("env_from");
    let url = fields.field("url");
    let bearer = fields.field("bearer_from");
    match (command, url) {
        (Some(command), None) => {
            if bearer.is_some() {
                let defect = Defect::new(&header, "`bearer_from` is for servers with `url`");
                found.add(defect.advise("name what the program needs in `env_from`"));
            }
            let command = program::command(command, EXAMPLE_COMMAND, found);
            let env = env.map(|item| environment(item, &header, found)).unwrap_or_default();
            let env_from = env_from.map(|field| words(field, "the name of a variable", found)).unwrap_or_default();
            let env_from = env_from.iter().filter_map(|name| named(name, &header, variables, found)).collect();
            Some(Reached::Program { command: command?, env, env_from })
        }
        (None, Some(url)) => {
            if env.is_some() || env_from.is_some() {
                let defect = Defect::new(&header, "`env` and `env_from` are for servers with `command`");
                found.add(defect.advise("name the variable with its token in `bearer_from`"));
            }
            let url = address(url, &header, found);
            let bearer = bearer.and_then(|field| text(field, found));
            let bearer = bearer.and_then(|name| named(&name, &header, variables, found));
            let url = url?;
            if bearer.is_some() && web::is_open(&url) {
                let server = web::shown(&url);
                tracing::warn!("the token for {server} goes there unencrypted: whoever is on the way can read it");
            }
            Some(Reached::Address { url, bearer })
        }
        (Some(_), Some(_)) => {
            let problem = "a server has either `command` or `url`, and not both";
            found.add(Defect::new(&header, problem).advise("make two servers of it, or leave one out"));
            None
        }
        (None, None) => {
            found.add(Defect::new(&header, "a server needs `command` or `url`").advise(EXAMPLE));
            None
        }
    }
}

/// The variable of this name, and its value.
fn named(name: &Placed<String>, header: &Place, variables: Variables<'_>, found: &mut Found) -> Option<Named> {
    let variable = program::variable(name, header, found)?;
    let secret = variables(&variable).and_then(|value| Secret::of_variable(&value));
    Some(Named { variable, secret })
}

fn address(field: Field<'_>, header: &Place, found: &mut Found) -> Option<Url> {
    let url = text(field, found)?;
    // A line with a secret may have to stay hidden.
    web::address(&url.value)
        .map_err(|problem| {
            let advice = "write it as \"https://mcp.example.org/mcp\"";
            found.add(Defect::new(header, format!("the url {problem}")).advise(advice));
        })
        .ok()
}

fn effects(item: &Item<'_>, tools: Option<&[Placed<String>]>, found: &mut Found) -> BTreeMap<String, Effect> {
    let DeValue::Table(table) = item.get_ref() else {
        found.add(mismatch("`effects`", "a table", item).advise(EXAMPLE_EFFECTS));
        return BTreeMap::new();
    };
    let mut effects = BTreeMap::new();
    for (name, item) in table.iter() {
        let tool = name.get_ref().as_ref();
        if let Some(tools) = tools
            && !tools.iter().any(|known| known.value == tool)
        {
            let likely = nearest(tool, tools.iter().map(|known| known.value.as_str()));
            let problem = format!("{} is not among the `tools`{}", quoted(tool), did_you_mean(likely.as_deref()));
            found.add(Defect::new(&Some(name.span()), problem));
        }
        if let Some(effect) = word(("effects", item), &EFFECTS, found) {
            effects.insert(tool.to_owned(), effect);
        }
    }
    effects
}

fn max_output(field: Field<'_>, found: &mut Found) -> Option<usize> {
    let bytes = count(field, found)?.value;
    if bytes > MAX_OUTPUT {
        found.add(misfit(field.0, &format!("a number of bytes from 1 to {MAX_OUTPUT}"), field.1));
        return None;
    }
    usize::try_from(bytes).ok()
}
