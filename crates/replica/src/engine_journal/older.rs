//! The entries of an engine's log that consensus no longer has in memory: as far back as the log reaches.

use engine::Engine;
use quorum::{Entry, Older, Position};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{content_of, position};

pub(super) struct OlderEntries {
    engine: Engine,
    /// See [`crate::Journal::set_log_begins`].
    log_begins: Arc<AtomicU64>,
}

impl OlderEntries {
    pub(super) fn new(engine: &Engine, log_begins: &Arc<AtomicU64>) -> Self {
        Self { engine: engine.clone(), log_begins: Arc::clone(log_begins) }
    }
}

impl Older for OlderEntries {
    fn first(&self) -> u64 {
        let begins = self.log_begins.load(Ordering::Relaxed).saturating_add(1);
        self.engine.entries().first_readable.max(begins)
    }

    fn position(&self, index: u64) -> Option<Position> {
        position(&self.engine, index)
    }

    /// Reads the disk for changes of the configuration. Where one cannot be read, those before it are answered.
    fn entries(&self, low: u64, high: u64, most: usize, most_bytes: u64) -> Vec<Entry> {
        let most = usize::try_from(high.saturating_sub(low)).unwrap_or(most).min(most);
        let mut bytes = 0_u64;
        let mut entries = Vec::new();
        for head in self.engine.entry_heads_from(low, most) {
            if bytes > most_bytes {
                break;
            }
            bytes = bytes.saturating_add(head.bytes);
            let Ok(content) = content_of(&self.engine, &head) else { break };
            entries.push(Entry { term: head.term, index: head.index, content });
        }
        entries
    }
}
