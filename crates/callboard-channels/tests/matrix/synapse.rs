//! The channel with Synapse, a homeserver that others have written. It runs where `CALLBOARD_SYNAPSE` names a python that has it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use callboard_channels::matrix::{AccessToken, MatrixChannel, MatrixConfig, MatrixState};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::fake::DATA;
use crate::skipping::skip;
use crate::team::{asked, board};

/// Starts the server, which ends with the thread of the test.
const START: &str = "import ctypes, runpy, sys; ctypes.CDLL(None).prctl(1, 9); sys.argv[0] = 'synapse'; \
                     runpy.run_module('synapse.app.homeserver', run_name='__main__')";
const SECRET: &str = "shared secret";
const ENCRYPTED: &str = "m.room.encryption";

/// A homeserver on this machine, which ends with the test.
pub(crate) struct Synapse {
    python: PathBuf,
    port: u16,
    process: Child,
    folder: TempDir,
}

impl Drop for Synapse {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Synapse {
    pub(crate) fn start(python: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let file = folder.path().join("homeserver.json");
        // YAML has all of JSON.
        std::fs::write(&file, settings(folder.path(), port).to_string()).unwrap();
        let handlers = json!({ "output": { "class": "logging.StreamHandler", "stream": "ext://sys.stdout" } });
        let log = json!({ "version": 1, "disable_existing_loggers": false, "handlers": handlers, "root": { "level": "INFO", "handlers": ["output"] } });
        std::fs::write(folder.path().join("log.json"), log.to_string()).unwrap();
        let command = |more: &[&str]| {
            let mut command = Command::new(python);
            command.args(["-c", START, "-c"]).arg(&file).args(more).current_dir(folder.path());
            command.stdout(Stdio::piped()).stderr(Stdio::null());
            command
        };
        assert!(command(&["--generate-keys"]).output().unwrap().status.success());
        let process = command(&[]).spawn().unwrap();
        let mut synapse = Self { python: python.to_owned(), port, process, folder };
        synapse.wait();
        synapse
    }

    /// Waits until it listens.
    fn wait(&mut self) {
        let mut output = BufReader::new(self.process.stdout.take().unwrap());
        let (mut line, mut seen) = (String::new(), String::new());
        while !line.contains("now listening on TCP port") {
            seen.push_str(&line);
            line.clear();
            assert!(output.read_line(&mut line).unwrap() > 0, "Synapse has ended: {seen}");
        }
        std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
    }

