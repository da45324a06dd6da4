//! What a request was judged by: which actions on which collections and databases the gate has asked for.
//!
//! Always true: it is filled by the gate while it judges, so that both look at the same; the few names of most requests lie
//! in the value itself, those of a bulk write in maps, so that a look does not take longer the more there are.

use auth::{Action, ActionSet, Target};
use catalog::Namespace;
use query::Opening;
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// Of these one must be needed of what is read, and of what is written.
const READS: ActionSet = ActionSet::of(&[Action::Find]);
const WRITES: ActionSet = ActionSet::of(&[Action::Insert, Action::Update, Action::Remove]);
/// So many collections and databases are compared one by one; more are looked up.
const FEW: usize = 4;

/// Actions on a collection or a database, whose name ends at a place of [`Judged::names`].
#[derive(Clone, Debug)]
struct Named {
    end: usize,
    is_database: bool,
    actions: ActionSet,
}

/// Where there are more than a few.
#[derive(Clone, Default, Debug)]
struct Many {
    /// By whole name.
    collections: BTreeMap<String, ActionSet>,
    databases: BTreeMap<String, ActionSet>,
}

/// What a request was judged by.
#[derive(Clone, Default, Debug)]
pub(crate) struct Judged {
    /// The names of `few`, one behind the other.
    names: SmallVec<[u8; 96]>,
    few: SmallVec<[Named; FEW]>,
    many: Option<Box<Many>>,
    /// Whatever it is called.
    everything: ActionSet,
}

impl Judged {
    /// Notes that actions on a target were asked for.
    pub(crate) fn add(&mut self, target: Target<'_>, actions: ActionSet) {
        match target {
            Target::Cluster => {}
            Target::Database(database) => self.add_named(true, &[database], actions),
            Target::Collection(database, name) => {
                self.add_named(false, &[database, ".", name], actions);
            }
            Target::AnyNormal | Target::Any => self.everything = self.everything.union(actions),
        }
    }

    fn add_named(&mut self, is_database: bool, parts: &[&str], actions: ActionSet) {
        if self.few.len() < FEW {
            for part in parts {
                self.names.extend_from_slice(part.as_bytes());
            }
            return self.few.push(Named { end: self.names.len(), is_database, actions });
        }
        let many = self.many.get_or_insert_default();
        let all = if is_database { &mut many.databases } else { &mut many.collections };
        let known = all.entry(parts.concat()).or_default();
        *known = known.union(actions);
    }

    /// Whether one of what was asked for serves to open a namespace for this.
    pub(crate) fn allows(&self, namespace: &Namespace, opening: Opening) -> bool {
        let mut start = 0;
        let in_few = self.few.iter().any(|named| {
            let name = &self.names[start..named.end];
            start = named.end;
            let opened = if named.is_database { namespace.database() } else { namespace.as_str() };
            name == opened.as_bytes() && serves(named.actions, opening)
        });
        in_few || serves(self.everything, opening) || self.in_many(namespace, opening)
    }

    fn in_many(&self, namespace: &Namespace, opening: Opening) -> bool {
        let Some(many) = &self.many else { return false };
        let of_collection = many.collections.get(namespace.as_str());
        let of_database = many.databases.get(namespace.database());
        of_collection.into_iter().chain(of_database).any(|actions| serves(*actions, opening))
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
        let mut judged = Judged::default();
        let actions = |actions: &[Action]| ActionSet::of(actions);
        judged.add(Target::Collection("d", "read"), actions(&[Action::Find]));
        judged.add(Target::Collection("d", "both"), actions(&[Action::Find]));
        judged.add(Target::Collection("d", "both"), actions(&[Action::Remove]));
        judged.add(Target::Collection("d", "told"), actions(&[Action::CollStats]));
        // From here on they are many.
        judged.add(Target::Database("whole"), actions(&[Action::Find]));
        judged.add(Target::Collection("d", "late"), actions(&[Action::CollStats]));
        judged.add(Target::Collection("d", "late"), actions(&[Action::Insert]));
        judged.add(Target::Cluster, actions(&[Action::Find, Action::Insert]));
        let of = |judged: &Judged, name: &str| {
            let namespace = Namespace::parse(name).unwrap();
            [Opening::Metadata, Opening::Read, Opening::Write]
                .map(|opening| judged.allows(&namespace, opening))
        };
        for (name, expected) in [
            ("d.read", [true, true, false]),
            ("d.both", [true, true, true]),
            ("d.told", [true, false, false]),
            ("d.late", [true, false, true]),
            ("d.other", [false; 3]),
            ("d.rea", [false; 3]),
            ("d.readd", [false; 3]),
            ("e.read", [false; 3]),
            ("whole.any", [true, true, false]),
        ] {
            assert_eq!(of(&judged, name), expected, "{name}");
        }
        judged.add(Target::AnyNormal, actions(&[Action::Insert]));
        assert_eq!(of(&judged, "d.other"), [true, false, true]);
        let mut first = Judged::default();
        first.add(Target::Database("whole"), actions(&[Action::Find]));
        assert_eq!(of(&first, "whole.any"), [true, true, false]);
        assert_eq!(of(&first, "whol.e"), [false; 3]);
    }
}
