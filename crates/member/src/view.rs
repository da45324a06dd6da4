//! What can be seen of a member: a plain value, published as a whole.

use os::{Call, Watch, Watchers};
use parking_lot::{Condvar, Mutex};
use quorum::{Configuration, MemberId, Peer, Position, RoleState};
use replica::{HeldBack, Journal, Links, MemberReport, NeedsCopy, Promises, Replica};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The configuration as the layers above wrote it, and where it stands in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigurationDocument {
    /// The entry that holds it.
    pub at: Position,
    /// Its bytes.
    pub bytes: Arc<[u8]>,
}

/// What another member said of itself, and when it came, in milliseconds of this member's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// What it said.
    pub report: MemberReport,
    /// When that came.
    pub at_ms: u64,
}

/// A member at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Who it is.
    pub id: MemberId,
    /// Term, role, leader.
    pub role_state: RoleState,
    /// It takes clients' writes.
    pub writable: bool,
    /// Who the members are.
    pub configuration: Arc<Configuration>,
    /// The newest configuration that is decided.
    pub document: Option<ConfigurationDocument>,
    /// The commit index.
    pub commit_index: u64,
    /// Entries are applied up to here.
    pub applied_index: u64,
    /// The last entry.
    pub last: Position,
    /// It shows at least what it showed before it started, or has heard for long of nobody who could say what that is. What
    /// is decided stands in the log only with later entries.
    pub is_back: bool,
    /// Entries are synced here up to this one.
    pub synced_index: u64,
    /// On a leader: how far each member is, itself included.
    pub peers: Vec<Peer>,
    /// What the others said.
    pub reports: Arc<BTreeMap<MemberId, Heard>>,
    /// Which of the replica's reports these are.
    pub reports_version: u64,
    /// It lacks what its leader's log has no more: it needs a copy of the data.
    pub needs_copy: Option<NeedsCopy>,
    /// What it has and does not show yet, where it is delayed.
    pub held_back: Option<HeldBack>,
    /// A witness has let go of what a member with data lacks, because its log was as long as it may be.
    pub has_given_up: bool,
    /// To whom it hands over.
    pub handing_over_to: Option<MemberId>,
    /// Why it acknowledges nothing any more.
    pub stopped: Option<String>,
}

/// Whether everything that a member may have shown is known to be decided. It showed nothing behind the last entry that it
/// started with; where other entries have taken the place of the last ones, it is known once these are decided.
pub(crate) fn is_back(started_with: Position, now: &View) -> bool {
    let View { last, commit_index, .. } = now;
    *commit_index >= started_with.index
        || (last.term > started_with.term && *commit_index >= last.index)
}

impl View {
    /// That of a replica which has heard nothing yet.
    pub(crate) fn of<J: Journal, L: Links, P: Promises>(
        replica: &Replica<J, L, P>,
        document: Option<ConfigurationDocument>,
    ) -> Self {
        let first = Self { document, ..Self::default() }.next(replica, 0);
        Self { is_back: is_back(first.last, &first), ..first }
    }

    /// The next one: what is new of a replica, at a time.
    pub(crate) fn next<J: Journal, L: Links, P: Promises>(
        &self,
        replica: &Replica<J, L, P>,
        now_ms: u64,
    ) -> Self {
        let status = replica.status();
        Self {
            id: status.id,
            role_state: status.role_state,
            writable: replica.is_writable(),
            configuration: status.configuration,
            document: self.document.clone(),
            commit_index: status.commit_index,
            applied_index: status.applied_index,
            last: status.last,
            is_back: self.is_back,
            synced_index: status.synced_index,
            peers: status.peers,
            reports: self.next_reports(replica, now_ms),
            reports_version: replica.reports_version(),
            needs_copy: replica.needs_copy(),
            held_back: replica.held_back(),
            has_given_up: replica.has_given_up(),
            handing_over_to: status.handing_over_to,
            stopped: replica.stopped().map(str::to_owned),
        }
    }

    /// What was said, each since when it was. Made anew only where something else was said: a view is made for each entry.
    fn next_reports<J: Journal, L: Links, P: Promises>(
        &self,
        replica: &Replica<J, L, P>,
        now_ms: u64,
    ) -> Arc<BTreeMap<MemberId, Heard>> {
        if replica.reports_version() == self.reports_version {
            return Arc::clone(&self.reports);
        }
        let heard = |(member, report): (&MemberId, &MemberReport)| {
            let before = self.reports.get(member).filter(|heard| heard.report == *report);
            (*member, before.copied().unwrap_or(Heard { report: *report, at_ms: now_ms }))
        };
        Arc::new(replica.reports().iter().map(heard).collect())
    }

    /// Whether those who watch are to be told of the step from another view to this one.
    pub(crate) fn differs_in_role(&self, before: &Self) -> bool {
        // Whether it has got anything yet, behind where every log begins.
        let has_entries = |view: &Self| view.applied_index > 1;
        let role_facts = |view: &Self| {
            let needs_copy = view.needs_copy.is_some();
            let has_stopped = view.stopped.is_some();
            let entries = (has_entries(view), view.has_given_up);
            (view.role_state, view.writable, has_stopped, needs_copy, entries, view.is_back)
        };
        role_facts(self) != role_facts(before)
            || self.document != before.document
            || self.configuration != before.configuration
    }

    /// Whether this member leads.
    pub fn leads(&self) -> bool {
        self.role_state.leader == Some(self.id)
    }

    /// Who has an entry on disk, as a leader knows.
    pub fn holders_of(&self, index: u64) -> impl Iterator<Item = MemberId> {
        self.peers.iter().filter(move |peer| peer.matched >= index).map(|peer| peer.member)
    }
}

/// The newest view.
pub(crate) struct Published {
    view: Mutex<Arc<View>>,
    changed: Condvar,
    watchers: Arc<Watchers>,
}

impl Published {
    pub(crate) fn new(view: View) -> Self {
        let view = Mutex::new(Arc::new(view));
        Self { view, changed: Condvar::new(), watchers: Arc::default() }
    }

    /// Has `call` made with the next view, on the member's thread.
    pub(crate) fn watch(&self, call: Call) -> Watch {
        self.watchers.watch(call)
    }

    pub(crate) fn newest(&self) -> Arc<View> {
        Arc::clone(&self.view.lock())
    }

    pub(crate) fn publish(&self, view: Arc<View>) {
        *self.view.lock() = view;
        self.changed.notify_all();
        self.watchers.tell();
    }

    pub(crate) fn wait_for(&self, time: Duration, mut is_so: impl FnMut(&View) -> bool) -> bool {
        let mut view = self.view.lock();
        !self.changed.wait_while_for(&mut view, |view| !is_so(view), time).timed_out()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_is_back_once_it_is_decided_what_it_may_have_shown() {
        let at = |term, index| Position { term, index };
        for (last, decided, wanted) in [
            (at(3, 100), 90, false),
            (at(3, 100), 100, true),
            (at(3, 120), 99, false),
            (at(4, 120), 99, false),
            (at(4, 120), 100, true),
            // The last ones were overwritten.
            (at(4, 95), 94, false),
            (at(4, 95), 95, true),
            // Entries of its own term that it has lost come again.
            (at(3, 95), 95, false),
        ] {
            let view = View { last, commit_index: decided, ..View::default() };
            assert_eq!(is_back(at(3, 100), &view), wanted, "{last:?} {decided}");
        }
    }
}
