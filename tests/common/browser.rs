//! Chromium without a window, by its DevTools protocol over pipes.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

/// The names that systems have for it.
const PROGRAMS: [&str; 4] = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"];

/// A browser with one page.
pub(crate) struct Browser {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    session: Value,
    number: u64,
    /// Events that came and were not waited for.
    events: Vec<Value>,
    _profile: TempDir,
}

impl Browser {
    /// Starts a browser; `None` if there is none on this machine.
    pub(crate) fn start() -> Option<Self> {
        let is_there = |name: &&&str| {
            let version = Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
            version.is_ok_and(|status| status.success())
        };
        let program = *PROGRAMS.iter().find(is_there)?;
        let profile = tempfile::tempdir().unwrap();
        let mut data = OsStr::new("--user-data-dir=").to_owned();
        data.push(profile.path());
        // It reads requests from descriptor 3 and writes answers to 4.
        let mut process = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", program])
            .args([
                "--headless",
                "--remote-debugging-pipe",
                "--no-first-run",
                "--disable-gpu",
                "--disable-dev-shm-usage",
            ])
            // What it loads is written by the test, and the sandbox is refused to root and in containers.
            .args(["--no-sandbox", "--window-size=1280,800"])
            .arg(data)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let requests = process.stdin.take().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap());
        let (session, number, events) = (Value::Null, 0, Vec::new());
        let mut browser = Self { process, requests, answers, session, number, events, _profile: profile };
        let page = browser.asks("Target.createTarget", json!({ "url": "about:blank" }));
        let attached = json!({ "targetId": page["targetId"], "flatten": true });
        browser.session = browser.asks("Target.attachToTarget", attached)["sessionId"].clone();
        for domain in ["Page", "Runtime", "Log"] {
            browser.asks(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Sends a request and returns its result.
    pub(crate) fn asks(&mut self, method: &str, params: Value) -> Value {
        self.number += 1;
        let mut request = json!({ "id": self.number, "method": method, "params": params });
        if !self.session.is_null() {
            request["sessionId"] = self.session.clone();
        }
        self.requests.write_all(format!("{request}\0").as_bytes()).unwrap();
        loop {
            let message = self.next();
            if message["id"] == self.number {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
            self.events.push(message);
        }
    }

    fn next(&mut self) -> Value {
        let mut message = Vec::new();
        self.answers.read_until(0, &mut message).unwrap();
        assert_eq!(message.pop(), Some(0), "the browser has ended");
        serde_json::from_slice(&message).unwrap()
    }

    /// Waits for an event, which may have come before.
    pub(crate) fn until(&mut self, event: &str) {
        while !self.events.iter().any(|message| message["method"] == event) {
            let message = self.next();
            self.events.push(message);
        }
        self.events.retain(|message| message["method"] != event);
    }

    /// Opens a page and waits until it is loaded.
    pub(crate) fn opens(&mut self, url: &str) {
        self.asks("Page.navigate", json!({ "url": url }));
        self.until("Page.loadEventFired");
    }

    /// Types a text, in the element that has the focus.
    pub(crate) fn types(&mut self, text: &str) {
        self.asks("Input.insertText", json!({ "text": text }));
    }

    /// Presses a key, whose text is what it types.
    pub(crate) fn presses(&mut self, key: &str, text: &str) {
        for (kind, text) in [("keyDown", text), ("keyUp", "")] {
            self.asks("Input.dispatchKeyEvent", json!({ "type": kind, "key": key, "text": text }));
        }
    }

    /// The value of an expression, or of the promise that it is.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let result = self.asks("Runtime.evaluate", params);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true, in a page that stays open.
    pub(crate) fn sees(&mut self, expression: &str) {
        let waited = format!(
            "new Promise((resolve) => {{
               const look = () => {{ if ({expression}) resolve(true); else setTimeout(look, 10); }};
               setTimeout(() => resolve(document.body.innerText), 60000);
               look();
             }})"
        );
        assert_eq!(self.value(&waited), json!(true), "{expression}");
    }

    /// What the console was sent by the browser, such as what a policy has kept from being loaded, and errors of scripts.
    pub(crate) fn complaints(&self) -> Vec<&Value> {
        let complaints = ["Log.entryAdded", "Runtime.exceptionThrown", "Page.javascriptDialogOpening"];
        self.events.iter().filter(|event| complaints.iter().any(|name| event["method"] == *name)).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It ends when it has closed its pipes; a test that failed does not wait for that.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
