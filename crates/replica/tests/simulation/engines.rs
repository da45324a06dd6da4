//! A member over an engine on a simulated disk: the power goes at any call, and takes what was not synced.
//!
//! Each operation leaves a key of its own, and overwrites one of a few keys that all operations share: what a
//! member shows at a timestamp follows from all commits up to it.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::{
    Background, CommitState, DictionaryId, Direction, Engine, HistoryOptions, KeyRange, OnConflict,
    Options, PlantedBug, Showing, Sizes, Snapshot, Submitted, Timestamp, TxnOptions,
};
use os::Os;
use os::sim::{SimOs, Survival};
use quorum::{Configuration, MemberId};
use replica::{DelayLog, DelayableJournal, EngineJournal, Observed, Observer, StateFile, SyncMode};
use telemetry::Registry;
use testkit::Gen;

use crate::Planted;
use crate::machine::{BASE, DELAYED, Machine, Outcome};

const ROOT: DictionaryId = DictionaryId::ROOT;
/// Keys that operations share.
const SHARED: u64 = 24;

pub(crate) struct EngineMachine {
    id: u64,
    sim: SimOs,
    options: Options,
    configuration: Configuration,
    planted: Planted,
    is_new: bool,
    /// The time of its day at the world's beginning, and how much later it is.
    began_ms: i64,
    passed_ms: u64,
    /// What was shown when it was looked at last, and how often that was said without a look.
    last: ((u64, u64), u32),
}

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

fn latest() -> TxnOptions {
    TxnOptions { on_conflict: OnConflict::Latest, lock_timeout: None }
}

fn contents(snapshot: &Snapshot) -> Contents {
    let mut cursor = snapshot.cursor(ROOT, KeyRange::all(), Direction::Forward).unwrap();
    let mut contents = Contents::new();
    while let Some((key, value)) = cursor.next().unwrap() {
        contents.insert(key.to_vec(), value.to_vec());
    }
    contents
}

/// Follows what is told, and compares it with what readers see: as a catalog would.
pub(crate) struct Mirror {
    engine: Engine,
    contents: Contents,
    reading: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// Writes of commits that are not visible yet.
    next: Vec<(Timestamp, Contents)>,
}

impl Observer for Mirror {
    fn read(&mut self, at: DictionaryId, key: &[u8], value: Option<&[u8]>) -> Observed<()> {
        if at == ROOT {
            self.reading.push((key.to_vec(), value.map(<[u8]>::to_vec)));
        }
        Ok(())
    }

    fn before_visible(&mut self, commit: Timestamp) -> Observed<bool> {
        if self.engine.visible().timestamp() >= commit {
            return Err(format!("{commit:?} is visible before it is told"));
        }
        let writes = std::mem::take(&mut self.reading);
        // Those of this member's clients it takes from the engine: they are not told.
        let mut told = Contents::new();
        for (key, value) in writes {
            if let Some(value) = value {
                told.insert(key, value);
            }
        }
        self.next.push((commit, told));
        Ok(commit.0.is_multiple_of(3))
    }

    fn visible(&mut self, up_to: Timestamp) -> Observed<()> {
        let visible = self.engine.visible().timestamp();
        if visible != up_to {
            return Err(format!("{up_to:?} is told, {visible:?} is visible"));
        }
        while let Some((commit, _)) = self.next.first()
            && *commit <= up_to
        {
            let (_, told) = self.next.remove(0);
            self.contents.extend(told);
        }
        Ok(())
    }
}

impl EngineMachine {
    fn open(&self, os: &Os) -> Result<Engine, String> {
        let opened = Engine::open(os.clone(), Arc::new(Registry::new()), self.options.clone());
        opened.map_err(|error| error.to_string())
    }

    /// What an engine does beside the first part of a sync, when what was appended is in the log alone: now and then it
    /// drains, merges, or writes a checkpoint. What fails of it is met again.
    fn meanwhile(&self, engine: &Engine) -> Arc<dyn Fn() + Send + Sync> {
        let random = Mutex::new(Gen::new(self.id));
        let engine = engine.clone();
        Arc::new(move || {
            let _met_again = match random.lock().unwrap().below(20) {
                0 => engine.checkpoint(),
                1..5 => engine.step().map(drop),
                _ => Ok(()),
            };
        })
    }

