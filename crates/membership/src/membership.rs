//! A member from its start to its end: what it begins with, what it does when its role or the set changes.
//!
//! Always true: `raft.state` is there before anything of the set is, and the set's document on disk before the
//! replica runs, so that a start after a crash goes on where this one was.

mod hand_over;

use crate::admission::AdmitKnown;
use crate::catalog_observer::{CatalogObserver, TimesLed};
use crate::delay_log;
use crate::error::{Error, Result};
use crate::left_out;
use crate::set_document::SetDocument;
use crate::set_file;
use catalog::Catalog;
use dispatch::LinkAcceptor;
use engine::Engine;
use limits::Account;
use links::{Dialer, Links, Tuning};
use member::{Member, Pending, Refusal, View, Watcher, keeps_up};
use os::Os;
use parking_lot::Mutex;
use quorum::{Change, Configuration, HardState, MemberId, Position, Standing};
use replica::{
    DelayableJournal, EngineJournal, HeldBack, Journal, Nobody, Options, Promises, Replica,
    StateFile, SyncMode, WitnessJournal,
};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// Where the log of every set begins that was founded with an empty directory, and where all who join begin: those of
/// other sets lack the founder's data by that, and get a copy.
pub const BASE: Position = Position { term: 1, index: 1 };

/// How long the links may take to end.
const LINKS_END: Duration = Duration::from_secs(2);
/// How long a founder waits until its thread has proposed the configuration.
const CONFIGURING: Duration = Duration::from_secs(5);
/// How long this member's thread may take to answer.
const ANSWERS: Duration = Duration::from_secs(5);
/// How long an answer waits for its reason to be known.
const TELLING: Duration = Duration::from_secs(1);
/// The directory of a witness's log, in the data directory, and how much of what a member lacks it keeps there.
const WITNESS_LOG: &str = "witness";
const WITNESS_LOG_BYTES: u64 = 1 << 30;
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

/// What a data directory says of its membership.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// Which member it is.
    pub member: MemberId,
    /// The set's document, once it belongs to a set of several.
    pub document: Option<SetDocument>,
}

/// How a set begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Founding {
    /// With this directory.
    Here,
    /// With another member's; this one has nothing.
    By(MemberId),
}

fn state_path(directory: &Path) -> PathBuf {
    directory.join("raft.state")
}

fn open_state(os: &Os, directory: &Path) -> Result<StateFile> {
    let entropy = Arc::clone(&os.entropy);
    Ok(StateFile::open(&*os.vfs, &state_path(directory), move || {
        // Zero is nobody.
        MemberId(entropy.next_u64().max(1))
    })?)
}

impl Stored {
    /// Reads it where there is something; writes nothing.
    pub fn find(os: &Os, directory: &Path) -> Result<Option<Self>> {
        let path = state_path(directory);
        let exists = os.vfs.exists(&path).map_err(|source| Error::File { path, source })?;
        if exists { Self::read(os, directory).map(Some) } else { Ok(None) }
    }

    /// Reads it; the directory gets a member's number where it has none.
    pub fn read(os: &Os, directory: &Path) -> Result<Self> {
        let state = open_state(os, directory)?;
        let document = set_file::read(&*os.vfs, directory)?;
        // Without the document the set was never begun here.
        Ok(Self { member: state.state().member, document })
    }
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
    /// Begins a set with this directory, or goes into one that another member has begun. On disk when it
    /// returns.
    ///
    /// # Errors
    /// The document does not name this directory, or the directory is in a set, or has data that the others
    /// do not have.
    pub fn begin(parts: Parts, document: &SetDocument, founding: Founding) -> Result<Arc<Self>> {
        let mut state = open_state(&parts.os, &parts.directory)?;
        let own = state.state().member;
        if document.id_of(own).is_none() {
            return Err(Error::Document(format!("it does not name this directory, {own}")));
        }
        if set_file::read(&*parts.os.vfs, &parts.directory)?.is_some() {
            return Err(Error::Directory("this directory is in a set already".to_owned()));
        }
        let founder = match founding {
            Founding::Here => own,
            Founding::By(other) => other,
        };
        let engine = &parts.engine;
        let last = engine.entries().last.index;
        // A crash may have come between the beginning of the log and the document.
        let was_begun = last == BASE.index && state.state().lineage == founder.0;
        if (last > 0 && !was_begun) || engine.complete().timestamp().0 > 0 {
            return Err(Error::Directory(
                "this directory has data, which the other members would not get: a set of several is begun \
                 with empty directories"
                    .to_owned(),
            ));
        }
        let is_witness = document.is_witness(own);
        if is_witness && founder == own {
            return Err(Error::Document("a witness founds no set".to_owned()));
        }
        let configuration = Configuration::of_voters([founder]);
        if is_witness {
            state.set_name(document.name(), founder.0)?;
            // The engine stays empty.
            witness_journal(engine, SyncMode::Inline)?.begin(BASE, &configuration)?;
        } else if !was_begun {
            state.set_name(document.name(), founder.0)?;
            EngineJournal::<CatalogObserver>::begin(engine, BASE, &configuration)?;
        }
        set_file::write(&*parts.os.vfs, &parts.directory, document)?;
        let membership = Self::run(parts, state, document.clone())?;
        if founder == own
            && let Some(member) = membership.inner.member()
        {
            // It is the only voter: nobody is waited for.
            member.campaign();
        }
        Ok(membership)
    }

