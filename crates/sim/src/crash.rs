//! Crashes, restarts, and what a recovery must show.

use crate::features::Feature;
use crate::model::Overlay;
use crate::reads::{everything, same};
use crate::world::{Down, World};
use anyhow::{Context, Result, bail, ensure};
use engine::{Engine, Options};
use os::Os;
use os::sim::Survival;
use std::sync::Arc;
use telemetry::Registry;

/// So many recoveries in a row may be cut off by another crash.
const MOST_NESTED: u64 = 5;

pub(crate) fn open(os: &Os, options: Options) -> engine::Result<Engine> {
    Engine::open(os.clone(), Arc::new(Registry::new()), options)
}

impl World {
    /// The first start.
    pub(crate) fn open(&mut self) -> Result<()> {
        let engine = open(&self.sim.os(), self.setup.options.clone())
            .context("a new data directory opens")?;
        self.opened(engine);
        Ok(())
    }

    /// The power will go during one of the next calls that change the disk.
    pub(crate) fn plan_crash(&mut self) -> Result<()> {
        if self.features.has(Feature::Crashes) {
            let after = 1 + self.random.skewed(300);
            self.note(format!("the power goes in {after} calls"));
            self.sim.crash_after(after);
        }
        Ok(())
    }

    pub(crate) fn restart_if_down(&mut self) -> Result<()> {
        if self.sim.is_crashed() {
            self.down = Some(Down::Crashed);
        }
        match self.down.take() {
            None => Ok(()),
            Some(_) if self.ended => Ok(()),
            Some(Down::Crashed) => {
                self.tally.crashes += 1;
                self.restart()
            }
            Some(Down::Stopped) => {
                self.stop_faults();
                self.compare_as_it_stopped()?;
                self.restart()
            }
        }
    }

    /// An engine that stopped still reads: all that was committed.
    fn compare_as_it_stopped(&mut self) -> Result<()> {
        self.sim.cancel_crash();
        self.compare()?;
        self.down = None;
        Ok(())
    }

    fn survival(&mut self) -> Survival {
        match self.random.below(8) {
            0 => Survival::Nothing,
            1 => Survival::Everything,
            2 => Survival::Process,
            _ => Survival::Random,
        }
    }

    /// The machine or the process dies and starts again.
    fn restart(&mut self) -> Result<()> {
        // What the engine does while it goes must not reach the disk.
        self.sim.crash();
        self.forget_engine();
        self.stop_faults();
        if self.random.one_in(3) {
            self.setup.change(&mut self.random);
            let changed =
                format!("{:?} {:?}", self.setup.options.sizes, self.setup.options.history);
            self.note(changed);
        }
        for attempt in 0.. {
            let survival = self.survival();
            self.note(format!("reboot, {survival:?} survives"));
            let os = self.sim.reboot_with(survival);
            self.mark = self.sim.injected();
            if self.features.has(Feature::NestedCrashes) && attempt < MOST_NESTED {
                self.sim.crash_after(1 + self.random.skewed(60));
            }
            match open(&os, self.setup.options.clone()) {
                // A crash right behind the last call of the recovery is the next step's.
                Ok(engine) if !self.sim.is_crashed() => {
                    self.opened(engine);
                    return self.check_recovered();
                }
                Ok(_) => self.tally.recovery_crashes += 1,
                Err(error) => {
                    self.note(format!("opening: {error}"));
                    if self.sim.is_crashed() {
                        self.tally.recovery_crashes += 1;
                    } else {
                        self.excuse_open(&error)?;
                        if self.ended {
                            return Ok(());
                        }
                        self.make_room();
                    }
                }
            }
            ensure!(attempt < MOST_NESTED + 3, "the engine does not open any more");
            // What a half recovery left dies as the power does.
            self.sim.crash();
        }
        Ok(())
    }

    /// The recovered state is the one after some commit, and not an older one than promised.
    fn check_recovered(&mut self) -> Result<()> {
        self.tally.recoveries += 1;
        let at = self.engine()?.snapshot().timestamp().0;
        self.model.resolve_doubt(at);
        let (durable, newest) = (self.model.durable, self.model.newest);
        self.note(format!("recovered at {at}, durable {durable}, newest {newest}"));
        ensure!(at <= newest, "commit {at} came back and never was");
        let damaged = self.sim.injected().damage > 0;
        ensure!(at >= durable || damaged, "commit {durable} was durable, {at} came back");
        if damaged && self.follower.seen.is_some_and(|(seen, _)| seen > at) {
            // What the disk has lost the follower was shown: its place is another commit's from now on.
            self.follower.seen = None;
        }
        self.tally.commits_lost_unsynced += newest - at;
        self.model.recovered(at);
        self.compare()
    }

    /// A clean end and a new start: nothing is lost, synced or not.
    pub(crate) fn close_and_reopen(&mut self) -> Result<()> {
        if !self.features.has(Feature::Closes) && !self.random.one_in(8) {
            return Ok(());
        }
        if self.random.one_in(4) {
            return self.drop_and_reopen();
        }
        self.note("close");
        let engine = self.engine()?;
        self.clients.clear();
        self.snapshots.clear();
        self.walks.clear();
        self.follower.forget_engine();
        let closed = engine.close();
        drop(engine);
        if self.sim.is_crashed() {
            return Ok(());
        }
        if let Err(error) = closed {
            self.excuse("close", &error)?;
            self.down = Some(Down::Stopped);
            // A closed engine does not read any more.
            self.stop_faults();
            self.down = None;
            return self.restart();
        }
        self.tally.closes += 1;
        self.model.durable = self.model.newest;
        self.restart()
    }

    /// The last handle goes without a close: the log is flushed, so nothing is lost either.
    fn drop_and_reopen(&mut self) -> Result<()> {
        self.note("the last handle goes");
        let before = self.sim.injected();
        let stopped = self.engine()?.stats().stopped.is_some();
        self.forget_engine();
        if !self.sim.is_crashed() && !stopped && self.sim.injected() == before {
            self.model.durable = self.model.newest;
        }
        self.restart()
    }

    /// A copy of the data directory opens as the state after some commit of a span.
    pub(crate) fn check_copy(&mut self, os: &Os, from: u64, to: u64) -> Result<()> {
        // It is on another machine, whose entropy a seed may have made the same.
        let options = Options { nonces: None, ..self.setup.options.clone() };
        let engine = match open(os, options) {
            Ok(engine) => engine,
            Err(error) => return self.excuse_open(&error),
        };
        let at = engine.snapshot().timestamp().0;
        self.note(format!("the copy shows {at}, taken from {from} to {to}"));
        ensure!((from..=to).contains(&at), "a copy of commits {from} to {to} shows {at}");
        let found = match everything(&engine).and_then(|found| {
            engine.verify_all()?;
            Ok(found)
        }) {
            Ok(found) => found,
            Err(error) => return self.excuse_open(&error),
        };
        let expected = self.model.dictionaries(at);
        let names: Vec<u64> = found.iter().map(|(id, _)| *id).collect();
        if names != expected {
            bail!("the copy has dictionaries {names:?}, not {expected:?}");
        }
        for (id, contents) in found {
            let expected = self.model.contents(id, at, &Overlay::new());
            same(&contents, &expected).with_context(|| format!("dictionary {id} of a copy"))?;
        }
        Ok(())
    }
}
