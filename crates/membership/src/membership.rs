//! A member of a set: what it is made of, what can be seen of it, and what is asked of it. How it begins stands in `start`,
//! what it does when its role or the set changes in `follow`, and to whom it hands over in `hand_over`.

mod follow;
mod hand_over;
mod start;

use crate::admission::AdmitKnown;
use crate::catalog_observer::TimesLed;
use crate::delay_log;
use crate::error::{Error, Result};
use crate::left_out;
use crate::set_document::SetDocument;
use crate::set_file;
use catalog::Catalog;
use dispatch::LinkAcceptor;
use engine::Engine;
use follow::is_alone;
use limits::Account;
use links::{Dialer, Links, Tuning};
use member::{Member, Pending, View, keeps_up};
use os::Os;
use parking_lot::Mutex;
use quorum::{Change, Configuration, HardState, MemberId, Position, Standing};
use replica::{DelayableJournal, HeldBack, Nobody, Promises, SyncMode};
use start::open_state;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

pub use start::{Founding, Stored};

/// Where the log of every set begins that was founded with an empty directory, and where all who join begin: those of
/// other sets lack the founder's data by that, and get a copy.
pub const BASE: Position = Position { term: 1, index: 1 };

/// How long the links may take to end.
const LINKS_END: Duration = Duration::from_secs(2);
/// How long this member's thread may take to answer.
const ANSWERS: Duration = Duration::from_secs(5);
/// How long an answer waits for its reason to be known.
const TELLING: Duration = Duration::from_secs(1);
/// How often a founder that waits for the others looks whether it ends.
const LOOK: Duration = Duration::from_millis(25);

/// The layers above, which have things to do that only one member may do.
pub trait Roles: Send + Sync {
    /// This member leads: what the ones before it left is ended here, before clients write. On a thread of its
    /// own; may wait for commits of its own.
    ///
    /// # Errors
    /// It cannot lead: another member is asked to.
    fn take_over(&self, term: u64) -> std::result::Result<(), String>;

    /// Something of role, term, leader or configuration is different, or whether clients' writes are taken. Must
    /// not wait. `document` is the set's newest one.
    fn changed(&self, view: &View, takes_writes: bool, document: &SetDocument);
}

/// What a member is made of.
#[derive(Clone)]
pub struct Parts {
    /// Clock, threads, files, randomness.
    pub os: Os,
    /// The data directory.
    pub directory: PathBuf,
    /// Holds commits back ([`engine::Showing::Committed`]).
    pub engine: Engine,
    /// Over the engine, opened without writing ([`Catalog::following`]).
    pub catalog: Arc<Catalog>,
    /// What frames are charged to.
    pub memory: Arc<Account>,
    /// The layers above.
    pub roles: Arc<dyn Roles>,
    /// What connections to other members are opened with.
    pub dialer: Dialer,
    /// Sizes and times of the links.
    pub tuning: Tuning,
    /// Milliseconds between two reports to the others, and of a tick of consensus; `None` for the usual ones.
    pub pace_ms: Option<(u64, u64)>,
}

/// A member of a set. Ends when it is dropped.
pub struct Membership {
    inner: Arc<Inner>,
    links: Arc<Links>,
}

struct Inner {
    own: MemberId,
    os: Os,
    directory: PathBuf,
    engine: Engine,
    catalog: Arc<Catalog>,
    /// It keeps entries and has no data, whatever a later document says.
    is_witness: bool,
    admission: Arc<AdmitKnown>,
    links: Weak<Links>,
    roles: Arc<dyn Roles>,
    times_led: TimesLed,
    member: OnceLock<Member>,
    /// The term in which clients' writes are taken; 0 for none.
    takes_writes: AtomicU64,
    /// One takes over at a time.
    taking_over: Mutex<()>,
    /// It was told that there is no room for the whole delay.
    is_short: AtomicBool,
    /// The newest decided configuration could not be followed.
    is_behind: AtomicBool,
    /// One document is followed at a time.
    following: Mutex<()>,
    /// Its operator has it step down.
    stepping_down: Mutex<()>,
    /// Who should lead in this member's place, and since when.
    preferred: Mutex<Option<(MemberId, Duration)>>,
    /// Those above are told one thing after the other, the newest last.
    telling: Mutex<()>,
    /// It is being ended.
    ends: AtomicBool,
}

