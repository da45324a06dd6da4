//! The second check: a namespace that a request opens must be one that the gate judged it by.
//!
//! The gate asks whether the sender may do what the command's needs say. Here it is asked whether they said it: what is
//! opened and stands in no need is a gap of ours, whoever the sender is. It is refused and counted; `permitMisses` in
//! `serverStatus` stays 0.
//!
//! Always true: needs are worked out once for a request, when the first namespace is opened, and from the same bytes as the
//! gate did.

use crate::command::{Command, Registry};
use crate::gate::{Admitted, asked_of};
use crate::needs::{Needs, Required};
use auth::{Action, ActionSet, Grants, Target};
use bson::RawDocument;
use catalog::Namespace;
use dispatch::Request;
use errors::{Code, Error, Result};
use parking_lot::Mutex;
use query::{KeptPermit, Opening, Permit};
use serverstate::{LogEvent, ServerState, Severity};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Of these one must be needed of what is read, and of what is written.
const READS: ActionSet = ActionSet::of(&[Action::Find]);
const WRITES: ActionSet = ActionSet::of(&[Action::Insert, Action::Update, Action::Remove]);

/// What a request was judged by.
#[derive(Default, Debug)]
struct Judged {
    /// By whole name.
    collections: BTreeMap<String, ActionSet>,
    databases: BTreeMap<String, ActionSet>,
    /// Whatever it is called.
    everything: ActionSet,
}

impl Judged {
    fn add(&mut self, target: Target<'_>, actions: ActionSet) {
        let add = |all: &mut BTreeMap<String, ActionSet>, name: String| {
            let known = all.entry(name).or_default();
            *known = known.union(actions);
        };
        match target {
            Target::Cluster => {}
            Target::Database(database) => add(&mut self.databases, database.to_owned()),
            Target::Collection(database, name) => {
                add(&mut self.collections, format!("{database}.{name}"));
            }
            Target::AnyNormal | Target::Any => self.everything = self.everything.union(actions),
        }
    }

    fn allows(&self, namespace: &Namespace, opening: Opening) -> bool {
        let of_collection = self.collections.get(namespace.as_str());
        let of_database = self.databases.get(namespace.database());
        [of_collection, of_database, Some(&self.everything)]
            .into_iter()
            .flatten()
            .any(|actions| serves(*actions, opening))
    }
}

/// Whether somebody who was judged by these actions may open for this.
fn serves(actions: ActionSet, opening: Opening) -> bool {
    let has_one_of = |of: ActionSet| actions.without(of) != actions;
    match opening {
        Opening::Metadata => !actions.is_empty(),
        Opening::Read => has_one_of(READS),
        Opening::Write => has_one_of(WRITES),
    }
}

/// Counts what was not judged, and refuses it.
fn refuse(misses: &AtomicU64, command: &str, namespace: &Namespace, opening: Opening) -> Error {
    misses.fetch_add(1, Ordering::Relaxed);
    Error::new(
        Code::INTERNAL_ERROR,
        format!("{command} opens {namespace} ({opening:?}), which it was not authorized for"),
    )
}

/// What a request may open.
pub(crate) struct RequestPermit<'a> {
    state: &'a ServerState,
    registry: &'a Registry,
    request: &'a Request<'a>,
    command: &'static Command,
    body: &'a RawDocument,
    admitted: Admitted,
    judged: OnceCell<Arc<Judged>>,
    /// The collection that a UUID stood for, and which actions on it were asked for once that was known.
    resolved: Option<(Namespace, ActionSet)>,
}

impl<'a> RequestPermit<'a> {
    /// That of a request of somebody; none where nobody is asked for.
    pub(crate) fn of(
        state: &'a ServerState,
        registry: &'a Registry,
        (request, command, body): (&'a Request<'a>, &'static Command, &'a RawDocument),
        admitted: &Admitted,
    ) -> Option<Self> {
        admitted.is_access_control_on.then(|| Self {
            state,
            registry,
            request,
            command,
            body,
            admitted: admitted.clone(),
            judged: OnceCell::new(),
            resolved: None,
        })
    }

    /// The sender was asked for actions on what a UUID stands for.
    pub(crate) fn resolve(&mut self, namespace: Namespace, actions: ActionSet) {
        self.resolved = Some((namespace, actions));
        self.judged = OnceCell::new();
    }

    /// What a UUID stood for.
    pub(crate) fn resolved(&self) -> Option<&(Namespace, ActionSet)> {
        self.resolved.as_ref()
    }

