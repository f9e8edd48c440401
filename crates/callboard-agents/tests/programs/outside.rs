//! Processes and connections outside of the process of a test.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Pid, test_kill_process};
use tempfile::TempDir;
use tokio::task::{spawn_blocking, yield_now};
use tokio::time::timeout;

/// Longer than anything takes on a busy machine.
pub(crate) const AT_MOST: Duration = Duration::from_secs(60);

/// Waits until a process that callboard has started is gone, and its status taken.
pub(crate) async fn reaped(pid: Pid) {
    // There is no event for it.
    let wait = async {
        while test_kill_process(pid).is_ok() {
            yield_now().await;
        }
    };
    timeout(AT_MOST, wait).await.expect("it is still there");
}

/// A place that programs connect to, by `connect` of `wire.py`.
pub(crate) struct Wire {
    folder: TempDir,
    listener: UnixListener,
}

impl Wire {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("wire")).unwrap();
        Self { folder, listener }
    }

    /// What programs have in their variable `WIRE`.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("wire")
    }

    /// The next connection.
    pub(crate) async fn taken(&self) -> End {
        let listener = self.listener.try_clone().unwrap();
        spawn_blocking(move || End(listener.accept().unwrap().0)).await.unwrap()
    }
}

/// Our end of a connection.
pub(crate) struct End(UnixStream);

impl End {
    pub(crate) fn write(&mut self) {
        self.0.write_all(b"!").unwrap();
    }

    /// All that is written, once nobody holds the other end.
    pub(crate) async fn read(mut self) -> String {
        self.0.set_read_timeout(Some(AT_MOST)).unwrap();
        let mut text = String::new();
        let read = spawn_blocking(move || self.0.read_to_string(&mut text).map(|_| text)).await.unwrap();
        read.expect("somebody is still there")
    }

    /// Waits until nobody holds the other end, and nothing is written.
    pub(crate) async fn dropped(self) {
        assert_eq!(self.read().await, "");
    }

    /// The next line.
    pub(crate) async fn line(&self) -> String {
        let mut stream = self.0.try_clone().unwrap();
        stream.set_read_timeout(Some(AT_MOST)).unwrap();
        let read = move || {
            let (mut line, mut byte) = (Vec::new(), [0]);
            while stream.read(&mut byte).unwrap() == 1 && byte != *b"\n" {
                line.extend(byte);
            }
            String::from_utf8(line).unwrap()
        };
        spawn_blocking(read).await.unwrap()
    }
}
