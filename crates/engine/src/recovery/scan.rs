//! A look at a member's log before it is replayed: which entries it holds, what of it is void, and up to
//! where its commits are known to be on a majority.
//!
//! Always true: what is void is known before the first record is replayed, so nothing of it comes into a tree,
//! nor from there to disk. Records behind the last entry were never part of one: where others may have taken
//! their place they are void too.

use crate::entries::{Entries, Entry, EntryId};
use crate::history::Voids;
use crate::records::{self, Cut, Record};
use crate::{Error, Result};
use wal::Replay;

/// What the look has found.
#[derive(Default)]
pub(super) struct LogScan {
    pub(super) entries: Entries,
    pub(super) voids: Voids,
    /// Every commit up to here is known to be on a majority.
    pub(super) committed: u64,
    /// Where records begin that no entry closes.
    pub(super) open: Option<u64>,
    /// Entries or cuts were found, or a checkpoint that a member has written.
    pub(super) is_member: bool,
}

/// The records since the last entry.
#[derive(Default)]
struct Open {
    start: Option<u64>,
    bytes: u64,
    /// Some of what stood there is void.
    is_cut: bool,
}

/// Reads the log from where it stands to its end. `before` is the newest entry that a member's checkpoint
/// knew to be visible.
pub(super) fn scan(
    log: &mut Replay,
    before: Option<EntryId>,
    voids: Vec<(u64, u64)>,
) -> Result<LogScan> {
    let base = before.unwrap_or_default();
    let known_voids = Voids::of(voids);
    let mut found = LogScan {
        entries: Entries::behind(base),
        voids: known_voids.clone(),
        committed: base.timestamp,
        open: None,
        is_member: before.is_some(),
    };
    let (mut open, mut hint) = (Open::default(), base.index);
    while let Some(record) = log.next_record()? {
        let (lsn, end, len) = (record.lsn, record.end, record.payload.len());
        // Overwritten before the checkpoint, whose entry is of those that came instead.
        if known_voids.has(lsn) {
            continue;
        }
        let decoded = Record::decode(record.payload).map_err(|e| Error::in_record(lsn, e))?;
        match decoded {
            // From before the log had entries.
            Record::Commit { timestamp, .. } if timestamp <= base.timestamp => {
                open = Open::default();
            }
            Record::Commit { .. } | Record::Chunk { .. } | Record::Abort { .. } => {
                let sent = records::without_position(&decoded).map_or(len, |sent| sent.len());
                open.start.get_or_insert(lsn);
                open.bytes = open.bytes.saturating_add(4 + sent as u64);
            }
            Record::Entry { head, .. } => {
                found.is_member = true;
                hint = hint.max(head.committed);
                let Open { start, bytes, is_cut } = std::mem::take(&mut open);
                let is_whole = is_cut || bytes == head.bytes;
                let start = Some(start.unwrap_or(lsn)).filter(|_| is_whole);
                let entry = Entry { head, start, end: lsn, behind: end };
                if head.index > base.index && !found.entries.push(entry) {
                    let last = found.entries.last();
                    let text = format_args!("entry {} follows entry {}", head.index, last.index);
                    return Err(Error::in_record(lsn, text));
                }
            }
            Record::Cut(Cut { index, from, .. }) => {
                found.is_member = true;
                let behind = found.entries.get(index).map_or(open.start, |entry| entry.start);
                found.entries.cut(index);
                found.voids.add(from, end);
                // What stays without an entry is in the next one.
                let start = behind.filter(|start| *start < from);
                open = Open { start, bytes: 0, is_cut: start.is_some() };
            }
        }
    }
    let known = found.entries.id_of(hint.min(found.entries.last().index));
    found.committed = found.committed.max(known.map_or(0, |known| known.timestamp));
    found.open = open.start;
    Ok(found)
}
