//! The audit log: each request that changes something, and each that is refused, with who sent it and from where.
//!
//! Requests without a known token have a file of their own: nobody without a token can push out what is in the other.

#[cfg(feature = "dashboard")]
mod reading;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use callboard::messages::{RunId, Timestamp, visible};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

#[cfg(feature = "dashboard")]
pub(crate) use self::reading::Lines;
use crate::context::Context;
use crate::problem::ProblemCode;
use crate::proxies::{self, Network};
use crate::tokens::Caller;

/// From how many bytes on a file is rotated.
const MAX_FILE: u64 = 16 * 1024 * 1024;
/// How many rotated files are kept: `NAME.1` is the newest.
const KEPT: usize = 4;
/// The longest path that is recorded, in characters.
const MAX_PATH: usize = 256;
/// The longest reason of a decision that is recorded, in characters.
const MAX_REASON: usize = 1_024;

/// Where requests are recorded, besides the events of `tracing`.
#[derive(Default)]
pub(crate) struct Audit {
    /// Of those whose sender is known, and of the others.
    files: Option<[Mutex<Log>; 2]>,
}

impl Audit {
    /// Appends to the file, and to that with `.refused` after its name.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let mut refused = path.as_os_str().to_owned();
        refused.push(".refused");
        let [known, refused] = [path.to_owned(), refused.into()].map(|path| Log::open(path, MAX_FILE));
        Ok(Self { files: Some([Mutex::new(known?), Mutex::new(refused?)]) })
    }

    /// Records requests of nobody whose secret is known, from one address, of which each was refused: so many more than the first.
    pub(crate) fn record_many(&self, at: Timestamp, from: Option<IpAddr>, path: &str, count: u32) {
        let (from, code) = (from.map(|from| from.to_string()), ProblemCode::Unauthenticated.as_str());
        tracing::info!(target: "callboard::audit", from, path, code, count, "requests");
        let line = json!({
            "at": at.to_string(), "who": null, "person": null, "from": from, "method": "POST", "path": path, "status": null, "code": code,
            "count": count,
        });
        self.write(false, || line);
    }

    /// The newest lines that are wanted and older than a time, of those whose sender is known or of the others; `None` without a file.
    ///
    /// # Errors
    /// A file cannot be read.
    #[cfg(feature = "dashboard")]
    pub(crate) fn newest(
        &self,
        is_known: bool,
        before: Option<&str>,
        limit: usize,
        is_wanted: impl FnMut(&Value) -> bool,
    ) -> Option<io::Result<Lines>> {
        let files = self.files.as_ref()?;
        let path = files[usize::from(!is_known)].lock().path.clone();
        let older = (1..=KEPT).map(|number| rotated(&path, number));
        let files: Vec<PathBuf> = std::iter::once(path.clone()).chain(older).collect();
        Some(reading::newest(&files, before, limit, is_wanted))
    }

    fn write(&self, is_known: bool, line: impl FnOnce() -> Value) {
        let Some(files) = &self.files else { return };
        let mut log = files[usize::from(!is_known)].lock();
        if let Err(error) = log.append(format!("{}\n", line()).as_bytes()) {
            tracing::error!(path = %log.path.display(), %error, "a request was not recorded in the audit log");
        }
    }
}

/// The path of a rotated file.
fn rotated(path: &Path, number: usize) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(format!(".{number}"));
    path.into()
}

/// A file that is rotated.
struct Log {
    path: PathBuf,
    file: File,
    size: u64,
    max: u64,
}

impl Log {
    fn open(path: PathBuf, max: u64) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.create(true).append(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt as _;
            // A pipe that nobody reads would be waited for.
            options.mode(0o600).custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
        }
        let no_file = || io::Error::other(format!("{} is no file", path.display()));
        let is_no_file = |path: &Path| path.metadata().is_ok_and(|it| !it.is_file());
        let file = options.open(&path).map_err(|error| if is_no_file(&path) { no_file() } else { error })?;
        if !file.metadata()?.is_file() {
            return Err(no_file());
        }
        Ok(Self { size: file.metadata()?.len(), file, path, max })
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if self.size > 0 && self.size + line.len() as u64 > self.max {
            let rotated = |number: usize| rotated(&self.path, number);
            for number in (1..KEPT).rev() {
                match fs::rename(rotated(number), rotated(number + 1)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    Ok(()) | Err(_) => {}
                }
            }
            fs::rename(&self.path, rotated(1))?;
            *self = Self::open(self.path.clone(), self.max)?;
        }
        self.file.write_all(line)?;
        self.size += line.len() as u64;
        Ok(())
    }
}

