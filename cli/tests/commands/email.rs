//! `[email]`: approvals that are mailed, with a server on this machine.

#![cfg(unix)]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::skipping::skip;
use crate::support::agents::searcher;
use crate::support::mail::MailServer;
use crate::support::project::Project;
use crate::support::serving::{Serving, sent};
use crate::support::{output_of, write};

/// Its text has a part that nobody may see.
const PASSWORD: &str = "CANARY horse";
const CANARY: &str = "CANARY";

/// A project whose server of mail is at this port, with the password in a file beside the state of the project.
fn project(port: u16, server: &str, people: &str) -> Project {
    let project = Project::new();
    let password = project.state.path().join("mail.password");
    fs::write(&password, format!("{PASSWORD}\n")).unwrap();
    write(&project.folder, "callboard.toml", &settings(port, server, &format!("password_file = {password:?}"), people));
    write(&project.folder, "agents/writer.toml", &searcher("writer"));
    project
}

fn settings(port: u16, server: &str, password: &str, people: &str) -> String {
    format!(
        "[serve]\npublic_url = \"https://board.example.org\"\n[email]\n{server}\nport = {port}\nfrom = \"callboard <board@example.org>\"\n\
         user = \"board\"\n{password}\n[people]\n{people}\n"
    )
}

const HERE: &str = "server = \"127.0.0.1\"\ntls = \"none\"";
const ANN: &str = "ann = { tokens = [\"owner\"], email = \"ann@example.org\" }";

/// The id of the approval that a mail is about, with its kind.
fn approval(mail: &str) -> String {
    let (_, rest) = mail.split_once("callboard pending ").expect("the mail has the command");
    rest.split_whitespace().next().unwrap().to_owned()
}

#[test]
fn a_person_is_mailed_what_an_agent_of_a_server_asks_and_decides_elsewhere() {
    let server = MailServer::start();
    let people = format!("{ANN}\nbob = {{ tokens = [], email = [\"gone@example.org\"] }}");
    let project = project(server.port, HERE, &people);
    let mut serving = Serving::start(&project);
    let id = sent(&project, "look");
    project.model.calls("FileSearch", json!({ "pattern": "x CANARY" }));
    let mail = server.mail();
    assert!(mail.contains("\nTo: ann@example.org\n") && mail.contains("\nSubject: Approval: FileSearch"), "{mail}");
    assert!(mail.contains("agent     writer\naction    FileSearch\n") && !mail.contains(CANARY), "{mail}");
    let approval = approval(&mail);
    let page = mail.lines().find(|line| line.starts_with("https://")).unwrap();
    assert!(page.starts_with("https://board.example.org/?run=") && page.ends_with(&format!("#{approval}")), "{page}");
    serving.until("no mail is sent to gone@example.org: the server refuses mail to it (550 5.1.1)\n");
    let approved = project.callboard(&["approve", &approval]);
    assert_eq!(approved.code, Some(0), "{}", approved.error);
    let closed = server.mail();
    assert!(closed.contains("approved by ann at ") && closed.contains("\nIn-Reply-To: <"), "{closed}");
    project.model.answers("found");
    let waited = project.callboard(&["wait", &id]);
    assert_eq!((waited.code, &*waited.out), (Some(0), "found\n"), "{}", waited.error);
    assert!(!serving.stop().error.contains(CANARY));
}

#[test]
fn a_server_starts_without_mail_and_says_so_and_doctor_reports_it() {
    let project = project(1, HERE, ANN);
    let mut serving = Serving::start(&project);
    sent(&project, "look");
    project.model.calls("FileSearch", json!({ "pattern": "x" }));
    serving.until("the server of mail is not reached, and is tried again: ");
    let error = serving.stop().error;
    assert!(!error.contains(CANARY) && !error.contains("is not reached"), "once: {error}");
    let looked_at = project.callboard(&["doctor"]).out;
    let offline = "ok       email    there is a server; --online asks whether it takes mails, and sends none\n";
    assert!(looked_at.contains(offline), "{looked_at}");
    // What `--online` asks the model.
    project.model.answers("yes");
    let looked_at = project.callboard(&["doctor", "--online"]).out;
    assert!(
        looked_at.contains("failed   email    the server of mail is not reached: ") && !looked_at.contains(CANARY),
        "{looked_at}"
    );
    let server = MailServer::start();
    let project =
        self::project(server.port, HERE, &format!("{ANN}\nbob = {{ tokens = [], email = \"gone@example.org\" }}"));
    project.model.answers("yes");
    let reached = project.callboard(&["doctor", "--online"]).out;
    let refused = "failed   email    gone@example.org gets no mail: the server refuses mail to it (550 5.1.1)\n";
    assert!(
        reached.contains("ok       email    ann@example.org gets mails\n") && reached.contains(refused),
        "{reached}"
    );
}

