//! `[serve]`: how `callboard serve` is reached.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use callboard_documents::toml::{Field, Fields, Item, boolean, count, duration, list, misfit, text};
use callboard_documents::{Defect, Found, Place};
use callboard_server::{HttpLimits, Network};

use super::precedence::chosen;
use super::secret_source::Unusable;
use super::tls::{Named, TlsFiles};
use super::values::{parsed, place_in};
use crate::page::Failure;
use crate::service::arguments::{MAX_TURNS, Serve, address, board_name, origin, turns};
use crate::values::variable;

const EXAMPLE: &str = "write [serve], and below it listen = \"127.0.0.1:7420\"";
const EXAMPLE_PROXIES: &str = "write trusted_proxies = [\"10.0.0.0/8\"]";
const EXAMPLE_LIMITS: &str = "write [serve.limits], and below it body_bytes = 1048576";

/// The address that is listened on if nothing names another.
const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7420);
/// The least bytes of headers that the server can be limited to.
const MIN_HEADERS: u32 = 8_192;
/// The most bytes of a body or of headers.
const MAX_BYTES: u32 = 1 << 30;
/// The longest time: commands at other terminals wait somewhat longer.
const MAX_TIME: Duration = Duration::from_secs(60);
/// How many turns run at once if nothing says how many.
const TURNS: u32 = 5;
/// The most connections.
const MAX_CONNECTIONS: u32 = 1 << 20;

/// What the file sets.
#[derive(Debug, Default)]
pub(crate) struct Section {
    listen: Option<SocketAddr>,
    public_url: Option<String>,
    name: Option<String>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    insecure: Option<bool>,
    trusted_proxies: Option<Vec<Network>>,
    turns: Option<u32>,
    limits: HttpLimits,
    /// Where the address, the certificate and its key stand.
    places: [Place; 3],
    /// The file of settings with line and column of the certificate and of its key, as errors begin.
    at: [String; 2],
}

/// What holds.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) listen: SocketAddr,
    pub(crate) public_url: Option<String>,
    /// The name of the board among those on its store.
    pub(crate) name: Option<String>,
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) is_insecure: bool,
    pub(crate) proxies: Vec<Network>,
    /// How many turns run at once.
    pub(crate) turns: usize,
    pub(crate) limits: HttpLimits,
}

impl Section {
    pub(super) fn read(item: &Item<'_>, folder: &Path, found: &mut Found) -> Option<Self> {
        let mut fields = Fields::of("the section `serve`", item, EXAMPLE, found)?;
        let places = ["listen", "tls_cert", "tls_key"].map(|key| fields.field(key).map(|(_, item)| item.span()));
        let listen = fields.field("listen").and_then(|field| parsed(field, "an address with its port", address, found));
        let public_url = fields.field("public_url").and_then(|field| parsed(field, "an origin", origin, found));
        let name = fields.field("name").and_then(|field| parsed(field, "the name of a board", board_name, found));
        let mut path = |key| Some(folder.join(text(fields.field(key)?, found)?.value));
        let (tls_cert, tls_key) = (path("tls_cert"), path("tls_key"));
        let insecure = fields.field("insecure").and_then(|field| boolean(field, found));
        let trusted_proxies = fields.field("trusted_proxies").map(|field| {
            let items = list(field, EXAMPLE_PROXIES, found);
            items.iter().filter_map(|item| parsed((field.0, item), "a list of networks", network, found)).collect()
        });
        let turns = fields.field("turns").and_then(|field| whole(field, 1..=MAX_TURNS, found));
        let limits = fields.get("limits").map(|item| limits(item, found)).unwrap_or_default();
        fields.close(found);
        let at = Default::default();
        Some(Self { listen, public_url, name, tls_cert, tls_key, insecure, trusted_proxies, turns, limits, places, at })
    }

    /// Keeps where files are named, for errors of later.
    pub(super) fn locate(&mut self, origin: &str, text: &str) {
        let [_, cert, key] = &self.places;
        self.at = [cert, key].map(|place| place_in(origin, text, place));
    }

    /// Why the certificate and its key cannot be used, if there are both: tools of agents work in `root`.
    pub(super) fn unusable(&self, root: &Path) -> Option<Unusable> {
        self.tls(None, None).ok().flatten()?.open(root).err()
    }

    /// What `callboard serve` would refuse, with the variables of this environment and without options.
    pub(super) fn refused(&self) -> Vec<Defect> {
        let [listen_at, cert_at, key_at] = &self.places;
        let [listen, cert, key] =
            ["LISTEN", "TLS_CERT", "TLS_KEY"].map(|name| variable(&format!("CALLBOARD_{name}")).is_some());
        let (has_cert, has_key) = (self.tls_cert.is_some() || cert, self.tls_key.is_some() || key);
        let lacks = |place: &Place, lacking: &str, what: &str| {
            Defect::new(place, format!("TLS needs `{lacking}` too")).advise(format!("name the file with {what}"))
        };
        let reached = self.listen.filter(|address| !address.ip().is_loopback() && !listen && !has_cert && !has_key);
        let is_insecure = chosen(None, "CALLBOARD_INSECURE", switch, self.insecure);
        let is_insecure = is_insecure.ok().flatten().unwrap_or_default();
        let open = reached.filter(|_| !is_insecure).map(|address| {
            Defect::new(listen_at, format!("other machines reach {address}, and there is no TLS"))
                .advise("add `tls_cert` and `tls_key`, listen on 127.0.0.1 behind a proxy that has it, or add `insecure = true`")
        });
        let lacks_key =
            (self.tls_cert.is_some() && !has_key).then(|| lacks(cert_at, "tls_key", "the key of the certificate"));
        let lacks_cert =
            (self.tls_key.is_some() && !has_cert).then(|| lacks(key_at, "tls_cert", "the certificate of the key"));
        [open, lacks_key, lacks_cert].into_iter().flatten().collect()
    }

