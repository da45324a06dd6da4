//! The queue of trees with background work, and where its workers wait.
//!
//! A tree is in one of four states, beside which any number of workers may be in it:
//!
//! | What happens | absent | ready | blocked | deferred |
//! |---|---|---|---|---|
//! | somebody says there may be work | ready | ready | ready | ready |
//! | a worker did a unit in it, or failed to | ready | ready | ready | ready |
//! | a worker found others at all there is, and leaves them there | – | blocked | blocked | blocked |
//! | a worker found nothing but merges, and as many as may be run | – | deferred | deferred | deferred |
//! | a worker found nothing | – | absent | absent | absent |
//! | the last worker leaves, whatever it found | – | – | ready | – |
//! | a worker's unit ended, in any tree | – | – | – | ready |
//! | the dictionary is gone | – | absent | absent | absent |
//!
//! `–`: it stays as it is. What a worker found counts only if nobody said anything since it looked:
//! otherwise the state stays as well. Likewise a merge that ended meanwhile undoes that there was
//! nothing but merges.
//!
//! What is always true:
//! 1. A tree with a unit that nobody is at is ready, or a worker is in it, or it is deferred while a
//!    merge runs. So no work is forgotten.
//! 2. Whoever makes a tree ready wakes a worker, or goes on to look for work itself.
//!
//! `interleavings` tries both under shuttle.

#[cfg(all(test, shuttle))]
mod interleavings;
#[cfg(test)]
mod tests;

use crate::tuning::Tuning;
use os::sync::{Condvar, Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const TUNING: &Tuning = &Tuning::STANDARD;

/// Where a tree in the queue stands; one that is not in it is absent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// There may be a unit that nobody is at. Taking one leaves it ready: several workers can be in
    /// one tree.
    Ready,
    /// Others are at all there is, until one of them is done.
    Blocked,
    /// There are merges to do beside as many as may run, until somebody in any tree is done.
    Deferred,
}

/// What happens to a tree: a row of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    Queued,
    Done,
    BusyBesideOthers,
    LastLeft,
    OnlyMerges,
    Nothing,
    SomebodyEnded,
    Gone,
}

/// The table.
fn next(state: Option<State>, event: Event) -> Option<State> {
    match (event, state) {
        (Event::Queued | Event::Done, _) => Some(State::Ready),
        (_, None) | (Event::Nothing | Event::Gone, _) => None,
        (Event::BusyBesideOthers, _) => Some(State::Blocked),
        (Event::LastLeft, Some(State::Blocked)) | (Event::SomebodyEnded, Some(State::Deferred)) => {
            Some(State::Ready)
        }
        (Event::OnlyMerges, _) => Some(State::Deferred),
        (Event::LastLeft | Event::SomebodyEnded, state) => state,
    }
}

/// How a worker's attempt at a unit ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UnitOutcome {
    /// It did a unit, or failed to: there may be more.
    Done,
    /// Others are at all there is.
    Busy,
    /// There are merges, and others are at as many as may be.
    Deferred,
    /// There is nothing to do.
    Nothing,
}

/// A tree in the queue.
struct Entry {
    state: State,
    /// The number of the event that last said there may be work: what a worker finds holds only if
    /// there was none since it looked.
    told: u64,
}

/// The states of all trees.
#[derive(Default)]
pub(crate) struct Queue {
    trees: BTreeMap<u64, Entry>,
    /// Those that are deferred.
    deferred: BTreeSet<u64>,
    /// How many are at work in which tree.
    working: BTreeMap<u64, u32>,
    events: u64,
    /// Units that ended, however they ended, but for those that were deferred.
    units_ended: u64,
    /// Where the next look begins.
    look_from: u64,
    stop: bool,
    /// A row of the table that a test leaves out, to see that it is missed.
    #[cfg(all(test, shuttle))]
    without: Option<Event>,
}

