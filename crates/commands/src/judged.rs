//! What a request was judged by: which actions on which collections and databases the gate has asked for.
//!
//! Always true: it is filled by the gate while it judges, so that both look at the same. Most requests name one collection
//! in their first field and nothing else, which takes no memory of its own.

use auth::{Action, ActionSet, Target};
use catalog::Namespace;
use query::Opening;
use std::collections::BTreeMap;

/// Of these one must be needed of what is read, and of what is written.
const READS: ActionSet = ActionSet::of(&[Action::Find]);
const WRITES: ActionSet = ActionSet::of(&[Action::Insert, Action::Update, Action::Remove]);

/// What a request was judged by.
#[derive(Default, Debug)]
pub(crate) struct Judged<'a> {
    /// The database and the name of the collection that the first field names, where it names one.
    own: Option<(&'a str, &'a str)>,
    of_own: ActionSet,
    others: Option<Box<JudgedOthers>>,
}

/// The same without what belongs to the request.
#[derive(Clone, Default, Debug)]
pub(crate) struct JudgedOthers {
    /// By whole name.
    collections: BTreeMap<String, ActionSet>,
    databases: BTreeMap<String, ActionSet>,
    /// Whatever it is called.
    everything: ActionSet,
}

impl<'a> Judged<'a> {
    /// Nothing so far, of a request that names this collection of its database.
    pub(crate) fn of(database: &'a str, collection: Option<&'a str>) -> Self {
        Self { own: collection.map(|name| (database, name)), ..Self::default() }
    }

    /// Notes that actions on a target were asked for.
    pub(crate) fn add(&mut self, target: Target<'_>, actions: ActionSet) {
        match target {
            Target::Collection(database, name) if self.own == Some((database, name)) => {
                self.of_own = self.of_own.union(actions);
            }
            other => self.others.get_or_insert_default().add(other, actions),
        }
    }

    /// Whether one of what was asked for serves to open a namespace for this.
    pub(crate) fn allows(&self, namespace: &Namespace, opening: Opening) -> bool {
        let is_own = self.own.is_some_and(|(database, name)| {
            namespace.collection() == name && namespace.database() == database
        });
        is_own && serves(self.of_own, opening)
            || self.others.as_ref().is_some_and(|others| others.allows(namespace, opening))
    }

    /// For who outlives the request.
    pub(crate) fn to_others(&self) -> JudgedOthers {
        let mut others = self.others.as_deref().cloned().unwrap_or_default();
        if let Some((database, name)) = self.own {
            others.add(Target::Collection(database, name), self.of_own);
        }
        others
    }
}

impl JudgedOthers {
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

    /// As [`Judged::allows`].
    pub(crate) fn allows(&self, namespace: &Namespace, opening: Opening) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_judged_may_be_opened_for_what_it_was_judged_for() {
        let mut judged = Judged::of("d", Some("both"));
        let actions = |actions: &[Action]| ActionSet::of(actions);
        judged.add(Target::Collection("d", "read"), actions(&[Action::Find]));
        judged.add(Target::Collection("d", "both"), actions(&[Action::Find]));
        judged.add(Target::Collection("d", "both"), actions(&[Action::Remove]));
        judged.add(Target::Collection("d", "told"), actions(&[Action::CollStats]));
        judged.add(Target::Collection("d", "told"), actions(&[Action::CollMod]));
        judged.add(Target::Database("whole"), actions(&[Action::Find]));
        judged.add(Target::Cluster, actions(&[Action::Find, Action::Insert]));
        let of = |judged: &Judged<'_>, name: &str| {
            let namespace = Namespace::parse(name).unwrap();
            let openings = [Opening::Metadata, Opening::Read, Opening::Write];
            let kept = judged.to_others();
            assert_eq!(
                openings.map(|opening| judged.allows(&namespace, opening)),
                openings.map(|opening| kept.allows(&namespace, opening)),
                "{name}"
            );
            openings.map(|opening| judged.allows(&namespace, opening))
        };
        for (name, expected) in [
            ("d.read", [true, true, false]),
            ("d.both", [true, true, true]),
            ("d.told", [true, false, false]),
            ("d.other", [false; 3]),
            ("e.both", [false; 3]),
            ("whole.any", [true, true, false]),
        ] {
            assert_eq!(of(&judged, name), expected, "{name}");
        }
        judged.add(Target::AnyNormal, actions(&[Action::Insert]));
        assert_eq!(of(&judged, "d.other"), [true, false, true]);
        assert_eq!(of(&Judged::of("d", Some("c")), "d.c"), [false; 3], "nothing was asked for");
        assert_eq!(of(&Judged::of("d", None), "d.c"), [false; 3]);
    }
}
