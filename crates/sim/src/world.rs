//! One simulated machine with one engine on it, the model beside it, and the dice.
//!
//! | what happens | where |
//! |---|---|
//! | transactions | `client.rs` |
//! | dictionaries that are filled past the log | `loads.rs` |
//! | snapshots, cursors, whole comparisons | `reads.rs` |
//! | crashes, restarts, what a recovery must show | `crash.rs` |
//! | I/O errors, full disk, damage; which errors are excused | `faults.rs` |
//! | hot backups | `backup.rs` |
//! | the history and who follows it | `history.rs` |

use crate::chain::Chain;
use crate::client::Client;
use crate::features::{Feature, Features};
use crate::follower::Follower;
use crate::model::Model;
use crate::reads::Walk;
use crate::setup::Setup;
use crate::trace::Trace;
use crate::updates::Append;
use crate::waiting::Waiting;
use anyhow::{Context, Result};
use engine::{Engine, PlantedBug, PlantedUpdateBug, Snapshot};
use os::sim::{Injected, SimOs};
use std::sync::Arc;
use std::time::Duration;
use testkit::Gen;

/// What runs did, in figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Tally {
    pub steps: u64,
    pub commits: u64,
    pub conflicts: u64,
    pub ranges_deleted: u64,
    pub comparisons: u64,
    pub histories: u64,
    pub crashes: u64,
    pub recoveries: u64,
    pub recovery_crashes: u64,
    pub commits_lost_unsynced: u64,
    pub commits_not_durable: u64,
    pub commit_panics: u64,
    pub closes: u64,
    pub checkpoints: u64,
    pub backups: u64,
    pub incremental_backups: u64,
    pub loads: u64,
    pub drains: u64,
    pub merges: u64,
    pub flushes: u64,
    pub io_errors: u64,
    pub full_disks: u64,
    pub damages: u64,
    pub damages_detected: u64,
    /// Runs that ended because what was damaged cannot be read any more.
    pub ended_by_damage: u64,
}

impl Tally {
    /// Adds another run's.
    pub fn add(&mut self, other: &Self) {
        let Self {
            steps,
            commits,
            conflicts,
            ranges_deleted,
            comparisons,
            histories,
            crashes,
            recoveries,
            recovery_crashes,
            commits_lost_unsynced,
            commits_not_durable,
            commit_panics,
            closes,
            checkpoints,
            backups,
            incremental_backups,
            loads,
            drains,
            merges,
            flushes,
            io_errors,
            full_disks,
            damages,
            damages_detected,
            ended_by_damage,
        } = self;
        *steps += other.steps;
        *commits += other.commits;
        *conflicts += other.conflicts;
        *ranges_deleted += other.ranges_deleted;
        *comparisons += other.comparisons;
        *histories += other.histories;
        *crashes += other.crashes;
        *recoveries += other.recoveries;
        *recovery_crashes += other.recovery_crashes;
        *commits_lost_unsynced += other.commits_lost_unsynced;
        *commits_not_durable += other.commits_not_durable;
        *commit_panics += other.commit_panics;
        *closes += other.closes;
        *checkpoints += other.checkpoints;
        *backups += other.backups;
        *incremental_backups += other.incremental_backups;
        *loads += other.loads;
        *drains += other.drains;
        *merges += other.merges;
        *flushes += other.flushes;
        *io_errors += other.io_errors;
        *full_disks += other.full_disks;
        *damages += other.damages;
        *damages_detected += other.damages_detected;
        *ended_by_damage += other.ended_by_damage;
    }
}

/// Why the engine has to be opened again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Down {
    /// The power went.
    Crashed,
    /// It stopped after an error, or reported damage: the process is started again.
    Stopped,
}

pub(crate) struct World {
    pub(crate) sim: SimOs,
    pub(crate) setup: Setup,
    pub(crate) features: Features,
    pub(crate) random: Gen,
    /// `None` only while it is being opened again.
    engine: Option<Engine>,
    pub(crate) model: Model,
    pub(crate) clients: Vec<Client>,
    pub(crate) snapshots: Vec<Snapshot>,
    pub(crate) walks: Vec<Walk>,
    pub(crate) loads: Vec<Waiting>,
    pub(crate) follower: Follower,
    pub(crate) chain: Chain,
    pub(crate) down: Option<Down>,
    /// Faults before the engine was opened.
    pub(crate) mark: Injected,
    /// Damage made the data unreadable, which was said: nothing is left to do.
    pub(crate) ended: bool,
    pub(crate) trace: Trace,
    pub(crate) tally: Tally,
    pub(crate) step: u64,
}

impl World {
    pub(crate) fn new(
        seed: u64,
        features: Features,
        (lying_syncs_ppm, planted): (u32, Option<PlantedBug>),
        is_verbose: bool,
    ) -> Self {
        let mut random = Gen::new(seed ^ 0x73_696d);
        let mut setup = Setup::random(&mut random, features);
        setup.options.sizes.planted = planted;
        let mut world = Self {
            sim: SimOs::new(seed),
            features,
            random,
            engine: None,
            model: Model::new(),
            clients: Vec::new(),
            snapshots: Vec::new(),
            walks: Vec::new(),
            loads: Vec::new(),
            follower: Follower::default(),
            chain: Chain::new(seed),
            down: None,
            mark: Injected::default(),
            ended: false,
            trace: Trace::new(is_verbose),
            tally: Tally::default(),
            step: 0,
            setup,
        };
        world.sim.set_faults(os::sim::Faults {
            dropped_sync_ppm: lying_syncs_ppm,
            ..os::sim::Faults::default()
        });
        let setup = format!("{features:?} {:?}", world.setup);
        world.note(setup);
        world
    }

