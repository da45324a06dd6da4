//! A member's disk: what was written, what of it is synced, and what a crash leaves.

use std::sync::{Arc, Mutex};

use quorum::{Configuration, Entry, HardState, Older, Position, Snapshot, Start};
use testkit::Gen;

/// One write.
#[derive(Clone, Debug)]
pub(crate) enum Write {
    Hard(HardState),
    /// The log from this index on is void.
    Cut(u64),
    Append(Entry),
    /// What is known to be committed; goes with the entries behind it.
    Commit(u64),
    /// The log begins anew.
    Restart(Snapshot),
    /// Entries were applied up to here, and the configuration is that.
    Applied(u64, Configuration),
    /// Entries up to here go.
    Compact(u64),
}

/// What a disk holds.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    pub(crate) hard: HardState,
    pub(crate) base: Position,
    pub(crate) base_chain: u64,
    pub(crate) entries: Vec<Entry>,
    pub(crate) commit: u64,
    pub(crate) applied: u64,
    pub(crate) configuration: Configuration,
}

impl Image {
    /// A member that was there from the beginning, or one that knows nothing.
    pub(crate) fn new(configuration: Configuration) -> Self {
        let known = u64::from(configuration != Configuration::default());
        Self {
            hard: HardState { term: known, vote: None },
            base: Position { term: known, index: known },
            base_chain: 0,
            entries: Vec::new(),
            commit: known,
            applied: known,
            configuration,
        }
    }

    pub(crate) fn start(&self) -> Start {
        Start {
            hard_state: self.hard,
            commit: self.commit,
            base: self.base,
            entries: self.entries.clone(),
            applied: self.applied,
            configuration: self.configuration.clone(),
        }
    }

    fn do_write(&mut self, write: &Write, ignore_cuts: bool) {
        let place = |index: u64, base: Position| (index - base.index - 1) as usize;
        match write {
            Write::Hard(hard) => self.hard = *hard,
            Write::Cut(_) if ignore_cuts => {}
            Write::Cut(index) => self.entries.truncate(place(*index, self.base)),
            Write::Append(entry) => {
                let at = place(entry.index, self.base);
                if at < self.entries.len() {
                    self.entries[at] = entry.clone();
                } else {
                    self.entries.push(entry.clone());
                }
            }
            Write::Restart(snapshot) => {
                self.base = snapshot.position;
                self.base_chain = u64::from_le_bytes(snapshot.data[..].try_into().unwrap());
                self.entries.clear();
                self.applied = snapshot.position.index;
                self.commit = snapshot.position.index;
                self.configuration = snapshot.configuration.clone();
            }
            Write::Commit(index) => self.commit = *index,
            Write::Applied(index, configuration) => {
                self.applied = *index;
                self.configuration = configuration.clone();
            }
            Write::Compact(index) if *index <= self.base.index => {}
            Write::Compact(index) => {
                for entry in self.entries.drain(..=place(*index, self.base)) {
                    self.base_chain = crate::world::link(self.base_chain, &entry);
                    self.base = entry.position();
                }
            }
        }
    }
}

/// A disk. The hard state is a file of its own: after a crash each file holds what was synced and some
/// of what was written behind it, in order.
pub(crate) struct Disk {
    pub(crate) synced: Image,
    /// Writes that are not synced, each with its number.
    pending: Vec<(u64, Write)>,
    ignore_cuts: bool,
    /// Planted: terms and votes are written and never synced.
    pub(crate) never_sync_hard: bool,
}

impl Disk {
    pub(crate) fn new(image: Image, ignore_cuts: bool, never_sync_hard: bool) -> Self {
        Self { synced: image, pending: Vec::new(), ignore_cuts, never_sync_hard }
    }

    pub(crate) fn write(&mut self, number: u64, write: Write) {
        self.pending.push((number, write));
    }

    /// All writes up to that number are safe.
    pub(crate) fn sync(&mut self, number: u64) {
        let stays = |(n, write): &(u64, Write)| {
            *n > number || (self.never_sync_hard && matches!(write, Write::Hard(_)))
        };
        let pending = std::mem::take(&mut self.pending);
        let (stay, go): (Vec<_>, Vec<_>) = pending.into_iter().partition(stays);
        for (_, write) in go {
            self.synced.do_write(&write, self.ignore_cuts);
        }
        self.pending = stay;
    }

    /// The power goes.
    pub(crate) fn crash(&mut self, random: &mut Gen) {
        let pending = std::mem::take(&mut self.pending);
        let (hard, log): (Vec<_>, Vec<_>) =
            pending.into_iter().partition(|(_, write)| matches!(write, Write::Hard(_)));
        for file in [hard, log] {
            let kept = random.below(file.len() as u64 + 1) as usize;
            let kept = if random.one_in(2) { 0 } else { kept };
            for (_, write) in &file[..kept] {
                self.synced.do_write(write, self.ignore_cuts);
            }
        }
    }
}

/// The log of a member that runs, as it was written: more of it than consensus has in memory.
#[derive(Default)]
pub(crate) struct Kept {
    base: Position,
    entries: Vec<Entry>,
    /// Entries that it was asked for.
    given: u64,
}

impl Kept {
    pub(crate) fn new(image: &Image) -> Self {
        Self { base: image.base, entries: image.entries.clone(), given: 0 }
    }

    pub(crate) fn restart(&mut self, base: Position) {
        self.base = base;
        self.entries.clear();
    }

    pub(crate) fn cut(&mut self, index: u64) {
        self.entries.retain(|entry| entry.index < index);
    }

    pub(crate) fn push(&mut self, entry: &Entry) {
        self.entries.push(entry.clone());
    }

    /// Entries up to here go.
    pub(crate) fn compact(&mut self, index: u64) {
        if let Some(base) = self.position(index) {
            self.base = base;
            self.entries.retain(|entry| entry.index > index);
        }
    }

    pub(crate) fn position(&self, index: u64) -> Option<Position> {
        let of_entry = self.entries.iter().map(Entry::position);
        of_entry.chain([self.base]).find(|at| at.index == index)
    }

    pub(crate) fn take_given(&mut self) -> u64 {
        std::mem::take(&mut self.given)
    }
}

/// That log, as consensus asks it; and whether it gives other entries than it has.
pub(crate) struct Log(pub(crate) Arc<Mutex<Kept>>, pub(crate) bool);

impl Older for Log {
    fn first(&self) -> u64 {
        self.0.lock().unwrap().base.index + 1
    }

    fn position(&self, index: u64) -> Option<Position> {
        self.0.lock().unwrap().position(index)
    }

    fn entries(&self, low: u64, high: u64, most: usize, _most_bytes: u64) -> Vec<Entry> {
        let mut kept = self.0.lock().unwrap();
        if low <= kept.base.index {
            return Vec::new();
        }
        let asked = kept.entries.iter().filter(|entry| (low..high).contains(&entry.index));
        let mut found: Vec<_> = asked.take(most).cloned().collect();
        kept.given += found.len() as u64;
        if let (true, [first, second, ..]) = (self.1, &mut found[..]) {
            // As if they had been read from where others stand.
            std::mem::swap(&mut first.content, &mut second.content);
        }
        found
    }
}
