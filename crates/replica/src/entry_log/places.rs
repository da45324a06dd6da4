//! Where entries are in a log of entries, in little memory; and what its records come to when it is opened.

use std::collections::VecDeque;

use quorum::{Configuration, Entry, Position};
use wal::Lsn;

use super::records::LogRecord;
use super::{Decided, FoundEntries};

/// A place is remembered every so many bytes.
const APART: u64 = 64 << 10;

/// Where an entry begins.
#[derive(Clone, Copy, Debug)]
struct Point {
    index: u64,
    lsn: Lsn,
}

/// Which entries there are, and where.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    /// The entry before the first one that can be read.
    before: Position,
    last: Position,
    /// From which index on which term counts.
    terms: VecDeque<(u64, u64)>,
    points: VecDeque<Point>,
    /// What was cut off lies between the last entry and the next one.
    was_cut: bool,
}

impl Places {
    /// None yet, behind `at`.
    pub(super) fn behind(at: Position) -> Self {
        let terms = [(at.index, at.term)].into();
        Self { before: at, last: at, terms, ..Self::default() }
    }

    pub(super) fn first(&self) -> u64 {
        self.before.index + 1
    }

    pub(super) fn last(&self) -> Position {
        self.last
    }

    /// The place of an entry, where it is there or the one before the first.
    pub(super) fn position(&self, index: u64) -> Option<Position> {
        if index < self.before.index || index > self.last.index {
            return None;
        }
        let next = self.terms.partition_point(|(from, _)| *from <= index);
        let (_, term) = self.terms.get(next.checked_sub(1)?)?;
        Some(Position { term: *term, index })
    }

    /// One more, whose first record begins at `lsn`.
    pub(super) fn push(&mut self, at: Position, lsn: Lsn) {
        if self.terms.back().is_none_or(|(_, term)| *term != at.term) {
            self.terms.push_back((at.index, at.term));
        }
        let is_far = |last: &Point| self.was_cut || lsn.saturating_sub(last.lsn) >= APART;
        if self.points.back().is_none_or(is_far) {
            self.points.push_back(Point { index: at.index, lsn });
        }
        (self.last, self.was_cut) = (at, false);
    }

    /// Entries from `index` on are void.
    pub(super) fn cut(&mut self, index: u64) {
        let Some(last) = self.position(index.saturating_sub(1)) else { return };
        self.last = last;
        while self.terms.len() > 1 && self.terms.back().is_some_and(|(from, _)| *from >= index) {
            self.terms.pop_back();
        }
        while self.points.back().is_some_and(|point| point.index >= index) {
            self.points.pop_back();
        }
        self.was_cut = true;
    }

    /// From where on the entry of that index is found.
    pub(super) fn point_before(&self, index: u64) -> Option<Lsn> {
        let next = self.points.partition_point(|point| point.index <= index);
        self.points.get(next.checked_sub(1)?).map(|point| point.lsn)
    }

    /// The first entry that is known to begin at `lsn` or behind it.
    pub(super) fn first_from(&self, lsn: Lsn) -> Option<u64> {
        let next = self.points.partition_point(|point| point.lsn < lsn);
        self.points.get(next).map(|point| point.index)
    }

    /// Entries before `index` are not needed: where what is still needed begins, if that is another place than before.
    pub(super) fn forget_before(&mut self, index: u64) -> Option<Lsn> {
        let next = self.points.partition_point(|point| point.index <= index);
        let first = next.checked_sub(1).filter(|first| *first > 0)?;
        let point = *self.points.get(first)?;
        let before = self.position(point.index.saturating_sub(1))?;
        self.points.drain(..first);
        self.before = before;
        while self.terms.get(1).is_some_and(|(from, _)| *from <= before.index) {
            self.terms.pop_front();
        }
        Some(point.lsn)
    }
}

/// What the records say that were read so far.
#[derive(Default)]
pub(super) struct Loading {
    places: Option<Places>,
    decided: Option<Decided>,
    /// Behind what is decided.
    entries: VecDeque<Entry>,
    commit: u64,
    configurations: Vec<(u64, Configuration)>,
    /// Parts of the entry that follows, and where the first of them begins.
    parts: (u32, Lsn),
}