/// A worker's right to do one unit in a tree.
pub(crate) struct TreeLease {
    dictionary: u64,
    /// The last that was heard of the tree before.
    told: Option<u64>,
    /// `Queue::units_ended` when the unit began.
    units_ended: u64,
}

impl Queue {
    /// Takes a tree from its state to the next.
    fn change(&mut self, dictionary: u64, event: Event) {
        #[cfg(all(test, shuttle))]
        if self.without == Some(event) {
            return;
        }
        let before = self.trees.get(&dictionary);
        let told = before.map_or(0, |entry| entry.told);
        match next(before.map(|entry| entry.state), event) {
            None => {
                self.trees.remove(&dictionary);
            }
            Some(state) => {
                self.trees.insert(dictionary, Entry { state, told });
            }
        }
        match self.trees.get(&dictionary).map(|entry| entry.state) {
            Some(State::Deferred) => self.deferred.insert(dictionary),
            _ => self.deferred.remove(&dictionary),
        };
    }

    /// There may be work in this tree.
    fn add(&mut self, dictionary: u64) {
        self.say(dictionary, Event::Queued);
    }

    fn say(&mut self, dictionary: u64, event: Event) {
        self.change(dictionary, event);
        self.events += 1;
        if let Some(entry) = self.trees.get_mut(&dictionary) {
            entry.told = self.events;
        }
    }

    /// The dictionary is no more.
    pub(crate) fn remove(&mut self, dictionary: u64) {
        self.change(dictionary, Event::Gone);
    }

    /// Deferred trees are looked at again.
    fn undefer(&mut self) {
        for dictionary in std::mem::take(&mut self.deferred) {
            self.change(dictionary, Event::SomebodyEnded);
        }
        debug_assert!(self.deferred.is_empty(), "a merge that ended leaves nobody deferred");
    }

    fn ready(&self) -> impl Iterator<Item = u64> {
        let ready = self.trees.iter().filter(|(_, entry)| entry.state == State::Ready);
        ready.map(|(dictionary, _)| *dictionary)
    }

    /// The trees to choose from: all that are ready, or, where they are many, some in turn.
    pub(crate) fn choice(&mut self) -> Vec<u64> {
        if self.trees.len() <= TUNING.compared {
            return self.ready().collect();
        }
        let (behind, ahead) =
            (self.trees.range(..self.look_from), self.trees.range(self.look_from..));
        let in_turn = ahead.chain(behind).filter(|(_, entry)| entry.state == State::Ready);
        let choice: Vec<u64> =
            in_turn.map(|(dictionary, _)| *dictionary).take(TUNING.compared_in_turn).collect();
        debug_assert!(choice.len() <= TUNING.compared, "what one choice looks at is bounded");
        self.look_from = choice.last().map_or(0, |last| last.wrapping_add(1));
        choice
    }

    /// In how many trees somebody is at work.
    pub(crate) fn working(&self) -> usize {
        self.working.len()
    }

    /// A worker begins a unit in a tree.
    pub(crate) fn enter(&mut self, dictionary: u64) -> TreeLease {
        *self.working.entry(dictionary).or_default() += 1;
        let told = self.trees.get(&dictionary).map(|entry| entry.told);
        debug_assert!(told.is_none_or(|told| told <= self.events), "events have a past");
        TreeLease { dictionary, told, units_ended: self.units_ended }
    }

