//! Reloads agents and models whose files change during a run.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::time::{Interval, MissedTickBehavior, interval};

use callboard::Callboard;
use callboard_agents::{AgentFolder, FileChange, FileReport, Reload, files_of_agents};
use callboard_server::AgentFiles;

use super::built_in::BuiltIns;
use super::meaning;

/// How often the files are checked.
const INTERVAL: Duration = Duration::from_secs(1);

/// The entries of the folder, each with its own stamp and that of the link's target.
type Stamps = BTreeMap<PathBuf, [Option<Stamp>; 2]>;

/// The modification time of a file, its length and its identity.
type Stamp = (Option<SystemTime>, u64, Identity);

/// Inode and change time, which differ for a copy with the same length and modification time.
type Identity = (u64, i64, i64);

/// Waits until files of agents change; without a folder of agents forever.
pub(crate) async fn changed(watch: &mut Option<Watch>) {
    match watch {
        Some(watch) => watch.changed().await,
        None => std::future::pending().await,
    }
}

/// Watches a folder of agents and the file with their models, by polling.
pub(crate) struct Watch {
    folder: AgentFolder,
    built_in: BuiltIns,
    /// The stamps at the last check.
    seen: Stamps,
    ticks: Interval,
}

impl Watch {
    /// Watches a folder that was just loaded.
    pub(super) fn new(folder: AgentFolder, built_in: BuiltIns) -> Self {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Changes since it was loaded are found at the first check, because nothing was seen before.
        Self { folder, built_in, seen: Stamps::new(), ticks }
    }

    /// Waits until a file has changed.
    pub(crate) async fn changed(&mut self) {
        loop {
            self.ticks.tick().await;
            let stamps = stamps(&self.folder);
            if stamps != self.seen {
                self.seen = stamps;
                return;
            }
        }
    }

    /// Where the agents are from, and what they are for.
    pub(crate) fn files(&self) -> AgentFiles {
        let mut files = self.built_in.files();
        files.descriptions.extend(self.folder.descriptions());
        files.refused = self.folder.refused_files();
        files.files = self.folder.agents().map(|(file, agent, team)| meaning::of(file, agent, team)).collect();
        files
    }

    /// Reloads the agents, and returns a line for each that has changed or was refused.
    pub(crate) async fn reload(&mut self, board: &Callboard) -> Vec<String> {
        match board.reload(&mut self.folder).await {
            Ok(reports) => {
                let has_other_models = reports.iter().any(|report| report.change == FileChange::Models);
                let changes = reports.iter().filter(|report| report.change != FileChange::Unchanged);
                let mut lines: Vec<String> = changes.map(FileReport::to_string).collect();
                if has_other_models {
                    lines.extend(self.renew_built_in(board).await);
                }
                lines
            }
            Err(error) => vec![error.to_string()],
        }
    }

    /// Gives the built-in agents the models that there are now. Returns a line for each that could not be changed.
    async fn renew_built_in(&self, board: &Callboard) -> Vec<String> {
        let specs = match self.built_in.specs(self.folder.current_models()) {
            Ok(specs) => specs,
            Err(why) => return vec![format!("the built-in agents keep their models: {why}")],
        };
        let mut lines = Vec::new();
        for spec in specs {
            let name = spec.name();
            if let (Err(error), Ok(name)) = (board.agents().replace(spec).await, name) {
                lines.push(format!("{name} keeps its earlier definition: {error}"));
            }
        }
        lines
    }
}

/// The stamps of all entries; none if the folder cannot be listed. Entries that are not files, or links to nothing, are included: reading
/// them reports why.
fn stamps(folder: &AgentFolder) -> Stamps {
    let files = files_of_agents(folder.path()).into_iter().flatten().chain(folder.catalog_path().map(Path::to_owned));
    let stamp = |about: io::Result<Metadata>| {
        let about = about.ok()?;
        Some((about.modified().ok(), about.len(), identity(&about)))
    };
    files
        .map(|file| (stamp(file.symlink_metadata()), stamp(file.metadata()), file))
        .map(|(own, of_target, file)| (file, [own, of_target]))
        .collect()
}

#[cfg(unix)]
fn identity(about: &Metadata) -> Identity {
    use std::os::unix::fs::MetadataExt as _;
    (about.ino(), about.ctime(), about.ctime_nsec())
}

#[cfg(not(unix))]
fn identity(_: &Metadata) -> Identity {
    Identity::default()
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::fs::{self, File};

    use super::*;

    #[test]
    fn a_file_that_replaces_one_with_its_length_and_time_is_noticed() {
        let place = tempfile::tempdir().unwrap();
        let [old, new] = ["a.toml", "a.toml.new"].map(|name| place.path().join(name));
        for (file, text) in [(&old, "one"), (&new, "two")] {
            fs::write(file, text).unwrap();
            File::options().write(true).open(file).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        }
        let folder = AgentFolder::new(place.path());
        let before = stamps(&folder);
        assert_eq!(stamps(&folder), before);
        fs::rename(new, old).unwrap();
        assert_ne!(stamps(&folder), before);
    }

    #[test]
    fn entries_that_are_not_files_are_noticed_when_they_appear_and_disappear() {
        use std::os::unix::{fs::symlink, net::UnixListener};

        use rustix::fs::{CWD, FileType, Mode, mknodat};

        let place = tempfile::tempdir().unwrap();
        let odd = place.path().join("odd.toml");
        let folder = AgentFolder::new(place.path());
        let before = stamps(&folder);
        let make: [(&str, &dyn Fn()); 4] = [
            ("pipe", &|| mknodat(CWD, &odd, FileType::Fifo, Mode::RUSR, 0).unwrap()),
            ("socket", &|| drop(UnixListener::bind(&odd).unwrap())),
            ("link to nothing", &|| symlink("nothing", &odd).unwrap()),
            ("link to itself", &|| symlink("odd.toml", &odd).unwrap()),
        ];
        for (what, make) in make {
            make();
            assert_ne!(stamps(&folder), before, "{what}");
            fs::remove_file(&odd).unwrap();
            assert_eq!(stamps(&folder), before, "{what}");
        }
        // The target of a link is checked too.
        symlink("target", &odd).unwrap();
        let dangling = stamps(&folder);
        fs::write(place.path().join("target"), "x").unwrap();
        assert_ne!(stamps(&folder), dangling);
    }
}