impl Membership {
    /// Which member this directory is.
    pub fn own(&self) -> MemberId {
        self.inner.own
    }

    /// Who has founded the set.
    pub fn founder(&self) -> MemberId {
        MemberId(self.inner.admission.lineage())
    }

    /// Waits until whoever founds the set is no longer its only voter, or the time is over; says whether it is so.
    pub fn wait_for_others(&self, time: Duration) -> bool {
        let (own, document) = (self.own(), self.document());
        self.wait_for(time, |view| !is_alone(view, own, &document))
    }

    /// Whether anything was written since the set began.
    pub fn has_entries(&self) -> bool {
        self.view().last.index > BASE.index
    }

    /// A member that has got nothing of its set yet is told of another document by the one that founds it: what
    /// was begun is begun again. One that its set has removed is told of the document that has it again: it goes on
    /// with what it has, which is a part of the set's log or is overwritten by it.
    ///
    /// # Errors
    /// The document does not have this member, is no newer one than what it knows, or asks for another kind of member.
    pub fn join_again(&self, document: &SetDocument) -> Result<()> {
        let known = self.document();
        if known == *document {
            return Ok(());
        }
        let Inner { os, directory, own, .. } = &*self.inner;
        if self.has_entries() {
            self.inner.check_comes_back(&known, document)?;
            tracing::info!(target: "REPL", id = 9_016_881, set = document.name(),
                "This member is to be one of its set again, and goes on with the data that it has");
        }
        left_out::decide(os, directory, document, *own)?;
        self.inner.follow_configuration(&document.encode()?)
    }

    /// What can be seen of it.
    pub fn view(&self) -> Arc<View> {
        self.inner.member().map_or_else(Arc::default, Member::view)
    }

    /// Waits until the view is as asked, or the time is over; says whether it is.
    pub fn wait_for(&self, time: Duration, is_so: impl FnMut(&View) -> bool) -> bool {
        self.inner.member().is_some_and(|member| member.wait_for(time, is_so))
    }

    /// Has `call` made once, when the view is another one, as [`Member::watch`] says; `None` before the member runs.
    pub fn watch(&self, call: os::Call) -> Option<os::Watch> {
        self.inner.member().map(|member| member.watch(call))
    }

    /// Whether clients' writes are taken.
    pub fn takes_writes(&self) -> bool {
        self.inner.takes_writes.load(Ordering::Acquire) != 0
    }

    /// The newest document that is known here.
    pub fn document(&self) -> SetDocument {
        self.inner.admission.document()
    }

    /// The links.
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// What lets other members' links in.
    pub fn acceptor(&self) -> Arc<dyn LinkAcceptor> {
        self.links.acceptor()
    }

    /// Proposes a document: members that it has and consensus has not become voters or learners, those that it
    /// has no more go.
    pub fn configure(&self, document: &SetDocument) -> Result<Option<Pending<Position>>> {
        self.inner.configure(document)
    }

    /// Proposes that members vote which the document says do, and which have caught up since they came.
    pub fn give_votes(&self) -> Result<Option<Pending<Position>>> {
        let (view, document) = (self.view(), self.document());
        let is_due = |change: &Change| change.standing == Standing::Voter;
        if !self.takes_writes()
            || view.configuration.is_joint()
            || !self.inner.changes(&view, &document).iter().any(is_due)
        {
            return Ok(None);
        }
        tracing::info!(target: "REPL", id = 9_016_774, "Members have caught up: they vote from now on");
        self.inner.configure(&document)
    }

    /// Asks what is decided now: see [`Member::read_point`]. `None` before the member runs.
    pub fn read_point(&self) -> Option<Pending<u64>> {
        self.inner.member().map(Member::read_point)
    }

