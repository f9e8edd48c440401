//! A PostgreSQL server for the tests of one process. It ends with the process, also when that is killed.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;

pub(crate) mod disk;
pub(crate) mod pooler;
pub(crate) mod proxy;
pub(crate) mod writing;

use disk::Small;
use parking_lot::Mutex;

use callboard_postgres::{Migration, PostgresConfig, migrate};

/// A running server.
pub(crate) struct Server {
    /// The folder of its socket and its data.
    pub(crate) folder: PathBuf,
    /// Who waits for its end.
    pub(crate) pid: u32,
    log: Log,
}

/// What a server has logged since it was ready.
type Log = Arc<Mutex<String>>;

const NAME: &str = "callboard-pg-";

impl Server {
    /// The server of this process.
    pub(crate) fn of_this_process() -> &'static Self {
        static SERVER: OnceLock<Server> = OnceLock::new();
        SERVER.get_or_init(|| Self::start(&[]))
    }

    /// The folder of the socket of the server of the process that has started this one.
    pub(crate) fn of_parent() -> PathBuf {
        let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
        std::env::temp_dir().join(format!("{NAME}{parent}-0"))
    }

    /// Starts a server with these settings, `name=value`.
    pub(crate) fn start(settings: &[&str]) -> Self {
        Self::start_on(Small::Nothing, settings)
    }

    /// Starts a server of which a part is on a small disk of its own.
    pub(crate) fn start_on(small: Small, settings: &[&str]) -> Self {
        let folder = new_folder();
        let data = folder.join("data");
        let initialized = as_nobody(&program("initdb"))
            .args(["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--wal-segsize=1", "--no-sync", "-D"])
            .arg(&data)
            .output()
            .unwrap();
        assert!(initialized.status.success(), "{}", String::from_utf8_lossy(&initialized.stderr));
        let (pid, log) = run(&folder, small, settings);
        Self { folder, pid, log }
    }

    /// Starts a standby of this server, with these settings of its own.
    pub(crate) fn standby(&self, name: &str) -> Self {
        let folder = new_folder();
        let copied = as_nobody(&program("pg_basebackup"))
            .args([
                "--write-recovery-conf",
                "--checkpoint=fast",
                "--wal-method=stream",
                "--no-sync",
                "-U",
                "postgres",
                "-h",
            ])
            .arg(&self.folder)
            .arg("-D")
            .arg(folder.join("data"))
            .output()
            .unwrap();
        assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
        let (pid, log) = run(&folder, Small::Nothing, &[&format!("cluster_name={name}")]);
        Self { folder, pid, log }
    }

    /// A configuration for the user `postgres` and this schema, through the socket.
    pub(crate) fn config(&self, schema: &str) -> PostgresConfig {
        config_at(&self.folder, schema)
    }

    /// The settings for a new schema.
    pub(crate) async fn fresh(&self) -> PostgresConfig {
        self.config(&self.fresh_schema().await)
    }

    /// The name of a new schema.
    pub(crate) async fn fresh_schema(&self) -> String {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let schema = format!("test_{}", MADE.fetch_add(1, Ordering::SeqCst));
        migrate(&self.config(&schema), &Migration::default()).await.unwrap();
        schema
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@/postgres?host={}", self.folder.display())
    }

    /// A connection of a test's own.
    pub(crate) async fn client(&self) -> tokio_postgres::Client {
        connect(&self.url()).await
    }

    /// Lets no file of the server grow beyond this size, also of its processes that run.
    pub(crate) async fn limit_files(&self, size: Option<u64>) {
        let query = "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()";
        let rows = self.client().await.query(query, &[]).await.unwrap();
        let pids = rows.iter().map(|row| row.get(0)).chain([self.postmaster().as_raw_nonzero().get()]);
        let size = size.map_or("unlimited".to_owned(), |size| size.to_string());
        for pid in pids {
            // As their user: root may not have the right.
            let mut command = as_nobody(Path::new("prlimit"));
            command.arg(format!("--pid={pid}")).arg(format!("--fsize={size}:unlimited"));
            let is_set = command.status().unwrap().success();
            assert!(is_set || !Path::new(&format!("/proc/{pid}")).exists(), "no limit can be set for {pid}");
        }
    }

    fn postmaster(&self) -> rustix::process::Pid {
        let lines = fs::read_to_string(self.folder.join("data/postmaster.pid")).unwrap();
        rustix::process::Pid::from_raw(lines.lines().next().unwrap().parse().unwrap()).unwrap()
    }

    /// Whether the server has logged this since it was ready.
    pub(crate) fn has_logged(&self, text: &str) -> bool {
        self.log.lock().contains(text)
    }

    /// Crashes the server, which then starts again.
    pub(crate) fn crash(&self) {
        fs::write(self.folder.join("again"), "").unwrap();
        self.end();
    }

    /// Crashes the server for good.
    pub(crate) fn end(&self) {
        rustix::process::kill_process(self.postmaster(), rustix::process::Signal::QUIT).unwrap();
    }
}

