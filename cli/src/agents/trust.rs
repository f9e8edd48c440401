//! Whether another user could have changed a file. What holds of a file and of all folders and links on the way to it, no other user can
//! change after it was checked.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::process::{getegid, geteuid};

/// The most links that systems follow on the way to a file.
const MAX_LINKS: usize = 40;

const BY_ALL: u32 = 0o002;
const BY_GROUP: u32 = 0o020;
/// In a folder with this bit, nobody can rename or remove what belongs to others.
const STICKY: u32 = 0o1000;

/// The user that this process acts for. Root is trusted beside them: it can do whatever they can.
#[derive(Debug)]
pub(crate) struct User {
    id: u32,
    /// Their own group, if nobody else is in it.
    private_group: Option<u32>,
}

impl User {
    pub(crate) fn current() -> Self {
        let (id, group) = (geteuid().as_raw(), getegid().as_raw());
        let text = |path: &str| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
        let private_group = is_private(group, id, &text("/etc/passwd"), &text("/etc/group")).then_some(group);
        Self { id, private_group }
    }

    /// What another user may have changed of where an absolute path leads, or on the way there: the first file, folder or link from the
    /// top of the file system; of what is missing, the folder that it would be in. What cannot be looked at cannot be read either.
    pub(crate) fn untrusted(&self, path: &Path) -> Option<PathBuf> {
        let mut left: Vec<OsString> = parts(path).rev().collect();
        // A folder without links, or the file at the end.
        let (mut at, mut links) = (PathBuf::new(), 0);
        while let Some(part) = left.pop() {
            match Path::new(&part).components().next() {
                Some(Component::ParentDir) => {
                    at.pop();
                    continue;
                }
                Some(Component::CurDir) | None => continue,
                Some(Component::Prefix(_) | Component::RootDir | Component::Normal(_)) => {}
            }
            let place = at.join(&part);
            let found = match place.symlink_metadata() {
                Ok(found) => Some(found),
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                Err(_) => return None,
            };
            if !at.as_os_str().is_empty() && self.others_change(&at, found.is_some()) {
                return Some(at);
            }
            let found = found?;
            if ![self.id, 0].contains(&found.uid()) {
                return Some(place);
            }
            if !found.is_symlink() {
                at = place;
                continue;
            }
            links += 1;
            if links > MAX_LINKS {
                return None;
            }
            left.extend(parts(&place.read_link().ok()?).rev());
        }
        self.others_change(&at, false).then_some(at)
    }

    /// Why another user may have changed it: its owner, or its mode.
    pub(crate) fn reason(&self, path: &Path) -> String {
        match path.symlink_metadata() {
            Ok(found) if ![self.id, 0].contains(&found.uid()) => format!("its owner is the user {}", found.uid()),
            Ok(found) => format!("its mode is {:o}", found.mode() & 0o7777),
            Err(error) => error.to_string(),
        }
    }

    /// Whether others may write to it. Of a folder, where `is_there` is set: whether they may replace something in it that belongs to the
    /// user or to root.
    fn others_change(&self, path: &Path, is_there: bool) -> bool {
        let Ok(found) = path.symlink_metadata() else { return true };
        let mode = found.mode();
        let is_writable = mode & BY_ALL != 0 || (mode & BY_GROUP != 0 && !self.has_group_alone(path, &found));
        is_writable && !(is_there && mode & STICKY != 0)
    }

    /// Whether the permissions of the group are the user's alone. With an access control list they are not only those of the group.
    fn has_group_alone(&self, path: &Path, found: &Metadata) -> bool {
        self.private_group == Some(found.gid()) && !has_access_list(path)
    }
}

fn parts(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    path.components().map(|part| part.as_os_str().to_owned())
}

#[cfg(target_os = "linux")]
fn has_access_list(path: &Path) -> bool {
    rustix::fs::getxattr(path, "system.posix_acl_access", &mut [0_u8; 0]).is_ok()
}

/// Elsewhere the permissions of a file do not show what its list adds to them.
#[cfg(not(target_os = "linux"))]
fn has_access_list(_: &Path) -> bool {
    false
}