    /// This member lacks what its leader's log has no more, and a copy of the leader's data is about to be made.
    /// From now on it acknowledges nothing, until [`Membership::end_copy`] or the next start. Answers whose data.
    pub fn begin_copy(&self) -> Option<MemberId> {
        let begun = self.inner.member()?.begin_copy().wait(ANSWERS)?;
        begun.ok().map(|needed| needed.leader)
    }

    /// The copy is not made: this member goes on as it is.
    pub fn end_copy(&self) {
        if let Some(member) = self.inner.member() {
            member.end_copy();
        }
    }

    /// This member does not campaign before that moment of the monotonic clock; `None` ends that. Forgotten by a
    /// restart. Waits until it goes by that, for a moment at most.
    pub fn freeze(&self, until: Option<Duration>) {
        self.tell_and_wait(|member| member.freeze(until));
    }

    /// Whether the operator keeps this member from leading. Forgotten by a restart. Does not wait: see
    /// [`Membership::wait_until_told`].
    pub fn set_maintenance(&self, is_on: bool) {
        if let Some(member) = self.inner.member() {
            member.set_maintenance(is_on);
        }
    }

    /// Whether this member takes entries of others. Forgotten by a restart. For tests. Waits as [`Membership::freeze`].
    pub fn set_takes_entries(&self, takes: bool) {
        self.tell_and_wait(|member| member.set_takes_entries(takes));
    }

    /// Tells the member something, and waits until it goes by it: who is acknowledged may rely on it.
    fn tell_and_wait(&self, tell: impl FnOnce(&Member)) {
        if let Some(member) = self.inner.member() {
            tell(member);
            self.wait_until_told();
        }
    }

    /// Waits, for a moment at most, until those above know what this member is by now: a commit that fails because the
    /// member leads no more may fail before they do.
    pub fn wait_until_told(&self) {
        if let Some(member) = self.inner.member() {
            // Who is told later is told all the same.
            let _in_time = member.tell_what_is().wait(TELLING);
        }
    }

    /// Follows a decided configuration that could not be followed when it came, on a full disk, or that never came,
    /// because it removes this member. Called every few seconds.
    pub fn follow_again(&self) {
        let inner = &*self.inner;
        if let Some(document) = inner.admission.removal() {
            self.follow_removal(&document);
        }
        if !inner.is_behind.load(Ordering::Acquire) {
            return;
        }
        let in_order = inner.telling.lock();
        let view = self.view();
        if let Some(document) = &view.document {
            inner.follow_decided(&document.bytes);
        }
        if !inner.is_behind.load(Ordering::Acquire) {
            // Those above were told of the one before.
            inner.roles.changed(&view, self.takes_writes(), &self.document());
        }
        drop(in_order);
    }

    /// Follows a document that removes this member. Where that fails, it is tried again when another member says it again.
    fn follow_removal(&self, document: &SetDocument) {
        match self.inner.follow_removal(document) {
            Ok(false) => return,
            Ok(true) => {}
            Err(error) => {
                tracing::error!(target: "REPL", id = 9_016_889, %error,
                    "That this member was removed from its set cannot be kept: it is tried again");
                return;
            }
        }
        tracing::warn!(target: "REPL", id = 9_016_888, set = document.name(), version = document.version(),
            "This member was removed from its set, as another member says; its data stays as it is");
        let _in_order = self.inner.telling.lock();
        self.inner.roles.changed(&self.view(), self.takes_writes(), &self.document());
    }

    /// Whether this delayed member began or ended to show entries early, for want of room, since it was asked last.
    pub fn changed_in_room(&self) -> Option<HeldBack> {
        let held_back = self.view().held_back.unwrap_or_default();
        let before = self.inner.is_short.swap(held_back.is_short, Ordering::AcqRel);
        (before != held_back.is_short).then_some(held_back)
    }