    fn try_start(&mut self, os: &Os) -> Result<(DelayableJournal<Mirror>, StateFile), String> {
        let engine = self.open(os)?;
        if engine.entries().last.index == 0 {
            if !self.is_new {
                return Err("the beginning of its log is lost".to_owned());
            }
            EngineJournal::<Mirror>::begin(&engine, BASE, &self.configuration)
                .map_err(|error| error.to_string())?;
        }
        let id = MemberId(self.id);
        let state = StateFile::open(&*os.vfs, Path::new("/data/raft.state"), || id);
        let state = state.map_err(|error| error.to_string())?;
        let mode = match self.planted {
            Planted::AcknowledgedBeforeSync => SyncMode::Never,
            Planted::DelayedAcknowledgesBeforeSync if id == DELAYED => SyncMode::Never,
            _ => SyncMode::WhenTold(self.meanwhile(&engine)),
        };
        let mirror = Mirror {
            contents: contents(&engine.snapshot()),
            engine: engine.clone(),
            reading: Vec::new(),
            next: Vec::new(),
        };
        let exists = os.vfs.exists(Path::new("/data/delayed")).map_err(|e| e.to_string())?;
        let beside = DelayLog { name: "delayed", exists, most_bytes: u64::MAX };
        let journal = DelayableJournal::open(engine, mirror, mode, beside);
        let journal = journal.map_err(|e| e.to_string())?;
        Ok((journal, state))
    }
}

impl Machine for EngineMachine {
    type Journal = DelayableJournal<Mirror>;
    type Promises = StateFile;
    type Ticket = Submitted;
    const HAS_DELAYS: bool = true;

    fn new(id: u64, seed: u64, configuration: &Configuration, planted: Planted) -> Self {
        let mut random = Gen::new(seed ^ id);
        let mut options = Options::new("/data");
        options.cache_size = 8 << 20;
        options.background = Background::Manual;
        options.fs_redzone_percent = 0;
        options.lock_timeout = Duration::ZERO;
        options.checkpoint_period = Duration::ZERO;
        options.cleaner_period = Duration::ZERO;
        options.showing = Showing::Committed;
        options.history = Some(HistoryOptions { bytes: u64::MAX, min_age: Duration::ZERO });
        let budget = 24 << (10 + random.below(3));
        options.sizes = Sizes {
            log_segment_bytes: 8 << (10 + random.below(3)),
            write_budget: budget,
            most_write_budget: budget,
            memtable_bytes: budget / (2 + random.below(8)),
            chunk_bytes: 100 << random.below(5),
            spill_bytes: 600 << random.below(4),
            // Checkpoints are written when the simulation says so.
            log_cap: 1 << 30,
            look_back_bytes: u64::from(planted == Planted::NotLookedBack),
            entry_bytes: 100 << random.below(5),
            tiny_trees: true,
            planted: match planted {
                Planted::CutsNotWritten => Some(PlantedBug::IgnoresCuts),
                _ => None,
            },
            ..Sizes::default()
        };
        let sim = SimOs::new(seed ^ id << 32);
        let configuration = configuration.clone();
        Self {
            id,
            options,
            configuration,
            planted,
            is_new: true,
            began_ms: sim.os().clock.wall_ms(),
            passed_ms: 0,
            sim,
            last: ((0, 0), 0),
        }
    }

    fn start(&mut self, random: &mut Gen) -> Result<(Self::Journal, StateFile), String> {
        let os = if self.sim.is_crashed() {
            let survival = match random.below(4) {
                0 => Survival::Nothing,
                1 => Survival::Everything,
                _ => Survival::Random,
            };
            self.sim.reboot_with(survival)
        } else {
            self.sim.os()
        };
        if random.one_in(6) {
            self.sim.crash_after(1 + random.skewed(60));
        }
        let started = self.try_start(&os);
        if started.is_ok() && !self.sim.is_crashed() {
            self.sim.cancel_crash();
            self.is_new = false;
        }
        started
    }

    fn crash(&mut self, journal: Self::Journal, promises: StateFile, _random: &mut Gen) {
        self.sim.crash();
        drop((journal, promises));
    }

