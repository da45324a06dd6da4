//! Entries from before the checkpoint, as far back as the log is looked through: for members that were away.
//!
//! Always true:
//! 1. Those that are answered follow each other, and the last one is the checkpoint's. Where that cannot be,
//!    none is answered; a start never fails for them.
//! 2. An entry is known where all of its records are behind the place where the look begins and are what it was
//!    closed with: their commits, their length and their checksum. Which of the records there belong to an
//!    entry from before that place, nothing says: they are those that fit none.
//! 3. What was cut off is not among them.
//! 4. Memory is bounded, by entries and by records that wait for theirs.

use super::scan::OpenRecord;
use crate::checkpoint::MemberRoot;
use crate::entries::{Entry, EntryId, MOST_OLDER};
use crate::records::{self, Cut, EntryHead, Record};
use std::collections::VecDeque;
use wal::Replay;

/// Records without an entry that are remembered. There are as many only where the log is of no set.
const MOST_OPEN: usize = 1_000_000;
/// A log's records begin at multiples of so many bytes.
const ALIGN: u64 = 8;

/// What was found so far.
#[derive(Default)]
struct Look {
    entries: VecDeque<Entry>,
    /// Each with its timestamp, where it is a commit.
    open: VecDeque<(OpenRecord, u64)>,
}

/// The entries up to that of a member's checkpoint, of at most so many bytes of log before `redo_from`.
pub(super) fn older(
    log: &mut Replay,
    member: &MemberRoot,
    redo_from: u64,
    most_bytes: u64,
) -> Vec<Entry> {
    let first = redo_from.saturating_sub(most_bytes).max(log.first_lsn());
    let start = first.next_multiple_of(ALIGN);
    if member.entry.index == 0 || start >= member.entries_from || log.seek(start).is_err() {
        return Vec::new();
    }
    let mut look = Look::default();
    let mut damage = None;
    loop {
        match log.next_record() {
            Ok(Some(record)) => {
                let place = (record.lsn, record.end);
                let is_over = record.lsn >= member.entries_from && look.ends_with(member.entry);
                match Record::decode(record.payload) {
                    _ if is_over => break,
                    Ok(Record::Entry { head, .. })
                        if head.index > member.entry.index && record.lsn >= member.entries_from =>
                    {
                        break;
                    }
                    Ok(decoded) => look.record(place, &decoded, record.payload),
                    Err(_) => {
                        damage = Some(record.lsn);
                        look = Look::default();
                    }
                }
            }
            Ok(None) => break,
            Err(error) => {
                // In front of the first record that begins behind the start there is a part of one.
                if let wal::Error::Corruption { lsn, .. } = &error
                    && *lsn != start
                {
                    damage = Some(*lsn);
                }
                look = Look::default();
                let is_damage = matches!(error, wal::Error::Corruption { .. });
                if !is_damage || !matches!(log.skip_damage(), Ok(Some(_))) {
                    break;
                }
            }
        }
    }
    if let Some(lsn) = damage {
        tracing::error!(
            lsn,
            "the log is damaged before the checkpoint: members that need older entries cannot get them here"
        );
    }
    let ends = look.ends_with(member.entry);
    if ends { look.entries.into() } else { Vec::new() }
}

impl Look {
    fn ends_with(&self, id: EntryId) -> bool {
        self.entries.back().is_some_and(|last| EntryId::from(&last.head) == id)
    }

    fn record(&mut self, place: (u64, u64), decoded: &Record<'_>, payload: &[u8]) {
        match decoded {
            Record::Commit { .. } | Record::Chunk { .. } | Record::Abort { .. } => {
                let timestamp = match decoded {
                    Record::Commit { timestamp, .. } => *timestamp,
                    _ => 0,
                };
                let sent = records::without_position(decoded);
                let record = OpenRecord::new(place, sent.as_deref().unwrap_or(payload));
                if self.open.len() >= MOST_OPEN {
                    self.open.clear();
                }
                self.open.push_back((record, timestamp));
            }
            Record::Entry { head, .. } => self.close(*head, place),
            Record::Cut(cut) => self.cut(cut),
        }
    }

    fn close(&mut self, head: EntryHead, (end, behind): (u64, u64)) {
        let follows = |last: &Entry| {
            let EntryHead { index, term, last_timestamp, .. } = last.head;
            (head.index, head.first_timestamp) == (index + 1, last_timestamp + 1)
                && head.term >= term
        };
        if self.entries.back().is_some_and(|last| !follows(last)) {
            self.entries.clear();
        }
        let place = if head.bytes == 0 { Some((end, end)) } else { self.take(&head) };
        let Some((start, until)) = place else {
            self.entries.clear();
            return;
        };
        self.entries.push_back(Entry { head, start, until, end, behind });
        if self.entries.len() > MOST_OLDER {
            self.entries.pop_front();
        }
    }

