//! `[channels.webhooks.NAME]`: approvals that are sent to another service, and decided there.

#![cfg(unix)]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command};

use serde_json::{Value, json};

use crate::support::agents::searcher;
use crate::support::project::Project;
use crate::support::relay::{Relay, SECRET};
use crate::support::serving::{Serving, sent};
use crate::support::{output_of, write};

/// The part of the secret that nobody may see.
const CANARY: &str = "CANARY";
const SLACK_SECRET: &str = "slack-signing-secret";

/// A project with a webhook for this address, whose secret is in a file beside the state of the project.
fn project(address: &str) -> Project {
    let project = Project::new();
    let secret = project.state.path().join("relay.secret");
    fs::write(&secret, format!("{SECRET}\n")).unwrap();
    let settings = format!(
        "[people]\nann = {{ tokens = [] }}\n[channels.webhooks.slack]\nurl = \"{address}/approvals\"\nsecret_file = {secret:?}\npeople = [\"ann\"]\n"
    );
    write(&project.folder, "callboard.toml", &settings);
    project
}

/// A port that is free now.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The example, which is killed with the test.
struct SlackRelay {
    process: Child,
    port: u16,
}

impl SlackRelay {
    fn start(port: u16, callboard: &str, slack: &str) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/webhooks/slack_relay.py");
        let process = Command::new("python3")
            .arg(script)
            .env("CALLBOARD_SECRET", SECRET)
            .env("CALLBOARD_URL", format!("{callboard}/v1/channels/webhooks/slack"))
            .env("SLACK_URL", slack)
            .env("SLACK_SECRET", SLACK_SECRET)
            .env("PEOPLE", "U1=ann,U2=eve")
            .env("PORT", port.to_string())
            .spawn()
            .unwrap();
        Self { process, port }
    }

    /// Sends what Slack sends for a click, and returns the status.
    fn click(&self, user: &str, message: &Value, button: usize, (response_url, secret): (&str, &str)) -> u16 {
        let action = &message["blocks"][1]["elements"][button];
        let action = json!({ "action_id": action["action_id"], "value": action["value"] });
        let payload = json!({
            "user": { "id": user }, "actions": [action], "message": message, "response_url": response_url,
        });
        let script = "import hashlib, hmac, sys, time, urllib.parse; secret, payload = sys.argv[1:]\n\
                      body, at = urllib.parse.urlencode({'payload': payload}), int(time.time())\n\
                      digest = hmac.new(secret.encode(), f'v0:{at}:{body}'.encode(), hashlib.sha256).hexdigest()\n\
                      print(f'X-Slack-Request-Timestamp: {at}\\r\\nX-Slack-Signature: v0={digest}\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n{body}', end='')";
        let signed = output_of(
            Command::new("python3")
                .args(["-c", script, secret, &payload.to_string()])
                .stdout(std::process::Stdio::piped()),
        )
        .out;
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        write!(stream, "POST /clicks HTTP/1.0\r\nHost: localhost\r\n{signed}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for SlackRelay {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn the_relay_of_the_guide_has_a_person_decide_in_slack() {
    let (slack, port) = (Relay::start(), free_port());
    let project = project(&format!("http://127.0.0.1:{port}"));
    write(&project.folder, "agents/writer.toml", &searcher("writer"));
    let mut serving = Serving::start(&project);
    let id = sent(&project, "look");
    project.model.calls("FileSearch", json!({ "pattern": "x" }));
    // The relay is started late: what it missed is sent again.
    serving.until("the webhook slack is not reached, and is tried again: ");
    let relay = SlackRelay::start(port, &format!("http://{}", serving.address()), &slack.address);
    let message = slack.request();
    let card = message["blocks"][0]["text"]["text"].as_str().unwrap();
    assert!(card.contains("agent     writer\naction    FileSearch\n"), "{card}");
    let answers = (&*slack.address, SLACK_SECRET);
    assert_eq!(relay.click("U1", &message, 0, (&slack.address, "another secret")), 401);
    assert_eq!(relay.click("U3", &message, 0, answers), 200, "an account that is nobody decides nothing");
    assert_eq!(relay.click("U2", &message, 0, answers), 200);
    let refused = slack.request();
    let told = refused["blocks"][2]["text"]["text"].as_str().unwrap();
    assert!(told.starts_with("the person is not one of those in whose names"), "{told}");
    assert_eq!(relay.click("U1", &message, 0, answers), 200);
    let outcomes: Vec<String> = [slack.request(), slack.request()].iter().map(Value::to_string).collect();
    assert!(outcomes.iter().all(|outcome| outcome.contains("approved by ann at ")), "{outcomes:?}");
    assert!(
        outcomes.iter().any(|outcome| outcome.contains("\"replace_original\":true") && !outcome.contains("Approve\""))
    );
    project.model.answers("found");
    let waited = project.callboard(&["wait", &id]);
    assert_eq!((waited.code, &*waited.out), (Some(0), "found\n"), "{}", waited.error);
    assert!(!serving.stop().error.contains(CANARY));
}

#[test]
fn doctor_reports_webhooks_and_with_online_sends_each_a_ping() {
    let project = project(&format!("http://127.0.0.1:{}", free_port()));
    let looked_at = project.callboard(&["doctor"]).out;
    let line = "ok       webhooks each has a secret; --online sends each a message of the type ping\n";
    assert!(looked_at.contains(line), "{looked_at}");
    // What `--online` asks the model.
    project.model.answers("yes");
    let looked_at = project.callboard(&["doctor", "--online"]).out;
    assert!(
        looked_at.contains("failed   webhooks slack takes no message: ") && !looked_at.contains(CANARY),
        "{looked_at}"
    );
    let relay = Relay::start();
    let project = self::project(&relay.address);
    project.model.answers("yes");
    let looked_at = project.callboard(&["doctor", "--online"]).out;
    assert!(looked_at.contains("ok       webhooks slack takes messages\n"), "{looked_at}");
    assert_eq!(relay.message("ping")["data"], json!({}));
}

#[test]
fn a_secret_that_is_missing_malformed_or_within_reach_of_agents_is_refused() {
    let project = project("http://127.0.0.1:1");
    let refused = |secret: &str, variable: Option<&str>| {
        let settings = format!("[channels.webhooks.slack]\nurl = \"http://127.0.0.1:1\"\n{secret}\n");
        write(&project.folder, "callboard.toml", &settings);
        let mut serve = project.command(&["serve", "--listen", "127.0.0.1:0"]);
        let printed = output_of(serve.envs(variable.map(|value| ("HOOK", value))));
        assert!(!printed.error.contains(CANARY), "{}", printed.error);
        (printed.code, printed.error)
    };
    write(&project.folder, "relay.secret", SECRET);
    let (code, error) = refused("secret_file = \"relay.secret\"", None);
    assert!(code == Some(4) && error.contains("is in the folder that tools of agents work in"), "{error}");
    let (code, error) = refused("secret_file = \"none.secret\"", None);
    assert!(code != Some(0) && error.contains("none.secret"), "{error}");
    let (code, error) = refused("secret_env = \"HOOK\"", None);
    assert!(code == Some(2) && error.contains("the variable HOOK of callboard.toml is not set"), "{error}");
    let (code, error) = refused("secret_env = \"HOOK\"", Some("whsec_CANARY"));
    assert!(code == Some(2) && error.contains("the secret is `whsec_` and 24 to 64 bytes in base64"), "{error}");
    let checked = project.callboard(&["check"]);
    assert_eq!(checked.code, Some(0), "a variable may be set elsewhere: {}", checked.error);
    write(
        &project.folder,
        "callboard.toml",
        "[channels.webhooks.slack]\nurl = \"http://relay.example.org\"\nsecret_env = \"HOOK\"\n",
    );
    let checked = project.callboard(&["check"]);
    assert!(
        checked.code != Some(0) && checked.error.contains("without TLS it could be read on the way"),
        "{}",
        checked.error
    );
}