    /// Makes a directory with data the beginning of a set of several: at its next start the engine holds commits
    /// back, and the log begins behind the data ([`Membership::start`]). On disk when it returns. `term` is one in
    /// which nobody leads any more.
    ///
    /// # Errors
    /// As [`Membership::begin`], but for the data.
    pub fn prepare(os: &Os, directory: &Path, document: &SetDocument, term: u64) -> Result<()> {
        let mut state = open_state(os, directory)?;
        let own = state.state().member;
        if document.id_of(own).is_none() {
            return Err(Error::Document(format!("it does not name this directory, {own}")));
        }
        if set_file::read(&*os.vfs, directory)?.is_some() {
            return Err(Error::Directory("this directory is in a set already".to_owned()));
        }
        state.set_name(document.name(), own.0)?;
        let term = term.max(state.state().term);
        state.keep(HardState { term, vote: None }, 0)?;
        set_file::write(&*os.vfs, directory, document)
    }

    /// Goes on as the member that the directory is.
    ///
    /// # Errors
    /// The directory is in no set, or what stands in it does not fit together.
    pub fn start(parts: Parts) -> Result<Arc<Self>> {
        let state = open_state(&parts.os, &parts.directory)?;
        let Some(document) = set_file::read(&*parts.os.vfs, &parts.directory)? else {
            return Err(Error::Directory("this directory is in no set".to_owned()));
        };
        let own = state.state().member;
        let is_witness = is_witness(&parts.os, &parts.directory, &document, own)?;
        let begins = !is_witness && parts.engine.entries().last.index == 0;
        if begins {
            // What was removed by hand, all but the files that say who this is, must not begin a second time.
            let has_data = parts.engine.complete().timestamp().0 > 0;
            if state.state().lineage != own.0 || !has_data {
                let text = "the log of this directory has nothing of its set: empty it, and it is filled again";
                return Err(Error::Directory(text.to_owned()));
            }
            // Behind where others begin, so that nobody takes it that he has this data.
            let base = Position { term: state.state().term.max(1), index: BASE.index + 1 };
            let configuration = Configuration::of_voters([own]);
            EngineJournal::<CatalogObserver>::begin(&parts.engine, base, &configuration)?;
        }
        let membership = Self::run(parts, state, document)?;
        if begins && let Some(member) = membership.inner.member() {
            member.campaign();
        }
        Ok(membership)
    }

    fn run(parts: Parts, state: StateFile, document: SetDocument) -> Result<Arc<Self>> {
        let Parts { os, directory, engine, catalog, memory, roles, dialer, tuning, pace_ms } =
            parts;
        let (own, lineage) = (state.state().member, state.state().lineage);
        let others = document.others(own);
        let rank = document.campaign_rank(own);
        let (kinds, is_witness) = (document.kinds(), is_witness(&os, &directory, &document, own)?);
        if !is_witness && left_out::decide(&os, &directory, &document, own)? {
            catalog
                .leave_out_indexes()
                .map_err(|error| Error::Catalog(error.message().to_owned()))?;
        }
        let election_ms = document.election_timeout_ms();
        let admission = Arc::new(AdmitKnown::new(own, lineage, document));
        let links = Arc::new(Links::new(dialer, memory, Arc::clone(&admission) as _, tuning));
        let times_led = TimesLed::default();
        let inbox = links.inbox();
        let notify: Arc<dyn Fn() + Send + Sync> = Arc::new(move || inbox.wake());
        let observer = CatalogObserver::new(&catalog, times_led.clone());
        let syncs = SyncMode::Thread(Arc::clone(&os.spawner), Arc::clone(&notify));
        let mut options = Options::new(own);
        options.is_witness = is_witness;
        if let Some((report_ms, tick_ms)) = pace_ms {
            (options.report_ms, options.tick_ms) = (report_ms, tick_ms);
        }
        if let Some(ticks) = ticks_of(election_ms, options.tick_ms) {
            options.settings.election_ticks = ticks.max(options.settings.heartbeat_ticks * 2);
        }
        options.settings.electable = rank.is_some();
        options.settings.rank = rank.unwrap_or(0);
        let inner = Arc::new(Inner {
            own,
            os: os.clone(),
            directory: directory.clone(),
            engine: engine.clone(),
            catalog,
            is_witness,
            admission,
            links: Arc::downgrade(&links),
            roles,
            times_led,
            member: OnceLock::new(),
            takes_writes: AtomicU64::new(0),
            taking_over: Mutex::default(),
            is_short: AtomicBool::new(false),
            is_behind: AtomicBool::new(false),
            stepping_down: Mutex::default(),
            preferred: Mutex::default(),
            telling: Mutex::default(),
            ends: AtomicBool::new(false),
        });
        links.set_peers(&others)?;
        let arrivals = links.arrivals();
        let watcher = Box::new(Follow(Arc::downgrade(&inner)));
        let start = StartParts {
            os: os.clone(),
            options,
            kinds,
            sender: links.sender(),
            state,
            arrivals,
            watcher,
        };
        let member = if is_witness {
            let journal = witness_journal(&engine, syncs)?;
            if !journal.is_begun() {
                let text = "the log of this witness has nothing of its set: empty the directory, and it begins anew";
                return Err(Error::Directory(text.to_owned()));
            }
            start.member(journal)?
        } else {
            let beside = delay_log::find(&os, &directory, &engine)?;
            let journal = DelayableJournal::open(engine.clone(), observer, syncs, beside)?;
            engine.when_awaited(notify);
            start.member(journal)?
        };
        let _only_once = inner.member.set(member);
        Ok(Arc::new(Self { inner, links }))
    }

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
    /// restart.
    pub fn freeze(&self, until: Option<Duration>) {
        if let Some(member) = self.inner.member() {
            member.freeze(until);
        }
    }

