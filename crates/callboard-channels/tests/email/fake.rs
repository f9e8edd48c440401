//! A server on this machine that speaks as much of SMTP as the channel needs.
//!
//! It runs on a thread with a runtime of its own: it outlives the processes of a test.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::mime::Mail;

/// How the server fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failing {
    No,
    /// It ends each connection at once.
    Down,
    /// It never answers.
    Silent,
    /// It takes mails, and ends the connection in place of the answer.
    Forgetful,
    /// It refuses every sender with this answer.
    Sender(&'static str),
    /// It refuses the password with this answer.
    Password(&'static str),
    /// It does not speak SMTP.
    Garbage,
}

#[derive(Clone, Debug)]
pub(crate) struct Served {
    /// All mails that were taken, in their order, with repetitions.
    pub(crate) mails: Vec<Mail>,
    pub(crate) failing: Failing,
    /// What it answers to recipients that it does not take.
    pub(crate) refused: BTreeMap<String, String>,
    /// What it says that it offers.
    pub(crate) offers: Vec<&'static str>,
    /// Each command that it got, without mails.
    pub(crate) commands: Vec<String>,
    pub(crate) connections: usize,
}

pub(crate) struct Smtp {
    address: SocketAddr,
    pub(crate) served: Mutex<Served>,
    changes: watch::Sender<()>,
}

impl Smtp {
    pub(crate) fn start() -> Arc<Self> {
        let (started, address) = std::sync::mpsc::channel();
        let (served, serving) = std::sync::mpsc::channel::<Arc<Self>>();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                started.send(listener.local_addr().unwrap()).unwrap();
                let smtp = serving.recv().unwrap();
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    smtp.change(|served| served.connections += 1);
                    tokio::spawn(Session { smtp: Arc::clone(&smtp), stream: BufReader::new(stream) }.run());
                }
            });
        });
        let nothing = Served {
            mails: Vec::new(),
            failing: Failing::No,
            refused: BTreeMap::new(),
            offers: vec!["8BITMIME", "AUTH PLAIN LOGIN"],
            commands: Vec::new(),
            connections: 0,
        };
        let (nothing, changes) = (Mutex::new(nothing), watch::Sender::new(()));
        let smtp = Arc::new(Self { address: address.recv().unwrap(), served: nothing, changes });
        served.send(Arc::clone(&smtp)).unwrap();
        smtp
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Served) -> T) -> T {
        let changed = change(&mut self.served.lock());
        self.changes.send_replace(());
        changed
    }

    pub(crate) fn fail(&self, failing: Failing) {
        self.change(|served| served.failing = failing);
    }

    /// What is found, as soon as there is something.
    pub(crate) async fn found<T>(&self, find: impl Fn(&Served) -> Option<T>) -> T {
        let mut changes = self.changes();
        loop {
            changes.mark_unchanged();
            if let Some(found) = find(&self.served.lock()) {
                return found;
            }
            changes.changed().await.unwrap();
        }
    }

    /// The first mail to this address whose text has this one, and that closes a question or not.
    async fn mail(&self, to: &str, text: &str, is_closed: bool) -> Mail {
        let is_it = |mail: &&Mail| mail.to == to && mail.is_closed() == is_closed && mail.text().contains(text);
        self.found(|served| served.mails.iter().find(is_it).cloned()).await
    }

    pub(crate) async fn asked(&self, to: &str, text: &str) -> Mail {
        self.mail(to, text, false).await
    }

    pub(crate) async fn closed(&self, to: &str, text: &str) -> Mail {
        self.mail(to, text, true).await
    }
}

struct Session {
    smtp: Arc<Smtp>,
    stream: BufReader<TcpStream>,
}

/// The connection has ended, or is to end.
struct Ended;

impl Session {
    async fn run(mut self) {
        // The client learns of it by the end of the connection.
        let _ = self.serve().await;
    }

    async fn serve(&mut self) -> Result<(), Ended> {
        if self.failing() == Failing::Garbage {
            return self.answer("HTTP/1.1 400 CANARY").await;
        }
        self.answer("220 fake ESMTP").await?;
        let (mut from, mut to) = (String::new(), String::new());
        loop {
            let line = self.line().await?;
            self.smtp.change(|served| served.commands.push(line.clone()));
            let upper = line.to_ascii_uppercase();
            let address = || line.split(['<', '>']).nth(1).unwrap_or_default().to_owned();
            match upper.split([' ', ':']).next().unwrap() {
                "EHLO" => self.answer(&self.offers()).await?,
                "AUTH" => match self.failing() {
                    Failing::Password(answer) => self.answer(answer).await?,
                    _ => self.answer("235 2.7.0 welcome").await?,
                },
                "STARTTLS" => {
                    self.answer("220 begin").await?;
                    self.answer("this is no TLS").await?;
                    return Err(Ended);
                }
                "MAIL" => match self.failing() {
                    Failing::Sender(answer) => self.answer(answer).await?,
                    _ => {
                        from = address();
                        self.answer("250 2.1.0 ok").await?;
                    }
                },
                "RCPT" => {
                    to = address();
                    let refusal = self.smtp.served.lock().refused.get(&to).cloned();
                    self.answer(refusal.as_deref().unwrap_or("250 2.1.5 ok")).await?;
                }
                "DATA" => {
                    self.answer("354 go on").await?;
                    let raw = self.data().await?;
                    let mail = Mail { from: from.clone(), to: to.clone(), raw };
                    self.smtp.change(|served| served.mails.push(mail));
                    if self.failing() == Failing::Forgetful {
                        return Err(Ended);
                    }
                    self.answer("250 2.0.0 taken").await?;
                }
                "RSET" | "NOOP" => self.answer("250 2.0.0 ok").await?,
                "QUIT" => {
                    self.answer("221 2.0.0 bye").await?;
                    return Err(Ended);
                }
                _ => self.answer("500 5.5.2 what").await?,
            }
        }
    }

    fn failing(&self) -> Failing {
        self.smtp.served.lock().failing
    }

    fn offers(&self) -> String {
        let offers = self.smtp.served.lock().offers.clone();
        let lines: String = offers.iter().map(|offer| format!("250-{offer}\r\n")).collect();
        format!("{lines}250 HELP")
    }

    async fn line(&mut self) -> Result<String, Ended> {
        let mut line = Vec::new();
        let length = self.stream.read_until(b'\n', &mut line).await.map_err(|_| Ended)?;
        if length == 0 {
            return Err(Ended);
        }
        Ok(String::from_utf8_lossy(&line).trim_end_matches("\r\n").to_owned())
    }

    /// A mail, up to the line with a dot alone.
    async fn data(&mut self) -> Result<String, Ended> {
        let mut mail = String::new();
        loop {
            let line = self.line().await?;
            if line == "." {
                return Ok(mail);
            }
            mail += line.strip_prefix('.').unwrap_or(&line);
            mail += "\r\n";
        }
    }

    async fn answer(&mut self, text: &str) -> Result<(), Ended> {
        let mut changes = self.smtp.changes();
        match self.failing() {
            Failing::Down => return Err(Ended),
            Failing::Silent => {
                while self.failing() == Failing::Silent {
                    changes.changed().await.map_err(|_| Ended)?;
                }
                // Who has waited has to begin again.
                return Err(Ended);
            }
            _ => {}
        }
        self.stream.get_mut().write_all(format!("{text}\r\n").as_bytes()).await.map_err(|_| Ended)
    }
}