#[test]
fn a_password_that_is_missing_empty_or_within_reach_of_agents_is_refused() {
    let project = project(1, HERE, ANN);
    let refused = |password: &str, variable: Option<&str>| {
        write(&project.folder, "callboard.toml", &settings(1, HERE, password, ANN));
        let mut serve = project.command(&["serve", "--listen", "127.0.0.1:0"]);
        let printed = output_of(serve.envs(variable.map(|value| ("PASSWORD", value))));
        assert!(!printed.error.contains(CANARY), "{}", printed.error);
        (printed.code, printed.error)
    };
    write(&project.folder, "mail.password", PASSWORD);
    let (code, error) = refused("password_file = \"mail.password\"", None);
    assert!(code == Some(4) && error.contains("is in the folder that tools of agents work in"), "{error}");
    let (code, error) = refused("password_file = \"none.password\"", None);
    assert!(code != Some(0) && error.contains("none.password"), "{error}");
    let (code, error) = refused("password_env = \"PASSWORD\"", None);
    assert!(code == Some(2) && error.contains("the variable PASSWORD of callboard.toml is not set"), "{error}");
    let (code, error) = refused("password_env = \"PASSWORD\"", Some(" "));
    assert!(code == Some(2) && error.contains("the variable PASSWORD: the password is empty"), "{error}");
}

/// A server of mail that others have written. It ends with the test.
#[cfg(target_os = "linux")]
struct Aiosmtpd {
    process: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    port: u16,
}

#[cfg(target_os = "linux")]
impl Aiosmtpd {
    fn start(python: &std::ffi::OsStr, authority: &std::path::Path) -> Self {
        let mut command = Command::new(python);
        command.args(["-c", include_str!("../support/aiosmtpd.py")]).arg(authority).args(["board", PASSWORD]);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let port = lines.next().expect("aiosmtpd has ended").unwrap().parse().unwrap();
        Self { process, lines, port }
    }

    fn mail(&mut self) -> Value {
        serde_json::from_str(&self.lines.next().expect("aiosmtpd has ended").unwrap()).unwrap()
    }
}

#[cfg(target_os = "linux")]
impl Drop for Aiosmtpd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn mails_go_through_aiosmtpd_with_starttls_and_a_password() {
    let Some(python) = std::env::var_os("CALLBOARD_AIOSMTPD") else { return skip("there is no aiosmtpd") };
    let folder = tempfile::tempdir().unwrap();
    let authority = folder.path().join("authority.pem");
    let mut server = Aiosmtpd::start(&python, &authority);
    let project = project(server.port, "server = \"localhost\"", ANN);
    // Its authority is none that the system trusts.
    project.model.answers("yes");
    let untrusted = project.callboard(&["doctor", "--online"]).out;
    assert!(untrusted.contains("failed   email    the server of mail is not reached: "), "{untrusted}");
    let mut serve = project.command(&["serve", "--listen", "127.0.0.1:0"]);
    let serving = Serving::of(serve.env("SSL_CERT_FILE", &authority));
    sent(&project, "look 漢");
    project.model.calls("FileSearch", json!({ "pattern": "x" }));
    let mail = server.mail();
    assert_eq!(
        (&mail["is_encrypted"], &mail["is_signed_in"], &mail["defects"]),
        (&json!(true), &json!(true), &json!([]))
    );
    assert_eq!((&mail["from"], &mail["to"]), (&json!("board@example.org"), &json!(["ann@example.org"])));
    let text = mail["text"].as_str().unwrap();
    assert!(text.contains("── approval ") && text.contains("\naction    FileSearch\n"), "{text}");
    assert_eq!(mail["headers"]["Auto-Submitted"], "auto-generated");
    let denied = project.callboard(&["deny", &approval(text), "--reason", "not 漢"]);
    assert_eq!(denied.code, Some(0), "{}", denied.error);
    let closed = server.mail();
    assert_eq!(closed["headers"]["In-Reply-To"], mail["headers"]["Message-ID"]);
    let text = closed["text"].as_str().unwrap();
    assert!(text.starts_with("denied by ann at ") && text.contains(": not 漢\n"), "{text}");
    drop(serving);
}
