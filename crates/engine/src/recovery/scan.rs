//! A look at a member's log before it is replayed: which entries it holds, what of it is void, and up to
//! where its commits are known to be on a majority.
//!
//! Always true: what is void is known before the first record is replayed, so nothing of it comes into a tree,
//! nor from there to disk. An entry closes the first of the records that are open, as many bytes as it says;
//! where those are not what it was closed with, the log is refused. Records behind the last entry were never
//! part of one: where others may have taken their place they are void too.
//!
//! In memory it holds 24 bytes for each record that is open. What was open had room in memtables, in more bytes
//! than that.

use crate::checkpoint::MemberRoot;
use crate::entries::{Entries, Entry, EntryId};
use crate::history::Voids;
use crate::records::{self, Cut, EntryHead, Record};
use crate::{Error, Result};
use std::collections::VecDeque;
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

/// A record that no entry has closed so far.
pub(super) struct OpenRecord {
    pub(super) lsn: u64,
    pub(super) end: u64,
    /// Bytes as they are sent, and their checksum.
    pub(super) bytes: u32,
    pub(super) checksum: u32,
}

impl OpenRecord {
    pub(super) fn new((lsn, end): (u64, u64), sent: &[u8]) -> Self {
        let len = u32::try_from(sent.len()).unwrap_or(u32::MAX);
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&len.to_le_bytes()), sent);
        Self { lsn, end, bytes: len.saturating_add(4), checksum }
    }

    /// The checksum of what is before it together with it.
    pub(super) fn behind(&self, checksum: u32) -> u32 {
        crc32c::crc32c_combine(checksum, self.checksum, self.bytes as usize)
    }
}

/// What was found so far.
struct Scan {
    /// Consecutive; the checkpoint's and those before it may be among them.
    entries: VecDeque<Entry>,
    open: VecDeque<OpenRecord>,
    voids: Voids,
    /// The newest entry that is known to be committed.
    hint: u64,
    /// The newest entry of the checkpoint.
    base: EntryId,
}

/// Reads the log from where it stands to its end, for what a member's checkpoint says of it, if there is one.
pub(super) fn scan(log: &mut Replay, member: Option<&MemberRoot>) -> Result<LogScan> {
    let base = member.map_or(EntryId::default(), |member| member.entry);
    // What is before is in the checkpoint's entry and those before it, or void by cuts that it knows.
    let from = member.map_or(0, |member| member.entries_from);
    let mut scan = Scan {
        entries: VecDeque::new(),
        open: VecDeque::new(),
        voids: Voids::of(member.map_or(Vec::new(), |member| member.voids.clone())),
        hint: base.index,
        base,
    };
    let mut is_member = member.is_some();
    while let Some(record) = log.next_record()? {
        let (lsn, end) = (record.lsn, record.end);
        if lsn < from {
            continue;
        }
        let decoded = Record::decode(record.payload).map_err(|e| Error::in_record(lsn, e))?;
        match decoded {
            Record::Commit { .. } | Record::Chunk { .. } | Record::Abort { .. } => {
                let sent = records::without_position(&decoded);
                scan.open((lsn, end), sent.as_deref().unwrap_or(record.payload));
            }
            Record::Entry { head, .. } => {
                is_member = true;
                let entry = scan.close(head, (lsn, end));
                entry.map_err(|what| Error::in_record(lsn, what))?;
            }
            Record::Cut(cut) => {
                is_member = true;
                scan.cut(&cut, end);
            }
        }
    }
    let Scan { entries: list, open, voids, hint, base } = scan;
    let mut entries = Entries::behind(base);
    for entry in list {
        let index = entry.head.index;
        if index <= base.index {
            continue;
        }
        let at = entry.end;
        if !entries.push(entry) {
            let last = entries.last().index;
            let text = format_args!("entry {index} follows entry {last}");
            return Err(Error::in_record(at, text));
        }
    }
    let known = entries.id_of(hint.min(entries.last().index));
    entries.commit(known.map_or(0, |known| known.index));
    let committed = base.timestamp.max(known.map_or(0, |known| known.timestamp));
    let open = open.front().map(|first| first.lsn);
    Ok(LogScan { entries, voids, committed, open, is_member })
}

impl Scan {
    fn open(&mut self, place: (u64, u64), sent: &[u8]) {
        self.open.push_back(OpenRecord::new(place, sent));
    }