/// Whether a user's group is theirs alone: it has their number or their name, and these texts of `/etc/passwd` and `/etc/group` name
/// nobody else in it.
fn is_private(group: u32, user: u32, users: &str, groups: &str) -> bool {
    let number = |line: &str, at: usize| line.split(':').nth(at).and_then(|number| number.parse::<u32>().ok());
    let name = |line: &'_ str| line.split(':').next().unwrap_or_default().to_owned();
    let own_names: Vec<String> = users.lines().filter(|line| number(line, 2) == Some(user)).map(name).collect();
    let of_group: Vec<&str> = groups.lines().filter(|line| number(line, 2) == Some(group)).collect();
    let is_own = group == user || of_group.iter().any(|line| own_names.contains(&name(line)));
    let has_others = users.lines().any(|line| number(line, 3) == Some(group) && number(line, 2) != Some(user));
    let members = of_group.iter().flat_map(|line| line.split(':').nth(3).unwrap_or_default().split(','));
    let mut others =
        members.map(str::trim).filter(|member| !member.is_empty() && !own_names.iter().any(|own| own == member));
    is_own && !has_others && others.next().is_none()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_group_is_private_if_it_is_the_users_own_and_has_no_other_members() {
        const USERS: &str = "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\nbob:x:1001:100::/home/bob:/bin/sh\n\
                             eve:x:1002:1005::/home/eve:/bin/sh\n";
        const GROUPS: &str = "root:x:0:\nann:x:1000:ann\nusers:x:100:\ndevs:x:200:ann,bob\neve:x:1005:\n";
        let private = |group, user| is_private(group, user, USERS, GROUPS);
        assert!(private(1000, 1000) && private(0, 0) && private(1005, 1002));
        assert!(!private(200, 1000), "it has another name");
        assert!(!private(100, 1001), "others may be in it");
        // In a container, users may have no names.
        assert!(private(4711, 4711) && !private(4711, 4712));
        assert!(!is_private(1000, 1000, USERS, "ann:x:1000:ann,bob\n"), "another member");
        assert!(
            !is_private(1000, 1000, &format!("{USERS}mal:x:1009:1000::/:/bin/sh\n"), GROUPS),
            "another user's group"
        );
    }

    #[test]
    fn each_folder_and_link_on_the_way_counts_and_what_is_missing_as_its_folder() {
        let place = tempfile::tempdir().unwrap();
        let base = place.path().canonicalize().unwrap();
        let user = User::current();
        for folder in ["own/deep", "open", "sticky"] {
            fs::create_dir_all(base.join(folder)).unwrap();
        }
        for file in ["own/deep/file", "open/file", "sticky/file"] {
            fs::write(base.join(file), "").unwrap();
        }
        for (link, target) in [
            ("own/there", "deep/file"),
            ("own/circle", "circle"),
            ("own/to_open", "../open/file"),
            ("open/back", "../own/deep/file"),
            ("own/way", "../open/back"),
            ("own/nowhere", "none"),
            ("own/to_be", "../open/none"),
            ("own/to_stick", "../sticky/none"),
        ] {
            symlink(target, base.join(link)).unwrap();
        }
        let set_mode =
            |path: &str, mode| fs::set_permissions(base.join(path), fs::Permissions::from_mode(mode)).unwrap();
        for (path, mode) in [("open", 0o777), ("sticky", 0o1777), ("own/deep", 0o755), ("own/deep/file", 0o644)] {
            set_mode(path, mode);
        }
        set_mode("sticky/file", 0o644);
        for (path, expected) in [
            ("own/deep/file", None),
            ("own/there", None),
            ("own/none", None),
            ("own/nowhere", None),
            ("own/circle", None),
            ("sticky/file", None),
            ("own/../sticky/file", None),
            ("open", Some("open")),
            ("open/file", Some("open")),
            ("open/../own", None),
            ("own/../open/.", Some("open")),
            ("open/none/deeper", Some("open")),
            ("own/to_open", Some("open")),
            ("own/way", Some("open")),
            ("own/to_be", Some("open")),
            ("sticky", Some("sticky")),
            ("sticky/none", Some("sticky")),
            ("own/to_stick", Some("sticky")),
        ] {
            assert_eq!(user.untrusted(&base.join(path)), expected.map(|path| base.join(path)), "{path}");
        }
        set_mode("own/deep/file", 0o646);
        assert_eq!(user.untrusted(&base.join("own/there")), Some(base.join("own/deep/file")));
    }

    #[test]
    fn a_group_that_may_write_has_to_be_private() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().canonicalize().unwrap().join("file");
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o664)).unwrap();
        let own = file.metadata().unwrap().gid();
        let with = |private_group| User { private_group, ..User::current() };
        assert_eq!(with(Some(own)).untrusted(&file), None);
        for private_group in [None, Some(own + 1)] {
            assert_eq!(with(private_group).untrusted(&file), Some(file.clone()));
        }
    }

    /// An attack: a list lets another user write, which permissions show as those of the group.
    #[cfg(target_os = "linux")]
    #[test]
    fn an_access_control_list_makes_a_file_that_its_group_may_write_untrusted() {
        use rustix::fs::{XattrFlags, setxattr};

        let place = tempfile::tempdir().unwrap();
        let file = place.path().canonicalize().unwrap().join("file");
        fs::write(&file, "").unwrap();
        let user = User { private_group: Some(file.metadata().unwrap().gid()), ..User::current() };
        fs::set_permissions(&file, fs::Permissions::from_mode(0o664)).unwrap();
        assert_eq!(user.untrusted(&file), None);
        // Of the owner, of the user 1234, of the group, the mask, and of others.
        let entries: [(u16, u16, u32); 5] =
            [(0x01, 6, u32::MAX), (0x02, 6, 1234), (0x04, 0, u32::MAX), (0x10, 6, u32::MAX), (0x20, 0, u32::MAX)];
        let entries = entries.map(|(tag, permissions, id)| {
            [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
        });
        let list = [&2_u32.to_le_bytes()[..], &entries.concat()].concat();
        if setxattr(&file, "system.posix_acl_access", &list, XattrFlags::empty()).is_err() {
            eprintln!("this file system has no lists");
            return;
        }
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o660);
        assert_eq!(user.untrusted(&file), Some(file));
    }
}
