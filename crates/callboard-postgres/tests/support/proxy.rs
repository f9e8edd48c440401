//! A proxy in front of a server's socket, which cuts connections at moments that a test chooses.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

/// What happens to the next statement that writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// It is passed on, and its answer too.
    Nothing,
    /// The connection is cut before the server has it.
    Statement,
    /// The connection is cut when the server has answered.
    Answer,
    /// The connection is cut when the server has it; the proxy does not wait for its answer.
    Unanswered,
}

pub(crate) struct Proxy {
    pub(crate) folder: PathBuf,
    next: Arc<Mutex<Cut>>,
    open: watch::Sender<bool>,
    passed: Arc<Mutex<Vec<u8>>>,
}

impl Proxy {
    /// A proxy with a socket in `folder` for the server with its socket in `server`.
    pub(crate) fn start(folder: &Path, server: &Path) -> Self {
        let listener = UnixListener::bind(folder.join(".s.PGSQL.5432")).unwrap();
        let (next, open) = (Arc::new(Mutex::new(Cut::Nothing)), watch::Sender::new(true));
        let passed = Arc::new(Mutex::new(Vec::new()));
        let proxy = Self {
            folder: folder.to_owned(),
            next: Arc::clone(&next),
            open: open.clone(),
            passed: Arc::clone(&passed),
        };
        let server = server.join(".s.PGSQL.5432");
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (server, next, mut is_open) = (server.clone(), Arc::clone(&next), open.subscribe());
                let passed = Arc::clone(&passed);
                tokio::spawn(async move {
                    tokio::select! {
                        _ = pass(client, &server, &next, &passed) => {}
                        _ = is_open.wait_for(|open| !open) => {}
                    }
                });
            }
        });
        proxy
    }

    pub(crate) fn cut_next(&self, cut: Cut) {
        *self.next.lock() = cut;
    }

    /// Whether the last cut was made.
    pub(crate) fn has_cut(&self) -> bool {
        *self.next.lock() == Cut::Nothing
    }

    /// How often this text was in what clients have sent since this was asked last.
    pub(crate) fn count(&self, text: &str) -> usize {
        let passed = std::mem::take(&mut *self.passed.lock());
        passed.windows(text.len()).filter(|window| *window == text.as_bytes()).count()
    }

    /// Cuts all connections, and every new one at once, until it is set to `true` again.
    pub(crate) fn set_open(&self, open: bool) {
        self.open.send_replace(open);
    }
}

/// Passes bytes on in both directions until one side ends, or the connection is cut.
async fn pass(
    mut client: UnixStream,
    server: &Path,
    next: &Mutex<Cut>,
    passed: &Mutex<Vec<u8>>,
) -> std::io::Result<()> {
    let mut server = UnixStream::connect(server).await?;
    let (mut from_client, mut from_server) = (vec![0; 65_536], vec![0; 65_536]);
    loop {
        tokio::select! {
            read = client.read(&mut from_client) => {
                let bytes = &from_client[..read?];
                let writes = bytes.windows(9).any(|window| window == b"\".write($");
                let cut = if writes { std::mem::replace(&mut *next.lock(), Cut::Nothing) } else { Cut::Nothing };
                if bytes.is_empty() || cut == Cut::Statement {
                    return Ok(());
                }
                passed.lock().extend_from_slice(bytes);
                server.write_all(bytes).await?;
                match cut {
                    Cut::Nothing | Cut::Statement => {}
                    // The server sends its answer when it has committed.
                    Cut::Answer => return server.read(&mut from_server).await.map(drop),
                    Cut::Unanswered => return Ok(()),
                }
            }
            read = server.read(&mut from_server) => {
                let bytes = &from_server[..read?];
                if bytes.is_empty() {
                    return Ok(());
                }
                client.write_all(bytes).await?;
            }
        }
    }
}
