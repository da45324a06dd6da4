//! What a member runs on: a journal with its disk, in memory or an engine's on a simulated disk.

use std::collections::BTreeSet;

use quorum::state::MemberState;
use quorum::{Configuration, MemberId, Position};
use replica::memory::{Fault, MemoryJournal, MemoryPromises, Record};
use replica::{Journal, Promises};
use testkit::Gen;

use crate::Planted;

pub(crate) const BASE: Position = Position { term: 1, index: 1 };
/// The member that is delayed, where one is.
pub(crate) const DELAYED: MemberId = MemberId(3);

/// What became of a client's record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Pending,
    Done,
    Void,
}

/// A member's journal and promises, over restarts.
pub(crate) trait Machine: Sized {
    type Journal: Journal;
    type Promises: Promises;
    /// By which a client waits.
    type Ticket;
    /// Whether a witness can run on it.
    const HAS_WITNESSES: bool = false;
    /// Whether a delayed member can.
    const HAS_DELAYS: bool = false;
    fn new(id: u64, seed: u64, configuration: &Configuration, planted: Planted) -> Self;
    /// What the disk holds; an error only where the power goes meanwhile.
    fn start(&mut self, random: &mut Gen) -> Result<(Self::Journal, Self::Promises), String>;
    /// The power goes: what was synced stays, and some of the rest.
    fn crash(&mut self, journal: Self::Journal, promises: Self::Promises, random: &mut Gen);
    /// The power goes during one of the next calls.
    fn crash_soon(&mut self, random: &mut Gen);
    /// The power is gone.
    fn is_down(&self) -> bool;
    /// The time of its day, at that time of the world.
    fn wall_ms(&mut self, now_ms: u64) -> i64 {
        now_ms as i64
    }
    /// The newest timestamp that was given; 0 where that is not known.
    fn newest(&self, _journal: &Self::Journal) -> u64 {
        0
    }
    /// What the machine does beside.
    fn background(&mut self, journal: &mut Self::Journal, random: &mut Gen) -> Result<(), String>;
    fn finish_syncs(&mut self, journal: &mut Self::Journal, most: u64) -> Result<(), String>;
    /// A client's record of the operation; `None` where it is refused.
    fn commit(
        &mut self,
        journal: &mut Self::Journal,
        op: u64,
        random: &mut Gen,
    ) -> Option<Self::Ticket>;
    /// Of a record; `leads` where the member has led since it was written.
    fn outcome(&self, journal: &Self::Journal, ticket: &Self::Ticket, leads: bool) -> Outcome;
    /// The operations that it holds, shown or not.
    fn operations(&self, journal: &Self::Journal) -> BTreeSet<u64>;
    /// The last timestamp that is shown, and what is, in short.
    fn shown(&mut self, journal: &mut Self::Journal) -> Result<(u64, u64), String>;
    /// The log lets go of entries that are decided.
    fn trim(&mut self, _journal: &mut Self::Journal, _random: &mut Gen) {}
    /// What a copy of a machine's disk holds; `None` where that cannot be had.
    fn copy(_journal: &Self::Journal) -> Option<Self::Journal> {
        None
    }
    /// The copy takes the place of what this machine had.
    fn replace(&mut self, _copy: Self::Journal, _promises: Self::Promises) {}
    /// Whether all that it holds is shown and of an entry.
    fn is_settled(&self, journal: &Self::Journal) -> bool;
}

pub(crate) struct MemoryMachine(Option<(MemoryJournal, MemoryPromises)>);

fn operation(record: &Record) -> u64 {
    record.bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

impl Machine for MemoryMachine {
    type Journal = MemoryJournal;
    type Promises = MemoryPromises;
    type Ticket = u64;
    const HAS_WITNESSES: bool = true;

    fn new(id: u64, _seed: u64, configuration: &Configuration, planted: Planted) -> Self {
        let mut journal = MemoryJournal::new(BASE, configuration.clone());
        journal.fault = match planted {
            Planted::AcknowledgedBeforeSync => Fault::LiesAboutSyncs,
            Planted::CutsNotWritten => Fault::ForgetsCuts,
            Planted::CommitForgotten => Fault::ForgetsCommits,
            Planted::LastNotApplied => Fault::AppliesAllButTheLast,
            Planted::Nothing
            | Planted::AnsweredBeforeCommitted
            | Planted::NotLookedBack
            | Planted::TakenWhileCopying
            | Planted::WitnessTakesWrites
            | Planted::WitnessLeadsOn
            | Planted::ShownEarly
            | Planted::DelayedAcknowledgesBeforeSync
            | Planted::DelayedTakesWrites
            | Planted::CopiedFromAnybody => Fault::None,
        };
        journal.slow = true;
        Self(Some((journal, MemoryPromises::new(MemberState::new(MemberId(id))))))
    }

    fn start(&mut self, _random: &mut Gen) -> Result<(MemoryJournal, MemoryPromises), String> {
        self.0.take().ok_or_else(|| "it runs already".to_owned())
    }

    fn crash(&mut self, mut journal: MemoryJournal, promises: MemoryPromises, random: &mut Gen) {
        let keep = !random.one_in(2);
        journal.crash(|behind| if keep { random.below(behind as u64 + 1) as usize } else { 0 });
        self.0 = Some((journal, MemoryPromises::new(promises.state().clone())));
    }

    fn crash_soon(&mut self, _random: &mut Gen) {}

    fn is_down(&self) -> bool {
        false
    }

    fn background(&mut self, _: &mut MemoryJournal, _: &mut Gen) -> Result<(), String> {
        Ok(())
    }

    fn finish_syncs(&mut self, journal: &mut MemoryJournal, most: u64) -> Result<(), String> {
        journal.finish_syncs(most as usize);
        Ok(())
    }

    fn commit(&mut self, journal: &mut MemoryJournal, op: u64, random: &mut Gen) -> Option<u64> {
        let mut bytes = op.to_le_bytes().to_vec();
        bytes.resize(8 + random.below(60) as usize, 0);
        Some(journal.commit(bytes))
    }

    fn outcome(&self, journal: &MemoryJournal, ticket: &u64, leads: bool) -> Outcome {
        let shown = journal.shown().last().map_or(0, |record| record.ts);
        match (leads, *ticket <= shown) {
            (false, _) => Outcome::Void,
            (true, true) => Outcome::Done,
            (true, false) => Outcome::Pending,
        }
    }

    fn operations(&self, journal: &MemoryJournal) -> BTreeSet<u64> {
        journal.records().iter().map(operation).collect()
    }

    fn shown(&mut self, journal: &mut MemoryJournal) -> Result<(u64, u64), String> {
        let (mut last, mut digest) = (0, 0_u64);
        for record in journal.shown() {
            if record.ts <= last {
                return Err(format!("{} is shown behind {last}", record.ts));
            }
            last = record.ts;
            digest = digest.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(operation(record) + 1);
        }
        Ok((last, digest))
    }

    fn trim(&mut self, journal: &mut MemoryJournal, random: &mut Gen) {
        let shown = journal.entries().count() as u64;
        journal.trim(BASE.index + 1 + random.below(shown + 1));
    }

    fn copy(journal: &MemoryJournal) -> Option<MemoryJournal> {
        Some(journal.copy())
    }

    fn replace(&mut self, copy: MemoryJournal, promises: MemoryPromises) {
        self.0 = Some((copy, promises));
    }

    fn is_settled(&self, journal: &MemoryJournal) -> bool {
        journal.open_records() == 0 && journal.records() == journal.shown()
    }
}
