//! The write-ahead log: writes as they are synced, one after the other, in files beside sled's. A sync appends one frame to the newest
//! file, with all writes since the sync before, and waits for the disk once.
//!
//! The rows that writes change are applied to sled's tree later. Once the tree has them on disk, which its progress row says, the files of
//! their frames are removed. A store that was not closed is opened by applying the frames that are left, which makes no difference
//! to what was applied before. A crash leaves a beginning of the frames, the last of which may be torn: it was not acknowledged. One
//! that is damaged otherwise leaves a gap in the numbers of syncs, or an end before the one that was noted.
//!
//! | file | what |
//! |---|---|
//! | `wal.N` | a header, then the frames of the syncs from N on |
//!
//! | header | bytes |
//! |---|---|
//! | name and version | 8 |
//! | salt | 8: it is in the checksum of each frame, so nobody can write bytes into a store that look like one |
//!
//! | frame | bytes |
//! |---|---|
//! | salt | 8 |
//! | CRC-32 of the salt and all that follows | 4 |
//! | length of the rest | 4 |
//! | length of the progress, and the progress, which has the number of the sync | 4 and more |
//! | writes (`changes`) | the rest |

use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::changes::{Unwritten, take};
use super::disk::{Disk, sync_folder};
use super::rows::Progress;
use crate::storage::codec;

/// More than any file has: one ends when the writes in memory are applied, whose number is bounded.
const MAX_FILE: u64 = 256 << 20;

/// What the names of the files begin with.
const NAME: &str = "wal.";
const HEADER: &[u8; 8] = b"cbwal\0\0\x01";
const SALT: usize = 8;
/// Salt, checksum and length.
const FRAME_HEADER: usize = SALT + 4 + 4;

/// The end of the log, to which frames are added.
#[derive(Debug)]
pub(super) struct WriteAheadLog {
    folder: PathBuf,
    newest: Option<OpenFile>,
}

#[derive(Debug)]
struct OpenFile {
    file: File,
    path: PathBuf,
    salt: [u8; SALT],
}

impl WriteAheadLog {
    pub(super) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), newest: None }
    }

    /// Adds the writes of one sync, and returns when they are on disk.
    pub(super) fn append(&mut self, disk: &dyn Disk, progress: &Progress, unwritten: &Unwritten) -> io::Result<()> {
        if let Some(OpenFile { file, path, salt }) = &mut self.newest {
            disk.write(file, path, &frame(*salt, progress, unwritten)?)?;
            return disk.sync(file, path);
        }
        let path = self.folder.join(format!("{NAME}{}", progress.sync));
        let salt = RandomState::new().build_hasher().finish().to_le_bytes();
        let mut file = disk.create_new(&path)?;
        let bytes = [HEADER, &salt, &*frame(salt, progress, unwritten)?].concat();
        disk.write(&mut file, &path, &bytes)?;
        disk.sync(&file, &path)?;
        sync_folder(disk, &self.folder)?;
        self.newest = Some(OpenFile { file, path, salt });
        Ok(())
    }

    /// Has the next frame begin a file.
    pub(super) fn end_file(&mut self) {
        self.newest = None;
    }

    /// Removes the files that begin with this sync or an earlier one. Which others a power failure brings back makes no difference: the
    /// tree has their writes.
    pub(super) fn remove_up_to(&self, sync: u64) -> io::Result<()> {
        let files = files_in(&self.folder)?;
        files.into_iter().filter(|(first, _)| *first <= sync).try_for_each(|(_, path)| fs::remove_file(path))
    }
}

fn frame(salt: [u8; SALT], progress: &Progress, unwritten: &Unwritten) -> io::Result<Vec<u8>> {
    let progress_bytes = codec::encode(progress);
    let body = 4 + progress_bytes.len() + unwritten.bytes().len();
    let too_long = |_| io::Error::other("the writes of one sync are too long");
    let mut frame = Vec::with_capacity(FRAME_HEADER + body);
    frame.extend_from_slice(&salt);
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(&u32::try_from(body).map_err(too_long)?.to_le_bytes());
    frame.extend_from_slice(&u32::try_from(progress_bytes.len()).map_err(too_long)?.to_le_bytes());
    frame.extend_from_slice(&progress_bytes);
    frame.extend_from_slice(unwritten.bytes());
    let sum = sum_of(salt, &frame[SALT + 4..]);
    frame[SALT..SALT + 4].copy_from_slice(&sum);
    Ok(frame)
}

