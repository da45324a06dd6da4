//! The second check: a namespace that a request opens must be one that the gate judged it by.
//!
//! The gate asks whether the sender may do what the command's needs say. Here it is asked whether they said it: what is
//! opened and stands in no need is a gap of ours, whoever the sender is. It is refused and counted; `permitMisses` in
//! `serverStatus` stays 0.
//!
//! Always true: nothing is worked out here: what the gate has asked for ([`Judged`]) is compared with what is opened.

use crate::command::Command;
use crate::judged::{Judged, JudgedOthers};
use auth::{ActionSet, Target};
use catalog::Namespace;
use errors::{Code, Error, Result};
use parking_lot::Mutex;
use query::{KeptPermit, Opening, Permit};
use serverstate::{Host, LogEvent, ServerState, Severity};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Refuses what was not judged, counts it, and tells the log.
fn refuse(
    (misses, host): (&AtomicU64, &dyn Host),
    command: &str,
    namespace: &Namespace,
    opening: Opening,
) -> Error {
    misses.fetch_add(1, Ordering::Relaxed);
    let error = Error::new(
        Code::INTERNAL_ERROR,
        format!("{command} opens {namespace} ({opening:?}), which it was not authorized for"),
    );
    let mut attributes = bson::Document::new();
    attributes.insert("reason", error.message());
    host.log(&LogEvent {
        severity: Severity::Error,
        component: "ACCESS",
        id: 9_016_776,
        context: "security",
        message: "A command's needs do not name what it opens: please report this",
        attributes,
    });
    error
}

/// What a request may open.
pub(crate) struct RequestPermit<'a> {
    state: &'a ServerState,
    command: &'static Command,
    judged: Judged<'a>,
    /// The collection that a UUID stood for, and which actions on it were asked for once that was known.
    resolved: Option<(Namespace, ActionSet)>,
}

impl<'a> RequestPermit<'a> {
    /// That of a request which was judged.
    pub(crate) fn new(
        state: &'a ServerState,
        command: &'static Command,
        judged: Judged<'a>,
    ) -> Self {
        Self { state, command, judged, resolved: None }
    }

    /// The sender was asked for actions on what a UUID stands for.
    pub(crate) fn resolve(&mut self, namespace: Namespace, actions: ActionSet) {
        self.judged.add(Target::Collection(namespace.database(), namespace.collection()), actions);
        self.resolved = Some((namespace, actions));
    }

    /// What a UUID stood for.
    pub(crate) fn resolved(&self) -> Option<&(Namespace, ActionSet)> {
        self.resolved.as_ref()
    }
}

impl Permit for RequestPermit<'_> {
    fn check(&self, namespace: &Namespace, opening: Opening) -> Result<()> {
        if self.judged.allows(namespace, opening) {
            return Ok(());
        }
        let ServerState { security, host, .. } = self.state;
        let told = (&*security.permit_misses, &**host);
        Err(refuse(told, self.command.name, namespace, opening))
    }

    fn keep(&self) -> Arc<dyn KeptPermit> {
        Arc::new(Kept(Arc::new(KeptState {
            judged: self.judged.to_others(),
            of_views: Mutex::default(),
            misses: Arc::clone(&self.state.security.permit_misses),
            host: Arc::clone(&self.state.host),
            command: self.command.name,
        })))
    }
}

/// What a cursor may open.
#[derive(Clone)]
struct Kept(Arc<KeptState>);

struct KeptState {
    judged: JudgedOthers,
    /// What views are made of that were opened.
    of_views: Mutex<BTreeSet<String>>,
    misses: Arc<AtomicU64>,
    host: Arc<dyn Host>,
    command: &'static str,
}

impl Permit for Kept {
    fn check(&self, namespace: &Namespace, opening: Opening) -> Result<()> {
        let KeptState { judged, of_views, misses, host, command } = &*self.0;
        let is_of_view = || {
            let names = of_views.lock();
            opening != Opening::Write && names.contains(namespace.as_str())
        };
        if judged.allows(namespace, opening) || is_of_view() {
            return Ok(());
        }
        Err(refuse((misses, &**host), command, namespace, opening))
    }

    fn keep(&self) -> Arc<dyn KeptPermit> {
        Arc::new(self.clone())
    }
}

impl KeptPermit for Kept {
    fn add_reads(&self, names: BTreeSet<String>) {
        self.0.of_views.lock().extend(names);
    }
}