    /// The whole run.
    pub(crate) fn run(&mut self, steps: u64) -> Result<()> {
        self.open()?;
        for step in 1..=steps {
            if self.ended {
                break;
            }
            self.step = step;
            self.tally.steps += 1;
            self.act()?;
            self.restart_if_down()?;
        }
        if !self.ended {
            self.step += 1;
            self.note("the end: everything is compared once more");
            self.stop_faults();
            self.compare()?;
        }
        if !self.ended && self.down.is_none() {
            self.close_and_reopen()?;
        }
        self.finish();
        Ok(())
    }

    /// Its trees have a bug, to see it found.
    pub(crate) fn plant(&mut self, planted: Option<PlantedUpdateBug>) {
        self.setup.options.updates = Some(Arc::new(Append { planted }));
    }

    /// One step: whatever the dice say.
    fn act(&mut self) -> Result<()> {
        let who = self.random.below(self.setup.clients as u64) as usize;
        let client = (who < self.clients.len()).then_some(who);
        match (self.random.below(1000), client) {
            (0..430, Some(who)) => self.write(who),
            (430..500, Some(who)) => self.read(who),
            (500..540, who) => self.scan(who),
            (540..570, Some(who)) => self.savepoint(who),
            (570..650, Some(who)) => self.commit(who),
            (650..660, Some(who)) => self.abort(who),
            (0..660, None) => self.begin(),
            (660..690, _) => self.hold_or_release(),
            (690..720, _) => self.walk_on(),
            (720..735, _) if self.features.has(Feature::History) => self.follow(),
            (720..900, _) => self.background(),
            (900..940, _) => self.pass_time(),
            (940..950, _) => self.checkpoint_or_sync(),
            (950..953, _) => self.verify(),
            (953..958, _) => self.drop_dictionary(),
            (958..961, _) => self.backup(),
            (961..964, _) => self.shrink(),
            (964..967, _) => self.close_and_reopen(),
            (967..975, _) => self.plan_crash(),
            (975..985, _) => self.change_faults(),
            (985..990, _) => self.fill_disk(),
            (990..994, _) => self.damage(),
            (994..996, _) if self.features.has(Feature::Loads) => self.load(),
            (996..998, Some(who)) if self.features.has(Feature::Loads) => self.adopt(who),
            _ => self.compare(),
        }
    }

    fn background(&mut self) -> Result<()> {
        let engine = self.engine()?;
        for _ in 0..=self.random.below(4) {
            match engine.step() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return self.excuse("background step", &error),
            }
        }
        Ok(())
    }

    fn pass_time(&mut self) -> Result<()> {
        let most = [10, 1_000, 5_000][self.random.below(3) as usize];
        let time = self.random.below(most);
        self.note(format!("{time} ms pass"));
        self.sim.advance(Duration::from_millis(time));
        Ok(())
    }

    fn checkpoint_or_sync(&mut self) -> Result<()> {
        let engine = self.engine()?;
        let newest = self.model.newest;
        let checkpoint = self.features.has(Feature::Checkpoints) && self.random.one_in(2);
        let what = if checkpoint { "checkpoint" } else { "sync" };
        self.note(what);
        match if checkpoint { engine.checkpoint() } else { engine.sync() } {
            Ok(()) => {
                self.tally.checkpoints += u64::from(checkpoint);
                self.model.durable = newest;
                Ok(())
            }
            Err(error) => self.excuse(what, &error),
        }
    }

    fn verify(&mut self) -> Result<()> {
        self.note("verify");
        match self.engine()?.verify_all() {
            Ok(()) => Ok(()),
            Err(error) => self.excuse("verify", &error),
        }
    }

    fn shrink(&mut self) -> Result<()> {
        match self.engine()?.shrink() {
            Ok(bytes) => {
                self.note(format!("shrink gave back {bytes} bytes"));
                Ok(())
            }
            Err(error) => self.excuse("shrink", &error),
        }
    }

    pub(crate) fn engine(&self) -> Result<Engine> {
        self.engine.clone().context("the engine is open between steps")
    }

    pub(crate) fn opened(&mut self, engine: Engine) {
        self.engine = Some(engine);
    }

    /// Lets go of everything that belongs to the open engine.
    pub(crate) fn forget_engine(&mut self) {
        self.clients.clear();
        self.snapshots.clear();
        self.walks.clear();
        self.loads.clear();
        self.follower.forget_engine();
        self.count_work();
        self.engine = None;
    }

    fn count_work(&mut self) {
        if let Some(engine) = &self.engine {
            let stats = engine.stats();
            self.tally.drains += stats.drains;
            self.tally.merges += stats.merges;
            self.tally.flushes += stats.flushes;
        }
    }

    fn finish(&mut self) {
        self.forget_engine();
        let injected = self.sim.injected();
        self.tally.io_errors = injected.io_errors;
        self.tally.damages = injected.damage;
        for (path, bytes) in self.sim.files() {
            self.trace.bytes(path.as_os_str().as_encoded_bytes());
            self.trace.bytes(&bytes);
        }
    }

    pub(crate) fn note(&mut self, what: impl AsRef<str>) {
        let line = format!("{:5} {:6} {}", self.step, self.sim.syscalls(), what.as_ref());
        self.trace.line(line);
    }
}
