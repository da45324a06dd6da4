//! The log line of a lock that was not granted: which, who wanted it, who has it, and what that one
//! does. TokuMX's `lockNotGranted`.
//!
//! Always true: at most [`MOST`] lines a second; a later line counts those left out. A lock that a
//! session's transaction waited for only briefly is an ordinary write conflict and is not logged.

use crate::current_ops::who_has;
use crate::host::{LogEvent, Severity};
use crate::state::ServerState;
use bson::{Bson, Document, doc};
use engine::Refusal;
use parking_lot::Mutex;
use std::sync::Arc;

/// Lines in a second.
const MOST: u32 = 10;
/// Whoever is not a connection's transaction has waited at least this long.
const LONG_MS: u64 = 1000;

/// What this second has had.
#[derive(Default)]
struct Lines {
    second: u64,
    written: u32,
    left_out: u64,
}

impl Lines {
    /// How many lines were left out before this one, where there is one.
    fn next(&mut self, second: u64) -> Option<u64> {
        if self.second != second {
            (self.second, self.written) = (second, 0);
        }
        if self.written == MOST {
            self.left_out += 1;
            return None;
        }
        self.written += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

/// Writes a line from now on where a lock is refused.
pub(crate) fn start(state: &Arc<ServerState>) {
    let (of_state, lines) = (Arc::downgrade(state), Mutex::new(Lines::default()));
    state.catalog.engine().on_lock_refusal(move |refusal| {
        if let Some(state) = of_state.upgrade() {
            write(&state, &lines, refusal);
        }
    });
}

fn write(state: &ServerState, lines: &Mutex<Lines>, refusal: &Refusal) {
    let txn = refusal.request.txn;
    let waited_ms = refusal.request.waiting_ms.unwrap_or_default();
    let bound = state.connection_of(txn);
    if bound.is_none() && waited_ms < LONG_MS {
        return;
    }
    let now = state.os.clock.monotonic();
    let Some(left_out) = lines.lock().next(now.as_secs()) else { return };
    let connection = bound.map(|connection| connection.id()).or_else(|| {
        let running = state.operations.list();
        running.iter().find(|operation| operation.txn == txn).map(|operation| operation.connection)
    });
    let lock = state.catalog.show_lock(refusal.request.clone());
    let blocker = lock.blockers.first().copied().unwrap_or_default();
    let mut attributes = doc! {
        "reason": if refusal.is_deadlock { "deadlock" } else { "timeout" },
        "lockNotGranted": {
            "index": lock.index,
            "requestingTxnid": number(txn),
            "blockingTxnid": number(blocker),
            "bounds": Bson::Array(lock.bounds.to_vec()),
        },
        "waitedMillis": number(waited_ms),
    };
    let blocking = who_has(state, blocker);
    if let Some(blocking) = blocking.and_then(|found| Document::try_from(&found).ok()) {
        attributes.insert("blockingOp", blocking);
    }
    if left_out > 0 {
        attributes.insert("linesLeftOut", number(left_out));
    }
    state.host.log(&LogEvent {
        severity: Severity::Info,
        component: "TXN",
        id: 9_016_759,
        context: &connection.map_or_else(|| "-".to_owned(), |id| format!("conn{id}")),
        message: "Lock not granted",
        attributes,
    });
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_few_lines_and_the_next_counts_the_rest() {
        let mut lines = Lines::default();
        let told = (0..15).filter(|_| lines.next(7) == Some(0)).count();
        assert_eq!(told, MOST as usize);
        assert_eq!(lines.next(8), Some(5));
        assert_eq!(lines.next(8), Some(0));
    }
}