/// The address that a connection comes from.
#[derive(Clone)]
pub(crate) struct Peer {
    pub(crate) shown: Arc<str>,
    /// Of a connection over the network.
    pub(crate) address: Option<IpAddr>,
}

impl Peer {
    /// Where a request with these headers comes from: from the client of a proxy, or from this address.
    fn of(self, headers: &HeaderMap, proxies: &[Network]) -> Self {
        let client = self.address.map(|address| proxies::client(address, headers, proxies));
        match client.filter(|client| Some(client.to_canonical()) != self.address.map(|it| it.to_canonical())) {
            Some(client) => Self { shown: client.to_string().into(), address: Some(client) },
            None => self,
        }
    }
}

/// Who sent a request, once that is known.
#[derive(Clone, Default)]
pub(crate) struct Sender {
    who: Arc<OnceLock<Who>>,
    decision: Arc<OnceLock<[String; 2]>>,
    /// What came of it.
    outcome: Arc<OnceLock<Map<String, Value>>>,
    /// Why a delivery without a token was refused.
    why: Arc<OnceLock<String>>,
    /// Why its sender does it, in their words.
    reason: Arc<OnceLock<String>>,
}

enum Who {
    /// The name of a token, and the person whose it is.
    Known(Arc<str>, Option<Arc<str>>),
    /// One of many that are not known, whose requests are recorded together ([`Audit::record_many`]).
    Counted,
}

impl Sender {
    pub(crate) fn is(&self, caller: &Caller) {
        let _ = self.who.set(Who::Known(Arc::clone(&caller.name), caller.person.clone()));
    }

    /// The request decides something: with this response, for this reason.
    pub(crate) fn decides(&self, response: &str, reason: &str) {
        let _ = self.decision.set([response, reason].map(|text| visible(text).chars().take(MAX_REASON).collect()));
    }

    /// The reason that the sender gives for what the request changes.
    pub(crate) fn because(&self, reason: &str) {
        if !reason.is_empty() {
            let _ = self.reason.set(visible(reason).chars().take(MAX_REASON).collect());
        }
    }

    /// The same sender, of one decision among several of a request.
    pub(crate) fn of_decision(&self, response: &str, reason: &str) -> Self {
        let one = Self { who: Arc::clone(&self.who), ..Self::default() };
        one.decides(response, reason);
        one
    }

    /// What came of a decision, as it is answered: `vote` where more people have to approve. Where the path does not name the approval, the
    /// answer does.
    pub(crate) fn came_to(&self, answer: &Value) {
        if !answer["decided"].is_boolean() {
            return;
        }
        let kept = |name: &str| Some((name.to_owned(), answer.get(name).filter(|value| value.is_string())?.clone()));
        let mut outcome: Map<_, _> = ["approval", "outcome", "replaced_by"].into_iter().filter_map(kept).collect();
        outcome.entry("outcome").or_insert_with(|| "vote".into());
        if let Some(about) = answer.get("about").and_then(Value::as_object) {
            outcome.extend(about.clone());
        }
        let _ = self.outcome.set(outcome);
    }

    /// A webhook, whose requests have no token, and the person whose it is.
    pub(crate) fn is_webhook(&self, name: &str, person: Option<&Arc<str>>) {
        let _ = self.who.set(Who::Known(name.into(), person.cloned()));
    }

    /// The request is a delivery that is refused, for this reason.
    pub(crate) fn is_refused(&self, why: &str) {
        let _ = self.why.set(visible(why).chars().take(MAX_REASON).collect());
    }

    /// The request is recorded together with others.
    pub(crate) fn is_counted(&self) {
        let _ = self.who.set(Who::Counted);
    }
}

/// The run that a request has begun, among the extensions of its response.
#[derive(Clone, Copy)]
pub(crate) struct Begun(pub(crate) RunId);

/// A request that is under way. It is recorded also if the client leaves before the response.
pub(crate) struct Entry {
    audit: Arc<Audit>,
    at: Timestamp,
    sender: Sender,
    from: Option<Arc<str>>,
    method: String,
    path: String,
    outcome: Option<(StatusCode, Option<ProblemCode>)>,
}

