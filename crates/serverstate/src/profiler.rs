//! The profiler's settings: which finished operations are told of, in the log and in `system.profile`.
//!
//! Level 0 writes no profile, level 1 the operations that are slow or that the filter picks, level
//! 2 all. A database's level and filter are its own and live until the server ends; `slowms` and
//! `sampleRate` are the server's. A filter takes the place of both. The log's "Slow query" needs no
//! level.
//!
//! Always true: a database without settings of its own has the server's usual level and no filter.

use bson::RawDocument;
use bson::raw::RawDocumentBuf;
use errors::Result;
use matcher::{Filter, ParseContext};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

/// The collection that holds a database's entries.
pub const COLLECTION: &str = "system.profile";

/// The profiler's settings.
pub struct Profiler {
    /// Some database has a level or a filter.
    active: AtomicBool,
    /// The level of databases that nobody has set one for.
    usual_level: AtomicI32,
    /// Guards the settings of the databases that have any.
    databases: Mutex<BTreeMap<String, Settings>>,
    slow_ms: AtomicU64,
    /// `sampleRate`, as bits.
    sample_rate: AtomicU64,
}

/// A database's settings.
#[derive(Clone, Default)]
pub struct Settings {
    /// From 0 to 2.
    pub level: i32,
    /// Which operations are picked, in place of the slow ones.
    pub filter: Option<Arc<Picked>>,
}

/// A filter over entries.
pub struct Picked {
    /// As the client gave it.
    pub document: RawDocumentBuf,
    /// As it is asked.
    pub filter: Filter,
}

impl Picked {
    /// Reads a filter over entries.
    pub fn parse(document: &RawDocument) -> Result<Self> {
        let filter = Filter::parse(document, &ParseContext::default())?;
        Ok(Self { document: document.to_owned(), filter })
    }
}

impl Default for Profiler {
    fn default() -> Self {
        Self {
            active: AtomicBool::new(false),
            usual_level: AtomicI32::new(0),
            databases: Mutex::default(),
            slow_ms: AtomicU64::new(100),
            sample_rate: AtomicU64::new(1.0_f64.to_bits()),
        }
    }
}

impl Profiler {
    /// The settings that hold for a database.
    pub fn settings(&self, database: &str) -> Settings {
        let own = self.databases.lock().get(database).cloned();
        own.unwrap_or_else(|| Settings { level: self.usual_level(), filter: None })
    }

    /// Whether some database has a level or a filter.
    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    fn usual_level(&self) -> i32 {
        self.usual_level.load(Ordering::Relaxed)
    }

    /// The level of databases that nobody sets one for, from 0 to 2.
    pub fn set_usual_level(&self, level: i32) {
        let databases = self.databases.lock();
        self.usual_level.store(level, Ordering::Relaxed);
        self.active.store(level > 0 || !databases.is_empty(), Ordering::Relaxed);
    }

    /// Changes a database's settings.
    pub fn set(&self, database: &str, settings: Settings) {
        let mut databases = self.databases.lock();
        let usual = self.usual_level();
        if settings.level != usual || settings.filter.is_some() {
            databases.insert(database.to_owned(), settings);
        } else {
            databases.remove(database);
        }
        self.active.store(usual > 0 || !databases.is_empty(), Ordering::Relaxed);
    }

    /// Milliseconds from which an operation is slow.
    pub fn slow_ms(&self) -> u64 {
        self.slow_ms.load(Ordering::Relaxed)
    }

    /// Changes from how many milliseconds on an operation is slow.
    pub fn set_slow_ms(&self, slow_ms: u64) {
        self.slow_ms.store(slow_ms, Ordering::Relaxed);
    }

    /// The part of the slow operations that is told of, from 0 to 1.
    pub fn sample_rate(&self) -> f64 {
        f64::from_bits(self.sample_rate.load(Ordering::Relaxed))
    }

    /// Changes the part of the slow operations that is told of, from 0 to 1.
    pub fn set_sample_rate(&self, rate: f64) {
        self.sample_rate.store(rate.to_bits(), Ordering::Relaxed);
    }
}

/// What a command says of what it did.
#[derive(Debug, Default)]
pub struct OpFigures {
    /// Documents in the reply's batch.
    pub returned: Option<u64>,
    /// The cursor that is left open, or the one the client named.
    pub cursor: i64,
    /// The batch was the last.
    pub exhausted: bool,
    /// Documents that were inserted.
    pub inserted: Option<u64>,
    /// Documents that an update matched.
    pub matched: Option<u64>,
    /// Documents that an update changed.
    pub modified: Option<u64>,
    /// Documents that an update made.
    pub upserted: u64,
    /// Documents that were deleted.
    pub deleted: Option<u64>,
    /// Of `getMore`: the command that made the cursor.
    pub originating: Option<RawDocumentBuf>,
}