fn sum_of(salt: [u8; SALT], rest: &[u8]) -> [u8; 4] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&salt);
    hasher.update(rest);
    hasher.finalize().to_le_bytes()
}

/// The log's files with the syncs that they begin with, in order.
pub(super) fn files_in(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut files = Vec::new();
    for file in fs::read_dir(folder)? {
        let file = file?;
        let name = file.file_name();
        if let Some(first) = name.to_str().and_then(|name| name.strip_prefix(NAME)).and_then(|first| first.parse().ok())
        {
            files.push((first, file.path()));
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// The frames that a store was left with.
#[derive(Debug, Default)]
pub(super) struct Frames(Vec<Frame>);

#[derive(Debug)]
struct Frame {
    progress: Progress,
    writes: Vec<u8>,
}

impl Frames {
    /// Reads all whole frames. A broken one is left out, and those after it are not.
    pub(super) fn read(folder: &Path) -> Result<Self, String> {
        let mut frames = Vec::new();
        let unreadable = |error: io::Error| format!("the write-ahead log cannot be read: {error}");
        for (first, path) in files_in(folder).map_err(unreadable)? {
            // A pipe would be waited for, and a link leads out of the folder.
            if !fs::symlink_metadata(&path).map_err(unreadable)?.is_file() {
                return Err(format!("its `{NAME}{first}` is not a file; move away what is there"));
            }
            let mut bytes = Vec::new();
            let file = File::open(&path).map_err(unreadable)?;
            file.take(MAX_FILE).read_to_end(&mut bytes).map_err(unreadable)?;
            read_frames(&bytes, &mut frames);
        }
        frames.sort_by_key(|frame| frame.progress.sync);
        Ok(Self(frames))
    }

    /// The last sync of which there is a frame; 0 if there is none.
    pub(super) fn last_sync(&self) -> u64 {
        self.0.last().map_or(0, |frame| frame.progress.sync)
    }

    /// The writes after a sync that the tree has, one frame after the other, and the progress with the last of them.
    ///
    /// # Errors
    /// Frames are missing: acknowledged writes are lost.
    pub(super) fn after(self, sync: u64) -> Result<Option<(Progress, Vec<u8>)>, String> {
        let mut left: Option<(Progress, Vec<u8>)> = None;
        for Frame { progress, writes } in self.0.into_iter().filter(|frame| frame.progress.sync > sync) {
            let before = left.as_ref().map_or(sync, |(before, _)| before.sync);
            if progress.sync != before + 1 {
                let (first, last) = (before + 1, progress.sync - 1);
                return Err(format!("the writes of the syncs {first} to {last} are missing or damaged"));
            }
            let (last, all) = left.get_or_insert_with(|| (progress, Vec::new()));
            *last = progress;
            all.extend_from_slice(&writes);
        }
        Ok(left)
    }
}

fn read_frames(bytes: &[u8], frames: &mut Vec<Frame>) {
    let Some(salt) = bytes.strip_prefix(HEADER).and_then(|rest| rest.first_chunk::<SALT>()) else { return };
    let mut rest = &bytes[HEADER.len() + SALT..];
    while !rest.is_empty() {
        if let Some((frame, length)) = first_frame(rest, *salt) {
            frames.push(frame);
            rest = &rest[length..];
        } else {
            // Its end is where the next one begins, if it was not the last.
            let next = rest[1..].windows(SALT).position(|window| window == salt);
            rest = next.map_or(&[], |next| &rest[1 + next..]);
        }
    }
}

/// The frame that bytes begin with, if it is whole, and its length.
fn first_frame(bytes: &[u8], salt: [u8; SALT]) -> Option<(Frame, usize)> {
    let rest = bytes.strip_prefix(&salt)?;
    let (sum, summed) = rest.split_first_chunk::<4>()?;
    let (length, body) = summed.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let mut body = body.get(..length)?;
    if sum_of(salt, &summed[..4 + length]) != *sum {
        return None;
    }
    let progress = codec::decode::<Progress>(take(&mut body)?).ok()?;
    Some((Frame { progress, writes: body.to_vec() }, FRAME_HEADER + length))
}

#[cfg(test)]
mod tests {
    use super::super::disk::SystemDisk;
    use super::*;

    fn unwritten(sync: u64) -> Unwritten {
        let (row, sealed) = (sync.to_be_bytes(), vec![sync as u8; 10 * sync as usize]);
        let mut unwritten = Unwritten::default();
        unwritten.add([(&row[..], Some(&*sealed)), (b"removed", None)].into_iter());
        unwritten
    }

    /// A log with these syncs, and a new file from each of those on.
    fn log(syncs: impl Iterator<Item = u64>, begins: &[u64]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let mut log = WriteAheadLog::new(folder.path());
        for sync in syncs {
            if begins.contains(&sync) {
                log.end_file();
            }
            log.append(&SystemDisk, &Progress { sync, last_number: sync, session: 1 }, &unwritten(sync)).unwrap();
        }
        folder
    }

    fn left(folder: &Path, after: u64) -> Result<Option<(Progress, Vec<u8>)>, String> {
        Frames::read(folder).unwrap().after(after)
    }

    fn writes_of(syncs: impl Iterator<Item = u64>) -> Vec<u8> {
        syncs.flat_map(|sync| unwritten(sync).bytes().to_vec()).collect()
    }

    #[test]
    fn whatever_a_crash_leaves_of_the_log_a_beginning_of_the_writes_is_read() {
        let folder = log(1..=6, &[]);
        let path = folder.path().join("wal.1");
        let whole = fs::read(&path).unwrap();
        let mut reached = 0;
        for length in 0..=whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let left = left(folder.path(), 0).unwrap();
            let last = left.as_ref().map_or(0, |(progress, _)| progress.sync);
            assert!((reached..=reached + 1).contains(&last), "{length}");
            reached = last;
            assert_eq!(left.map_or(Vec::new(), |(_, writes)| writes), writes_of(1..=last));
        }
        assert_eq!(reached, 6);
    }

    #[test]
    fn a_flipped_bit_leaves_a_beginning_or_a_gap_that_is_reported() {
        let folder = log(1..=4, &[3]);
        let mut gaps = 0;
        for name in ["wal.1", "wal.3"] {
            let path = folder.path().join(name);
            let whole = fs::read(&path).unwrap();
            for bit in 0..whole.len() * 8 {
                let mut damaged = whole.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                fs::write(&path, &damaged).unwrap();
                match left(folder.path(), 0) {
                    Ok(left) => {
                        let last = left.as_ref().map_or(0, |(progress, _)| progress.sync);
                        assert!(last < 4, "bit {bit} of {name} makes no difference");
                        assert_eq!(left.map_or(Vec::new(), |(_, writes)| writes), writes_of(1..=last));
                    }
                    Err(error) => {
                        assert!(error.ends_with("are missing or damaged"), "{error}");
                        gaps += 1;
                    }
                }
            }
            fs::write(&path, &whole).unwrap();
        }
        assert!(gaps > 0);
    }

    #[test]
    fn what_the_tree_has_is_left_out_and_a_file_that_is_missing_is_reported() {
        let folder = log(1..=9, &[4, 7]);
        for after in 0..=9 {
            let left = left(folder.path(), after).unwrap();
            assert_eq!(left.map_or(Vec::new(), |(_, writes)| writes), writes_of(after + 1..=9));
        }
        fs::remove_file(folder.path().join("wal.4")).unwrap();
        assert_eq!(left(folder.path(), 2).unwrap_err(), "the writes of the syncs 4 to 6 are missing or damaged");
        assert_eq!(left(folder.path(), 6).unwrap().unwrap().1, writes_of(7..=9));
        WriteAheadLog::new(folder.path()).remove_up_to(6).unwrap();
        assert_eq!(files_in(folder.path()).unwrap(), [(7, folder.path().join("wal.7"))]);
    }

    #[test]
    fn a_value_that_has_the_bytes_of_a_frame_is_not_read_as_one() {
        let folder = log(1..=2, &[]);
        let of_another = fs::read(folder.path().join("wal.1")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut unwritten = Unwritten::default();
        unwritten.add([(&b"row"[..], Some(&*of_another))].into_iter());
        let mut log = WriteAheadLog::new(folder.path());
        log.append(&SystemDisk, &Progress { sync: 1, ..Progress::default() }, &unwritten).unwrap();
        let path = folder.path().join("wal.1");
        let mut torn = fs::read(&path).unwrap();
        assert_eq!(left(folder.path(), 0).unwrap().unwrap().1, unwritten.bytes());
        torn.pop();
        fs::write(&path, torn).unwrap();
        assert_eq!(left(folder.path(), 0), Ok(None));
    }
}