    /// Whether the operator keeps this member from leading. Forgotten by a restart.
    pub fn set_maintenance(&self, is_on: bool) {
        if let Some(member) = self.inner.member() {
            member.set_maintenance(is_on);
        }
    }

    /// Whether this member takes entries of others. Forgotten by a restart. For tests.
    pub fn set_takes_entries(&self, takes: bool) {
        if let Some(member) = self.inner.member() {
            member.set_takes_entries(takes);
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

    /// Follows a decided configuration that could not be followed when it came, on a full disk. Called every few seconds.
    pub fn follow_again(&self) {
        let inner = &*self.inner;
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

/// What a member's thread is started with beside its journal.
struct StartParts<S> {
    os: Os,
    options: Options,
    kinds: replica::Kinds,
    sender: S,
    state: StateFile,
    arrivals: Arc<dyn member::Arrivals>,
    watcher: Box<dyn Watcher>,
}

impl<S: replica::Links + Send + 'static> StartParts<S> {
    fn member<J: Journal + Send + 'static>(self, journal: J) -> Result<Member> {
        let Self { os, options, kinds, sender, state, arrivals, watcher } = self;
        let entropy = Arc::clone(&os.entropy);
        let random = Box::new(move || entropy.next_u64());
        let mut replica = Replica::new(options, journal, sender, state, random)?;
        replica.set_kinds(kinds);
        Ok(Member::start(&os, replica, None, arrivals, watcher)?)
    }
}

/// Whether a directory is a witness's: its set says so, or has removed it and it has a witness's log, with which it stays
/// what it was until it is one of its set again.
fn is_witness(os: &Os, directory: &Path, document: &SetDocument, own: MemberId) -> Result<bool> {
    if document.id_of(own).is_some() {
        return Ok(document.is_witness(own));
    }
    let path = directory.join(WITNESS_LOG);
    os.vfs.exists(&path).map_err(|source| Error::File { path, source })
}

/// The journal of a witness, in a directory of its own beside the engine's file, which stays empty.
fn witness_journal(engine: &Engine, mode: SyncMode) -> Result<WitnessJournal> {
    let most_bytes = witness_log_bytes(engine);
    Ok(WitnessJournal::open(engine.log_beside(WITNESS_LOG)?, mode, most_bytes)?)
}

/// How long the log of a witness may become.
fn witness_log_bytes(engine: &Engine) -> u64 {
    WITNESS_LOG_BYTES.min(engine.options().history.map_or(u64::MAX, |history| history.bytes))
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

/// How many ticks without a word from the leader begin an election, where the document says so.
fn ticks_of(election_ms: Option<u64>, tick_ms: u64) -> Option<usize> {
    usize::try_from(election_ms?.checked_div(tick_ms)?).ok()
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

    /// As [`Inner::follow_configuration`]. What the disk does not take now it may take later.
    fn follow_decided(&self, bytes: &[u8]) {
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
    fn follow_configuration(&self, bytes: &[u8]) -> Result<()> {
        let document = SetDocument::decode(bytes)?;
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
fn is_alone(view: &View, own: MemberId, document: &SetDocument) -> bool {
    let Configuration { voters, outgoing, .. } = &*view.configuration;
    let is_own = |set: &std::collections::BTreeSet<MemberId>| set.len() == 1 && set.contains(&own);
    let others_vote = document.members().iter().any(|listed| listed.votes && listed.member != own);
    others_vote && (is_own(outgoing) || is_own(voters))
}

/// Follows the replica's role and configuration, on the member's thread.
struct Follow(Weak<Inner>);

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
