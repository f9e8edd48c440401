//! `[serve]`: how `callboard serve` is reached.

use std::net::{Ipv4Addr, SocketAddr};

use callboard_documents::Found;
use callboard_documents::toml::{Fields, Item, boolean, misfit};

use super::chosen;
use crate::page::Failure;
use crate::service::arguments::{Serve, address, origin};

const EXAMPLE: &str = "write [serve], and below it listen = \"127.0.0.1:7420\"";

/// The address that is listened on if nothing names another.
const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7420);

/// What the file sets.
#[derive(Debug, Default)]
pub(crate) struct Section {
    listen: Option<SocketAddr>,
    public_url: Option<String>,
    insecure: Option<bool>,
}

/// What holds.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) listen: SocketAddr,
    pub(crate) public_url: Option<String>,
    pub(crate) is_insecure: bool,
}

impl Section {
    pub(super) fn read(item: &Item<'_>, found: &mut Found) -> Option<Self> {
        let mut fields = Fields::of("the section `serve`", item, EXAMPLE, found)?;
        let listen = parsed(&mut fields, "listen", "an address with its port", address, found);
        let public_url = parsed(&mut fields, "public_url", "an origin", origin, found);
        let insecure = fields.field("insecure").and_then(|field| boolean(field, found));
        fields.close(found);
        Some(Self { listen, public_url, insecure })
    }

    /// With the options and the variables, which come first.
    ///
    /// # Errors
    /// One of them has a text that is none of its values.
    pub(crate) fn with(self, arguments: &Serve) -> Result<Settings, Failure> {
        let public_url = arguments.public_url.clone();
        Ok(Settings {
            listen: chosen(arguments.listen, "CALLBOARD_LISTEN", address, self.listen)?.unwrap_or(ADDRESS),
            public_url: chosen(public_url, "CALLBOARD_PUBLIC_URL", origin, self.public_url)?,
            is_insecure: chosen(arguments.insecure.then_some(true), "CALLBOARD_INSECURE", switch, self.insecure)?
                .unwrap_or_default(),
        })
    }
}

/// A text that `parse` takes; `None`, and a defect with its advice, if it takes it not.
fn parsed<T>(
    fields: &mut Fields<'_>,
    key: &'static str,
    expected: &str,
    parse: impl FnOnce(&str) -> Result<T, String>,
    found: &mut Found,
) -> Option<T> {
    let (key, item) = fields.field(key)?;
    let value = item.get_ref().as_str().map(parse);
    match value {
        Some(Ok(value)) => Some(value),
        Some(Err(advice)) => {
            found.add(misfit(key, expected, item).advise(advice));
            None
        }
        None => {
            found.add(misfit(key, expected, item));
            None
        }
    }
}

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err("write true or false".to_owned()),
    }
}
