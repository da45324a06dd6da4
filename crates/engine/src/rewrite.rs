//! Rewriting a dictionary while it is in use: for another shape, or to be rid of everything
//! that waits in buffers and of what nobody sees any more.
//!
//! The walk goes by key from left to right in units of a leaf or a few. It keeps nothing on disk:
//! each unit is published as any other background work is, so a crash or a kill in the middle
//! leaves a valid tree of which the left part is new.

use crate::environment::Environment;
use crate::schedule::policy;
use crate::settings::Background;
use crate::tuning::Tuning;
use crate::{DictionaryId, Engine, Error, Result};
use ftree::{Step, Walk};

const TUNING: &Tuning = &Tuning::STANDARD;

/// What is rewritten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rewrite {
    /// All of it: the dictionary's options have changed.
    All,
    /// Where something waits in a buffer, or can be dropped.
    Untidy,
}

impl Engine {
    /// Bytes that [`Engine::rewrite`] will pass: pages uncompressed, large values as stored.
    pub fn rewrite_bytes(&self, dictionary: DictionaryId, what: Rewrite) -> Result<u64> {
        let found = self.environment().directory.newest(dictionary)?;
        let stats = found.tree.stats();
        let large = if what == Rewrite::All { stats.large_bytes } else { 0 };
        Ok(stats.raw_bytes + stats.memory_bytes + large)
    }

    /// Rewrites a dictionary in the shape it has now, from the least key to the greatest, while
    /// reads and writes go on. `go_on` is told after each unit how many bytes are behind it and
    /// says whether to continue. Returns whether it came to the end. Takes as long as writing all
    /// of it does, twice.
    pub fn rewrite(
        &self,
        dictionary: DictionaryId,
        what: Rewrite,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<bool> {
        self.environment().rewrite(dictionary, what, go_on)
    }
}

impl Environment {
    fn rewrite(
        &self,
        id: DictionaryId,
        what: Rewrite,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<bool> {
        let dictionary = self.directory.newest(id)?;
        self.schedule.drain(&dictionary)?;
        let mut walk = Walk::new(what == Rewrite::All);
        let mut passed = 0;
        loop {
            self.health.check_writable()?;
            if dictionary.dropped().is_some() {
                return Err(Error::NoSuchDictionary(id));
            }
            let started = self.os.clock.monotonic();
            let used = self.uses();
            let visibility = self.snapshots.visibility();
            match self.check(dictionary.tree.rewrite(&mut walk, &visibility))? {
                Step::Busy => {
                    self.os.clock.sleep(TUNING.beside_others);
                    if !go_on(passed) {
                        return Ok(false);
                    }
                    continue;
                }
                Step::Passed(bytes) => passed += bytes,
                Step::Ended(bytes) => {
                    go_on(passed + bytes);
                    return Ok(true);
                }
            }
            if !go_on(passed) {
                return Ok(false);
            }
            if self.options.background == Background::Threads {
                let took = self.os.clock.monotonic().saturating_sub(started);
                let pause = policy::rewrite_pause(took, self.uses().saturating_sub(used), TUNING);
                if !pause.is_zero() {
                    self.os.clock.sleep(pause);
                }
            }
        }
    }

    /// What clients have done with the engine so far: commits, and snapshots taken to read.
    fn uses(&self) -> u64 {
        self.counters.commits.get() + self.snapshots.taken()
    }
}
