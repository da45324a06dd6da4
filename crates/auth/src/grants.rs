//! Grants: the privileges of one user, put together so that a request is judged by a few lookups.
//!
//! Always true: a target's actions are the union over the resources that cover it, which are at most six.

use crate::action::ActionSet;
use crate::resource::{BUCKETS, Privilege, Resource, SYSTEM, Target, is_internal};
use std::collections::BTreeMap;

/// What one user may do.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    cluster: ActionSet,
    any: ActionSet,
    any_normal: ActionSet,
    databases: BTreeMap<String, ActionSet>,
    named: BTreeMap<String, ActionSet>,
    collections: BTreeMap<String, BTreeMap<String, ActionSet>>,
    buckets: BTreeMap<(String, String), ActionSet>,
}

impl Grants {
    /// Those of these privileges.
    pub fn new<'a>(privileges: impl IntoIterator<Item = &'a Privilege>) -> Self {
        let mut grants = Self::default();
        for Privilege { resource, actions } in privileges {
            let place = match resource {
                Resource::Cluster => &mut grants.cluster,
                Resource::Any => &mut grants.any,
                Resource::AnyNormal => &mut grants.any_normal,
                Resource::Database(db) => grants.databases.entry(db.clone()).or_default(),
                Resource::Named(name) => grants.named.entry(name.clone()).or_default(),
                Resource::Collection(db, name) => grants
                    .collections
                    .entry(db.clone())
                    .or_default()
                    .entry(name.clone())
                    .or_default(),
                Resource::Buckets(db, name) => {
                    grants.buckets.entry((db.clone(), name.clone())).or_default()
                }
            };
            *place = place.union(*actions);
        }
        grants
    }

    /// Whether all these actions may be done with a target.
    pub fn allow(&self, target: Target<'_>, actions: ActionSet) -> bool {
        // Who may do it everywhere is not looked for by name.
        let everywhere = match target {
            Target::Database(db) if !is_internal(db) => self.any.union(self.any_normal),
            Target::Collection(db, name) if !is_internal(db) && !name.starts_with(SYSTEM) => {
                self.any.union(self.any_normal)
            }
            _ => self.any,
        };
        everywhere.contains_all(actions) || self.actions_on(target).contains_all(actions)
    }

    /// All that may be done with a target.
    pub fn actions_on(&self, target: Target<'_>) -> ActionSet {
        match target {
            Target::Any => self.any,
            Target::Cluster => self.any.union(self.cluster),
            Target::AnyNormal => self.any.union(self.any_normal),
            Target::Database(db) => self.any.union(self.normal(db)),
            Target::Collection(db, name) => {
                let mut actions = self.any;
                if !name.starts_with(SYSTEM) {
                    actions = actions.union(self.normal(db));
                } else if let Some(of) = name.strip_prefix(BUCKETS) {
                    actions = actions.union(self.buckets(db, of));
                }
                if let Some(more) = self.named.get(name) {
                    actions = actions.union(*more);
                }
                if let Some(more) = self.collections.get(db).and_then(|names| names.get(name)) {
                    actions = actions.union(*more);
                }
                actions
            }
        }
    }

    /// Whether any action may be done with the database, or with something in it: who holds one may know that it is
    /// there.
    pub fn knows_database(&self, db: &str) -> bool {
        !self.any.is_empty()
            || !self.normal(db).is_empty()
            || self.collections.contains_key(db)
            || self.buckets.keys().any(|(of, _)| of == db || of.is_empty())
            || self.named.values().any(|actions| !actions.is_empty())
    }

    /// Whether everything this privilege allows is allowed already: who gives a privilege on must hold it.
    pub fn covers(&self, privilege: &Privilege) -> bool {
        let held = match &privilege.resource {
            Resource::Any => self.any,
            Resource::Cluster => self.any.union(self.cluster),
            Resource::AnyNormal => self.any.union(self.any_normal),
            Resource::Database(db) => self.any.union(self.normal(db)),
            Resource::Named(name) => {
                let named = self.named.get(name).copied().unwrap_or_default();
                self.any.union(named)
            }
            Resource::Collection(db, name) => self.actions_on(Target::Collection(db, name)),
            Resource::Buckets(db, name) => self.any.union(self.buckets(db, name)),
        };
        held.contains_all(privilege.actions)
    }

    fn normal(&self, db: &str) -> ActionSet {
        let of_all = if is_internal(db) { ActionSet::EMPTY } else { self.any_normal };
        match self.databases.get(db) {
            Some(actions) => of_all.union(*actions),
            None => of_all,
        }
    }

    fn buckets(&self, db: &str, name: &str) -> ActionSet {
        self.buckets
            .iter()
            .filter(|((of_db, of), _)| {
                (of_db == db || of_db.is_empty()) && (of == name || of.is_empty())
            })
            .fold(ActionSet::EMPTY, |sum, (_, actions)| sum.union(*actions))
    }
}