impl Loading {
    pub(super) fn take(&mut self, record: LogRecord<'_>, lsn: Lsn) -> Result<(), &'static str> {
        match record {
            LogRecord::Part { number: 0, .. } => self.parts = (1, lsn),
            // Of an entry whose beginning was let go of, at the log's beginning.
            LogRecord::Part { number, .. } if self.parts.0 == number => self.parts.0 += 1,
            LogRecord::Part { .. } => self.parts = (0, lsn),
            LogRecord::Entry { entry, commit, parts, .. } => {
                let (there, begins) = std::mem::take(&mut self.parts);
                let begins = if parts == 0 { lsn } else { begins };
                if parts > there {
                    let is_first = self.places.is_none();
                    return if is_first { Ok(()) } else { Err("an entry lacks records") };
                }
                self.entry(entry, begins)?;
                self.commit = self.commit.max(commit);
            }
            LogRecord::Begun { at, configuration } => {
                self.places = Some(Places::behind(at));
                self.entries.clear();
                self.commit = at.index;
                self.configurations = vec![(at.index, configuration.clone())];
                self.decided = Some(Decided { at, configuration });
            }
            LogRecord::Ended => *self = Self::default(),
            LogRecord::Decided { at, configuration } => {
                self.commit = self.commit.max(at.index);
                while self.entries.front().is_some_and(|entry| entry.index <= at.index) {
                    self.entries.pop_front();
                }
                self.configurations.push((at.index, configuration.clone()));
                self.decided = Some(Decided { at, configuration });
            }
        }
        Ok(())
    }

    fn entry(&mut self, entry: Entry, lsn: Lsn) -> Result<(), &'static str> {
        let at = entry.position();
        let decided = self.decided.as_ref().map_or(0, |decided| decided.at.index);
        let Some(places) = self.places.as_mut().filter(|places| at.index > places.before.index)
        else {
            // The first one that the log has, or what takes the place of one that is void.
            if decided >= at.index && self.places.is_some() {
                return Err("what is decided is overwritten");
            }
            self.places = Some(Places::behind(at));
            self.entries.clear();
            return Ok(());
        };
        if at.index <= places.last.index {
            if at.index <= decided {
                return Err("what is decided is overwritten");
            }
            places.cut(at.index);
            self.entries.retain(|entry| entry.index < at.index);
        }
        if at.index != places.last.index + 1 || at.term < places.last.term {
            return Err("its entries are out of order");
        }
        places.push(at, lsn);
        self.entries.push_back(entry);
        Ok(())
    }

    /// The places of what was found, and what of it is not known to be decided.
    pub(super) fn end(self) -> Result<(Places, FoundEntries), &'static str> {
        let Self { places, decided, entries, commit, configurations, .. } = self;
        let Some(places) = places else {
            return Ok((Places::default(), FoundEntries::default()));
        };
        let decided = decided.ok_or("it does not say what is decided")?;
        if places.position(decided.at.index) != Some(decided.at) {
            return Err("what is decided is not in it");
        }
        let behind = |entry: &Entry| entry.index > decided.at.index;
        let entries: Vec<Entry> = entries.into_iter().filter(behind).collect();
        let commit = commit.min(places.last.index).max(decided.at.index);
        Ok((places, FoundEntries { decided, entries, commit, configurations }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(term: u64, index: u64) -> Position {
        Position { term, index }
    }

    #[test]
    fn places_follow_what_is_appended_cut_off_and_let_go_of() {
        let mut places = Places::behind(at(2, 10));
        assert_eq!(
            (places.first(), places.position(9), places.position(10)),
            (11, None, Some(at(2, 10)))
        );
        for index in 11..30 {
            places.push(at(if index < 20 { 2 } else { 3 }, index), (index - 10) * APART / 2);
        }
        assert_eq!(places.position(19), Some(at(2, 19)));
        assert_eq!(places.position(20), Some(at(3, 20)));
        assert_eq!(places.position(30), None);
        // Every second one is a point.
        assert_eq!(places.point_before(14), Some(3 * APART / 2));
        assert_eq!(places.first_from(3 * APART / 2 + 1), Some(15));
        places.cut(16);
        assert_eq!((places.last(), places.position(16)), (at(2, 15), None));
        places.push(at(5, 16), 20 * APART);
        assert_eq!(
            places.point_before(16),
            Some(20 * APART),
            "one behind a cut is found without the void ones"
        );
        assert_eq!(places.forget_before(14), Some(3 * APART / 2));
        assert_eq!((places.first(), places.position(12)), (13, Some(at(2, 12))));
        assert_eq!(places.forget_before(14), None, "nothing is let go of twice");
        assert_eq!(places.position(16), Some(at(5, 16)));
    }
}
