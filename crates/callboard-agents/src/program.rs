//! Reads a program from a document: its command line and its variables.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use callboard_documents::toml::{DeValue, Field, Item, list, string};
use callboard_documents::{Defect, Found, Place, Placed};
use callboard_text::quoted;

/// The variables of the board's own environment that every program receives, besides those that begin with `LC_`.
const ALWAYS_PASSED: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];

/// The `PATH` for programs if none is set.
const USUAL_PATH: &str = "/bin:/usr/bin";

/// Variables with these endings of their names have secret values.
const ENDS_OF_SECRETS: [&str; 5] = ["TOKEN", "SECRET", "PASSWORD", "API_KEY", "PRIVATE_KEY"];

/// Whether every program receives this variable of the board's own environment.
pub(super) fn is_always_passed(variable: &str) -> bool {
    ALWAYS_PASSED.contains(&variable) || variable.starts_with("LC_")
}

/// A program and its arguments. `example` shows the syntax.
pub(super) fn command(field: Field<'_>, example: &str, found: &mut Found) -> Option<Vec<String>> {
    let before = found.len();
    let items = list(field, example, found);
    let words: Vec<String> = items
        .iter()
        .filter_map(|item| string("a word of `command`", "a string", item, found))
        .map(str::to_owned)
        .collect();
    if found.len() > before {
        return None;
    }
    if words.first().is_none_or(|program| program.trim().is_empty()) {
        let defect = Defect::new(&Some(field.1.span()), "`command` names no program");
        found.add(defect.advise(example));
        return None;
    }
    if words.iter().any(|word| word.contains('\0')) {
        found.add(Defect::new(&Some(field.1.span()), "`command` has a NUL, which no program can be given"));
        return None;
    }
    Some(words)
}

/// Where a program without a `/` in its name is looked for, in order: in `PATH` of its own variables, or else of this process. Places that
/// are relative are so to the folder that it starts in.
pub(super) fn places(program: &str, variables: &[(String, String)], folder: &Path) -> Vec<PathBuf> {
    let own = variables.iter().find(|(name, _)| name == "PATH").map(|(_, value)| OsString::from(value));
    let path = own.or_else(|| env::var_os("PATH")).unwrap_or_else(|| USUAL_PATH.into());
    env::split_paths(&path).map(|place| folder.join(place).join(program)).collect()
}

/// The folder that a command starts in, and the paths that it names, which need not exist: every word of it and of its variables is taken for
/// one, and a program without a `/` is wherever it may be found. Of a folder in a variable there are its entries too: interpreters load what
/// is in `PYTHONPATH`. Absolute paths outside of this folder and of `project` are left out.
pub(super) fn paths(
    command: &[String],
    variables: &[(String, String)],
    (project, folder): (&Path, &Path),
) -> Vec<PathBuf> {
    let program = command.first().filter(|program| !program.contains('/'));
    let programs = program.into_iter().flat_map(|program| places(program, variables, folder));
    let words = command.iter().map(|word| folder.join(word));
    let named = variables.iter().filter(|(name, _)| name != "PATH").flat_map(|(_, value)| words_of(value));
    let named = named.map(|word| folder.join(word)).flat_map(|path| {
        let entries: Vec<PathBuf> = entries(&path).filter(|_| path != folder).collect();
        std::iter::once(path).chain(entries)
    });
    let paths = programs.chain(words).chain(named);
    let paths = paths.filter(|path| path.starts_with(project) || path.starts_with(folder));
    std::iter::once(folder.to_owned()).chain(paths).collect()
}

/// What may be a path in the value of a variable: the words of lists and of options, as in `--require ./hook.js`, `-I./lib` or
/// `-javaagent:agent.jar`.
fn words_of(value: &str) -> impl Iterator<Item = &str> {
    let words = value.split([':', ';', ',', '=', ' ', '\t', '\n', '"', '\'']).filter(|word| !word.is_empty());
    words.flat_map(|word| {
        std::iter::once(word).chain(word.get(2..).filter(|rest| word.starts_with('-') && !rest.is_empty()))
    })
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    folder.read_dir().into_iter().flatten().flatten().map(|entry| entry.path())
}

/// Variables with values that are no secrets. Errors do not show their lines, because a user may have written a secret there.
pub(super) fn environment(item: &Item<'_>, header: &Place, found: &mut Found) -> Vec<(String, String)> {
    let DeValue::Table(table) = item.get_ref() else {
        found.add(Defect::new(header, "`env` must be a table").advise("write env = { NAME = \"value\" }"));
        return Vec::new();
    };
    let mut variables = Vec::new();
    for (name, item) in table.iter() {
        let name = name.get_ref().to_string();
        let upper = name.to_ascii_uppercase();
        if ENDS_OF_SECRETS.iter().any(|end| upper.ends_with(end)) {
            let problem = format!("`env` has a value for {}, whose name says that it is secret", quoted(&name));
            let advice = "leave it out here, set it in the environment, and name it in `env_from`";
            found.add(Defect::new(header, problem).advise(advice));
            continue;
        }
        let is_name = !name.is_empty() && !name.contains(['=', '\0']);
        match item.get_ref().as_str() {
            Some(value) if is_name && !value.contains('\0') => variables.push((name, value.to_owned())),
            Some(_) => {
                let problem =
                    format!("the variable {} of `env` has a name or a value that none can have", quoted(&name));
                found.add(Defect::new(header, problem).advise("leave out `=` in names, and NUL"));
            }
            None => {
                let problem = format!("the variable {} of `env` must be a string", quoted(&name));
                found.add(Defect::new(header, problem).advise("write its value in quotes"));
            }
        }
    }
    variables
}

/// The name of a variable with a secret. An invalid name may be the secret itself, and is not shown.
pub(super) fn variable(name: &Placed<String>, header: &Place, found: &mut Found) -> Option<String> {
    if is_variable(&name.value) {
        return Some(name.value.clone());
    }
    let problem = "a secret is named by the variable of the environment that it is in, as GITHUB_TOKEN; it is not \
                   written here";
    found.add(Defect::new(header, problem));
    None
}

/// A list of names of variables.
pub(super) fn variables(field: Field<'_>, header: &Place, found: &mut Found) -> Vec<String> {
    let names = words(field, "the name of a variable", found);
    names.iter().filter_map(|name| variable(name, header, found)).collect()
}

/// A list of texts with their positions. `what` names one of them in errors.
pub(super) fn words((key, item): Field<'_>, what: &str, found: &mut Found) -> Vec<Placed<String>> {
    let advice = format!("write {key} = [\"…\", \"…\"]");
    let items = list((key, item), &advice, found);
    let one = |item: &Item<'_>| Some(Placed::at(string(what, "a string", item, found)?.to_owned(), item.span()));
    items.iter().filter_map(one).collect()
}

/// Whether it can be the name of a variable. Other texts may be secrets that were written in its place.
pub(super) fn is_variable(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let begins_well = name.starts_with(|c: char| c.is_ascii_uppercase() || c == '_');
    begins_well && name.len() <= 100 && name.chars().all(is_plain)
}
