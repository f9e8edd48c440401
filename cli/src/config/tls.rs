//! The files with the certificate of a server and its key.

use std::path::{Path, PathBuf};

use callboard_documents::{Defect, Place};
use callboard_server::{Tls, TlsError};

use super::secret_source::{MOVE_AWAY, Unusable, is_within};
use crate::exit::Exit;
use crate::page::shown_path;

/// The files, and where the settings name them.
#[derive(Debug)]
pub(crate) struct TlsFiles {
    pub(super) certificate: Named,
    pub(super) key: Named,
}

/// A file, and where the settings name it; nowhere if an option or a variable does.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) file: PathBuf,
    pub(super) place: Place,
    /// The file of settings with line and column, as errors begin.
    pub(super) at: String,
}

impl TlsFiles {
    pub(crate) fn certificate(&self) -> &Path {
        &self.certificate.file
    }

    pub(crate) fn key(&self) -> &Path {
        &self.key.file
    }

    /// The certificate with its key. Tools of agents work in `root`.
    ///
    /// # Errors
    /// They could read the key, or the files cannot be used.
    pub(crate) fn open(&self, root: &Path) -> Result<Tls, Unusable> {
        let Self { certificate, key } = self;
        if is_within(&key.file, root) {
            let problem = format!(
                "the key {} is in the folder that tools of agents work in, so they could read it",
                shown_path(&key.file)
            );
            return Err(key.unusable(Exit::Denied, problem, Some(MOVE_AWAY.to_owned())));
        }
        Tls::open(&certificate.file, &key.file).map_err(|error| {
            let problem = format!("TLS: {error}");
            let (named, advice) = match &error {
                TlsError::File { path, .. } | TlsError::Pem { path, .. } if *path == key.file => {
                    (key, Some("name the file with the key of the certificate, `tls_key`"))
                }
                TlsError::Key(_) => (key, None),
                TlsError::Pair(_) => (certificate, Some("name a certificate and the key that belongs to it")),
                _ => (certificate, Some("name the file with the certificate, `tls_cert`")),
            };
            named.unusable(exit_of(&error), problem, advice.map(str::to_owned))
        })
    }
}

impl Named {
    fn unusable(&self, exit: Exit, problem: String, advice: Option<String>) -> Unusable {
        let defect = Defect { advice, ..Defect::new(&self.place, problem) };
        Unusable { defect, at: self.at.as_str().into(), exit, unset: None }
    }
}

fn exit_of(error: &TlsError) -> Exit {
    match error {
        TlsError::File { error, .. } => Exit::of_file(error),
        TlsError::Key(_) => Exit::Denied,
        TlsError::Pem { .. } | TlsError::Pair(_) => Exit::Usage,
        // None so far.
        _ => Exit::Failed,
    }
}
