//! What a member does when its role or the set changes: it follows the replica's thread, and takes the writing over.

use super::start::witness_log_bytes;
use super::{Inner, LOOK};
use crate::error::{Error, Result};
use crate::set_document::SetDocument;
use crate::{left_out, set_file};
use member::{Refusal, View, Watcher};
use quorum::{Configuration, MemberId};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long a founder waits until its thread has proposed the configuration.
const CONFIGURING: Duration = Duration::from_secs(5);

/// Follows the replica's role and configuration, on the member's thread.
pub(super) struct Follow(pub(super) Weak<Inner>);

impl Watcher for Follow {
    fn changed(&mut self, before: &View, now: &View) {
        let Some(inner) = self.0.upgrade() else { return };
        // A configuration is rare, and on disk before the links follow it.
        if now.document != before.document
            && let Some(document) = &now.document
        {
            inner.follow_decided(&document.bytes);
        }
        if let (Some(why), None) = (&now.stopped, &before.stopped)
            && !inner.ends.load(Ordering::Acquire)
        {
            tracing::error!(target: "REPL", why, "This member has stopped");
            // Who waits for a commit would wait for ever.
            inner.engine.stop(why);
        }
        if now.has_given_up && !before.has_given_up {
            let bytes = witness_log_bytes(&inner.engine);
            tracing::warn!(target: "REPL", id = 9_016_880, bytes,
                "This arbiter's log is as long as it may be, and lets go of what a member with data lacks: until that \
                 member has caught up, the set cannot do without its primary");
        }
        let began =
            now.writable && (!before.writable || before.role_state.term != now.role_state.term);
        let in_order = inner.telling.lock();
        if !now.writable || began {
            inner.takes_writes.store(0, Ordering::Release);
        }
        let takes_writes = inner.takes_writes.load(Ordering::Acquire) != 0;
        inner.roles.changed(now, takes_writes, &inner.admission.document());
        drop(in_order);
        // Those above know by now that what was before is over.
        if began {
            inner.times_led.again();
            let (taking_over, term) = (Arc::clone(&inner), now.role_state.term);
            let job = Box::new(move || taking_over.take_over(term));
            if let Err(error) = inner.os.spawner.spawn("take-over", job) {
                tracing::error!(target: "REPL", %error, "No thread to take the writing over");
            }
        }
    }
}

impl Inner {
    /// As [`Inner::follow_configuration`]. What the disk does not take now it may take later.
    pub(super) fn follow_decided(&self, bytes: &[u8]) {
        let followed = self.follow_configuration(bytes);
        let is_behind = followed.is_err();
        if let Err(error) = followed
            && !self.is_behind.load(Ordering::Acquire)
        {
            tracing::error!(target: "REPL", id = 9_016_882, %error,
                "A decided configuration cannot be followed: it is tried again");
        }
        self.is_behind.store(is_behind, Ordering::Release);
    }

    /// A decided configuration, as it stands in the log.
    pub(super) fn follow_configuration(&self, bytes: &[u8]) -> Result<()> {
        let document = SetDocument::decode(bytes)?;
        let _one_at_a_time = self.following.lock();
        self.follow_document(document)
    }

    /// What another member says the set is now, which has removed this one, where it is newer than what is known here: the
    /// log of a member that was away, or whose link was closed too soon, never tells it. Says whether it was.
    pub(super) fn follow_removal(&self, document: &SetDocument) -> Result<bool> {
        let _one_at_a_time = self.following.lock();
        let is_newer = document.removes(self.own, &self.admission.document());
        if is_newer {
            self.follow_document(document.clone())?;
        }
        Ok(is_newer)
    }

    fn follow_document(&self, document: SetDocument) -> Result<()> {
        self.follow_build_indexes(&document)?;
        set_file::write(&*self.os.vfs, &self.directory, &document)?;
        let others = document.others(self.own);
        let rank = document.campaign_rank(self.own);
        let kinds = document.kinds();
        let election_ms = document.election_timeout_ms();
        self.admission.follow(document);
        if let Some(links) = self.links.upgrade() {
            links.set_peers(&others)?;
        }
        if let Some(member) = self.member() {
            member.set_kinds(kinds);
            member.set_priority(rank.is_some(), rank.unwrap_or(0));
            if let Some(election_ms) = election_ms {
                member.set_election_timeout(election_ms);
            }
        }
        Ok(())
    }

    /// A member is without indexes from when it comes on; what comes later is a configuration that nobody should have
    /// made, and is obeyed as far as the data allows it.
    fn follow_build_indexes(&self, document: &SetDocument) -> Result<()> {
        if self.is_witness {
            return Ok(());
        }
        let decided = left_out::decide(&self.os, &self.directory, document, self.own);
        if let Err(Error::Directory(why)) = &decided {
            // As one that has them it could lead.
            self.engine.stop(why);
        }
        if decided? && !self.catalog.leaves_out_indexes() {
            let left_out = self.catalog.leave_out_indexes();
            left_out.map_err(|error| Error::Catalog(error.message().to_owned()))?;
        }
        Ok(())
    }

    /// On a thread of its own, once this member may write.
    fn take_over(&self, term: u64) {
        let _one_at_a_time = self.taking_over.lock();
        // A founder may lead before its start has ended.
        let member = self.member.wait();
        let leads = |view: &View| view.writable && view.role_state.term == term;
        if !leads(&member.view()) {
            return;
        }
        if let Err(why) = self.roles.take_over(term) {
            if leads(&member.view()) {
                tracing::error!(target: "REPL", term, why, "This member cannot take the writing over");
                self.hand_over_until(|view| !leads(view));
            }
            return;
        }
        // A founder that is alone yet, also where a crash came between.
        if member.view().document.is_none() && self.engine_has_no_document() {
            let refusal = match self.configure(&self.admission.document()) {
                Ok(asked) => asked
                    .and_then(|asked| asked.wait(CONFIGURING))
                    .and_then(std::result::Result::err),
                Err(error) => Some(Refusal::Refused(error.to_string())),
            };
            // It is proposed again when this member leads again.
            if let Some(refusal) = refusal {
                tracing::error!(target: "REPL", %refusal, "The set is not configured");
            }
        }
        // A founder that took writes before would acknowledge what nobody else has. One that has brought its data
        // along has done so all the time, and goes on until the others have copies.
        let document = self.admission.document();
        let brought_data = !self.reaches_back();
        let is_founded =
            |view: &View| !leads(view) || brought_data || !is_alone(view, self.own, &document);
        while !member.wait_for(LOOK, is_founded) {
            if self.ends.load(Ordering::Acquire) {
                return;
            }
        }
        let _in_order = self.telling.lock();
        // What is published is told after this, where it is not so any more.
        let view = member.view();
        if leads(&view) {
            self.takes_writes.store(term, Ordering::Release);
            self.roles.changed(&view, true, &self.admission.document());
        }
    }

    /// Whether consensus has nobody but the founder.
    fn engine_has_no_document(&self) -> bool {
        let alone = Configuration::of_voters([self.own]);
        self.member().is_some_and(|member| *member.view().configuration == alone)
    }
}

/// Whether whoever founds the set decides alone yet: the others do not count, though the document says that they
/// vote.
pub(super) fn is_alone(view: &View, own: MemberId, document: &SetDocument) -> bool {
    let Configuration { voters, outgoing, .. } = &*view.configuration;
    let is_own = |set: &std::collections::BTreeSet<MemberId>| set.len() == 1 && set.contains(&own);
    let others_vote = document.members().iter().any(|listed| listed.votes && listed.member != own);
    others_vote && (is_own(outgoing) || is_own(voters))
}
