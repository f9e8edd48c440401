//! The rows of one write in the making, and all that hangs on a row: its payload file and its expiry.

use std::ops::Bound;
use std::sync::Arc;

use foldhash::{HashMap, HashSet};
use sled::{IVec, Tree};

use super::changes::Unwritten;
use super::gaps::Gaps;
use super::loading::load_head;
use super::overlay::{Changed, Overlay, Stored};
use super::payloads::{MAX_INLINE, PayloadName, Payloads};
use super::read_error::ReadError;
use super::rows::{self, Content, PayloadRow};
use crate::messages::Timestamp;
use crate::storage::Key;
use crate::storage::stream_head::StreamHead;

/// Expired rows that one write removes at most.
const EXPIRED_AT_ONCE: usize = 64;

/// The rows as the write will leave them.
pub(super) struct RowBatch {
    tree: Tree,
    overlay: Arc<Overlay>,
    payloads: Payloads,
    /// Rows that this write changes; `None` removes.
    rows: HashMap<Vec<u8>, Option<IVec>>,
    /// Rows that this write has looked for in vain.
    absent: HashSet<Vec<u8>>,
    gaps: Gaps,
    /// What earlier writes have changed and is not in the log yet.
    unwritten: Unwritten,
    /// Whether this write has payload files.
    new_payloads: bool,
    /// Files that may have lost their last reference.
    loose_payloads: Vec<PayloadName>,
    /// No row expires before this.
    next_expiry: Timestamp,
}

impl RowBatch {
    pub(super) fn new(tree: Tree, overlay: Arc<Overlay>, payloads: Payloads) -> Self {
        Self {
            tree,
            overlay,
            payloads,
            rows: HashMap::default(),
            absent: HashSet::default(),
            gaps: Gaps::default(),
            unwritten: Unwritten::default(),
            new_payloads: false,
            loose_payloads: Vec::new(),
            next_expiry: Timestamp::default(),
        }
    }