    /// The set goes on with this member alone, whatever its majority has: from its next start on. What this member has on
    /// its disk counts, decided or not; what it lacks is given up, and those who have it never speak with it again.
    /// This membership ends. On disk when it returns; where it fails, it can be asked for again.
    ///
    /// First it is another history, then alone: a crash between must not leave a member that decides alone while the
    /// others take it for one of theirs.
    ///
    /// # Errors
    /// The document does not name this directory, or this member has no data; what the disk says.
    pub fn go_on_alone(&self, document: &SetDocument) -> Result<()> {
        let Inner { own, os, directory, engine, .. } = &*self.inner;
        if document.rank(*own).is_none() {
            return Err(Error::Document("this member is not one that may lead in it".to_owned()));
        }
        self.stop();
        self.inner.take_in_what_is_held_back()?;
        let last = engine.entries().last;
        let index = last.index + 1;
        let document = document.clone().begun_behind(index);
        let mut state = open_state(os, directory)?;
        state.set_name(document.name(), another_lineage(os, state.state().lineage, &document))?;
        set_file::write(&*os.vfs, directory, &document)?;
        let term = state.state().term.max(last.term) + 1;
        state.keep(HardState { term, vote: None }, 0)?;
        // An entry of its own, behind which the configuration counts.
        engine.close_entry((term, index), engine::EntryKind::Fence, &[], last.index)?;
        engine.sync()?;
        let alone = quorum::codec::encode_configuration(&Configuration::of_voters([*own]));
        engine.apply_configuration(index, &alone)?;
        engine.checkpoint()?;
        let is_there = engine.entries().before.index == index
            && engine.configuration_at(index).is_some_and(|told| *told == *alone);
        if is_there {
            return Ok(());
        }
        Err(Error::Directory(
            "the configuration of this member alone is not in its checkpoint".to_owned(),
        ))
    }

    /// Ends it: clients' writes are refused, the thread and the links end. What is not decided by then is decided
    /// by the others.
    pub fn stop(&self) {
        self.inner.ends.store(true, Ordering::Release);
        self.inner.takes_writes.store(0, Ordering::Release);
        if let Some(member) = self.inner.member()
            && let Err(panicked) = member.stop()
        {
            tracing::error!(target: "REPL", %panicked, "The member's thread failed");
        }
        self.links.shutdown(LINKS_END);
    }
}

/// A name for another history of the set: no member's, and not the one that it has.
fn another_lineage(os: &Os, before: u64, document: &SetDocument) -> u64 {
    loop {
        let lineage = os.entropy.next_u64();
        if lineage > 0 && lineage != before && document.id_of(MemberId(lineage)).is_none() {
            return lineage;
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.stop();
    }
}

impl std::fmt::Debug for Membership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Membership").field("own", &self.inner.own).finish_non_exhaustive()
    }
}

/// What has to change for consensus to have the members of a document. Who is new, and would have to be waited for
/// until it has the data (`may_vote` says no), is a learner first: its vote would count for every majority meanwhile.
fn changes(
    now: &Configuration,
    document: &SetDocument,
    may_vote: impl Fn(MemberId) -> bool,
) -> Vec<Change> {
    let wanted = document.members().iter().map(|listed| {
        let votes = now.voters.contains(&listed.member) || may_vote(listed.member);
        let standing = if listed.votes && votes { Standing::Voter } else { Standing::Learner };
        Change { member: listed.member, standing }
    });
    let is_so = |change: &Change| match change.standing {
        Standing::Voter => now.voters.contains(&change.member),
        Standing::Learner => now.learners.contains(&change.member),
        Standing::Gone => false,
    };
    let mut changes: Vec<Change> = wanted.filter(|change| !is_so(change)).collect();
    let gone = now.members().into_iter().filter(|member| document.id_of(*member).is_none());
    changes.extend(gone.map(|member| Change { member, standing: Standing::Gone }));
    changes
}

impl Inner {
    fn member(&self) -> Option<&Member> {
        self.member.get()
    }