    fn crash_soon(&mut self, random: &mut Gen) {
        self.sim.crash_after(1 + random.skewed(40));
    }

    fn is_down(&self) -> bool {
        self.sim.is_crashed()
    }

    fn wall_ms(&mut self, now_ms: u64) -> i64 {
        self.sim.advance(Duration::from_millis(now_ms - self.passed_ms));
        self.passed_ms = now_ms;
        self.began_ms + now_ms as i64
    }

    fn newest(&self, journal: &Self::Journal) -> u64 {
        journal.engine().complete().timestamp().0
    }

    fn background(&mut self, journal: &mut Self::Journal, random: &mut Gen) -> Result<(), String> {
        let engine = journal.engine();
        let done = match random.below(30) {
            0 => engine.checkpoint(),
            1..15 => engine.step().map(drop),
            _ => Ok(()),
        };
        done.map_err(|error| error.to_string())
    }

    fn finish_syncs(&mut self, journal: &mut Self::Journal, most: u64) -> Result<(), String> {
        if most == 0 {
            return Ok(());
        }
        journal.finish_syncs().map_err(|error| error.to_string())
    }

    fn commit(
        &mut self,
        journal: &mut Self::Journal,
        op: u64,
        random: &mut Gen,
    ) -> Option<Submitted> {
        let mut txn = journal.engine().begin_newest(latest());
        let shared = random.below(SHARED).to_be_bytes();
        // It depends on what was there.
        let before = txn.get(ROOT, &shared).ok()?.map(|value| value.to_vec());
        let mut hasher = DefaultHasher::new();
        (before, op).hash(&mut hasher);
        let mut value = hasher.finish().to_le_bytes().to_vec();
        value.resize(8 + random.below(60) as usize, 7);
        txn.put(ROOT, &shared, &value).ok()?;
        let mut own = b"op".to_vec();
        own.extend_from_slice(&op.to_be_bytes());
        // Some are long enough for chunks, some for a spill.
        let length = if random.one_in(15) { random.below(2500) } else { 0 };
        txn.put(ROOT, &own, &vec![1; length as usize]).ok()?;
        if length > 1000 {
            for n in 0..8_u64 {
                txn.put(ROOT, &[b"more".as_slice(), &n.to_be_bytes()].concat(), &value).ok()?;
            }
        }
        txn.submit().ok()
    }

    fn outcome(&self, _: &Self::Journal, ticket: &Submitted, _leads: bool) -> Outcome {
        match ticket.state() {
            CommitState::Pending => Outcome::Pending,
            CommitState::Visible => Outcome::Done,
            CommitState::Overwritten => Outcome::Void,
        }
    }

    fn operations(&self, journal: &Self::Journal) -> BTreeSet<u64> {
        let contents = contents(&journal.engine().begin_newest(latest()).snapshot());
        let of = |key: &Vec<u8>| {
            let op = key.strip_prefix(b"op")?;
            op.first_chunk().map(|op| u64::from_be_bytes(*op))
        };
        contents.keys().filter_map(of).collect()
    }

    fn shown(&mut self, journal: &mut Self::Journal) -> Result<(u64, u64), String> {
        let snapshot = journal.engine().snapshot();
        let (last, said) = &mut self.last;
        if last.0 == snapshot.timestamp().0 && last.0 > 0 && *said < 50 {
            *said += 1;
            return Ok(*last);
        }
        let shared = contents(&snapshot);
        // What was told is there.
        let told = &journal.observer().contents;
        if let Some(key) = told.keys().find(|key| !shared.contains_key(*key)) {
            return Err(format!("{key:?} was told, and is not there"));
        }
        let mut hasher = DefaultHasher::new();
        shared.hash(&mut hasher);
        self.last = ((snapshot.timestamp().0, hasher.finish()), 0);
        Ok(self.last.0)
    }

    fn is_settled(&self, journal: &Self::Journal) -> bool {
        let engine = journal.engine();
        let complete = engine.complete().timestamp();
        engine.open_bytes() == 0
            && engine.visible().timestamp() == complete
            && engine.entries().last.timestamp == complete.0
    }
}