    /// What is stored, without the write in the making.
    pub(super) fn stored(&self) -> Stored<'_> {
        Stored { tree: &self.tree, overlay: &self.overlay }
    }

    /// About how many bytes of writes are in memory: those that are not in the log yet, and those that the tree may not get yet.
    pub(super) fn bytes(&self) -> usize {
        self.unwritten.len() + self.overlay.young_bytes()
    }

    /// Makes the names of payload files that the write has durable.
    pub(super) fn sync_payload_names(&mut self) -> std::io::Result<()> {
        if std::mem::take(&mut self.new_payloads) { self.payloads.sync_names() } else { Ok(()) }
    }

    /// Makes the write, where readers see it; false if there was nothing to change.
    pub(super) fn apply(&mut self) -> bool {
        let has_changed = !self.rows.is_empty();
        if has_changed {
            self.unwritten.add(self.rows.iter().map(|(row, sealed)| (&**row, sealed.as_deref())));
            let absent = &self.absent;
            self.overlay.add(self.rows.drain().map(|(row, sealed)| {
                let is_new = absent.contains(&row);
                Changed { row, sealed, is_new }
            }));
        }
        has_changed
    }

    /// About how many bytes the young layer takes.
    pub(super) fn young_bytes(&self) -> usize {
        self.overlay.young_bytes()
    }

    /// Has the young layer become the old one.
    pub(super) fn age(&self) {
        self.overlay.age();
    }

    /// What has been written since the last call.
    pub(super) fn take_unwritten(&mut self) -> Unwritten {
        std::mem::take(&mut self.unwritten)
    }

    /// A row as the write leaves it.
    pub(super) fn row(&mut self, row: &[u8]) -> Result<Option<IVec>, ReadError> {
        if let Some(staged) = self.rows.get(row) {
            return Ok(staged.clone());
        }
        if self.absent.contains(row) {
            return Ok(None);
        }
        let applied = match self.overlay.get_or_applied(row) {
            Ok(known) => return Ok(known),
            Err(applied) => applied,
        };
        if !self.gaps.have(row, row, applied) {
            if let Some(sealed) = self.tree.get(row)? {
                return Ok(Some(sealed));
            }
            self.gaps.learn(&self.tree, row);
        }
        self.absent.insert(row.to_vec());
        Ok(None)
    }

    /// Forgets what an earlier write, which may have been refused, has looked for in vain.
    pub(super) fn forget_absent(&mut self) {
        self.absent.clear();
    }

    /// The head of a stream.
    pub(super) fn head(&mut self, stream: &Key) -> Result<StreamHead, ReadError> {
        let Some(applied) = self.overlay.applied_without(stream) else { return load_head(self.stored(), stream, true) };
        let (first, last) = rows::all_records(stream);
        if self.gaps.have(&first, &last, applied) {
            return Ok(StreamHead::default());
        }
        let head = load_head(self.stored(), stream, false)?;
        if head == StreamHead::default() {
            self.gaps.learn(&self.tree, &first);
        }
        Ok(head)
    }

    pub(super) fn write(&mut self, row: Vec<u8>, sealed: Option<IVec>) {
        self.rows.insert(row, sealed);
    }

    /// Stores a caller's bytes under a row; whether they are in it, and not in a payload file.
    pub(super) fn hold(
        &mut self,
        row: Vec<u8>,
        revision: u64,
        expires_at: Option<Timestamp>,
        bytes: &[u8],
    ) -> Result<bool, String> {
        let is_inline = bytes.len() <= MAX_INLINE;
        let content = if is_inline {
            Content::Inline(bytes)
        } else {
            let written = self.payloads.write(bytes);
            let name = written.map_err(|error| format!("a payload file cannot be written: {error}"))?;
            self.new_payloads = true;
            self.write(rows::payload_use(&name, &row), Some(IVec::default()));
            Content::File(name)
        };
        let sealed = PayloadRow { revision, expires_at, content }.seal(&row);
        self.write(row, Some(sealed));
        Ok(is_inline)
    }

    /// Removes a row with a caller's bytes, and all that was noted because of it.
    pub(super) fn remove(&mut self, row: Vec<u8>) -> Result<(), String> {
        let Some(sealed) = self.row(&row)? else { return Ok(()) };
        // A damaged row does not name its payload file, which is removed when the store is opened.
        if let Ok(payload_row) = PayloadRow::unseal(&row, &sealed) {
            self.forget_notes(&row, &payload_row);
        }
        self.write(row, None);
        Ok(())
    }

    /// Removes what was noted because of a row that is replaced or removed.
    pub(super) fn forget_notes(&mut self, row: &[u8], payload_row: &PayloadRow<'_>) {
        if let Some(moment) = payload_row.expires_at {
            self.write(rows::expiry(moment, row), None);
        }
        if let Content::File(name) = payload_row.content {
            self.write(rows::payload_use(&name, row), None);
            self.loose_payloads.push(name);
        }
    }

    pub(super) fn expire(&mut self, moment: Timestamp, row: &[u8]) {
        self.next_expiry = self.next_expiry.min(moment);
        self.write(rows::expiry(moment, row), Some(IVec::default()));
    }

    /// Whether rows may have expired that are still there.
    pub(super) fn is_expiry_due(&self, now: Timestamp) -> bool {
        self.next_expiry <= now
    }

    /// Removes some rows that have expired.
    pub(super) fn remove_expired(&mut self, now: Timestamp) -> Result<(), String> {
        if !self.is_expiry_due(now) {
            return Ok(());
        }
        self.next_expiry = Timestamp::from_millis(u64::MAX);
        let mut noted = Vec::new();
        let all = (Bound::Included(vec![rows::EXPIRY]), Bound::Excluded(vec![rows::EXPIRY + 1]));
        self.stored().scan(all, EXPIRED_AT_ONCE, |note, _| {
            noted.push(note.to_vec());
            Ok(noted.len() < EXPIRED_AT_ONCE)
        })?;
        if noted.len() == EXPIRED_AT_ONCE {
            self.next_expiry = now;
        }
        for note in noted {
            let Some((moment, row)) = rows::parse_expiry(&note) else { continue };
            if now < moment {
                self.next_expiry = moment;
                break;
            }
            // The write may have replaced the value, and with it this note.
            if self.row(&note)?.is_some() {
                self.remove(row.to_vec())?;
                self.write(note, None);
            }
        }
        Ok(())
    }

    /// Payload files that may have lost their last reference. They can be removed once what was applied so far is synced:
    /// until then a crash brings the references back.
    pub(super) fn take_loose_payloads(&mut self) -> Vec<PayloadName> {
        std::mem::take(&mut self.loose_payloads)
    }
}

/// Whether a row refers to a payload file; in doubt it does.
pub(super) fn is_used(stored: Stored<'_>, name: &PayloadName) -> bool {
    let mut is_used = false;
    let scanned = stored.scan(rows::payload_uses(name), 1, |_, _| {
        is_used = true;
        Ok(false)
    });
    is_used || scanned.is_err()
}
