//! A pooler in front of the server of this process. It ends with the process.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Child;
use std::sync::mpsc;
use std::thread;

use super::Server;

/// PgBouncer, which gives a connection to another client after each transaction.
pub(crate) struct Pooler {
    folder: tempfile::TempDir,
    process: Child,
}

impl Pooler {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let server = Server::of_this_process().folder.display();
        let settings = format!(
            "[databases]\n* = host={server} port=5432\n[pgbouncer]\nlisten_addr =\nlisten_port = 5432\nunix_socket_dir = {0}\n\
             auth_type = trust\nauth_file = {0}/users\npool_mode = transaction\ndefault_pool_size = 2\nlogfile = {0}/log\n",
            folder.path().display()
        );
        fs::write(folder.path().join("settings"), settings).unwrap();
        fs::write(folder.path().join("users"), "\"postgres\" \"\"\n").unwrap();
        super::give_away(folder.path());
        let process = run(folder.path());
        Self { folder, process }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Ends it, with all its connections, and starts it again.
    pub(crate) fn restart(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        let _ = fs::remove_file(self.folder().join(".s.PGSQL.5432"));
        self.process = run(self.folder());
    }
}

/// Waits until it answers.
fn run(folder: &Path) -> Child {
    let (program, settings) = (super::program("pgbouncer"), folder.join("settings"));
    let (send, started) = mpsc::channel();
    // Of a thread that lives as long as the process: the signal comes when the thread that has started a process ends.
    thread::spawn(move || {
        let pooler = super::setpriv(&["--pdeathsig", "KILL"]).arg(program).arg("-q").arg(settings).spawn();
        let _ = send.send(pooler);
        loop {
            thread::park();
        }
    });
    let process = started.recv().unwrap().unwrap();
    while UnixStream::connect(folder.join(".s.PGSQL.5432")).is_err() {
        thread::yield_now();
    }
    process
}
