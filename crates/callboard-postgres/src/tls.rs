//! TLS by rustls: the server's certificate has to be valid and of its name.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect};
use tokio_rustls::TlsConnector;

use crate::ConnectError;

/// How a connection is protected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Security {
    /// Not at all: on a Unix socket, or a loopback address.
    Plain,
    /// By TLS, with these root certificates, or the system's.
    Verified { roots: Option<PathBuf> },
}

/// What begins TLS on a connection; [`Security::Plain`] never asks it to.
#[derive(Clone)]
pub(crate) struct Tls(TlsConnector);

impl Tls {
    /// For connections to `address`, which errors name.
    pub(crate) fn new(security: &Security, address: &str) -> Result<Self, ConnectError> {
        let fail = |detail: String| ConnectError::Tls { address: address.to_owned(), detail };
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| fail(error.to_string()))?;
        let builder = match security {
            Security::Plain => builder.with_root_certificates(rustls::RootCertStore::empty()),
            Security::Verified { roots: Some(path) } => builder.with_root_certificates(read_roots(path)?),
            Security::Verified { roots: None } => {
                builder.with_platform_verifier().map_err(|error| fail(error.to_string()))?
            }
        };
        let mut client = builder.with_no_client_auth();
        client.alpn_protocols = vec![b"postgresql".to_vec()];
        Ok(Self(TlsConnector::from(Arc::new(client))))
    }
}

fn read_roots(path: &Path) -> Result<rustls::RootCertStore, ConnectError> {
    let fail = |detail: String| ConnectError::File { path: path.display().to_string(), detail };
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| fail(format!("root certificates cannot be read: {error}")))?;
    let mut roots = rustls::RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(certificates);
    if added == 0 {
        return Err(fail("the file has no root certificate in PEM".to_owned()));
    }
    Ok(roots)
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Tls {
    type Stream = Encrypted<S>;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<Handshake> {
        // The name of a socket is empty.
        Ok(Handshake { connector: self.0.clone(), server: ServerName::try_from(host.to_owned()).ok() })
    }
}

/// One handshake, with the server of a name.
pub(crate) struct Handshake {
    connector: TlsConnector,
    server: Option<ServerName<'static>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Handshake {
    type Stream = Encrypted<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let server =
                self.server.ok_or_else(|| io::Error::other("the host has no name that a certificate could have"))?;
            self.connector.connect(server, stream).await.map(Encrypted)
        })
    }
}

/// A connection with TLS.
pub(crate) struct Encrypted<S>(tokio_rustls::client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> tokio_postgres::tls::TlsStream for Encrypted<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