#[cfg(test)]
mod tests {
    use super::Grants;
    use crate::action::{Action, ActionSet};
    use crate::resource::{Privilege, Resource, Target};

    const DATABASES: [&str; 5] = ["a", "b", "admin", "local", "config"];
    const COLLECTIONS: [&str; 5] = ["c", "d", "system.js", "system.users", "system.buckets.c"];

    /// The rules once more, one sentence each, without tables: what [`Grants`] is held against.
    fn covers(resource: &Resource, target: Target<'_>) -> bool {
        let normal = |name: &str| !name.starts_with("system.");
        let open = |db: &str| db != "local" && db != "config";
        match (resource, target) {
            (Resource::Any, _)
            | (Resource::Cluster, Target::Cluster)
            | (Resource::AnyNormal, Target::AnyNormal) => true,
            (Resource::AnyNormal, Target::Database(db)) => open(db),
            (Resource::AnyNormal, Target::Collection(db, name)) => open(db) && normal(name),
            (Resource::Database(of), Target::Database(db)) => of == db,
            (Resource::Database(of), Target::Collection(db, name)) => of == db && normal(name),
            (Resource::Named(of), Target::Collection(_, name)) => of == name,
            (Resource::Collection(of, named), Target::Collection(db, name)) => {
                of == db && named == name
            }
            (Resource::Buckets(of, named), Target::Collection(db, name)) => {
                let bucket = name.strip_prefix("system.buckets.");
                (of.is_empty() || of == db)
                    && bucket.is_some_and(|bucket| named.is_empty() || named == bucket)
            }
            _ => false,
        }
    }

    fn resources() -> Vec<Resource> {
        let mut all = vec![Resource::Cluster, Resource::Any, Resource::AnyNormal];
        all.push(Resource::Buckets(String::new(), String::new()));
        for db in DATABASES {
            all.push(Resource::Database(db.into()));
            all.push(Resource::Buckets(db.into(), "c".into()));
            all.extend(COLLECTIONS.map(|name| Resource::Collection(db.into(), name.into())));
        }
        all.extend(COLLECTIONS.map(|name| Resource::Named(name.into())));
        all
    }

    fn targets() -> Vec<Target<'static>> {
        let mut all = vec![Target::Cluster, Target::Any, Target::AnyNormal];
        for db in DATABASES {
            all.push(Target::Database(db));
            all.extend(COLLECTIONS.map(|name| Target::Collection(db, name)));
        }
        all
    }

    #[test]
    fn every_pair_of_resources_covers_what_the_rules_say() {
        let (resources, targets) = (resources(), targets());
        let (find, insert) = (ActionSet::of(&[Action::Find]), ActionSet::of(&[Action::Insert]));
        for first in &resources {
            for second in &resources {
                let privileges = [
                    Privilege { resource: first.clone(), actions: find },
                    Privilege { resource: second.clone(), actions: insert },
                ];
                let grants = Grants::new(&privileges);
                for target in &targets {
                    let told = grants.actions_on(*target);
                    assert_eq!(
                        told.contains(Action::Find),
                        covers(first, *target),
                        "{first:?} {target:?}"
                    );
                    assert_eq!(
                        told.contains(Action::Insert),
                        covers(second, *target),
                        "{second:?} {target:?}"
                    );
                    let both = covers(first, *target) && covers(second, *target);
                    assert_eq!(grants.allow(*target, find.union(insert)), both);
                }
            }
        }
    }

    #[test]
    fn who_holds_a_privilege_covers_it_and_no_wider_one() {
        let find = ActionSet::of(&[Action::Find]);
        for held in resources() {
            let grants = Grants::new(&[Privilege { resource: held.clone(), actions: find }]);
            assert!(
                grants.covers(&Privilege { resource: held.clone(), actions: find }),
                "{held:?}"
            );
            let more = ActionSet::of(&[Action::Find, Action::Insert]);
            assert!(!grants.covers(&Privilege { resource: held.clone(), actions: more }));
            for wanted in resources() {
                if !grants.covers(&Privilege { resource: wanted.clone(), actions: find }) {
                    continue;
                }
                // Whatever the wanted one covers, the held one does.
                for target in targets() {
                    assert!(
                        !covers(&wanted, target) || covers(&held, target),
                        "{held:?} {wanted:?} {target:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn nobody_may_nothing() {
        for target in targets() {
            assert!(Grants::default().actions_on(target).is_empty());
        }
        assert!(!Grants::default().knows_database("a"));
    }
}
