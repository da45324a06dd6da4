//! A member of a set of several: role, term and configuration as the member's thread tells them.
//!
//! Always true:
//! 1. Who takes writes is primary, and nobody else; a member that the configuration does not have is in no state.
//! 2. What is followed is as new as what the member's thread said last.

use super::config::Config;
use super::config::member::Member;
use super::{Replication, Role};
use bson::raw::RawDocumentBuf;
use errors::Result;
use membership::{BASE, Membership, SetDocument, View};
use os::Os;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What was different.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Followed {
    /// `hello` shows something else now.
    pub changed: bool,
    /// It was primary, and is no longer, or in another term.
    pub lost_writes: bool,
    /// It is primary, and was not before, or in another term.
    pub gained_writes: bool,
}

impl Replication {
    /// The member of a set of several that this server is.
    pub fn membership(&self) -> Option<&Arc<Membership>> {
        self.membership.get()
    }

    /// Whether this server is a member of a set of several.
    pub fn is_of_several(&self) -> bool {
        self.membership.get().is_some()
    }

    /// From now on this server is that member.
    pub fn join(&self, membership: Arc<Membership>, os: &Os) {
        let (view, document) = (membership.view(), membership.document());
        let takes_writes = membership.takes_writes();
        // A server is in one set for its life.
        let _first_stays = self.membership.set(membership);
        // What the thread has said meanwhile is newer.
        if !self.state.lock().follows {
            self.follow(&view, takes_writes, &document, os);
        }
    }

    /// Takes over what the member's thread says.
    pub fn follow(
        &self,
        view: &View,
        takes_writes: bool,
        document: &SetDocument,
        os: &Os,
    ) -> Followed {
        let own = document.id_of(view.id);
        let leader = view.role_state.leader.and_then(|leader| document.id_of(leader));
        let term = view.role_state.term.cast_signed();
        let role = match (own, takes_writes) {
            (None, _) => Role::Uninitiated,
            (Some(_), true) => Role::Primary,
            (Some(_), false) if document.is_witness(view.id) => Role::Arbiter,
            // Of one that has got nothing yet nobody knows whether it needs a copy.
            (Some(_), false)
                if view.needs_copy.is_some()
                    || view.applied_index <= BASE.index
                    || !view.is_back =>
            {
                Role::Recovering
            }
            (Some(_), false) => Role::Secondary,
        };
        let mut state = self.state.lock();
        state.follows = true;
        let mut changed = state.own != own || state.leader != leader;
        (state.own, state.leader) = (own, leader);
        if state.config.as_ref().is_none_or(|config| config.document != *document.config()) {
            match parse(document) {
                Ok(config) => {
                    state.config = Some(Arc::new(config));
                    changed = true;
                }
                // Each was checked where it was proposed: the one before it stays.
                Err(error) => {
                    tracing::error!(target: "REPL", %error, "The set's configuration cannot be read");
                }
            }
        }
        let term_before = self.term.swap(term, Ordering::AcqRel);
        let role_before = self.role.swap(role as u8, Ordering::AcqRel);
        changed |= role_before != role as u8 || term_before != term;
        let was_primary = role_before == Role::Primary as u8;
        let lost_writes = was_primary && (role != Role::Primary || term_before != term);
        let gained_writes = role == Role::Primary && (!was_primary || term_before != term);
        if gained_writes {
            state.elected_ms = os.clock.wall_ms();
        }
        drop(state);
        if changed {
            self.topology.fetch_add(1, Ordering::AcqRel);
        }
        Followed { changed, lost_writes, gained_writes }
    }

    /// This node, as the configuration has it.
    pub fn own<'a>(&self, config: &'a Config, port: u16) -> Option<&'a Member> {
        if !self.is_of_several() {
            return config.own(port).ok();
        }
        let own = self.state.lock().own?;
        config.members.iter().find(|member| member.id == own)
    }

    /// Who takes writes, where that is known: on a set of one this node, while it does.
    pub fn primary<'a>(&self, config: &'a Config, role: Role, port: u16) -> Option<&'a Member> {
        if role == Role::Primary {
            return self.own(config, port);
        }
        let (own, leader) = {
            let state = self.state.lock();
            (state.own, state.leader?)
        };
        // One that does not take writes yet is not told of as who does.
        let is_other = |member: &&Member| member.id == leader && Some(member.id) != own;
        // An arbiter, or a delayed member, leads only until another member has what it has.
        let takes_writes = |member: &&Member| !member.arbiter_only && member.delay_seconds == 0;
        config.members.iter().find(is_other).filter(takes_writes)
    }

    /// This member's `_id` in a set of several.
    pub fn own_id(&self) -> Option<i32> {
        self.state.lock().own
    }
}