    /// With the options and the variables, which come first.
    ///
    /// # Errors
    /// One of them has a text that is none of its values, or there is a certificate without a key.
    pub(crate) fn with(self, arguments: &Serve) -> Result<Settings, Failure> {
        let Serve { listen, public_url, name, tls_cert, tls_key, insecure, trusted_proxy, turns: at_once, .. } =
            arguments;
        let proxies = (!trusted_proxy.is_empty()).then(|| trusted_proxy.clone());
        let tls = self.tls(tls_cert.clone(), tls_key.clone())?;
        Ok(Settings {
            listen: chosen(*listen, "CALLBOARD_LISTEN", address, self.listen)?.unwrap_or(ADDRESS),
            public_url: chosen(public_url.clone(), "CALLBOARD_PUBLIC_URL", origin, self.public_url)?,
            name: chosen(name.clone(), "CALLBOARD_NAME", board_name, self.name)?,
            tls,
            is_insecure: chosen(insecure.then_some(true), "CALLBOARD_INSECURE", switch, self.insecure)?
                .unwrap_or_default(),
            proxies: chosen(proxies, "CALLBOARD_TRUSTED_PROXIES", networks, self.trusted_proxies)?.unwrap_or_default(),
            turns: size(chosen(*at_once, "CALLBOARD_TURNS", turns, self.turns)?.unwrap_or(TURNS)),
            limits: self.limits,
        })
    }
}

impl Section {
    /// The files with the certificate and its key, if there are any; these come first.
    ///
    /// # Errors
    /// There is one without the other.
    pub(crate) fn tls(&self, certificate: Option<PathBuf>, key: Option<PathBuf>) -> Result<Option<TlsFiles>, Failure> {
        let [_, cert_at, key_at] = &self.places;
        let [cert, of_key] = &self.at;
        let certificate = named(certificate, "CALLBOARD_TLS_CERT", &self.tls_cert, (cert_at, cert))?;
        match (certificate, named(key, "CALLBOARD_TLS_KEY", &self.tls_key, (key_at, of_key))?) {
            (Some(certificate), Some(key)) => Ok(Some(TlsFiles { certificate, key })),
            (None, None) => Ok(None),
            (Some(_), None) => Err(lacks("--tls-key", "the key of the certificate")),
            (None, Some(_)) => Err(lacks("--tls-cert", "the certificate of the key")),
        }
    }
}

/// The file of an option, else of a variable, else of the settings, with its place there.
fn named(
    option: Option<PathBuf>,
    name: &str,
    set: &Option<PathBuf>,
    (place, at): (&Place, &str),
) -> Result<Option<Named>, Failure> {
    let elsewhere = chosen(option, name, |text| Ok(PathBuf::from(text)), None)?;
    let elsewhere = elsewhere.map(|file| Named { file, place: None, at: String::new() });
    let here = || set.clone().map(|file| Named { file, place: place.clone(), at: at.to_owned() });
    Ok(elsewhere.or_else(here))
}

fn lacks(option: &str, what: &str) -> Failure {
    Failure::usage(format!("TLS needs {what} too: name its file with {option}"))
}

fn limits(item: &Item<'_>, found: &mut Found) -> HttpLimits {
    let mut limits = HttpLimits::default();
    let Some(mut fields) = Fields::of("the section `serve.limits`", item, EXAMPLE_LIMITS, found) else { return limits };
    for (key, least, most, limit) in [
        ("body_bytes", 1, MAX_BYTES, &mut limits.body_bytes),
        ("header_bytes", MIN_HEADERS, MAX_BYTES, &mut limits.header_bytes),
        ("connections", 1, MAX_CONNECTIONS, &mut limits.connections),
    ] {
        let count = fields.field(key).and_then(|field| whole(field, least..=most, found));
        *limit = count.map_or(*limit, size);
    }
    for (key, limit) in [
        ("body_time", &mut limits.body_time),
        ("header_time", &mut limits.header_time),
        ("answer_time", &mut limits.answer_time),
    ] {
        let Some(field) = fields.field(key) else { continue };
        match duration(field, found).map(|time| time.value) {
            Some(time) if time <= MAX_TIME => *limit = time,
            Some(_) => found.add(misfit(key, "a time up to \"1m\"", field.1)),
            None => {}
        }
    }
    fields.close(found);
    limits
}

fn size(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// A whole number within bounds.
fn whole(field: Field<'_>, bounds: RangeInclusive<u32>, found: &mut Found) -> Option<u32> {
    // What is no number at all has the same range.
    let number =
        count(field, &mut Found::default()).map(|number| number.value).filter(|number| bounds.contains(number));
    if number.is_none() {
        let needed = format!("a whole number from {} to {}", bounds.start(), bounds.end());
        found.add(misfit(field.0, &needed, field.1));
    }
    number
}

fn network(text: &str) -> Result<Network, String> {
    text.parse().map_err(|error: callboard_server::NetworkError| error.to_string())
}

fn networks(text: &str) -> Result<Vec<Network>, String> {
    text.split(',').map(|text| network(text.trim())).collect()
}

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err("write true or false".to_owned()),
    }
}
