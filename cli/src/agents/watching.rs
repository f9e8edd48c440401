//! Files of agents that change while a run goes on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::time::{Interval, MissedTickBehavior, interval};

use callboard::Callboard;
use callboard::agents::{AgentFolder, FileChange};

/// How often the folder is looked at.
const EVERY: Duration = Duration::from_secs(1);

/// When the files of a folder were changed last, and how long they are.
type Stamps = BTreeMap<PathBuf, (Option<SystemTime>, u64)>;

/// Looks at a folder of agents now and then.
pub(super) struct Watch {
    folder: AgentFolder,
    seen: Stamps,
    ticks: Interval,
}

impl Watch {
    /// Looks at a folder that was loaded just now.
    pub(super) fn new(folder: AgentFolder) -> Self {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // What has changed since it was loaded is found at the first look.
        Self { folder, seen: Stamps::new(), ticks }
    }

    /// Waits until the folder looks different.
    pub(super) async fn changed(&mut self) {
        loop {
            self.ticks.tick().await;
            let stamps = stamps(self.folder.path());
            if stamps != self.seen {
                self.seen = stamps;
                return;
            }
        }
    }

    /// Has the agents be as their files say, and gives a line for each that has changed or was not taken.
    pub(super) async fn reload(&mut self, board: &Callboard) -> Vec<String> {
        match board.reload(&mut self.folder).await {
            Ok(reports) => {
                let news = reports.into_iter().filter(|report| report.change != FileChange::Unchanged);
                news.map(|report| report.to_string()).collect()
            }
            Err(error) => vec![error.to_string()],
        }
    }
}

/// One that cannot be looked at is none: reading it tells why.
fn stamps(folder: &Path) -> Stamps {
    let entries = folder.read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
    let files = entries.filter(|file| file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml")));
    let stamp = |file: PathBuf| {
        let about = file.metadata().ok()?;
        Some((file, (about.modified().ok(), about.len())))
    };
    files.filter_map(stamp).collect()
}
