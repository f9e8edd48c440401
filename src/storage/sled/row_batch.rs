//! The rows of one batch in the making, and all that hangs on a row: its payload file and its expiry.

use foldhash::HashMap;
use sled::{Batch, IVec, Tree};

use super::payloads::{MAX_INLINE, PayloadName, Payloads};
use super::read_error::ReadError;
use super::rows::{self, Content, PayloadRow};
use crate::messages::Timestamp;

/// Expired rows that one batch removes at most.
const EXPIRED_AT_ONCE: usize = 64;

/// The tree as the batch will leave it.
pub(super) struct RowBatch {
    tree: Tree,
    payloads: Payloads,
    /// Rows that this batch changes; `None` removes.
    rows: HashMap<Vec<u8>, Option<IVec>>,
    bytes: usize,
    /// Whether this batch wrote payload files.
    new_payloads: bool,
    /// Files that may have lost their last reference.
    loose_payloads: Vec<PayloadName>,
    /// No row expires before this.
    next_expiry: Timestamp,
}

impl RowBatch {
    pub(super) fn new(tree: Tree, payloads: Payloads) -> Self {
        Self {
            tree,
            payloads,
            rows: HashMap::default(),
            bytes: 0,
            new_payloads: false,
            loose_payloads: Vec::new(),
            next_expiry: Timestamp::default(),
        }
    }

    pub(super) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Whether the batch changes one row so far, or none.
    pub(super) fn is_single(&self) -> bool {
        self.rows.len() <= 1
    }

    /// Bytes that the batch holds in memory so far.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Makes the names of payload files that the batch wrote durable.
    pub(super) fn sync_payload_names(&mut self) -> std::io::Result<()> {
        if std::mem::take(&mut self.new_payloads) { self.payloads.sync_names() } else { Ok(()) }
    }

    /// Changes the tree, all rows at once; false if there was nothing to change.
    ///
    /// A single row goes in by itself: sled hands every batch to a thread that writes it to the file at once, which is
    /// wasted on what does not wait for a sync.
    pub(super) fn apply(&mut self) -> sled::Result<bool> {
        self.bytes = 0;
        if self.is_single() {
            let only = self.rows.drain().next();
            return match only {
                Some((row, Some(sealed))) => self.tree.insert(row, sealed).map(|_| true),
                Some((row, None)) => self.tree.remove(row).map(|_| true),
                None => Ok(false),
            };
        }
        let mut batch = Batch::default();
        for (row, sealed) in self.rows.drain() {
            match sealed {
                Some(sealed) => batch.insert(row, sealed),
                None => batch.remove(row),
            }
        }
        self.tree.apply_batch(batch).map(|()| true)
    }

    /// A row as the batch leaves it.
    pub(super) fn row(&self, row: &[u8]) -> Result<Option<IVec>, ReadError> {
        match self.rows.get(row) {
            Some(staged) => Ok(staged.clone()),
            None => Ok(self.tree.get(row)?),
        }
    }

    pub(super) fn write(&mut self, row: Vec<u8>, sealed: Option<IVec>) {
        self.bytes += row.len() + sealed.as_ref().map_or(0, |sealed| sealed.len());
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
        let noted: Vec<_> = self.tree.scan_prefix([rows::EXPIRY]).keys().take(EXPIRED_AT_ONCE).collect();
        if noted.len() == EXPIRED_AT_ONCE {
            self.next_expiry = now;
        }
        for note in noted {
            let note = note.map_err(|error| error.to_string())?;
            let Some((moment, row)) = rows::parse_expiry(&note) else { continue };
            if now < moment {
                self.next_expiry = moment;
                break;
            }
            // The batch may have replaced the value, and with it this note.
            if self.row(&note)?.is_some() {
                self.remove(row.to_vec())?;
                self.write(note.to_vec(), None);
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
pub(super) fn is_used(tree: &Tree, name: &PayloadName) -> bool {
    tree.scan_prefix(rows::payload_uses(name)).next().is_some()
}
