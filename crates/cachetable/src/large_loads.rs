//! Loads of large pages under way: a page by one thread at a time, and all together within a bound.
//!
//! Always true:
//! 1. Those under way take no more than what the last that came was allowed, or there is one.
//! 2. Who waits for room waits in a line; who waits for a page that another loads stands in none, so that a read
//!    that does not end holds up those who want that page, and nobody else while there is room.

use crate::FrameKey;
use os::sync::{Condvar, Mutex};
use std::collections::VecDeque;

#[derive(Default)]
pub(crate) struct LargeLoads {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    under_way: Vec<(FrameKey, u64)>,
    line: VecDeque<u64>,
    newest: u64,
}

impl State {
    fn is_under_way(&self, key: FrameKey) -> bool {
        self.under_way.iter().any(|(other, _)| *other == key)
    }

    fn has_room(&self, bytes: u64, most: u64) -> bool {
        let taken: u64 = self.under_way.iter().map(|(_, bytes)| bytes).sum();
        self.under_way.is_empty() || taken.saturating_add(bytes) <= most
    }

    fn join_line(&mut self) -> u64 {
        self.newest += 1;
        self.line.push_back(self.newest);
        self.newest
    }
}

/// A load that is under way, until dropped.
pub(crate) struct LargeLoad<'a> {
    loads: &'a LargeLoads,
    key: FrameKey,
}

impl LargeLoads {
    /// Returns when a page that takes `bytes` while it is loaded may be: nobody else loads it, and all together take
    /// at most `most`, or nobody loads any.
    pub(crate) fn begin(&self, key: FrameKey, bytes: u64, most: u64) -> LargeLoad<'_> {
        let mut state = self.state.lock();
        let mut place = None;
        loop {
            if !state.is_under_way(key) {
                let own = *place.get_or_insert_with(|| state.join_line());
                if state.line.front() == Some(&own) && state.has_room(bytes, most) {
                    state.line.pop_front();
                    state.under_way.push((key, bytes));
                    // There may be room for the next in line, too.
                    self.changed.notify_all();
                    return LargeLoad { loads: self, key };
                }
            } else if let Some(own) = place.take() {
                state.line.retain(|other| *other != own);
                self.changed.notify_all();
            }
            self.changed.wait(&mut state);
        }
    }
}

impl Drop for LargeLoad<'_> {
    fn drop(&mut self) {
        self.loads.state.lock().under_way.retain(|(key, _)| *key != self.key);
        self.loads.changed.notify_all();
    }
}
