//! `[people]`: who has which tokens, which accounts on Telegram and Matrix, and which addresses of mail.

use std::collections::{BTreeMap, BTreeSet};

use callboard_channels::email::EmailConfig;
use callboard_channels::matrix::MatrixConfig;
use callboard_documents::toml::{DeValue, Field, Fields, Item, list, misfit, mismatch, string};
use callboard_documents::{Defect, Found, Place};
use callboard_text::{check_name, did_you_mean, quoted, typo_of};

use super::values::integer;

const EXAMPLE: &str = "write [people], and below it ann = { tokens = [\"laptop\"] }";
const EXAMPLE_MATRIX: &str = "write matrix = [\"@ann:example.org\"]";
const EXAMPLE_EMAIL: &str = "write email = \"ann@example.org\"";
/// The token of this user, which the first start of a server makes.
pub(super) const OWNER: &str = "owner";
/// The longest name of a person, in characters.
const MAX_NAME: usize = 64;

/// Who has which tokens, accounts and addresses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Section {
    /// The people, by the names of their tokens.
    people: BTreeMap<String, String>,
    names: BTreeSet<String>,
    /// Where each token is named.
    places: Vec<(String, Place)>,
    /// The people, by the numbers of their accounts on Telegram.
    accounts: BTreeMap<i64, String>,
    /// The people, by the ids of their accounts on Matrix.
    on_matrix: BTreeMap<String, String>,
    /// The people, by their addresses of mail.
    addresses: BTreeMap<String, String>,
}

impl Section {
    pub(super) fn read(item: &Item<'_>, found: &mut Found) -> Self {
        let mut people = Self::default();
        let DeValue::Table(table) = item.get_ref() else {
            found.add(mismatch("the section `people`", "a table", item).advise(EXAMPLE));
            return people;
        };
        for (person, item) in table.iter() {
            if let Err(error) = check_name("person", person.get_ref(), MAX_NAME) {
                found.add(Defect::new(&Some(person.span()), error.to_string()));
            }
            people.names.insert(person.get_ref().to_string());
            people.add(person.get_ref(), item, found);
            if person.get_ref() == OWNER && people.people.get(OWNER).is_none_or(|person| person != OWNER) {
                let problem =
                    "the commands of this user decide as the token \"owner\", which a person of this name has to have";
                let advice = "write tokens = [\"owner\"], or name the person otherwise";
                found.add(Defect::new(&Some(person.span()), problem).advise(advice));
            }
        }
        people
    }

    fn add(&mut self, person: &str, item: &Item<'_>, found: &mut Found) {
        let Some(mut fields) = Fields::of("a person", item, EXAMPLE, found) else { return };
        let (account, on_matrix) = (fields.field("telegram"), fields.field("matrix"));
        let tokens = fields.field("tokens");
        if account.or(on_matrix).or(tokens).is_none() {
            let problem = "a person needs `tokens`, or an account: `telegram` or `matrix`";
            found.add(Defect::new(&Some(fields.place.clone()), problem).advise(EXAMPLE));
        }
        let tokens = tokens.map(|field| list(field, EXAMPLE, found));
        for item in tokens.unwrap_or_default() {
            let Some(token) = string("a token", "the name of one", item, found) else { continue };
            self.places.push((token.to_owned(), Some(item.span())));
            if let Some(other) = self.people.insert(token.to_owned(), person.to_owned()) {
                let problem = format!("the token {} is of {} too", quoted(token), quoted(&other));
                found.add(Defect::new(&Some(item.span()), problem).advise("name it once"));
            }
        }
        if let Some((key, item)) = account
            && let Some(number) = integer((key, item), "the number of an account on Telegram", found)
        {
            if number <= 0 {
                found.add(misfit(key, "the number of an account on Telegram, which is above zero", item));
            } else if let Some(other) = self.accounts.insert(number, person.to_owned()) {
                let problem = format!("the account {number} is of {} too", quoted(&other));
                found.add(Defect::new(&Some(item.span()), problem).advise("name it once"));
            }
        }
        for item in on_matrix.map(|field| list(field, EXAMPLE_MATRIX, found)).unwrap_or_default() {
            self.add_on_matrix(person, item, found);
        }
        // One of them need not be in a list.
        if let Some((key, item)) = fields.field("email") {
            let items = item.get_ref().as_array().map_or(std::slice::from_ref(item), AsRef::as_ref);
            items.iter().for_each(|item| self.add_address(person, (key, item), found));
        }
        fields.close(found);
    }

