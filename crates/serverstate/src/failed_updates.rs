//! Telling the log of fast updates that could not be applied: nobody else hears of them.

use crate::host::{LogEvent, Severity};
use crate::state::ServerState;
use bson::doc;
use query::fast_update_rules;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// One of so many seconds' errors is logged.
const PERIOD_SECONDS: u64 = 5;

impl ServerState {
    /// Logs the last fast update that could not be applied, where one was since it was asked last.
    pub(crate) fn log_failed_update(&self, now: Duration) {
        let rules = fast_update_rules();
        if now.as_secs() < self.next_failed_update.load(Ordering::Relaxed) {
            return;
        }
        let Some(failed) = rules.take_failed() else { return };
        if rules.ignores_errors.load(Ordering::Relaxed) {
            return;
        }
        self.next_failed_update.store(now.as_secs() + PERIOD_SECONDS, Ordering::Relaxed);
        let name = self.catalog.name_of(engine::DictionaryId(failed.dictionary));
        self.host.log(&LogEvent {
            severity: Severity::Warning,
            component: "WRITE",
            id: 9_016_856,
            context: "fastUpdates",
            message: "A fast update could not be applied; the document stays as it is",
            attributes: doc! {
                "namespace": name.unwrap_or_default(),
                "document": failed.id,
                "error": failed.error,
            },
        });
    }
}