    fn configure(&self, document: &SetDocument) -> Result<Option<Pending<Position>>> {
        let Some(member) = self.member() else { return Ok(None) };
        let document = &document.clone().following(&self.admission.document());
        let changes = self.changes(&member.view(), document);
        Ok(Some(member.configure(changes, document.encode()?)))
    }

    fn changes(&self, view: &View, document: &SetDocument) -> Vec<Change> {
        let reaches_back = self.reaches_back();
        changes(&view.configuration, document, |member| reaches_back || keeps_up(view, member))
    }

    /// A delayed member's engine gets all that it has, and is delayed no more.
    fn take_in_what_is_held_back(&self) -> Result<()> {
        let beside = delay_log::find(&self.os, &self.directory, &self.engine)?;
        if !beside.exists {
            return Ok(());
        }
        // The catalog is opened anew before anything is read: the server starts again.
        let engine = self.engine.clone();
        let mut journal = DelayableJournal::open(engine, Nobody, SyncMode::Inline, beside)?;
        while !journal.take_in()? {
            // Memory may have no room, until what it has is drained.
            self.os.clock.sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Whether this member's log has everything since the beginning of the set: nobody needs a copy then.
    fn reaches_back(&self) -> bool {
        let is_forced = self.admission.document().log_begins() > 0;
        !is_forced && self.engine.entries().first_readable <= BASE.index + 1
    }

    /// Fails where this member cannot go on with its data as what a newer document says that it is.
    fn check_comes_back(&self, known: &SetDocument, document: &SetDocument) -> Result<()> {
        let refused =
            |why: &str| Err(Error::Directory(format!("this directory is in a set already{why}")));
        let Some(builds_indexes) = document.builds_indexes(self.own) else { return refused("") };
        if document.version() <= known.version() {
            return refused("");
        }
        // What an arbiter does without is of no matter.
        let is_of_data = !self.is_witness;
        let has_indexes = !self.catalog.leaves_out_indexes();
        if document.is_witness(self.own) != self.is_witness
            || (is_of_data && builds_indexes != has_indexes)
        {
            return refused(", as another kind of member: empty it, and it is filled again");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{Document, doc};

    #[test]
    fn consensus_follows_the_document() {
        let member = |id: i32, votes: i32| doc! { "_id": id, "host": format!("h:{}", id + 1), "votes": votes };
        let members: Vec<Document> = vec![member(0, 1), member(1, 1), member(2, 0), member(3, 1)];
        let config = doc! { "_id": "rs", "members": members };
        let ids = (0..4).map(|id| (id, MemberId(id as u64 + 10))).collect();
        let document = SetDocument::new(config, &ids).unwrap();
        let now = Configuration {
            voters: [10, 13, 99].map(MemberId).into(),
            learners: [MemberId(11)].into(),
            ..Configuration::default()
        };
        let change = |member, standing| Change { member: MemberId(member), standing };
        assert_eq!(
            changes(&now, &document, |_| true),
            [
                change(11, Standing::Voter),
                change(12, Standing::Learner),
                change(99, Standing::Gone)
            ]
        );
        let there = Configuration {
            voters: [10, 11, 13].map(MemberId).into(),
            learners: [MemberId(12)].into(),
            ..Configuration::default()
        };
        assert_eq!(changes(&there, &document, |_| false), [], "who votes goes on");
        // Who would have to be waited for comes without a vote, and gets it later.
        let alone = Configuration::of_voters([MemberId(10)]);
        let few = changes(&alone, &document, |member| member == MemberId(13));
        assert_eq!(
            few,
            [
                change(11, Standing::Learner),
                change(12, Standing::Learner),
                change(13, Standing::Voter)
            ]
        );
        let later = Configuration {
            voters: [10, 13].map(MemberId).into(),
            learners: [11, 12].map(MemberId).into(),
            ..Configuration::default()
        };
        assert_eq!(changes(&later, &document, |_| false), []);
        assert_eq!(changes(&later, &document, |_| true), [change(11, Standing::Voter)]);
    }
}
