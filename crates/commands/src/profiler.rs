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
pub(crate) const COLLECTION: &str = "system.profile";

/// The profiler's settings.
pub(crate) struct Profiler {
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
pub(crate) struct Settings {
    pub(crate) level: i32,
    pub(crate) filter: Option<Arc<Picked>>,
}

/// A filter over entries.
pub(crate) struct Picked {
    pub(crate) document: RawDocumentBuf,
    pub(crate) filter: Filter,
}

impl Picked {
    pub(crate) fn parse(document: &RawDocument) -> Result<Self> {
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
    pub(crate) fn settings(&self, database: &str) -> Settings {
        let own = self.databases.lock().get(database).cloned();
        own.unwrap_or_else(|| Settings { level: self.usual_level(), filter: None })
    }

    /// Whether some database has a level or a filter.
    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    fn usual_level(&self) -> i32 {
        self.usual_level.load(Ordering::Relaxed)
    }

    /// The level of databases that nobody sets one for, from 0 to 2.
    pub(crate) fn set_usual_level(&self, level: i32) {
        let databases = self.databases.lock();
        self.usual_level.store(level, Ordering::Relaxed);
        self.active.store(level > 0 || !databases.is_empty(), Ordering::Relaxed);
    }

    pub(crate) fn set(&self, database: &str, settings: Settings) {
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
    pub(crate) fn slow_ms(&self) -> u64 {
        self.slow_ms.load(Ordering::Relaxed)
    }

    pub(crate) fn set_slow_ms(&self, slow_ms: u64) {
        self.slow_ms.store(slow_ms, Ordering::Relaxed);
    }

    /// The part of the slow operations that is told of, from 0 to 1.
    pub(crate) fn sample_rate(&self) -> f64 {
        f64::from_bits(self.sample_rate.load(Ordering::Relaxed))
    }

    pub(crate) fn set_sample_rate(&self, rate: f64) {
        self.sample_rate.store(rate.to_bits(), Ordering::Relaxed);
    }
}

/// What a command says of what it did.
#[derive(Debug, Default)]
pub(crate) struct OpFigures {
    /// Documents in the reply's batch.
    pub(crate) returned: Option<u64>,
    /// The cursor that is left open, or the one the client named.
    pub(crate) cursor: i64,
    /// The batch was the last.
    pub(crate) exhausted: bool,
    pub(crate) inserted: Option<u64>,
    pub(crate) matched: Option<u64>,
    pub(crate) modified: Option<u64>,
    pub(crate) upserted: u64,
    pub(crate) deleted: Option<u64>,
    /// Of `getMore`: the command that made the cursor.
    pub(crate) originating: Option<RawDocumentBuf>,
}
