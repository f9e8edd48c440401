//! Files of agents and models that change during a run.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::time::{Interval, MissedTickBehavior, interval};

use callboard::Callboard;
use callboard_agents::{AgentFolder, FileChange, FileReport, Reload};

use super::load::BuiltIns;

/// How often they are looked at.
const EVERY: Duration = Duration::from_secs(1);

/// The entries, and what is known of them and of what they lead to.
type Stamps = BTreeMap<PathBuf, [Option<Stamp>; 2]>;

/// When a file was changed last, how long it is, and which it is.
type Stamp = (Option<SystemTime>, u64, Identity);

/// Tells a file from another one of its length and time, which a copy that keeps times may have.
type Identity = (u64, i64, i64);

/// Looks at a folder of agents, and at the file with their models, now and then.
pub(crate) struct Watch {
    folder: AgentFolder,
    built_in: BuiltIns,
    seen: Stamps,
    ticks: Interval,
}

impl Watch {
    /// Looks at a folder that was loaded just now.
    pub(super) fn new(folder: AgentFolder, built_in: BuiltIns) -> Self {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // What has changed since it was loaded is found at the first look.
        Self { folder, built_in, seen: Stamps::new(), ticks }
    }

    /// Waits until they look different.
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

    /// Has the agents be as their files say, and gives a line for each that has changed or was not taken.
    pub(crate) async fn reload(&mut self, board: &Callboard) -> Vec<String> {
        match board.reload(&mut self.folder).await {
            Ok(reports) => {
                let has_other_models = reports.iter().any(|report| report.change == FileChange::Models);
                let news = reports.iter().filter(|report| report.change != FileChange::Unchanged);
                let mut news: Vec<String> = news.map(FileReport::to_string).collect();
                if has_other_models {
                    news.extend(self.renew_built_in(board).await);
                }
                news
            }
            Err(error) => vec![error.to_string()],
        }
    }

    /// Has the built-in agents choose among the models that there are now. Gives a line for each that stays as it was.
    async fn renew_built_in(&self, board: &Callboard) -> Vec<String> {
        let specs = match self.built_in.specs(&self.folder) {
            Ok(specs) => specs,
            Err(why) => return vec![format!("the built-in agents go on as before: {why}")],
        };
        let mut news = Vec::new();
        for spec in specs {
            let name = spec.name();
            if let (Err(error), Ok(name)) = (board.agents().replace(spec).await, name) {
                news.push(format!("{name} stays as it was: {error}"));
            }
        }
        news
    }
}

/// What is no file, or leads nowhere, is an entry as well: reading it tells why.
fn stamps(folder: &AgentFolder) -> Stamps {
    let entries = folder.path().read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
    let files = entries.filter(|file| file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml")));
    let files = files.chain(folder.catalog_path().map(Path::to_owned));
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
    fn a_file_that_takes_the_place_of_one_with_its_length_and_time_is_noticed() {
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
    fn what_is_no_file_is_noticed_when_it_comes_and_when_it_goes() {
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
        // What a link leads to is looked at too.
        symlink("target", &odd).unwrap();
        let dangling = stamps(&folder);
        fs::write(place.path().join("target"), "x").unwrap();
        assert_ne!(stamps(&folder), dangling);
    }
}