    /// Whether the command names its only collection itself: then nothing has to be worked out.
    fn is_own(&self, namespace: &Namespace, opening: Opening) -> bool {
        let (Needs::Collection(actions) | Needs::CollectionOrUuid(actions)) = &self.command.needs
        else {
            return false;
        };
        let Some(Ok((_, bson::RawBsonRef::String(named)))) = self.body.iter().next() else {
            return false;
        };
        named == namespace.collection()
            && self.request.database == namespace.database()
            && serves(ActionSet::of(actions), opening)
    }

    fn judged(&self) -> &Arc<Judged> {
        self.judged.get_or_init(|| {
            let nothing = Grants::new(&[]);
            let identity = self.admitted.identity.as_ref();
            let user = identity.map(|identity| &identity.name);
            let grants = identity.map_or(&nothing, |identity| &identity.grants);
            let needs_of = |name: &str| self.registry.find(name).map(|(_, command)| &command.needs);
            let (request, body) = (self.request, (self.body, self.request.sequences));
            let asked = asked_of(request.database, body, user, grants, &needs_of);
            let mut judged = Judged::default();
            let mut add = |target: Target<'_>, actions| judged.add(target, actions);
            self.command.needs.of(&asked, &mut Required::new(&mut add));
            if let Some((namespace, actions)) = &self.resolved {
                judged.collections.insert(namespace.as_str().to_owned(), *actions);
            }
            Arc::new(judged)
        })
    }
}

impl Permit for RequestPermit<'_> {
    fn check(&self, namespace: &Namespace, opening: Opening) -> Result<()> {
        if self.is_own(namespace, opening) || self.judged().allows(namespace, opening) {
            return Ok(());
        }
        let misses = &self.state.security.permit_misses;
        let error = refuse(misses, self.command.name, namespace, opening);
        let mut attributes = bson::Document::new();
        attributes.insert("reason", error.message());
        self.state.host.log(&LogEvent {
            severity: Severity::Error,
            component: "ACCESS",
            id: 9_016_776,
            context: "security",
            message: "A command's needs do not name what it opens: please report this",
            attributes,
        });
        Err(error)
    }

    fn keep(&self) -> Arc<dyn KeptPermit> {
        Arc::new(Kept(Arc::new(KeptState {
            judged: Arc::clone(self.judged()),
            of_views: Mutex::default(),
            misses: Arc::clone(&self.state.security.permit_misses),
            command: self.command.name,
        })))
    }
}

/// What a cursor may open.
#[derive(Clone)]
struct Kept(Arc<KeptState>);

struct KeptState {
    judged: Arc<Judged>,
    /// What views are made of that were opened.
    of_views: Mutex<BTreeSet<String>>,
    misses: Arc<AtomicU64>,
    command: &'static str,
}

impl Permit for Kept {
    fn check(&self, namespace: &Namespace, opening: Opening) -> Result<()> {
        let KeptState { judged, of_views, misses, command } = &*self.0;
        let is_of_view = || {
            let names = of_views.lock();
            opening != Opening::Write && names.contains(namespace.as_str())
        };
        if judged.allows(namespace, opening) || is_of_view() {
            return Ok(());
        }
        Err(refuse(misses, command, namespace, opening))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_judged_may_be_opened_for_what_it_was_judged_for() {
        let mut judged = Judged::default();
        let actions = |actions: &[Action]| ActionSet::of(actions);
        judged.add(Target::Collection("d", "read"), actions(&[Action::Find]));
        judged.add(Target::Collection("d", "both"), actions(&[Action::Find]));
        judged.add(Target::Collection("d", "both"), actions(&[Action::Remove]));
        judged.add(Target::Collection("d", "told"), actions(&[Action::CollStats]));
        judged.add(Target::Database("whole"), actions(&[Action::Find]));
        judged.add(Target::Cluster, actions(&[Action::Find, Action::Insert]));
        let of = |name: &str| {
            let namespace = Namespace::parse(name).unwrap();
            [Opening::Metadata, Opening::Read, Opening::Write]
                .map(|opening| judged.allows(&namespace, opening))
        };
        for (name, expected) in [
            ("d.read", [true, true, false]),
            ("d.both", [true, true, true]),
            ("d.told", [true, false, false]),
            ("d.other", [false; 3]),
            ("e.read", [false; 3]),
            ("whole.any", [true, true, false]),
        ] {
            assert_eq!(of(name), expected, "{name}");
        }
        judged.add(Target::AnyNormal, actions(&[Action::Insert]));
        let other = Namespace::parse("d.other").unwrap();
        assert!(judged.allows(&other, Opening::Write) && !judged.allows(&other, Opening::Read));
    }
}