fn parse(document: &SetDocument) -> Result<Config> {
    Config::parse(document.name(), &RawDocumentBuf::try_from(document.config())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replication::{ROLES, ReplicaSetOptions};
    use bson::doc;
    use catalog::{Catalog, CatalogOptions};
    use engine::{Engine, HistoryOptions};
    use membership::{MemberId, NeedsCopy, Position};
    use std::time::Duration;

    fn document(members: i32) -> SetDocument {
        let member = |id: i32| doc! { "_id": id, "host": format!("127.0.0.1:{}", 1000 + id) };
        let members: Vec<_> = (0..members).map(member).collect();
        let ids = (0..members.len() as i32).map(|id| (id, MemberId(id as u64 + 1))).collect();
        let given = doc! { "_id": "rs", "members": members };
        let config = Config::parse("rs", &RawDocumentBuf::try_from(&given).unwrap()).unwrap();
        SetDocument::new(config.document, &ids).unwrap()
    }

    fn view(member: u64, leader: Option<u64>, term: u64) -> View {
        let mut view =
            View { id: MemberId(member), applied_index: 2, is_back: true, ..View::default() };
        view.role_state.term = term;
        view.role_state.leader = leader.map(MemberId);
        view
    }

    #[test]
    fn role_and_primary_follow_what_the_thread_says() {
        let all = HistoryOptions { bytes: u64::MAX, min_age: Duration::ZERO };
        let engine = Engine::temporary_with(|options| options.history = Some(all));
        let os = Os::real();
        let options = CatalogOptions::new(os.clone(), std::env::temp_dir());
        let catalog = Catalog::open(engine, options).unwrap();
        let set = ReplicaSetOptions { name: "rs".to_owned(), ..ReplicaSetOptions::default() };
        let replication = Replication::new(Some(set), &catalog, &os);
        let set = document(3);
        let view_of_nothing = View { applied_index: 1, ..view(2, None, 1) };
        let started = View { is_back: false, ..view(2, None, 1) };
        let log_begins = Position { term: 3, index: 9 };
        let needed = NeedsCopy { leader: MemberId(3), log_begins };
        let needs_copy = View { needs_copy: Some(needed), ..view(2, Some(3), 5) };
        // Member 1 of three: what it says, whether it takes writes; then its role, whether hello differs, whether
        // it lost the writes, and who hello says is primary.
        let steps = [
            (view_of_nothing, false, Role::Recovering, (true, false), None),
            (started, false, Role::Recovering, (false, false), None),
            (view(2, None, 1), false, Role::Secondary, (true, false), None),
            (view(2, None, 1), false, Role::Secondary, (false, false), None),
            (view(2, Some(1), 1), false, Role::Secondary, (true, false), Some(0)),
            (view(2, Some(2), 2), false, Role::Secondary, (true, false), None),
            (view(2, Some(2), 2), true, Role::Primary, (true, false), Some(1)),
            (view(2, Some(2), 2), true, Role::Primary, (false, false), Some(1)),
            // It lost and won an election in between.
            (view(2, Some(2), 4), true, Role::Primary, (true, true), Some(1)),
            (view(2, Some(3), 5), false, Role::Secondary, (true, true), Some(2)),
            (needs_copy, false, Role::Recovering, (true, false), Some(2)),
            (view(2, Some(3), 5), false, Role::Secondary, (true, false), Some(2)),
        ];
        for (n, (view, takes_writes, role, (changed, lost_writes), primary)) in
            steps.into_iter().enumerate()
        {
            let before = replication.topology.load(Ordering::Acquire);
            let followed = replication.follow(&view, takes_writes, &set, &os);
            assert_eq!(
                (followed.changed, followed.lost_writes),
                (changed, lost_writes),
                "step {n}"
            );
            assert_eq!(followed.gained_writes, changed && takes_writes, "step {n}");
            let grew = replication.topology.load(Ordering::Acquire) > before;
            assert_eq!(grew, changed, "step {n}: what hello shows and its counter");
            let config = replication.config().unwrap();
            let shown = ROLES[usize::from(replication.role.load(Ordering::Acquire))];
            assert_eq!(shown, role, "step {n}");
            let host = |id: i32| config.members[id as usize].host.clone();
            let found = match role {
                Role::Primary => replication.own_id(),
                _ => replication.primary(&config, role, 0).map(|member| member.id),
            };
            assert_eq!(found.map(host), primary.map(host), "step {n}");
            assert_eq!(replication.term.load(Ordering::Acquire) as u64, view.role_state.term);
        }
        // An arbiter shows nothing, and nobody takes it for a primary while it leads to bring another one up to date.
        let mut config = set.config().clone();
        let third = config.get_array_mut("members").unwrap()[2].as_document_mut().unwrap();
        third.insert("arbiterOnly", true);
        third.insert("priority", 0);
        let with_arbiter = SetDocument::new(config, &set.ids()).unwrap();
        replication.follow(&view(3, Some(3), 6), false, &with_arbiter, &os);
        assert_eq!(replication.role.load(Ordering::Acquire), Role::Arbiter as u8);
        assert!(!replication.keeps_time());
        replication.follow(&view(2, Some(3), 6), false, &with_arbiter, &os);
        let config = replication.config().unwrap();
        assert!(replication.primary(&config, Role::Secondary, 0).is_none());
        replication.follow(&view(2, Some(1), 7), false, &with_arbiter, &os);
        assert!(replication.primary(&config, Role::Secondary, 0).is_some());
        // The configuration has it no more.
        let followed = replication.follow(&view(9, Some(1), 6), false, &set, &os);
        assert!(followed.changed);
        assert_eq!(replication.role.load(Ordering::Acquire), Role::Uninitiated as u8);
        assert_eq!(replication.own_id(), None);
    }
}
