//! The confinement of commands by the Linux kernel. The command takes it upon itself before it begins, and what it starts inherits
//! it and cannot put it off. Landlock allows what is named and refuses all other files; seccomp allows the system calls that are
//! listed in [`calls`]; capabilities are dropped; in the command's view of the files only what it may write is not read-only, and
//! shared memory is its own.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use callboard_confine::{Confinement, Pin, View, confined, while_nothing_is_reaped};
use callboard_text::quoted;
use cap_fs_ext::DirExt;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, Scope,
};
use rustix::fs::{Mode, OFlags, openat};
use rustix::process::geteuid;

use super::super::kept::{Step, StepKind, steps};
use super::super::root::Root;
use super::capabilities::KeptCapabilities;
use super::protection::Protection;

use placeholder::Placeholder;

#[path = "calls.rs"]
mod calls;
#[path = "placeholder.rs"]
mod placeholder;

/// The resources that are held while a command runs.
pub(super) type Held = Vec<Placeholder>;

/// The folder of named semaphores and shared memory; on a file system of the command's own.
const SHARED_MEMORY: &str = "/dev/shm";

/// The capabilities over files of other users, as the kernel numbers them: `CAP_CHOWN`, `CAP_DAC_OVERRIDE` and `CAP_FOWNER`.
const FILES_OF_OTHERS: u64 = 1 << 0 | 1 << 1 | 1 << 3;

/// The access rights that must be restricted: since the third version, truncating other files too.
const NEEDED: ABI = ABI::V3;

/// The rights that are restricted as well if the kernel knows them.
const KNOWN: ABI = ABI::V10;

/// The readable parts of the system, if they exist: programs, and what they need. Other processes, and files for administrators,
/// are not among them.
const SYSTEM: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/nix/store",
    "/gnu/store",
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/crypto-policies",
    "/etc/debian_version",
    "/etc/fonts",
    "/etc/gai.conf",
    "/etc/gitconfig",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/java",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/locale.alias",
    "/etc/localtime",
    "/etc/lsb-release",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/pki/tls",
    "/etc/profile",
    "/etc/protocols",
    "/etc/redhat-release",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/terminfo",
    "/etc/timezone",
    "/proc/cpuinfo",
    "/proc/filesystems",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/sys",
    "/proc/uptime",
    "/proc/version",
    "/sys/devices/system/cpu",
    "/sys/fs/cgroup",
];

/// The devices that commands may use.
const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// The most processes and threads of a command, where they can be counted: enough for a build on a large machine.
const MAX_PROCESSES: u64 = 4_096;

/// The most entries that are allowed one by one, because a hidden folder is among them.
const MAX_RULES: usize = 10_000;

/// Has a command apply the confinement to itself before it begins.
///
/// # Errors
/// Why it could not; then the command may not be started.
pub(super) fn confine(
    command: &mut Command,
    root: &Root,
    reads: &[PathBuf],
    writes: &[&Path],
    kept: KeptCapabilities,
) -> Result<Held, String> {
    let (confinement, held) = confinement(root, reads, writes, kept)?;
    confined(command, confinement);
    Ok(held)
}

