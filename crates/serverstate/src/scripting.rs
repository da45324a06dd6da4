//! Clients' JavaScript: whether it may run, for how long, and what a database stores for it.
//!
//! Always true: code is ended by whatever ends its operation (`killOp`, `maxTimeMS`, a shutdown),
//! and where nothing does by the limit of one call.

use crate::connection::OperationInterrupt;
use crate::security::Login;
use auth::{Action, ActionSet, Target};
use bson::raw::{CString, RawDocumentBuf, cstr};
use catalog::{Catalog, Namespace};
use errors::{Code, Error, Result};
use parking_lot::Mutex;
use query::{FindRequest, Interrupt, OpContext};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// What clients' code may do.
pub struct Scripting {
    /// `security.javascriptEnabled`.
    pub enabled: AtomicBool,
    /// `internalQueryJavaScriptFnTimeoutMillis`: the limit of one call.
    pub call_limit_ms: AtomicU64,
}

impl Default for Scripting {
    fn default() -> Self {
        // MongoDB's minute.
        Self { enabled: AtomicBool::new(true), call_limit_ms: AtomicU64::new(60_000) }
    }
}

/// A connection, to the code that runs in its operations.
pub(crate) struct ScriptHost {
    scripting: Arc<Scripting>,
    catalog: Arc<Catalog>,
    interrupt: Arc<OperationInterrupt>,
    /// Who is logged in, where that is asked for: not everybody may read what a database stores for code.
    login: Option<Arc<Mutex<Login>>>,
    /// Nanoseconds of server time at which the running call must end.
    call_ends: AtomicU64,
}

impl ScriptHost {
    pub(crate) fn new(
        scripting: &Arc<Scripting>,
        catalog: &Arc<Catalog>,
        interrupt: &Arc<OperationInterrupt>,
        login: Option<Arc<Mutex<Login>>>,
    ) -> Self {
        Self {
            scripting: Arc::clone(scripting),
            catalog: Arc::clone(catalog),
            interrupt: Arc::clone(interrupt),
            login,
            call_ends: AtomicU64::new(u64::MAX),
        }
    }

    fn may_read(&self, database: &str) -> bool {
        let Some(login) = &self.login else { return true };
        let (stored, find) =
            (Target::Collection(database, "system.js"), ActionSet::of(&[Action::Find]));
        login
            .lock()
            .identity
            .as_ref()
            .is_some_and(|identity| identity.rights.grants.allow(stored, find))
    }

    fn limit(&self) -> Duration {
        Duration::from_millis(self.scripting.call_limit_ms.load(Ordering::Relaxed))
    }
}

impl script::Host for ScriptHost {
    fn is_allowed(&self) -> bool {
        self.scripting.enabled.load(Ordering::Relaxed)
    }

    fn begin(&self) {
        let ends = self.interrupt.clock.monotonic() + self.limit();
        let nanos = u64::try_from(ends.as_nanos()).unwrap_or(u64::MAX);
        self.call_ends.store(nanos, Ordering::Relaxed);
    }

    fn check(&self) -> Result<()> {
        self.interrupt.check()?;
        let ends = self.call_ends.load(Ordering::Relaxed);
        if self.interrupt.clock.monotonic().as_nanos() < u128::from(ends) {
            return Ok(());
        }
        let limit = self.limit().as_millis();
        Err(Error::new(Code::INTERRUPTED, format!("JavaScript ran for more than {limit} ms")))
    }

    fn now(&self) -> Duration {
        self.interrupt.clock.monotonic()
    }

    fn sleep(&self, time: Duration) {
        self.interrupt.clock.sleep(time);
    }

    fn stored(&self) -> Result<RawDocumentBuf> {
        let mut stored = RawDocumentBuf::new();
        let namespace = self.interrupt.operation.namespace();
        let database = namespace.split('.').next().unwrap_or_default();
        if !self.may_read(database) {
            return Ok(stored);
        }
        let namespace = Namespace::new(database, "system.js")?;
        if self.catalog.collection(&namespace).is_none() {
            return Ok(stored);
        }
        let interrupt: Arc<dyn Interrupt> = Arc::clone(&self.interrupt) as _;
        let mut op = OpContext::new(&self.catalog, interrupt);
        let mut cursor = query::find(&mut op, &namespace, &FindRequest::default())?.into_cursor();
        while let Some(document) = cursor.next()? {
            let name = document.get("_id")?.and_then(bson::RawBsonRef::as_str);
            if let (Some(name), Some(value)) = (name, document.get(cstr!("value"))?)
                && let Ok(name) = CString::try_from(name)
            {
                stored.append(&name, value);
            }
        }
        Ok(stored)
    }
}