impl Entry {
    /// A request that has come now, of this sender and from there.
    pub(crate) fn begin(
        audit: Arc<Audit>,
        at: Timestamp,
        (sender, from): (Sender, Option<Arc<str>>),
        method: &str,
        path: &str,
    ) -> Self {
        let path = visible(path).chars().take(MAX_PATH).collect();
        Self { audit, at, sender, from, method: method.to_owned(), path, outcome: None }
    }

    /// Records how it ended.
    pub(crate) fn end(mut self, status: StatusCode, code: Option<ProblemCode>) {
        self.outcome = Some((status, code));
    }

    /// Records how it ended that is answered so.
    pub(crate) fn answered(self, response: &Response) {
        if let Some(Begun(run)) = response.extensions().get() {
            let _ = self.sender.outcome.set(Map::from_iter([("request_id".to_owned(), json!(run))]));
        }
        self.end(response.status(), response.extensions().get().copied());
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let changes = !["GET", "HEAD"].contains(&&*self.method);
        let is_refused = self.outcome.is_some_and(|(status, _)| status.is_client_error() || status.is_server_error());
        if !changes && !is_refused {
            return;
        }
        let (who, person) = match self.sender.who.get() {
            Some(Who::Known(who, person)) => (Some(&**who), person.as_deref()),
            Some(Who::Counted) => return,
            None => (None, None),
        };
        let from = self.from.as_deref();
        let status = self.outcome.map(|(status, _)| status.as_u16());
        let code = self.outcome.and_then(|(_, code)| code).map(ProblemCode::as_str);
        let (method, path) = (&self.method, &self.path);
        let [response, reason] = self.sender.decision.get().map_or([None, None], |it| it.each_ref().map(Some));
        let (why, outcome) = (self.sender.why.get(), self.sender.outcome.get());
        tracing::info!(target: "callboard::audit", who, person, from, method, path, status, code, response, reason, why, "request");
        let line = || {
            let mut line = json!({
                "at": self.at.to_string(), "who": who, "person": person, "from": from, "method": method, "path": path,
                "status": status, "code": code,
            });
            if response.is_some() {
                line["response"] = json!(response);
                line["reason"] = json!(reason);
            }
            if let Some(reason) = self.sender.reason.get() {
                line["reason"] = json!(reason);
            }
            for (name, value) in outcome.into_iter().flatten() {
                line[name] = value.clone();
            }
            if why.is_some() {
                line["why"] = json!(why);
            }
            line
        };
        self.audit.write(who.is_some(), line);
    }
}

/// Begins to record a request. Its handler finds who sent it, once that is known, and where it comes from among its extensions.
pub(crate) fn begin(context: &Context, request: &mut Request) -> Entry {
    let sender = Sender::default();
    let peer = request.extensions().get::<Peer>().cloned().map(|peer| peer.of(request.headers(), &context.proxies));
    let from = peer.as_ref().map(|peer| Arc::clone(&peer.shown));
    // The path is without the query, which may have a token.
    let (method, path) = (request.method().as_str(), request.uri().path());
    let (audit, at) = (Arc::clone(&context.audit), context.now());
    let entry = Entry::begin(audit, at, (sender.clone(), from), method, path);
    let extensions = request.extensions_mut();
    extensions.insert(sender);
    if let Some(peer) = peer {
        extensions.insert(peer);
    }
    entry
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn a_log_is_rotated_and_its_newest_lines_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let name = |number: usize| folder.path().join(format!("audit.jsonl.{number}"));
        for line in 0..20 {
            // Opened again, as after a restart.
            Log::open(path.clone(), 10).unwrap().append(format!("{line:04}\n").as_bytes()).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "0018\n0019\n");
        assert_eq!(fs::read_to_string(name(1)).unwrap(), "0016\n0017\n");
        assert_eq!(fs::read_to_string(name(KEPT)).unwrap(), "0010\n0011\n");
        assert!(!name(KEPT + 1).exists());
        let mut log = Log::open(path.clone(), 10).unwrap();
        log.append(b"longer than the most of a file\n").unwrap();
        log.append(b"next\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "next\n");
    }

    #[cfg(unix)]
    #[test]
    fn a_log_is_a_file_and_nothing_that_is_waited_for() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let refused = || Log::open(path.clone(), 10).map(|_| ()).unwrap_err().to_string();
        assert_eq!(refused(), format!("{} is no file", path.display()), "nobody reads it");
        let _reader = rustix::fs::open(&path, rustix::fs::OFlags::RDWR, Mode::empty()).unwrap();
        assert_eq!(refused(), format!("{} is no file", path.display()));
    }
}