fn confinement(
    root: &Root,
    reads: &[PathBuf],
    writes: &[&Path],
    kept: KeptCapabilities,
) -> Result<(Confinement, Held), String> {
    if let Some(moved) = root.hidden.iter().find(|hidden| !hidden.is_in_place()) {
        return Err(format!("the hidden folder {} is no longer in its place", shown(&moved.place)));
    }
    let filters = calls::filters()?;
    let rules = ruleset().map_err(no_kernel)?;
    let read = AccessFs::from_read(KNOWN);
    let all = AccessFs::from_all(KNOWN);
    let mut allowing = Allowing { root, rules: Some(rules), count: 0 };
    for path in SYSTEM {
        allowing.system(Path::new(path), read)?;
    }
    for path in DEVICES {
        allowing.system(Path::new(path), AccessFs::from_file(KNOWN) ^ AccessFs::Execute)?;
    }
    for path in reads {
        allowing.own(path, read)?;
    }
    for path in writes {
        allowing.own(path, all)?;
    }
    allowing.folder(&root.folder, &root.place, all)?;
    let rules = allowing.rules.take().ok_or("a rule was lost")?;
    let ruleset = Option::<OwnedFd>::from(rules).ok_or_else(|| no_kernel("it has no rules"))?;
    let capabilities = match kept {
        KeptCapabilities::Nothing => 0,
        KeptCapabilities::FilesOfOthers => FILES_OF_OTHERS,
    };
    let mut writable = Vec::new();
    for path in writes {
        writable.push(path.canonicalize().map_err(|error| format!("{} cannot be used: {error}", shown(path)))?);
    }
    // A view in which everything is writable needs no read-only mounts.
    let is_everything = writable.iter().map(PathBuf::as_path).chain([&*root.place]).any(|path| path.parent().is_none());
    // In its own user namespace a command has no capabilities outside of it.
    let hidden = root.hidden.iter().map(|hidden| &*hidden.place);
    let view = while_nothing_is_reaped(|| View::of(writable.iter().map(PathBuf::as_path)))
        .and_then(|view| view.read_only(hidden))
        .filter(|view| !is_everything && (kept == KeptCapabilities::Nothing || !view.has_user_namespace()));
    let (pins, held) = if view.is_some() { pins(root, &writable)? } else { Default::default() };
    let view = view.and_then(|view| view.pinned(pins.iter().map(|(place, pin)| (&**place, *pin))));
    // The mount would cover paths in this folder.
    let mut used = reads.iter().chain(&writable).map(PathBuf::as_path).chain([&*root.place]);
    let is_covered = used.any(|path| path.starts_with(SHARED_MEMORY));
    let view = if is_covered { view.map(View::without_shared_memory) } else { view };
    let in_shared_memory = (AccessFs::from_all(NEEDED) ^ AccessFs::Execute).bits();
    let confinement = Confinement { ruleset, filters, capabilities, view, in_shared_memory, processes: MAX_PROCESSES };
    Ok((confinement, held))
}

/// The paths that must stay unchanged in writable folders, and the placeholders of missing ones.
fn pins(root: &Root, writable: &[PathBuf]) -> Result<(Vec<(PathBuf, Pin)>, Held), String> {
    let (mut pins, mut held) = (Vec::new(), Vec::new());
    if root.kept.is_empty() {
        return Ok((pins, held));
    }
    if !root.is_in_place() {
        let place = shown(&root.place);
        return Err(format!("the folder of the tools is no longer in its place, {place}; restart where it is now"));
    }
    // These are mounts themselves.
    let areas: Vec<&Path> = writable.iter().map(PathBuf::as_path).chain([&*root.place]).collect();
    let is_within = |place: &Path| areas.iter().any(|area| place.starts_with(area));
    for path in root.kept.iter() {
        for step in steps(path) {
            let place = step.place();
            if step.kind == StepKind::Unknown {
                // It may be a link into a writable folder.
                if is_within(&place) || areas.iter().any(|area| area.starts_with(&place)) {
                    pins.push((closed(&areas, &step, "looked at")?, Pin::ReadOnly));
                }
                break;
            }
            if areas.contains(&&*place) || !is_within(&place) {
                continue;
            }
            let pin = match step.kind {
                StepKind::Folder if !placeholder::is_one(&place) => Pin::Folder,
                StepKind::Link => Pin::Link,
                StepKind::End if !placeholder::is_one(&place) => Pin::ReadOnly,
                // A missing path, which may already be a placeholder of another command.
                StepKind::Folder | StepKind::End | StepKind::Missing | StepKind::Unknown => {
                    match Placeholder::at(&place) {
                        Ok(Some(placeholder)) => {
                            held.push(placeholder);
                            pins.push((place, Pin::ReadOnly));
                        }
                        // Then the command cannot create it either.
                        Ok(None) => {}
                        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                            if is_own(&step.folder) {
                                pins.push((closed(&areas, &step, "kept from being made")?, Pin::ReadOnly));
                            }
                        }
                        Err(error) => return Err(format!("the place of {} cannot be held: {error}", shown(&place))),
                    }
                    // The rest of the path is below it.
                    break;
                }
            };
            pins.push((place, pin));
        }
    }
    Ok((pins, held))
}