    fn add_on_matrix(&mut self, person: &str, item: &Item<'_>, found: &mut Found) {
        let Some(account) = string("an account", "the id of one on Matrix", item, found) else { return };
        if let Err(error) = MatrixConfig::check_account(account) {
            let expected = "a list of ids of accounts on Matrix";
            found.add(misfit("matrix", expected, item).advise(error.to_string()));
        } else if let Some(other) = self.on_matrix.insert(account.to_owned(), person.to_owned()) {
            let problem = format!("the account {} is of {} too", quoted(account), quoted(&other));
            found.add(Defect::new(&Some(item.span()), problem).advise("name it once"));
        }
    }

    fn add_address(&mut self, person: &str, (key, item): Field<'_>, found: &mut Found) {
        let Some(address) = item.get_ref().as_str().filter(|address| EmailConfig::check_address(address).is_ok())
        else {
            found.add(misfit(key, "an address of mail, or a list of them", item).advise(EXAMPLE_EMAIL));
            return;
        };
        let other = self.addresses.iter().find(|(other, _)| other.eq_ignore_ascii_case(address));
        if let Some((_, other)) = other {
            let problem = format!("the address {} is of {} too", quoted(address), quoted(other));
            found.add(Defect::new(&Some(item.span()), problem).advise("name it once"));
        } else {
            self.addresses.insert(address.to_owned(), person.to_owned());
        }
    }

    /// The addresses of mail, each with its person.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = (&str, &str)> {
        self.addresses.iter().map(|(address, person)| (&**address, &**person))
    }

    /// The accounts on Telegram, each with its person.
    pub(crate) fn accounts(&self) -> impl Iterator<Item = (i64, &str)> {
        self.accounts.iter().map(|(account, person)| (*account, &**person))
    }

    /// The accounts on Matrix, each with its person.
    pub(crate) fn on_matrix(&self) -> impl Iterator<Item = (&str, &str)> {
        self.on_matrix.iter().map(|(account, person)| (&**account, &**person))
    }

    /// The defects of tokens that are not among these, and are written almost as one of them. Others may be added later.
    pub(super) fn unknown<'s>(&'s self, known: &'s BTreeSet<String>) -> impl Iterator<Item = Defect> + use<'s> {
        let unknown = self.places.iter().filter(|(token, _)| token != OWNER && !known.contains(token));
        unknown.filter_map(|(token, place)| {
            let likely = typo_of(token, known.iter().map(String::as_str))?;
            let problem = format!("there is no token {}{}", quoted(token), did_you_mean(Some(likely)));
            Some(Defect::new(place, problem).advise("add it with `callboard tokens add`, or remove it here"))
        })
    }

    /// The people who have a token, or an account where people are asked.
    pub(super) fn able(&self, on_telegram: bool, on_matrix: bool) -> BTreeSet<String> {
        let accounts = self.accounts.values().filter(|_| on_telegram);
        let of_matrix = self.on_matrix.values().filter(|_| on_matrix);
        self.people.values().chain(accounts).chain(of_matrix).cloned().collect()
    }

    /// In whose name a token with this owner decides.
    pub(super) fn of_token<'n>(&'n self, token: &'n str, owner: Option<&'n str>) -> &'n str {
        self.people.get(token).map(String::as_str).or(owner).unwrap_or(token)
    }

    /// All people, also those without tokens.
    pub(super) fn names(&self) -> BTreeSet<String> {
        self.names.clone()
    }

    /// The tokens, each with its person.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = (String, String)> + use<> {
        self.people.clone().into_iter()
    }
}
