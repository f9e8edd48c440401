//! Servers with a small disk: a file system in memory, which is mounted for the server alone.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::Server;

/// What of a server is on a small disk of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Small {
    Nothing,
    /// All but the log of writes.
    Data,
    /// The log of writes.
    Log,
}

/// Mounts a disk of the size `$3` on the folder `$2`, with what is there, in the folder `$1` of the server; where the log of writes is in
/// it, that stays where it was. Then it runs the rest, and takes all of it away.
const MOUNT: &str = r#"
    set -e
    cp -a "$1/$2" "$1/copy"
    mount -t tmpfs -o "size=$3,mode=0700" none "$1/$2"
    chown --reference="$1/copy" "$1/$2"
    if [ -d "$1/copy/pg_wal" ]; then
        mv "$1/copy/pg_wal" "$1/pg_wal"
        mkdir "$1/$2/pg_wal"
        mount --bind "$1/pg_wal" "$1/$2/pg_wal"
    fi
    cp -a "$1/copy/." "$1/$2"
    rm -r "$1/copy"
    folder=$1 place=$2
    shift 3
    CALLBOARD_KEEP_FOLDER=1 "$@" & server=$!
    trap 'kill -TERM $server' TERM
    set +e
    wait $server; wait $server
    umount -R -l "$folder/$place"
    rm -rf "$folder"
"#;

impl Small {
    /// Its folder in that of the server, and the size of its disk.
    fn place(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Nothing => None,
            Self::Data => Some(("data", "48m")),
            Self::Log => Some(("data/pg_wal", "16m")),
        }
    }

    /// Why no such disk can be mounted here, if it is so.
    pub(crate) fn why_not() -> Option<String> {
        if !super::is_root() {
            return Some("only the superuser can mount a disk for a server, which runs as another user".to_owned());
        }
        let folder = tempfile::tempdir().unwrap();
        let script = "mount -t tmpfs none \"$1\"";
        let mut mount = Command::new("unshare");
        let mounted = mount.args(["--mount", "sh", "-c", script, "sh"]).arg(folder.path()).output().unwrap();
        let why = || format!("no disk can be mounted: {}", String::from_utf8_lossy(&mounted.stderr));
        (!mounted.status.success()).then(why)
    }

    /// The command that runs this one, to which arguments may be added, where the disk is mounted.
    pub(super) fn on_its_disk(self, folder: &Path, command: Command) -> Command {
        let Some((place, size)) = self.place() else { return command };
        let mut mounting = Command::new("setpriv");
        mounting
            .args(["--pdeathsig", "TERM", "unshare", "--mount", "sh", "-c", MOUNT, "sh"])
            .arg(folder)
            .args([place, size]);
        mounting.arg(command.get_program()).args(command.get_args());
        mounting
    }
}

impl Server {
    /// A file on the server's small disk.
    pub(crate) fn on_disk(&self, small: Small, name: &str) -> PathBuf {
        let (place, _) = small.place().unwrap();
        let own = self.folder.strip_prefix("/").unwrap();
        Path::new("/proc").join(self.pid.to_string()).join("root").join(own).join(place).join(name)
    }
}