/// The folder of a path that cannot be pinned, because of permissions that the command could change unless that folder itself is
/// read-only.
///
/// # Errors
/// It is where the command is to write.
fn closed(areas: &[&Path], step: &Step, what: &str) -> Result<PathBuf, String> {
    let (folder, place) = (&step.folder, step.place());
    // A command starts in the mount of its folder, which another mount on top would not change.
    let is_needed = areas.iter().any(|area| *area == folder || area.starts_with(&place));
    if !is_needed && areas.iter().any(|area| folder.starts_with(area)) {
        return Ok(folder.clone());
    }
    Err(format!(
        "{} may define agents, models or servers, and cannot be {what}, because of the permissions of its folder, which a command could \
         change: give them back (chmod u+rwx {})",
        shown(&place),
        folder.display()
    ))
}

/// Whether a command may be able to change the permissions of this folder: it has no capability for other users' folders that
/// this process lacks.
fn is_own(folder: &Path) -> bool {
    fs::metadata(folder).map_or(true, |found| found.uid() == geteuid().as_raw())
}

fn ruleset() -> Result<RulesetCreated, RulesetError> {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(NEEDED))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(KNOWN))?
        .scope(Scope::from_all(KNOWN))?
        .create()
}

/// The protections on machines that can confine commands.
pub(super) fn protections() -> Vec<Protection> {
    let always = [
        ("system calls that are not listed", "refused"),
        ("capabilities, also of the superuser", "dropped"),
        ("the terminal, and descriptors of others", "not there"),
    ];
    let required = || Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let scoped = [
        ("orders to devices", required().handle_access(AccessFs::IoctlDev).is_ok(), "Linux 6.10 with Landlock"),
        ("signals to other processes", required().scope(Scope::Signal).is_ok(), "Linux 6.12 with Landlock"),
    ];
    let held = always.map(|(name, means)| Protection { name, means, lacks: None });
    let scoped = scoped.map(|(name, holds, what)| {
        let lacks = (!holds).then(|| format!("not refused: that needs {what}"));
        Protection { name, means: "refused", lacks }
    });
    let view = while_nothing_is_reaped(|| View::of([]));
    let has_view = view.is_some();
    let of_view = [
        (
            "what defines agents, models and servers",
            "read-only to commands",
            "not read-only to commands, so look at it before the next start; a run takes no change of it that permits more",
        ),
        ("permissions and dates of files outside", "not to be changed", "not refused"),
        ("what a command leaves", "ended by the kernel", "ended as far as it is found"),
        ("shared memory", "a command's own", "refused, so that semaphores and shared memory of libraries fail"),
    ];
    let of_view = of_view.map(|(name, means, otherwise)| {
        let lacks = (!has_view).then(|| {
            format!("{otherwise}: that needs user namespaces, which the kernel or an administrator refuses here")
        });
        Protection { name, means, lacks }
    });
    let is_counted = view.is_some_and(|view| view.has_user_namespace());
    let lacks = (!is_counted).then(|| {
        "not bounded: that needs user namespaces, and an ordinary user; otherwise the kernel counts all processes of a user".to_owned()
    });
    let counted = Protection { name: "the number of processes", means: "4,096 for each command", lacks };
    held.into_iter().chain(scoped).chain(of_view).chain([counted]).collect()
}

fn no_kernel(error: impl std::fmt::Display) -> String {
    format!("the kernel has not what it needs (Linux 6.2 with Landlock; ShellExec::unconfined does without): {error}")
}

/// Builds the rules.
struct Allowing<'a> {
    root: &'a Root,
    rules: Option<RulesetCreated>,
    count: usize,
}