    /// An entry closes the first records that are open.
    fn close(&mut self, head: EntryHead, (end, behind): (u64, u64)) -> Result<(), &'static str> {
        let EntryHead { index, bytes, .. } = head;
        self.hint = self.hint.max(head.committed);
        if index <= self.base.index {
            // Its records are before those that are looked at. A void one has none here: what was cut off
            // before the checkpoint is before them too.
            return Ok(());
        }
        if self
            .entries
            .back()
            .is_some_and(|last| index != last.head.index + 1 || head.term < last.head.term)
        {
            return Err("an entry that does not follow the one before it");
        }
        let (mut closed, mut checksum) = (0, 0);
        let (mut start, mut until) = (None, end);
        while closed < bytes {
            let Some(first) = self.open.pop_front() else {
                return Err("an entry without its records");
            };
            closed += u64::from(first.bytes);
            checksum = first.behind(checksum);
            start.get_or_insert(first.lsn);
            until = first.end;
        }
        if closed != bytes || checksum != head.checksum {
            return Err("an entry does not have the records it was closed with");
        }
        let start = start.unwrap_or(end);
        self.entries.push_back(Entry { head, start, until, end, behind });
        Ok(())
    }

    /// Entries from an index on, and what is open, is void.
    fn cut(&mut self, cut: &Cut, end: u64) {
        while self.entries.back().is_some_and(|last| last.head.index >= cut.index) {
            self.entries.pop_back();
        }
        self.open.clear();
        self.voids.add(cut.from, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EntryKind;

    fn head(index: u64, term: u64, records: &[&[u8]]) -> EntryHead {
        let mut sent = Vec::new();
        for record in records {
            sent.extend_from_slice(&(record.len() as u32).to_le_bytes());
            sent.extend_from_slice(record);
        }
        EntryHead {
            index,
            term,
            kind: EntryKind::Records,
            first_timestamp: 1,
            last_timestamp: 9,
            last_time: 9,
            committed: 0,
            bytes: sent.len() as u64,
            checksum: crc32c::crc32c(&sent),
        }
    }

    fn open() -> Scan {
        let base = EntryId { index: 3, ..EntryId::default() };
        let (entries, open, voids) = (VecDeque::new(), VecDeque::new(), Voids::default());
        let mut scan = Scan { entries, open, voids, hint: 0, base };
        scan.open((100, 150), b"one");
        scan.open((150, 200), b"two");
        scan.open((200, 250), b"three");
        scan
    }

    #[test]
    fn entry_closes_the_first_records_that_are_open() {
        let mut scan = open();
        assert_eq!(scan.close(head(3, 1, &[b"before"]), (250, 260)), Ok(()), "of the checkpoint");
        assert_eq!(scan.close(head(4, 1, &[b"one", b"two"]), (260, 270)), Ok(()));
        scan.open((270, 280), b"four");
        assert_eq!(scan.close(head(5, 1, &[b"three"]), (280, 290)), Ok(()));
        let places = scan.entries.iter().map(|e| (e.start, e.until, e.end, e.behind));
        assert_eq!(places.collect::<Vec<_>>(), [(100, 200, 260, 270), (200, 250, 280, 290)]);
        scan.cut(&Cut { index: 5, timestamp: 9, from: 200 }, 300);
        assert_eq!((scan.entries.len(), scan.open.len()), (1, 0));
        assert_eq!(scan.voids.ranges(), [(200, 300)]);
        scan.open((300, 310), b"five");
        assert_eq!(scan.close(head(5, 2, &[b"five"]), (310, 320)), Ok(()));
    }

    #[test]
    fn entry_that_is_not_of_its_records_is_refused() {
        let good = head(4, 1, &[b"one", b"two"]);
        for bad in [
            EntryHead { bytes: good.bytes - 1, ..good },
            EntryHead { bytes: good.bytes + 1, ..good },
            EntryHead { bytes: 1000, ..good },
            EntryHead { checksum: good.checksum ^ 1, ..good },
            head(4, 1, &[b"two", b"one"]),
            head(4, 1, &[b"two"]),
        ] {
            assert!(open().close(bad, (260, 270)).is_err(), "{bad:?}");
        }
        let mut scan = open();
        scan.close(good, (260, 270)).unwrap();
        for bad in [head(6, 1, &[b"three"]), head(5, 0, &[b"three"]), head(4, 1, &[b"three"])] {
            assert!(scan.close(bad, (280, 290)).is_err(), "{bad:?}");
        }
    }
}
