//! How a member begins: with an empty directory, with one that has data, or where it was.
//!
//! Always true: `raft.state` is there before anything of the set is, and the set's document on disk before the
//! replica runs, so that a start after a crash goes on where this one was.

use super::follow::Follow;
use super::{BASE, Inner, Membership, Parts};
use crate::admission::AdmitKnown;
use crate::catalog_observer::{CatalogObserver, TimesLed};
use crate::error::{Error, Result};
use crate::set_document::SetDocument;
use crate::{delay_log, left_out, set_file};
use engine::Engine;
use links::Links;
use member::{Member, Watcher};
use os::Os;
use parking_lot::Mutex;
use quorum::{Configuration, HardState, MemberId, Position};
use replica::{
    DelayableJournal, EngineJournal, Journal, Options, Promises, Replica, StateFile, SyncMode,
    WitnessJournal,
};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};

/// The directory of a witness's log, in the data directory, and how much of what a member lacks it keeps there.
const WITNESS_LOG: &str = "witness";
const WITNESS_LOG_BYTES: u64 = 1 << 30;

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

pub(super) fn open_state(os: &Os, directory: &Path) -> Result<StateFile> {
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
            following: Mutex::default(),
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
pub(super) fn witness_log_bytes(engine: &Engine) -> u64 {
    WITNESS_LOG_BYTES.min(engine.options().history.map_or(u64::MAX, |history| history.bytes))
}

/// How many ticks without a word from the leader begin an election, where the document says so.
fn ticks_of(election_ms: Option<u64>, tick_ms: u64) -> Option<usize> {
    usize::try_from(election_ms?.checked_div(tick_ms)?).ok()
}
