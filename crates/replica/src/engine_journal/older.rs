//! The entries of an engine's log that consensus no longer has in memory: as far back as the log reaches.

use engine::Engine;
use quorum::{Entry, Older, Position};

use super::{content_of, position};

pub(super) struct OlderEntries(Engine);

impl OlderEntries {
    pub(super) fn new(engine: &Engine) -> Self {
        Self(engine.clone())
    }
}

impl Older for OlderEntries {
    fn first(&self) -> u64 {
        self.0.entries().first_readable
    }

    fn position(&self, index: u64) -> Option<Position> {
        position(&self.0, index)
    }

    /// Reads the disk for changes of the configuration. Where one cannot be read, those before it are answered.
    fn entries(&self, low: u64, high: u64, most: usize, most_bytes: u64) -> Vec<Entry> {
        let most = usize::try_from(high.saturating_sub(low)).unwrap_or(most).min(most);
        let mut bytes = 0_u64;
        let mut entries = Vec::new();
        for head in self.0.entry_heads_from(low, most) {
            if bytes > most_bytes {
                break;
            }
            bytes = bytes.saturating_add(head.bytes);
            let Ok(content) = content_of(&self.0, &head) else { break };
            entries.push(Entry { term: head.term, index: head.index, content });
        }
        entries
    }
}
