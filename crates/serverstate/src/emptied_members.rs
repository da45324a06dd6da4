//! A member whose disk was emptied comes back as a new one: who is primary finds it at the old one's host, and puts it
//! in the old one's place, unasked.
//!
//! Always true: only a server without data, started for this set and in none, takes a place, and only that of a member
//! to which there is no link. The change is decided by a majority of those who voted before it.

use crate::state::ServerState;
use membership::hosts::{ask_member, ask_to_join};
use membership::{MemberId, Membership, SetDocument};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long the change may take to be proposed.
const PROPOSED: Duration = Duration::from_secs(10);

/// The same configuration with another directory for one member.
fn replaced(document: &SetDocument, id: i32, by: MemberId) -> membership::Result<SetDocument> {
    let (mut ids, mut config) = (document.ids(), document.config().clone());
    ids.insert(id, by);
    let version = config.get_i32("version").unwrap_or(1);
    config.insert("version", version.saturating_add(1));
    Ok(SetDocument::new(config, &ids)?.following(document))
}

impl ServerState {
    /// Looks at the hosts of members to which there is no link. Does not wait.
    pub(crate) fn look_for_emptied_members(&self) {
        let Some(membership) = self.replication.membership() else { return };
        if !membership.takes_writes() || without_link(membership).is_empty() {
            return;
        }
        if self.looks_for_emptied.swap(true, Ordering::AcqRel) {
            return;
        }
        let state = self.this();
        let job = Box::new(move || {
            if let Some(membership) = state.replication.membership() {
                for (id, known) in without_link(membership) {
                    state.take_back(membership, id, known);
                }
            }
            state.looks_for_emptied.store(false, Ordering::Release);
        });
        if let Err(error) = self.os.spawner.spawn("emptied-members", job) {
            self.looks_for_emptied.store(false, Ordering::Release);
            tracing::error!(target: "REPL", %error, "No thread to look for emptied members");
        }
    }

    fn take_back(&self, membership: &Membership, id: i32, known: MemberId) {
        let document = membership.document();
        let Some(host) = document.host_of(known) else { return };
        let ended = || self.is_stopping() || !membership.takes_writes();
        // Who does not answer is looked for again.
        let Ok(told) = ask_member(&self.dialer, host, &ended) else { return };
        let is_new = told.member != known && document.id_of(told.member).is_none();
        // One that has joined already, and was not put in its place then, is asked again.
        let is_ours = [MemberId(0), membership.founder()].contains(&told.founder);
        let is_free = is_ours && !told.has_data && told.set == document.name();
        if !is_new || !is_free {
            return;
        }
        if told.is_encrypted != self.catalog.engine().encryption().is_some() {
            tracing::warn!(target: "REPL", id = 9_016_777, member = id, host, encrypted = told.is_encrypted,
                "An emptied member is not taken back: the members of a set encrypt what they keep, all of them or none \
                 (--enableEncryption)");
            return;
        }
        tracing::info!(target: "REPL", id = 9_016_768, member = id, host, before = %known, now = %told.member,
            "A member has come back with an empty directory: it takes the place of what it was");
        if let Err(why) = self.put_in_place(membership, &document, id, told.member, host, &ended) {
            tracing::warn!(target: "REPL", id = 9_016_769, member = id, host, why,
                "An emptied member is not taken back yet");
        }
    }

    fn put_in_place(
        &self,
        membership: &Membership,
        document: &SetDocument,
        id: i32,
        by: MemberId,
        host: &str,
        ended: &dyn Fn() -> bool,
    ) -> Result<(), String> {
        let set = replaced(document, id, by).map_err(|error| error.to_string())?;
        ask_to_join(&self.dialer, host, &set, membership.founder(), ended)?;
        let asked = membership.configure(&set).map_err(|error| error.to_string())?;
        match asked.and_then(|asked| asked.wait(PROPOSED)) {
            Some(Ok(_)) => Ok(()),
            Some(Err(refusal)) => Err(refusal.to_string()),
            None => Err("the change was not proposed in time".to_owned()),
        }
    }
}

/// Members of the configuration to which there is no link in either direction.
fn without_link(membership: &Membership) -> Vec<(i32, MemberId)> {
    let links = membership.links().states();
    let has_link =
        |member: &MemberId| links.get(member).is_some_and(|link| link.sends || link.receives);
    let ids = membership.document().ids().into_iter();
    ids.filter(|(_, member)| *member != membership.own() && !has_link(member)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::doc;

    #[test]
    fn place_is_taken_by_another_directory_in_a_newer_configuration() {
        let member = |id: i32| doc! { "_id": id, "host": format!("h{id}:1") };
        let config = doc! { "_id": "rs", "version": 4, "members": [member(0), member(1)] };
        let ids = [(0, MemberId(10)), (1, MemberId(11))].into();
        let document = SetDocument::new(config, &ids).unwrap();
        let after = replaced(&document, 1, MemberId(99)).unwrap();
        assert_eq!(after.ids(), [(0, MemberId(10)), (1, MemberId(99))].into());
        assert_eq!(after.config().get_i32("version").unwrap(), 5);
        assert_eq!(after.host_of(MemberId(99)), Some("h1:1"));
        assert!(replaced(&document, 1, MemberId(10)).is_err(), "one directory is one member");
    }
}