fn new_folder() -> PathBuf {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let number = MADE.fetch_add(1, Ordering::SeqCst);
    let folder = std::env::temp_dir().join(format!("{NAME}{}-{number}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    give_away(&folder);
    folder
}

/// Runs the server of a folder until this process ends; waits until it answers.
fn run(folder: &Path, small: Small, settings: &[&str]) -> (u32, Log) {
    // The shell removes the folder at the end, whatever ends the server: a request, or the death of this process.
    const SCRIPT: &str = r#"
        folder=$1; shift
        trap 'rm -f "$folder/again" "$folder/keep"; kill -QUIT $server' TERM
        while true; do
            "$0" -D "$folder/data" -k "$folder" "$@" 2>&1 & server=$!
            wait $server; wait $server
            [ -e "$folder/keep" ] || rm "$folder/again" 2>/dev/null || break
        done
        [ -n "$CALLBOARD_KEEP_FOLDER" ] || rm -rf "$folder"
    "#;
    let (send, started) = mpsc::channel();
    let kept = Log::default();
    let logged = Arc::clone(&kept);
    let (folder, settings): (PathBuf, Vec<String>) =
        (folder.to_owned(), settings.iter().flat_map(|setting| ["-c".to_owned(), (*setting).to_owned()]).collect());
    // Of a thread that lives as long as the process: the signal comes when the thread that has started a process ends.
    thread::spawn(move || {
        let mut server = small
            .on_its_disk(&folder, setpriv(&["--pdeathsig", "TERM"]))
            .args(["sh", "-c", SCRIPT])
            .arg(program("postgres"))
            .arg(&folder)
            .args([
                "-c",
                "listen_addresses=",
                "-c",
                "fsync=on",
                "-c",
                "shared_buffers=32MB",
                "-c",
                "logging_collector=off",
            ])
            .args(settings)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let mut log = String::new();
        let is_ready = lines.by_ref().map_while(Result::ok).any(|line| {
            log = format!("{log}\n{line}");
            // A standby accepts those that read.
            line.contains("ready to accept ")
        });
        let _ = send.send(if is_ready { Ok(server.id()) } else { Err(log) });
        for line in lines.map_while(Result::ok) {
            eprintln!("postgres: {line}");
            *logged.lock() += &format!("{line}\n");
        }
        let _ = server.wait();
    });
    match started.recv() {
        Ok(Ok(pid)) => (pid, kept),
        Ok(Err(log)) => panic!("the server does not start: {log}"),
        Err(error) => panic!("the server is not started: {error}"),
    }
}

pub(crate) fn config_at(folder: &Path, schema: &str) -> PostgresConfig {
    let url = format!("postgres://postgres@/postgres?host={}", folder.display());
    PostgresConfig::from_url(&url).and_then(|config| config.schema(schema)).unwrap()
}

pub(crate) async fn connect(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Waits until so many batches wait for locks.
pub(crate) async fn waits(client: &tokio_postgres::Client, count: i64) {
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%.write(%'";
    while client.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) < count {
        tokio::task::yield_now().await;
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A server refuses to run as root.
pub(crate) fn setpriv(options: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args(options);
    if is_root() {
        command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"]);
    }
    command
}

fn as_nobody(program: &Path) -> Command {
    let mut command = setpriv(&[]);
    command.arg(program).current_dir("/");
    command
}

pub(crate) fn give_away(folder: &Path) {
    if is_root() {
        let changed = Command::new("chown").arg("nobody:nogroup").arg(folder).status().unwrap();
        assert!(changed.success(), "{changed}");
    }
}

/// A program of PostgreSQL or for its tests: in the folder that `CALLBOARD_POSTGRES` names, in a folder of `PATH`, or where Debian has it.
pub(crate) fn program(name: &str) -> PathBuf {
    let named = std::env::var_os("CALLBOARD_POSTGRES").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let debian =
        fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|version| version.path().join("bin"));
    let found = named
        .into_iter()
        .chain(std::env::split_paths(&path))
        .chain(["/usr/sbin".into()])
        .chain(debian)
        .map(|folder| folder.join(name));
    found.into_iter().find(|program| program.is_file()).unwrap_or_else(|| {
        panic!("{name} is not found: install PostgreSQL (apt install postgresql pgbouncer faketime), or name its bin folder in CALLBOARD_POSTGRES")
    })
}
