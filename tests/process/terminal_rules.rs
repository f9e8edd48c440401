//! The terminal keeps the rules of what is shown and closed. Each test makes a pseudo-terminal the terminal of its process, one after
//! another.

#![cfg(unix)]

use std::fs::File;
use std::io::Read as _;
use std::sync::{Arc, LazyLock};

use callboard::actors::approvals::{Channel, TerminalChannel};
use callboard::testing::channels::{Audience, SeenCard};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::stdio::{dup2_stderr, dup2_stdin};
use tokio::sync::{OwnedMutexGuard, watch};

callboard::channel_conformance! {
    shown terminal: OwnTerminal::take()
}

/// The terminal of this process, and what it has shown.
struct OwnTerminal {
    /// There is one at a time.
    _only: OwnedMutexGuard<()>,
    shown: Arc<Mutex<String>>,
    changes: watch::Sender<()>,
}

impl OwnTerminal {
    fn take() -> Self {
        static ONLY: LazyLock<Arc<tokio::sync::Mutex<()>>> = LazyLock::new(Arc::default);
        let only = Arc::clone(&ONLY).blocking_lock_owned();
        let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&person).unwrap();
        unlockpt(&person).unwrap();
        let name = ptsname(&person, Vec::new()).unwrap();
        let terminal = rustix::fs::open(&*name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        dup2_stdin(&terminal).unwrap();
        dup2_stderr(&terminal).unwrap();
        let (shown, changes) = (Arc::new(Mutex::new(String::new())), watch::Sender::new(()));
        let (writing, changed) = (Arc::clone(&shown), changes.clone());
        std::thread::spawn(move || {
            let (mut screen, mut bytes, mut chunk) = (File::from(person), Vec::new(), [0; 4096]);
            while let Ok(length @ 1..) = screen.read(&mut chunk) {
                bytes.extend_from_slice(&chunk[..length]);
                *writing.lock() = String::from_utf8_lossy(&bytes).replace("\r\n", "\n");
                changed.send_replace(());
            }
        });
        Self { _only: only, shown, changes }
    }
}

impl Audience for OwnTerminal {
    fn names(&self) -> [String; 2] {
        ["terminal".to_owned(), "nobody else".to_owned()]
    }

    fn open(&self) -> Arc<dyn Channel> {
        Arc::new(TerminalChannel::new())
    }

    /// A card is what begins with its title. It is open until a line says what came of it.
    fn cards(&self) -> Vec<SeenCard> {
        let shown = self.shown.lock().clone();
        let cards = shown.split("── approval ").skip(1).enumerate().map(|(number, text)| SeenCard {
            place: "terminal".to_owned(),
            key: number.to_string(),
            is_open: text.contains("approve? [") && !text.contains(" was "),
            text: text.to_owned(),
        });
        // What was not read to its prompt may be half of a line.
        cards.filter(|card| card.text.contains("approve? [")).collect()
    }

    fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    fn choose<'a>(&'a self, _: usize, _: &'a SeenCard, _: bool) -> BoxFuture<'a, String> {
        unreachable!("a single person sees only what is open")
    }

    fn set_reachable(&self, _: bool) {
        unreachable!("a terminal needs no service")
    }
}
