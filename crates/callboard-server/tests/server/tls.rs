//! The server over TLS, with a client of its own and with clients that are none.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use callboard::env::Env;
use callboard::prelude::*;
use callboard_server::{HttpLimits, Server, Tls, Tokens};
use rustix::process::geteuid;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

const FIRST: [&str; 2] = [include_str!("certificates/first.pem"), include_str!("certificates/first.key")];
const SECOND: [&str; 2] = [include_str!("certificates/second.pem"), include_str!("certificates/second.key")];

/// A folder with a certificate and its key.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        files.write(FIRST);
        files
    }

    fn paths(&self) -> [PathBuf; 2] {
        ["cert.pem", "key.pem"].map(|name| self.0.path().join(name))
    }

    /// Replaces both, as programs that renew certificates do.
    fn write(&self, pair: [&str; 2]) {
        for (path, text) in self.paths().iter().zip(pair) {
            let new = path.with_extension("new");
            fs::write(&new, text).unwrap();
            fs::set_permissions(&new, Permissions::from_mode(0o600)).unwrap();
            fs::rename(new, path).unwrap();
        }
    }

    fn open(&self) -> Result<Tls, String> {
        let [certificate, key] = self.paths();
        Tls::open(&certificate, &key).map_err(|error| error.to_string().replace(self.0.path().to_str().unwrap(), "…"))
    }
}

struct Service {
    board: Callboard,
    port: u16,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<io::Result<()>>,
}

impl Service {
    async fn start(files: &Files, connections: usize) -> Self {
        let board = Callboard::builder().shutdown_grace(Duration::ZERO).start().await.unwrap();
        let mut limits = HttpLimits::default();
        limits.connections = connections;
        let server = Server::new(board.clone(), Tokens::new(Env::system())).limits(limits);
        let (listener, tls) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), files.open().unwrap());
        let port = listener.local_addr().unwrap().port();
        let (stop, stopped) = oneshot::channel();
        let serving =
            tokio::spawn(
                async move { server.serve_tls(listener, &tls, async { stopped.await.unwrap_or_default() }).await },
            );
        Self { board, port, stop, serving }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port)).await.unwrap()
    }

    /// The beginning of the answer for `/v1/health`, and the protocol, for a client that trusts this certificate.
    async fn health(&self, trusted: &str, protocols: &[&str]) -> io::Result<(String, Option<String>)> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(trusted.as_bytes()).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap();
        let mut config = config.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, self.connect().await).await?;
        let request = format!("GET /v1/health HTTP/1.1\r\nHost: localhost:{}\r\nConnection: close\r\n\r\n", self.port);
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let protocol =
            stream.get_ref().1.alpn_protocol().map(|protocol| String::from_utf8_lossy(protocol).into_owned());
        Ok((answer.lines().next().unwrap_or_default().to_owned(), protocol))
    }

    async fn end(self) {
        self.stop.send(()).unwrap();
        self.serving.await.unwrap().unwrap();
        self.board.shutdown().await;
    }
}

#[tokio::test]
async fn https_is_http_1_1_with_the_newest_certificate_that_can_be_used() {
    let files = Files::new();
    let service = Service::start(&files, 16).await;
    let expected = ("HTTP/1.1 200 OK".to_owned(), Some("http/1.1".to_owned()));
    assert_eq!(service.health(FIRST[0], &["h2", "http/1.1"]).await.unwrap(), expected);
    assert_eq!(service.health(FIRST[0], &[]).await.unwrap().1, None, "a client without the extension");
    assert!(service.health(FIRST[0], &["h2"]).await.is_err());
    assert!(service.health(SECOND[0], &[]).await.is_err());

    files.write([SECOND[0], FIRST[1]]);
    service.health(FIRST[0], &[]).await.expect("a key of another certificate is not used");
    files.write(SECOND);
    service.health(SECOND[0], &[]).await.expect("the files were replaced");
    assert!(service.health(FIRST[0], &[]).await.is_err());
    service.end().await;
}

#[tokio::test]
async fn clients_that_do_not_speak_tls_hold_no_connection() {
    let files = Files::new();
    let service = Service::start(&files, 1).await;
    for bytes in
        [&b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n"[..], &[0x16, 3, 1, 0xff, 0xff, 1], &[0; 70_000], &[]]
    {
        let mut stream = service.connect().await;
        let _ = stream.write_all(bytes).await;
        // Also one that goes away in the middle.
        let _ = stream.shutdown().await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(!answer.starts_with(b"HTTP"), "{bytes:?}");
        service.health(FIRST[0], &[]).await.unwrap();
    }
    service.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_handshake_that_does_not_continue_is_ended() {
    let files = Files::new();
    let service = Service::start(&files, 1).await;
    for bytes in [&b""[..], &[0x16, 3, 1, 1, 0, 1, 0]] {
        let mut stream = service.connect().await;
        stream.write_all(bytes).await.unwrap();
        let ended = timeout(Duration::from_secs(11), stream.read(&mut [0; 16])).await;
        assert!(matches!(ended.expect("it is open"), Ok(0) | Err(_)), "{bytes:?}");
    }
    // One that is under way does not keep the server.
    let _silent = service.connect().await;
    service.end().await;
}

#[test]
fn files_that_are_not_a_certificate_and_a_private_key_of_this_user_are_refused() {
    let files = Files::new();
    let [certificate, key] = files.paths();
    assert!(files.open().is_ok());
    for (mode, shown) in [(0o644, "0644"), (0o622, "0622"), (0o604, "0604")] {
        fs::set_permissions(&key, Permissions::from_mode(mode)).unwrap();
        let expected = format!("others may use the key: …/key.pem has the mode {shown}; run `chmod 0600 …/key.pem`");
        assert_eq!(files.open().unwrap_err(), expected);
    }
    fs::set_permissions(&key, Permissions::from_mode(0o640)).unwrap();
    // Root may let a group read it.
    assert_eq!(files.open().is_ok(), geteuid().is_root());
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    if geteuid().is_root() {
        chown(&key, Some(65_534), None).unwrap();
        let expected =
            "others may use the key: …/key.pem belongs to the user 65534, not to this one; use one of this user";
        assert_eq!(files.open().unwrap_err(), expected);
    }
    files.write([FIRST[1], FIRST[0]]);
    assert_eq!(files.open().unwrap_err(), "…/cert.pem has no certificate in PEM");
    files.write([FIRST[0], "-----BEGIN PRIVATE KEY-----\n"]);
    assert_eq!(files.open().unwrap_err(), "…/key.pem has no private key in PEM");
    files.write([FIRST[0], SECOND[1]]);
    assert!(files.open().unwrap_err().starts_with("the certificate and the key cannot be used: "));
    fs::remove_file(&key).unwrap();
    assert_eq!(files.open().unwrap_err(), "…/key.pem: No such file or directory (os error 2)");
    fs::create_dir(&key).unwrap();
    assert_eq!(files.open().unwrap_err(), "…/key.pem: it is not a file");
    fs::remove_file(certificate).unwrap();
}