impl Allowing<'_> {
    /// Allows a part of the system, if it exists.
    fn system(&mut self, path: &Path, access: BitFlags<AccessFs>) -> Result<(), String> {
        match path.canonicalize() {
            Ok(place) if !self.is_hidden(&place) => self.at(&place, access),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Allows a path that the owner has named, which must exist.
    fn own(&mut self, path: &Path, access: BitFlags<AccessFs>) -> Result<(), String> {
        let place = path.canonicalize().map_err(|error| format!("{} cannot be used: {error}", shown(path)))?;
        if self.is_hidden(&place) {
            return Err(format!("{} is hidden from the tools; it cannot be given to commands", shown(path)));
        }
        self.at(&place, access)
    }

    fn is_hidden(&self, place: &Path) -> bool {
        self.root.hidden.iter().any(|hidden| place.starts_with(&hidden.place))
    }

    fn at(&mut self, place: &Path, access: BitFlags<AccessFs>) -> Result<(), String> {
        if !place.is_dir() {
            let file = openat(rustix::fs::CWD, place, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
                .map_err(|error| format!("{} cannot be opened: {error}", shown(place)))?;
            return self.allow(file, access & AccessFs::from_file(KNOWN));
        }
        match Dir::open_ambient_dir(place, ambient_authority()) {
            Ok(folder) => self.folder(&folder, place, access),
            // If this user may not read it, the command may not either.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Ok(()),
            Err(error) => Err(format!("{} cannot be opened: {error}", shown(place))),
        }
    }

    /// Allows a folder; if it contains a hidden folder, every other entry one by one, because a rule has no exceptions.
    fn folder(&mut self, folder: &Dir, place: &Path, access: BitFlags<AccessFs>) -> Result<(), String> {
        if !self.root.hidden.iter().any(|hidden| hidden.place.starts_with(place)) {
            return self.allow(folder, access);
        }
        if self.is_hidden(place) {
            return Ok(());
        }
        self.allow(folder, AccessFs::ReadDir.into())?;
        let failed = |error: std::io::Error| format!("{} cannot be looked through: {error}", shown(place));
        for entry in folder.entries().map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let (name, kind) = (entry.file_name(), entry.file_type().map_err(failed)?);
            let below = place.join(&name);
            if kind.is_dir() {
                // It may have been removed meanwhile.
                if let Ok(folder) = folder.open_dir_nofollow(&name) {
                    self.folder(&folder, &below, access)?;
                }
            } else if kind.is_file()
                && let Ok(file) =
                    openat(folder, &name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
            {
                self.allow(file, access & AccessFs::from_file(KNOWN))?;
            }
        }
        Ok(())
    }

    fn allow(&mut self, what: impl std::os::fd::AsFd, access: BitFlags<AccessFs>) -> Result<(), String> {
        self.count += 1;
        if self.count > MAX_RULES {
            return Err(format!("more than {MAX_RULES} files lie beside what is hidden; have it lie elsewhere"));
        }
        let rules = self.rules.take().ok_or("a rule was lost")?;
        let rules =
            rules.add_rule(PathBeneath::new(what, access)).map_err(|error| format!("a rule was refused: {error}"))?;
        self.rules = Some(rules);
        Ok(())
    }
}

fn shown(path: &Path) -> String {
    quoted(&path.display().to_string())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

    use super::*;

    #[test]
    fn a_kernel_without_it_confines_nothing_and_reports_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let old_kernel = std::thread::spawn(move || {
            let filter = SeccompFilter::new(
                BTreeMap::from([(libc::SYS_landlock_create_ruleset, Vec::new())]),
                SeccompAction::Allow,
                SeccompAction::Errno(libc::ENOSYS as u32),
                std::env::consts::ARCH.try_into().unwrap(),
            );
            let program: BpfProgram = filter.unwrap().try_into().unwrap();
            seccompiler::apply_filter(&program).unwrap();
            confinement(&root, &[], &[], KeptCapabilities::Nothing).map(drop)
        });
        let error = old_kernel.join().unwrap().unwrap_err();
        assert!(error.contains("the kernel has not what it needs"), "{error}");
    }

    #[test]
    fn a_shell_that_may_write_everything_sees_nothing_as_read_only() {
        let view_of = |place: &Path| {
            confinement(&Root::open(place).unwrap(), &[], &[], KeptCapabilities::Nothing).unwrap().0.view
        };
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(view_of(folder.path()).is_some(), View::of([]).is_some());
        assert!(view_of(Path::new("/")).is_none());
    }

    #[test]
    fn a_hidden_folder_that_was_moved_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let (hidden, moved) = (folder.path().join("hidden"), folder.path().join("moved"));
        std::fs::create_dir(&hidden).unwrap();
        let root = Root::open(folder.path()).unwrap().without(&hidden).unwrap();
        std::fs::rename(&hidden, &moved).unwrap();
        assert!(
            confinement(&root, &[], &[], KeptCapabilities::Nothing)
                .map(drop)
                .unwrap_err()
                .contains("is no longer in its place")
        );
    }
}
