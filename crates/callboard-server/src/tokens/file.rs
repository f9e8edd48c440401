//! Tokens in a file, which other processes of this user may change at any time.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callboard::messages::Timestamp;
use callboard_documents::json;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Known, Scope, Table, Terms, TokenError, hash};
use callboard_private::{Folder, FolderError, contents};

/// The version of the file's format. Version 1 had no names of revoked tokens, version 2 no scopes for facts.
const VERSION: u32 = 3;
/// The file beside it with the secret of the owner's token.
const OWNER_FILE: &str = "owner-token";

/// The file with the secret of a webhook.
fn webhook_file(webhook: Uuid) -> String {
    format!("webhook-{webhook}")
}

/// The file, and which version of it was read last.
pub(super) struct TokenFile {
    folder: PathBuf,
    name: String,
    path: PathBuf,
    seen: Mutex<Option<Seen>>,
}

/// What a file was when it was read. It stays open: while it does, no other file has its inode.
struct Seen {
    identity: Option<Identity>,
    _file: Option<File>,
}

/// Device, inode, size, and seconds and nanoseconds of the last change.
type Identity = [i128; 5];

fn identity(found: &fs::Metadata) -> Identity {
    [found.dev().into(), found.ino().into(), found.size().into(), found.mtime().into(), found.mtime_nsec().into()]
}

/// The lock of the folder, without which nothing is written.
pub(super) struct Locked(Folder);

impl TokenFile {
    pub(super) fn open(path: &Path) -> Result<Self, TokenError> {
        let unnamed = || FolderError::Kind { path: path.to_owned(), needed: "file" };
        let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(unnamed)?.to_owned();
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = Folder::create(folder)?.path().to_owned();
        Ok(Self { path: folder.join(&name), folder, name, seen: Mutex::default() })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn lock(&self) -> Result<Locked, TokenError> {
        Ok(Locked(Folder::create(&self.folder)?.locked()?))
    }

    /// Calls `install` with the tokens of the file, if it is another than the one that was read last.
    pub(super) fn refresh(&self, install: impl FnOnce(Table)) -> Result<(), TokenError> {
        let mut seen = self.seen.lock();
        let now = fs::symlink_metadata(&self.path).ok().map(|found| identity(&found));
        if seen.as_ref().is_some_and(|seen| seen.identity == now) {
            return Ok(());
        }
        let file = match Folder::open(&self.folder) {
            Ok(folder) => folder.file(&self.name)?,
            // Removed with all that was in it.
            Err(FolderError::Io { error, .. }) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(error.into()),
        };
        let (identity, table) = match &file {
            Some(file) => {
                let found = file.metadata().map_err(|error| FolderError::io(&self.path, error))?;
                (Some(identity(&found)), parse(&contents(file, &self.path)?, &self.path)?)
            }
            None => (None, Table::default()),
        };
        install(table);
        *seen = Some(Seen { identity, _file: file });
        Ok(())
    }

    pub(super) fn write(&self, locked: &Locked, table: &Table) -> Result<(), TokenError> {
        Ok(locked.0.write(&self.name, &text(table))?)
    }

    /// The secret of the owner's token.
    pub(super) fn owner_secret(&self, locked: &Locked) -> Result<Option<String>, TokenError> {
        let bytes = locked.0.read(OWNER_FILE)?;
        Ok(bytes.and_then(|bytes| Some(String::from_utf8(bytes).ok()?.trim().to_owned())))
    }

    pub(super) fn webhook_secret(&self, webhook: Uuid) -> Result<Option<String>, TokenError> {
        let bytes = Folder::open(&self.folder)?.read(&webhook_file(webhook))?;
        Ok(bytes.and_then(|bytes| Some(String::from_utf8(bytes).ok()?.trim_end().to_owned())))
    }

    pub(super) fn write_webhook_secret(&self, webhook: Uuid, secret: &str) -> Result<(), TokenError> {
        Ok(Folder::create(&self.folder)?.write(&webhook_file(webhook), format!("{secret}\n").as_bytes())?)
    }

    pub(super) fn remove_webhook_secret(&self, webhook: Uuid) -> Result<(), TokenError> {
        Ok(Folder::open(&self.folder)?.remove(&webhook_file(webhook))?)
    }

    pub(super) fn write_owner_secret(&self, locked: &Locked, secret: &str) -> Result<(), TokenError> {
        Ok(locked.0.write(OWNER_FILE, format!("{secret}\n").as_bytes())?)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    tokens: Vec<Entry>,
    /// The owners of tokens that were revoked, by their names.
    #[serde(default)]
    revoked: BTreeMap<Arc<str>, Option<String>>,
}

/// A token, as it is stored.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    sha256: String,
    scopes: Vec<Scope>,
    created_at_ms: u64,
    expires_at_ms: Option<u64>,
    is_owner: bool,
    #[serde(default, skip_serializing_if = "Terms::is_default")]
    terms: Terms,
}

impl Terms {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

fn parse(bytes: &[u8], path: &Path) -> Result<Table, TokenError> {
    let damaged = |why: String| TokenError::Damaged { path: path.to_owned(), why };
    let value = json::parse(bytes).map_err(|error| damaged(error.to_string()))?;
    let document: Document = serde_json::from_value(value).map_err(|error| damaged(error.to_string()))?;
    if !(1..=VERSION).contains(&document.version) {
        return Err(damaged(format!("its version is {}; this program reads 1 to {VERSION}", document.version)));
    }
    let mut table = Table { known: BTreeMap::new(), revoked: document.revoked };
    for Entry { name, sha256, scopes, created_at_ms, expires_at_ms, is_owner, terms } in document.tokens {
        let digest = digest(&sha256).ok_or_else(|| damaged(format!("`sha256` of {name} has not 64 digits")))?;
        let known = Known {
            hash: digest,
            // Also those that came after it was made.
            scopes: Arc::new(if is_owner { Scope::ALL.into() } else { scopes.into_iter().collect() }),
            created_at: Timestamp::from_millis(created_at_ms),
            expires_at: expires_at_ms.map(Timestamp::from_millis),
            is_owner,
            terms: terms.into(),
        };
        if table.revoked.contains_key(&*name) || table.known.insert(name.as_str().into(), known).is_some() {
            return Err(damaged(format!("{name} is there twice")));
        }
    }
    Ok(table)
}

fn text(table: &Table) -> Vec<u8> {
    let entry = |(name, known): (&Arc<str>, &Known)| Entry {
        name: name.to_string(),
        sha256: known.hash.iter().map(|byte| format!("{byte:02x}")).collect(),
        scopes: known.scopes.iter().copied().collect(),
        created_at_ms: known.created_at.as_millis(),
        expires_at_ms: known.expires_at.map(Timestamp::as_millis),
        is_owner: known.is_owner,
        terms: (*known.terms).clone(),
    };
    let document =
        Document { version: VERSION, tokens: table.known.iter().map(entry).collect(), revoked: table.revoked.clone() };
    let mut bytes = serde_json::to_vec_pretty(&document).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// The bytes of a hash, from its digits.
pub(crate) fn digest(text: &str) -> Option<[u8; 32]> {
    let mut digest = hash("");
    if text.len() != 2 * digest.len() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (number, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * number..2 * number + 2)?, 16).ok()?;
    }
    Some(digest)
}
