//! TLS: a certificate and its key from files, which are read again when they change.

use std::fs::{File, Metadata};
use std::future::Future;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::routes::Server;
use crate::serving::serve_on;

/// How long a handshake may take, with the wait for one of those that are under way.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// The most handshakes at a time.
const MAX_HANDSHAKES: usize = 2_048;
/// The most bytes of a file.
const MAX_FILE: u64 = 1024 * 1024;

/// Why a certificate and a key cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{path}: {error}", path = path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// The key belongs to another user than this one or root, or others may read or change it.
    #[cfg(unix)]
    #[error("others may use the key: {0}")]
    Key(#[from] callboard_private::FolderError),
    /// A file does not have what it should.
    #[error("{path} has no {needed} in PEM", path = path.display())]
    Pem {
        /// The path.
        path: PathBuf,
        /// What it should have.
        needed: &'static str,
    },
    /// The certificate and the key cannot be used together.
    #[error("the certificate and the key cannot be used: {0}")]
    Pair(#[from] rustls::Error),
}

/// A certificate and its key, for [`Server::serve_tls`].
#[derive(Clone, Debug)]
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    held: Arc<Mutex<Held>>,
}

/// What was read last, and of which files.
#[derive(Debug)]
struct Held {
    files: [Option<Stamp>; 2],
    config: Arc<ServerConfig>,
}

/// What of a file changes when it is written or replaced.
#[derive(Debug, PartialEq, Eq)]
struct Stamp(u64, u64, Option<std::time::SystemTime>);

impl Tls {
    /// Reads a certificate, followed by those that lead to its issuer, and its key, from files in PEM. The key has to belong to this user
    /// or to root, and to be readable by nobody else; the group of a key of root may read it. The files are read again once they have
    /// changed; ones that cannot be used are reported in the log, and the earlier ones stay.
    ///
    /// # Errors
    /// See [`TlsError`].
    pub fn open(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let (certificate, key) = (certificate.to_owned(), key.to_owned());
        // Before they are read: a change meanwhile is noticed.
        let files = stamps(&certificate, &key);
        let config = read(&certificate, &key)?;
        Ok(Self { certificate, key, held: Arc::new(Mutex::new(Held { files, config })) })
    }

    /// What the next handshake uses.
    fn config(&self) -> Arc<ServerConfig> {
        let files = stamps(&self.certificate, &self.key);
        let mut held = self.held.lock();
        if held.files != files {
            held.files = files;
            match read(&self.certificate, &self.key) {
                Ok(config) => {
                    held.config = config;
                    tracing::info!("the certificate has changed and is used from now on");
                }
                Err(error) => {
                    tracing::error!(%error, "the certificate has changed and cannot be used: the earlier one is")
                }
            }
        }
        Arc::clone(&held.config)
    }
}

fn stamps(certificate: &Path, key: &Path) -> [Option<Stamp>; 2] {
    [certificate, key].map(|path| Some(Stamp::of(&path.metadata().ok()?)))
}

impl Stamp {
    #[cfg(unix)]
    fn of(found: &Metadata) -> Self {
        Self(std::os::unix::fs::MetadataExt::ino(found), found.len(), found.modified().ok())
    }

    #[cfg(not(unix))]
    fn of(found: &Metadata) -> Self {
        Self(0, found.len(), found.modified().ok())
    }
}

fn read(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    let none = |path: &Path, needed| TlsError::Pem { path: path.to_owned(), needed };
    let certificates: Result<Vec<CertificateDer<'static>>, _> =
        CertificateDer::pem_slice_iter(&bytes(certificate, |_| Ok(()))?).collect();
    let certificates = certificates.ok().filter(|found| !found.is_empty());
    let certificates = certificates.ok_or_else(|| none(certificate, "certificate"))?;
    let private = PrivateKeyDer::from_pem_slice(&bytes(key, |found| check_private(key, found))?);
    let private = private.map_err(|_| none(key, "private key"))?;
    let config =
        ServerConfig::builder_with_provider(Arc::new(default_provider())).with_safe_default_protocol_versions()?;
    let mut config = config.with_no_client_auth().with_single_cert(certificates, private)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn bytes(path: &Path, check: impl FnOnce(&Metadata) -> Result<(), TlsError>) -> Result<Vec<u8>, TlsError> {
    let cannot = |error| TlsError::File { path: path.to_owned(), error };
    let mut options = File::options();
    // Opening a pipe does not wait for its writer.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    let file = options.read(true).open(path).map_err(cannot)?;
    let found = file.metadata().map_err(cannot)?;
    if !found.is_file() {
        return Err(cannot(io::Error::other("it is not a file")));
    }
    check(&found)?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE).read_to_end(&mut bytes).map_err(cannot)?;
    Ok(bytes)
}

#[cfg(unix)]
fn check_private(path: &Path, found: &Metadata) -> Result<(), TlsError> {
    Ok(callboard_private::check(found, path, callboard_private::Owner::UserOrRoot)?)
}

#[cfg(not(unix))]
fn check_private(_: &Path, _: &Metadata) -> Result<(), TlsError> {
    Ok(())
}

impl Server {
    /// As [`Server::serve`], over TLS 1.2 or 1.3. A handshake may take 10 s.
    ///
    /// # Errors
    /// The listener has no address, as after its socket was closed.
    pub async fn serve_tls(&self, listener: TcpListener, tls: &Tls, stop: impl Future<Output = ()>) -> io::Result<()> {
        listener.local_addr()?;
        let server = self.renewed();
        let handshakes = Arc::new(Semaphore::new(MAX_HANDSHAKES));
        let secured = |stream| {
            let (tls, handshakes) = (tls.clone(), Arc::clone(&handshakes));
            async move {
                let handshake = async {
                    let _permit = handshakes.acquire().await;
                    TlsAcceptor::from(tls.config()).accept(stream).await
                };
                timeout(HANDSHAKE_TIME, handshake).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            }
        };
        serve_on(listener, secured, server.router(), &server.context, stop).await;
        Ok(())
    }
}