    /// A worker's unit ended. Says whether it has to look again by itself: nobody will tell it.
    fn leave(&mut self, lease: &TreeLease, outcome: UnitOutcome) -> bool {
        let TreeLease { dictionary, told, units_ended: seen } = *lease;
        debug_assert!(self.working.contains_key(&dictionary), "who leaves has entered");
        let others = self.working.get(&dictionary).map_or(0, |count| count.saturating_sub(1));
        match others {
            0 => self.working.remove(&dictionary),
            _ => self.working.insert(dictionary, others),
        };
        let has_news = self.trees.get(&dictionary).map(|entry| entry.told) != told;
        debug_assert!(seen <= self.units_ended, "units end after they begin");
        if outcome != UnitOutcome::Deferred {
            self.units_ended += 1;
            self.undefer();
        }
        match outcome {
            UnitOutcome::Done => self.say(dictionary, Event::Done),
            UnitOutcome::Busy if others > 0 && !has_news => {
                self.change(dictionary, Event::BusyBesideOthers);
            }
            UnitOutcome::Deferred if self.units_ended == seen && !has_news => {
                self.change(dictionary, Event::OnlyMerges);
            }
            UnitOutcome::Nothing if !has_news => self.change(dictionary, Event::Nothing),
            UnitOutcome::Busy | UnitOutcome::Deferred | UnitOutcome::Nothing => {}
        }
        if others == 0 {
            // Whoever waits to be told that the last of them is done would wait for good. This one
            // goes on to look for work.
            self.change(dictionary, Event::LastLeft);
        }
        // An insert into a sealed memtable is ending, or somebody outside the queue is at work.
        outcome == UnitOutcome::Busy && others == 0 && !has_news
    }
}

/// The queue, as threads share it.
#[derive(Default)]
pub(crate) struct WorkQueue {
    queue: Mutex<Queue>,
    /// Flushers wait here for work.
    changed: Condvar,
    /// Threads that pause whether or not there is work wait here: new work does not wake them.
    pausing: Condvar,
}

impl WorkQueue {
    /// The states, to choose from.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock()
    }

    /// There may be work in a dictionary's tree.
    pub(crate) fn add(&self, dictionary: u64) {
        self.queue.lock().add(dictionary);
        self.changed.notify_one();
    }

    /// One worker has found something; another one may too, in this tree or in another one.
    pub(crate) fn wake_one(&self) {
        self.changed.notify_one();
    }

    /// Everybody who waits for work looks again.
    pub(crate) fn wake(&self) {
        self.changed.notify_all();
    }

    /// Everybody ends at the next unit.
    pub(crate) fn stop(&self) {
        self.queue.lock().stop = true;
        self.changed.notify_all();
        self.pausing.notify_all();
    }

    /// There is work in the queue, or everything stops.
    pub(crate) fn is_called(&self) -> bool {
        let queue = self.queue.lock();
        queue.stop || queue.ready().next().is_some()
    }

    /// Everything stops.
    pub(crate) fn is_stopping(&self) -> bool {
        self.queue.lock().stop
    }

    /// How many trees are in the queue or worked on.
    pub(crate) fn len(&self) -> usize {
        let queue = self.queue.lock();
        let unattended = |dictionary: &&u64| !queue.working.contains_key(*dictionary);
        queue.working.len() + queue.trees.keys().filter(unattended).count()
    }

    /// Waits until there is work, the time is over, or everything stops.
    pub(crate) fn wait_for_work(&self, time: Duration) {
        let mut queue = self.queue.lock();
        if !queue.stop && queue.ready().next().is_none() {
            let time = if queue.deferred.is_empty() { time } else { TUNING.spare_wait };
            let _ = self.changed.wait_for(&mut queue, time);
            queue.undefer();
        }
    }

    /// Waits although there is work, until others may be too few for it.
    pub(crate) fn wait_as_spare(&self) {
        let mut queue = self.queue.lock();
        if !queue.stop {
            let _ = self.changed.wait_for(&mut queue, TUNING.spare_wait);
        }
    }

    /// A worker leaves a tree. May wait a moment.
    pub(crate) fn leave(&self, lease: &TreeLease, outcome: UnitOutcome) {
        let mut queue = self.queue.lock();
        if queue.leave(lease, outcome) && !queue.stop {
            let _ = self.changed.wait_for(&mut queue, TUNING.busy_wait);
        } else if outcome == UnitOutcome::Done {
            self.changed.notify_one();
        }
    }

    /// Waits whether or not there is work.
    pub(crate) fn pause(&self, time: Duration) {
        let mut queue = self.queue.lock();
        if !queue.stop {
            let _ = self.pausing.wait_for(&mut queue, time);
        }
    }
}