    /// Registers an account.
    pub(crate) fn register(&self, name: &str) -> Account {
        let program = self.python.with_file_name("register_new_matrix_user");
        let mut register = Command::new(program);
        register.args(["-u", name, "-p", "a password", "--no-admin", "-k", SECRET, &self.url()]);
        register.current_dir(self.folder.path()).stdout(Stdio::null());
        assert!(register.env("NO_PROXY", "*").status().unwrap().success());
        let identifier = json!({ "type": "m.id.user", "user": name });
        let login = json!({ "type": "m.login.password", "identifier": identifier, "password": "a password" });
        let token = call(self.port, "POST /_matrix/client/v3/login", "", Some(&login));
        Account {
            port: self.port,
            id: format!("@{name}:localhost"),
            token: token["access_token"].as_str().unwrap().to_owned(),
            since: String::new(),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

fn settings(folder: &Path, port: u16) -> Value {
    json!({
        "server_name": "localhost",
        "pid_file": folder.join("pid"),
        "listeners": [{
            "bind_addresses": ["127.0.0.1"], "port": port, "type": "http", "tls": false, "resources": [{ "names": ["client"] }],
        }],
        "database": { "name": "sqlite3", "args": { "database": folder.join("database") } },
        "log_config": folder.join("log.json"),
        "media_store_path": folder.join("media"),
        "registration_shared_secret": SECRET,
        "macaroon_secret_key": "macaroon secret",
        "form_secret": "form secret",
        "signing_key_path": folder.join("key"),
        "report_stats": false,
        "trusted_key_servers": [],
    })
}

/// Makes a call of the API.
fn call(port: u16, request: &str, token: &str, body: Option<&Value>) -> Value {
    let body = body.map(Value::to_string).unwrap_or_default();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let head = format!(
        "{request} HTTP/1.0\r\nhost: localhost\r\nauthorization: Bearer {token}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(" 200 "), "{request}: {answer}");
    serde_json::from_str(body).unwrap()
}

/// Somebody who uses the homeserver.
pub(crate) struct Account {
    port: u16,
    pub(crate) id: String,
    pub(crate) token: String,
    since: String,
}

impl Account {
    pub(crate) fn call(&self, request: &str, body: &Value) -> Value {
        call(self.port, request, &self.token, Some(body))
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        call(self.port, &format!("GET /_matrix/client/{path}"), &self.token, None)
    }

    /// Sends an event of a type, and returns its id.
    pub(crate) fn sends(&self, room: &str, kind: &str, content: &Value) -> String {
        let path = format!("PUT /_matrix/client/v3/rooms/{room}/send/{kind}/{kind}");
        self.call(&path, content)["event_id"].as_str().unwrap().to_owned()
    }

    /// Makes a room, and invites others.
    fn room(&self, others: &[&Account], state: Value) -> String {
        let invite: Vec<&str> = others.iter().map(|account| &*account.id).collect();
        let body = json!({ "preset": "private_chat", "invite": invite, "initial_state": state });
        let room = self.call("POST /_matrix/client/v3/createRoom", &body);
        room["room_id"].as_str().unwrap().to_owned()
    }

    pub(crate) fn join(&self, room: &str) {
        self.call(&format!("POST /_matrix/client/v3/rooms/{room}/join"), &json!({}));
    }

    /// Replies to an event, and returns the id of the reply.
    fn reply(&self, room: &str, to: &str, text: &str) -> String {
        let related = json!({ "m.in_reply_to": { "event_id": to } });
        let content = json!({ "msgtype": "m.text", "body": text, "m.relates_to": related });
        let path = format!("PUT /_matrix/client/v3/rooms/{room}/send/m.room.message/{}", text.replace(' ', "."));
        self.call(&path, &content)["event_id"].as_str().unwrap().to_owned()
    }

    /// The first event from now on that is as wanted.
    pub(crate) fn sees(&mut self, is_it: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..100 {
            let since = if self.since.is_empty() { String::new() } else { format!("&since={}", self.since) };
            let request = format!("GET /_matrix/client/v3/sync?timeout=20000{since}");
            let synced = call(self.port, &request, &self.token, None);
            self.since = synced["next_batch"].as_str().unwrap().to_owned();
            let rooms = synced["rooms"]["join"].as_object().into_iter().flatten();
            let events = rooms.flat_map(|(_, room)| room["timeline"]["events"].as_array().unwrap());
            if let Some(event) = events.into_iter().find(|event| is_it(event)) {
                return event.clone();
            }
        }
        panic!("no such event in 100 answers of the homeserver");
    }

    /// What was replied to an event.
    fn told(&mut self, event: &str) -> String {
        let is_reply = |it: &Value| it["content"]["m.relates_to"]["m.in_reply_to"]["event_id"] == event;
        self.sees(is_reply)["content"]["body"].as_str().unwrap().to_owned()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn people_decide_in_a_room_of_synapse() {
    let Some(python) = std::env::var_os("CALLBOARD_SYNAPSE") else { return skip("there is no Synapse") };
    let synapse = Synapse::start(Path::new(&python));
    let [bot, mut ann, mut eve] = ["board", "ann", "eve"].map(|name| synapse.register(name));
    let room = ann.room(&[&bot, &eve], json!([]));
    eve.join(&room);
    let encryption = json!({ "type": ENCRYPTED, "state_key": "", "content": { "algorithm": "m.megolm.v1.aes-sha2" } });
    let encrypted = ann.room(&[&bot], json!([encryption]));

    let folder = tempfile::tempdir().unwrap();
    let token = AccessToken::new(&bot.token).unwrap();
    let config = MatrixConfig::new(&synapse.url(), token, folder.path().join("matrix"));
    let config = config.room(&room).room(&encrypted).person(&ann.id, "ann");
    let channel = MatrixChannel::open(config).unwrap();
    let mut state = channel.state();
    let board = board(channel).await;
    let (run, question) = asked(&board, "order 1", json!({ "amount": "70\u{202e}" })).await;
    let card = ann.sees(|event| event["content"][DATA]["approval"] == question.id().to_string());
    assert!(card["sender"] == *bot.id && card["content"]["body"].as_str().unwrap().contains("70\\u{202e}"), "{card}");
    let MatrixState::Reached { account, unusable } =
        state.wait_for(|state| *state != MatrixState::Starting).await.unwrap().clone()
    else {
        panic!("Synapse is not reached");
    };
    assert!(
        account == bot.id
            && unusable.len() == 1
            && unusable[0].starts_with(&format!("the room {encrypted} is encrypted"))
    );

    let card = card["event_id"].as_str().unwrap();
    let reply = eve.reply(&room, card, "approve");
    assert_eq!(eve.told(&reply), "You may not decide this.");
    assert_eq!(board.people().decision(question.id()).await.unwrap(), None);
    let reply = ann.reply(&room, card, "approve");
    assert!(ann.told(&reply).starts_with("approved by ann at "));
    assert_eq!(run.result().await.unwrap().output, json!("paid"));
    let decision = board.people().decision(question.id()).await.unwrap().unwrap();
    assert_eq!((&*decision.by, &*decision.via), ("ann", "matrix"));
    let closed = eve.sees(|event| event["content"]["m.relates_to"]["rel_type"] == "m.replace");
    assert_eq!(closed["content"]["m.relates_to"]["event_id"], card);
    assert!(closed["content"]["m.new_content"]["body"].as_str().unwrap().contains(", on Matrix\n\n── approval "));
    board.shutdown().await;
}
