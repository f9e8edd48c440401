//! `[email]`: the server by which people get approvals as mails.

use std::path::Path;

use callboard_channels::email::{EmailConfig, EmailPassword, EmailTls};
use callboard_documents::toml::{Field, Fields, Item, boolean, misfit, text, word};
use callboard_documents::{Defect, Found, Place};

use super::people;
use super::secret_source::{SecretKeys, SecretSource, Unusable};
use super::values::{integer, parsed};
use crate::page::Failure;

/// The secret, in words.
pub(crate) const PASSWORD: &str = "the password of the account that sends mails";

const EXAMPLE: &str =
    "write [email], and below it server = \"mail.example.org\" and from = \"callboard <board@example.org>\"";
const EXAMPLE_USER: &str = "write user = \"board\" and password_file = \"mail.password\"";
const TLS: [(&str, EmailTls); 3] =
    [("starttls", EmailTls::Starttls), ("implicit", EmailTls::Implicit), ("none", EmailTls::None)];
/// How the section names its secret.
const KEYS: [&str; 2] = ["password_file", "password_env"];

/// What the file sets.
#[derive(Debug)]
pub(crate) struct Section {
    server: String,
    port: Option<u16>,
    tls: EmailTls,
    from: String,
    user: Option<String>,
    pub(crate) password: Option<SecretSource>,
    has_arguments: bool,
    place: Place,
}

impl Section {
    /// Relative paths are those of `folder`.
    pub(super) fn read(item: &Item<'_>, folder: &Path, found: &mut Found) -> Option<Self> {
        let mut fields = Fields::of("the section `email`", item, EXAMPLE, found)?;
        let tls = fields.field("tls").map_or(Some(EmailTls::default()), |field| word(field, &TLS, found));
        let server = fields.required("server", EXAMPLE, found).and_then(|field| {
            let check = |host: &str| EmailConfig::check_host(host, tls.unwrap_or_default());
            let read = |host: &str| check(host).map(|()| host.to_owned()).map_err(|error| error.to_string());
            parsed(field, "the name of a server", read, found)
        });
        let port = fields.field("port").map(|field| port(field, found));
        let from = fields.required("from", EXAMPLE, found).and_then(|field| {
            let read =
                |from: &str| EmailConfig::check_from(from).map(|()| from.to_owned()).map_err(|_| EXAMPLE.to_owned());
            parsed(field, "the address of a sender", read, found)
        });
        let user = fields.field("user").map(|field| text(field, found).map(|user| user.value));
        let password = login(user.is_some(), &mut fields, folder, found);
        let has_arguments = fields.field("arguments").and_then(|field| boolean(field, found));
        let place = Some(fields.place.clone());
        fields.close(found);
        Some(Self {
            server: server?,
            port: port.map_or(Some(None), |port| port.map(Some))?,
            tls: tls?,
            from: from?,
            user: user.flatten(),
            password: password?,
            has_arguments: has_arguments.unwrap_or_default(),
            place,
        })
    }

    /// # Errors
    /// `callboard serve` would refuse the password. Tools of agents work in `root`.
    pub(super) fn check(&self, root: &Path) -> Result<(), Unusable> {
        self.password.as_ref().map_or(Ok(()), |password| password.check(PASSWORD, root, EmailPassword::new))
    }

    /// The defect of a section by which nobody is asked.
    pub(super) fn unread(&self, people: &people::Section) -> Option<Defect> {
        let defect = || {
            let advice = "write `email = \"ann@example.org\"` for a person";
            Defect::new(&self.place, "nobody in [people] has an address of mail, so nobody would be asked")
                .advise(advice)
        };
        people.addresses().next().is_none().then(defect)
    }

    /// The settings of the channel, which keeps what it has sent in this folder.
    ///
    /// # Errors
    /// There is no password.
    pub(crate) fn config(&self, people: &people::Section, folder: &Path) -> Result<EmailConfig, Failure> {
        let mut config = EmailConfig::new(&self.server, &self.from, folder).tls(self.tls);
        if let (Some(user), Some(source)) = (&self.user, &self.password) {
            config = config.login(user, source.secret(PASSWORD, EmailPassword::new)?);
        }
        config = people.addresses().fold(config, |config, (address, person)| config.person(address, person));
        config = self.port.iter().fold(config, |config, port| config.port(*port));
        Ok(if self.has_arguments { config.with_arguments() } else { config })
    }
}

/// The password of a user, if there is one; `None`, and a defect, if one of both is missing.
fn login(has_user: bool, fields: &mut Fields<'_>, folder: &Path, found: &mut Found) -> Option<Option<SecretSource>> {
    if has_user {
        let [file, variable] = KEYS;
        let owner = "the `user` of the section `email`".to_owned();
        let keys = SecretKeys { what: PASSWORD.to_owned(), file, variable, owner, example: EXAMPLE_USER };
        return SecretSource::read(fields, &keys, folder, found).map(Some);
    }
    let set: Vec<Field<'_>> = KEYS.into_iter().filter_map(|key| fields.field(key)).collect();
    for (key, item) in &set {
        found.add(Defect::new(&Some(item.span()), format!("`{key}` needs `user`")).advise(EXAMPLE_USER));
    }
    set.is_empty().then_some(None)
}

fn port(field: Field<'_>, found: &mut Found) -> Option<u16> {
    const EXPECTED: &str = "a port from 1 to 65535";
    let number = integer(field, EXPECTED, found)?;
    let port = u16::try_from(number).ok().filter(|port| *port > 0);
    if port.is_none() {
        found.add(misfit(field.0, EXPECTED, field.1));
    }
    port
}