    /// Takes an entry's records, and those before them, out of the open ones; where they begin and end.
    fn take(&mut self, head: &EntryHead) -> Option<(u64, u64)> {
        let (mut from, mut to, mut bytes) = (0, 0, 0);
        loop {
            while bytes < head.bytes {
                bytes += u64::from(self.open.get(to)?.0.bytes);
                to += 1;
            }
            if bytes == head.bytes && self.are_of(head, from, to) {
                break;
            }
            bytes -= u64::from(self.open.get(from)?.0.bytes);
            from += 1;
        }
        let place = (self.open.get(from)?.0.lsn, self.open.get(to - 1)?.0.end);
        self.open.drain(..to);
        Some(place)
    }

    /// Whether these are an entry's records. The commits are looked at first: they say so at once where they
    /// are not.
    fn are_of(&self, head: &EntryHead, from: usize, to: usize) -> bool {
        let commits = || self.open.range(from..to).map(|(_, ts)| *ts).filter(|ts| *ts > 0);
        let has_commits = head.first_timestamp <= head.last_timestamp;
        let expected = has_commits.then_some((head.first_timestamp, head.last_timestamp));
        if commits().next().zip(commits().next_back()) != expected {
            return false;
        }
        let records = self.open.range(from..to);
        records.fold(0, |checksum, (record, _)| record.behind(checksum)) == head.checksum
    }

    /// Entries from an index on, and what is open, is void.
    fn cut(&mut self, cut: &Cut) {
        while self.entries.back().is_some_and(|last| last.head.index >= cut.index) {
            self.entries.pop_back();
        }
        self.open.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EntryKind;

    /// An entry of the commits `first..=last`, each of which stands for the bytes of its number.
    fn head(index: u64, (first, last): (u64, u64)) -> EntryHead {
        let records = (first..=last).map(|ts| record(ts).0);
        let (mut bytes, mut checksum) = (0, 0);
        for record in records {
            bytes += u64::from(record.bytes);
            checksum = record.behind(checksum);
        }
        EntryHead {
            index,
            term: 1,
            kind: EntryKind::Records,
            first_timestamp: first,
            last_timestamp: last,
            last_time: last,
            committed: 0,
            bytes,
            checksum,
        }
    }

    fn record(ts: u64) -> (OpenRecord, u64) {
        (OpenRecord::new((ts * 100, ts * 100 + 50), &ts.to_le_bytes()), ts)
    }

    fn known(look: &Look) -> Vec<(u64, u64, u64)> {
        look.entries.iter().map(|e| (e.head.index, e.start, e.until)).collect()
    }

    #[test]
    fn entries_are_known_from_the_first_that_has_all_its_records() {
        let mut look = Look::default();
        // 1 to 3 are of an entry that begins before; all are of one length.
        look.open.extend((2..8).map(record));
        look.close(head(5, (1, 3)), (810, 820));
        assert_eq!(known(&look), []);
        look.close(head(6, (4, 5)), (830, 840));
        look.close(head(7, (6, 6)), (850, 860));
        assert_eq!(known(&look), [(6, 400, 550), (7, 600, 650)]);
        assert_eq!(look.open.len(), 1, "of a later one");
        look.open.push_back(record(8));
        let nothing = EntryHead { bytes: 0, checksum: 0, ..head(8, (7, 6)) };
        look.close(nothing, (900, 910));
        look.close(head(9, (7, 8)), (920, 930));
        assert_eq!(known(&look)[2..], [(8, 900, 900), (9, 700, 850)]);
        assert!(look.ends_with(EntryId { index: 9, term: 1, timestamp: 8, time: 8 }));
        // One that does not follow: what is before it is not known.
        look.open.push_back(record(9));
        look.close(head(12, (9, 9)), (1000, 1010));
        assert_eq!(known(&look), [(12, 900, 950)]);
    }

    #[test]
    fn what_was_cut_off_is_not_among_them() {
        let mut look = Look::default();
        look.open.extend((1..6).map(record));
        for (index, commits) in [(2, (1, 2)), (3, (3, 3)), (4, (4, 4))] {
            look.close(head(index, commits), (600, 610));
        }
        look.cut(&Cut { index: 3, timestamp: 2, from: 300 });
        assert!(look.open.is_empty() && known(&look).len() == 1);
        look.open.push_back(record(3));
        look.close(head(3, (3, 3)), (700, 710));
        assert_eq!(known(&look), [(2, 100, 250), (3, 300, 350)]);
    }

    #[test]
    fn records_that_fit_no_entry_make_it_unknown() {
        let mut look = Look::default();
        look.open.extend([1, 3, 4].map(record));
        look.close(head(2, (1, 2)), (500, 510));
        assert_eq!(known(&look), []);
        let bad = head(3, (3, 3));
        look.close(EntryHead { checksum: bad.checksum ^ 1, ..bad }, (520, 530));
        assert_eq!(known(&look), []);
        look.close(head(4, (4, 4)), (540, 550));
        assert_eq!(known(&look), [(4, 400, 450)]);
    }
}
