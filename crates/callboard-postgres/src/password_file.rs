//! Files of passwords, in the form of libpq's `.pgpass`: `host:port:database:user:password`, a line each.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::ConnectError;

/// More is not a file of passwords.
const MAX_FILE: u64 = 1 << 20;

/// `$PGPASSFILE`, or `~/.pgpass` if there is one.
pub(crate) fn default_path() -> Option<PathBuf> {
    let named = std::env::var_os("PGPASSFILE").filter(|path| !path.is_empty()).map(PathBuf::from);
    named.or_else(|| {
        let path = Path::new(&std::env::var_os("HOME")?).join(".pgpass");
        path.exists().then_some(path)
    })
}

/// The password for this host, port, database and user; `None` if no line is for them.
pub(crate) fn read(path: &Path, wanted: [String; 4]) -> Result<Option<String>, ConnectError> {
    let fail = |detail: String| ConnectError::File { path: path.display().to_string(), detail };
    let mut file = File::open(path).map_err(|error| fail(format!("the file of passwords cannot be read: {error}")))?;
    let metadata = file.metadata().map_err(|error| fail(error.to_string()))?;
    if !metadata.is_file() || metadata.mode() & 0o077 != 0 {
        return Err(fail(
            "a file of passwords has to be a file with mode 0600: others may read this one (chmod 600)".to_owned(),
        ));
    }
    let mut text = String::new();
    if let Err(error) = file.by_ref().take(MAX_FILE).read_to_string(&mut text) {
        return Err(fail(format!("the file of passwords cannot be read: {}", error.kind())));
    }
    Ok(find(&text, wanted.each_ref().map(String::as_str)))
}

/// The password of the first line whose fields are these, or `*`.
fn find(text: &str, wanted: [&str; 4]) -> Option<String> {
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let mut fields = fields(line).into_iter();
        let fits = wanted.iter().all(|want| fields.next().is_some_and(|field| field == "*" || field == *want));
        fields.next().filter(|_| fits)
    })
}

/// The fields between colons; `\` takes the next character as it is.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut characters) = (vec![String::new()], line.chars());
    while let Some(character) = characters.next() {
        match character {
            ':' => fields.push(String::new()),
            other => {
                let taken = if other == '\\' { characters.next() } else { Some(other) };
                if let (Some(field), Some(taken)) = (fields.last_mut(), taken) {
                    field.push(taken);
                }
            }
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_first_line_that_fits_has_the_password() {
        let text = "# comment\ndb:5432:x:other:no\ndb:*:x:u:a\\:b\\\\c\n*:*:*:*:last\n";
        assert_eq!(find(text, ["db", "5432", "x", "u"]).as_deref(), Some("a:b\\c"));
        assert_eq!(find(text, ["elsewhere", "1", "y", "z"]).as_deref(), Some("last"));
        assert_eq!(find("db:5432:x:u", ["db", "5432", "x", "u"]), None);
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pass");
        std::fs::write(&path, "*:*:*:*:canary\n").unwrap();
        let wanted = || ["db", "5432", "x", "u"].map(str::to_owned);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let refused = read(&path, wanted()).unwrap_err().to_string();
        assert!(refused.contains("mode 0600") && !refused.contains("canary"), "{refused}");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read(&path, wanted()).unwrap().as_deref(), Some("canary"));
    }
}
