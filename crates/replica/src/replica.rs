//! A member at work: what comes in goes to consensus, what consensus says is written, sent and applied.
//!
//! | From | What happens |
//! |---|---|
//! | time | ticks of consensus; a report to the others |
//! | the journal: synced | consensus is told, and what it kept back is sent |
//! | the journal: open records | of a leader: an entry is proposed |
//! | a frame | its payloads are checked, its message goes to consensus |
//! | consensus: entries | own ones are closed, others appended with their payloads; a sync begins |
//! | consensus: committed | the journal applies them |
//! | the time of the day | a delayed member's journal shows what is old enough |
//! | consensus: another role | open records are void; a new leader waits for its first entry |
//!
//! A leader whose log does not reach back to what a member needs tells it where its log begins (as a snapshot
//! without content). Consensus of the member hears of that only where the member has that place: else it needs a
//! copy of the data, which the layers above get ([`Replica::needs_copy`]). A witness needs none, because it applies
//! nothing: it is told what its leader has applied, and its log begins anew behind that.
//!
//! A witness that leads takes no writes, nor does a delayed member, which shows less than it has. It brings the others up
//! to date and hands over to the first that has all it has.
//!
//! Always true: between two calls consensus has nothing to say, and no payload waits for its entry; but for a
//! witness, consensus never replaces the log by a snapshot.

mod asks;
mod decisions;
mod options;
mod proposing;
mod reporting;

pub use options::{Event, Kinds, NeedsCopy, Options};

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use quorum::{Body, Content, Entry, MemberId, Message, Node, Position, Start};

use crate::error::{Error, Result};
use crate::frame::{Frame, MemberReport};
use crate::journal::{Journal, log_bytes};
use crate::links::Links;
use crate::payload::Payload;
use crate::policy;
use crate::state_file::Promises;

/// One member.
#[expect(clippy::struct_excessive_bools, reason = "independent of each other")]
pub struct Replica<J, L, P> {
    node: Node,
    journal: J,
    links: L,
    promises: P,
    id: MemberId,
    tick_ms: u64,
    /// The ticks of an election timeout, and the time that is the shortest one.
    election_ticks: u64,
    least_election_ms: u64,
    report_ms: u64,
    ticked_ms: Option<u64>,
    reported_ms: Option<u64>,
    /// Syncs that were begun.
    syncing: VecDeque<u64>,
    /// The payloads of the frame at hand.
    arriving: BTreeMap<Position, Payload>,
    /// The term that this member leads or led last.
    led: u64,
    leads: bool,
    writable: bool,
    applied: Entry,
    /// The last entry that this member made itself, and when.
    made: (u64, Duration),
    /// When it was found to be decided, and how many had waited for it or waited for the next.
    decided: Option<(Duration, u64)>,
    /// Since when records are open for which nobody waits.
    unawaited_since: Option<Duration>,
    /// The next entry is about to be made, and tells what is decided.
    regathers: bool,
    /// After how long what is open is looked at again, and how many must wait for it before that.
    looks_again: (Duration, u64),
    reports: BTreeMap<MemberId, MemberReport>,
    /// How often that became another.
    reports_version: u64,
    events: Vec<Event>,
    needs_copy: Option<NeedsCopy>,
    /// Why this member does not campaign, whatever its priority says.
    ineligibility: Ineligibility,
    /// Whether and how early this member campaigns where nothing keeps it from that.
    priority: (bool, u32),
    is_witness: bool,
    kinds: Kinds,
    /// Entries of other members are taken, as always but in tests.
    takes_entries: bool,
    stopped: Option<String>,
}

/// What a snapshot carries whose place is what its leader has applied, and whose configuration counts exactly there: a
/// witness may begin anew with it.
const OF_WHAT_IS_APPLIED: &[u8] = b"applied";

/// Why a member does not campaign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ineligibility {
    /// A copy is being made: nothing is taken from a leader either.
    copying: bool,
    /// Its operator keeps it from leading.
    in_maintenance: bool,
    /// It does not campaign before that time.
    frozen_until_ms: Option<u64>,
}

impl<J: Journal, L: Links, P: Promises> Replica<J, L, P> {
    /// A member over what its disk holds. `random` is asked for election timeouts.
    pub fn new(
        options: Options,
        mut journal: J,
        links: L,
        promises: P,
        random: Box<dyn FnMut() -> u64 + Send>,
    ) -> Result<Self> {
        let Options { settings, tick_ms, report_ms, is_witness } = options;
        let (id, priority) = (settings.id, (settings.electable, settings.rank));
        let election_ticks = settings.election_ticks as u64;
        let least_election_ms = 2 * settings.heartbeat_ticks as u64 * tick_ms;
        if promises.state().member != id {
            return Err(Error::State("it is of another member".to_owned()));
        }
        let opened = journal.load()?;
        let (term, applied) = (opened.base.term, opened.applied);
        let start = Start {
            hard_state: quorum::HardState {
                term: promises.state().term,
                vote: promises.state().vote,
            },
            commit: opened.commit.max(promises.state().commit_hint),
            base: opened.base,
            entries: opened.entries,
            applied,
            configuration: opened.configuration,
        };
        let mut node = Node::new(settings, start, random)?;
        node.set_older(journal.older());
        node.tell_decisions_later();
        node.set_hand_over_ticks(policy::hand_over_ticks(tick_ms, election_ticks));
        Ok(Self {
            node,
            journal,
            links,
            promises,
            id,
            tick_ms: tick_ms.max(1),
            election_ticks,
            least_election_ms,
            report_ms,
            ticked_ms: None,
            reported_ms: None,
            syncing: VecDeque::new(),
            arriving: BTreeMap::new(),
            led: 0,
            leads: false,
            writable: false,
            applied: Entry { term, index: applied, content: Content::Fence },
            made: (0, Duration::ZERO),
            decided: None,
            unawaited_since: None,
            regathers: false,
            looks_again: (Duration::MAX, 0),
            reports: BTreeMap::new(),
            reports_version: 0,
            events: Vec::new(),
            needs_copy: None,
            ineligibility: Ineligibility::default(),
            priority,
            is_witness,
            kinds: Kinds::default(),
            takes_entries: true,
            stopped: None,
        })
    }

    /// All work that is due. Returns whether there was any; where not, it can wait until the next tick,
    /// the next frame or the next sync, or for as long as [`Replica::looks_again`] says. Times are those of a clock that
    /// never goes back, and milliseconds of the day.
    pub fn step(&mut self, now: Duration, wall_ms: i64) -> Result<bool> {
        let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        if self.stopped.is_some() {
            // The others are told.
            self.report(now_ms, wall_ms);
        }
        if self.ineligibility.frozen_until_ms.is_some_and(|until| until <= now_ms) {
            self.ineligibility.frozen_until_ms = None;
            self.apply_priority();
        }
        self.guarded(|replica| {
            replica.journal.check_running()?;
            let mut done = replica.pass_time(now_ms)?;
            done |= replica.look_at_syncs()?;
            done |= replica.propose_what_is_open(now)?;
            // What was proposed just now tells it, too, and so does what is about to be.
            if !replica.regathers {
                replica.node.tell_what_is_decided();
            }
            replica.work()?;
            done |= replica.journal.show_due(wall_ms)?;
            // A member that was delayed may be able to by now.
            replica.take_writes_where_due()?;
            replica.hand_over_without_writing()?;
            done |= replica.report(now_ms, wall_ms);
            Ok(done)
        })
    }

    /// A frame has come over the link of `link`. An error of the frame says that it was not acted on, and
    /// that the link is to be closed.
    pub fn receive(&mut self, link: MemberId, frame: Frame) -> Result<()> {
        if let Some(cause) = &self.stopped {
            return Err(Error::Stopped(cause.clone()));
        }
        let says = frame.from();
        if says != link {
            return Err(Error::WrongLink { from: link, says });
        }
        let (mut message, mut payloads) = match frame {
            Frame::Report(report) => {
                if self.node.configuration().is_member(link) {
                    if self.reports.insert(link, report) != Some(report) {
                        self.reports_version += 1;
                    }
                    if !report.may_lead() && self.node.handing_over_to() == Some(link) {
                        self.node.end_transfer();
                    }
                }
                return Ok(());
            }
            Frame::Consensus { message, payloads } => (message, payloads),
        };
        if self.ineligibility.copying
            && matches!(message.body, Body::Append { .. } | Body::Snapshot(_))
        {
            // An answer would promise what the copy may lack.
            return Ok(());
        }
        if !self.takes_entries && matches!(message.body, Body::Snapshot(_)) {
            return Ok(());
        }
        if let Body::Snapshot(snapshot) = &message.body
            && !self.node.holds(snapshot.position)
            && !(self.is_witness && snapshot.data == OF_WHAT_IS_APPLIED)
        {
            if self.is_witness || self.kinds.lacks_data(link) {
                // It begins with another place, or its leader has nothing that could be copied.
                return Ok(());
            }
            let now = self.node.role_state();
            // What an old leader says, or one that was not heard of yet, is said again where it counts.
            if message.term == now.term && now.leader == Some(link) {
                let log_begins = snapshot.position;
                self.needs_copy = Some(NeedsCopy { leader: link, log_begins });
            }
            return Ok(());
        }
        Frame::check_payloads(&message, &payloads)?;
        if let Body::Append { entries, .. } = &mut message.body {
            if !entries.is_empty() && !self.takes_entries {
                return Ok(());
            }
            if !self.journal.has_room(entries.iter().map(log_bytes).sum()) {
                // They come again. What is decided of those that are here is taken all the same.
                entries.clear();
                payloads.clear();
            }
            for (entry, payload) in entries.iter().zip(&payloads) {
                let (from, at) = (link, entry.position());
                let checked = self.journal.check(&entry.content, payload);
                checked.map_err(|what| Error::Records { from, at, what })?;
            }
            let places = entries.iter().map(Entry::position);
            self.arriving = places.zip(payloads).collect();
        }
        if let Body::Append { previous, .. } = &message.body
            && self.node.holds(*previous)
        {
            // Its leader has what it needs after all.
            self.needs_copy = None;
        }
        if matches!(message.body, Body::CampaignNow)
            && self.ineligibility != Ineligibility::default()
        {
            // Its leader waits for it, and has not heard yet that it cannot.
            self.reported_ms = None;
        }
        let received = self.node.receive(message);
        let worked = self.guarded(Self::work);
        self.arriving.clear();
        received?;
        worked
    }

    /// A long frame of that member is on its way, and comes on. Its heartbeats wait behind it: where it leads, the frame
    /// is one, or nobody could send an entry that takes longer than an election timeout. It says nothing of what is
    /// decided.
    pub fn frame_arriving(&mut self, peer: MemberId) -> Result<()> {
        let now = self.node.role_state();
        if now.leader != Some(peer) || peer == self.id || self.stopped.is_some() {
            return Ok(());
        }
        let body = Body::Heartbeat { commit: 0, read: None };
        self.node.receive(Message { from: peer, to: self.id, term: now.term, body })?;
        self.guarded(Self::work)
    }

    /// Whether entries of another member can be taken now. While they cannot, they are better left where they are: what is
    /// received then is lost, and comes again after a while.
    pub fn has_room(&self) -> bool {
        self.journal.has_room(0)
    }

    /// The port of that member is closed: its process is gone.
    pub fn port_closed(&mut self, peer: MemberId) -> Result<()> {
        self.node.port_closed(peer);
        self.guarded(Self::work)
    }

    /// What was sent to that member is lost, all or in part.
    pub fn link_lost(&mut self, peer: MemberId) -> Result<()> {
        self.node.unreachable(peer);
        self.guarded(Self::work)
    }

    /// After an error of the disk nothing is acknowledged any more.
    fn guarded<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if let Some(cause) = &self.stopped {
            return Err(Error::Stopped(cause.clone()));
        }
        let done = work(self);
        if let Err(error) = &done {
            self.stopped = Some(error.to_string());
            self.writable = false;
            // The others are told at once: a leader may be waiting for it to take over.
            self.reported_ms = None;
        }
        done
    }

    fn pass_time(&mut self, now_ms: u64) -> Result<bool> {
        let since = *self.ticked_ms.get_or_insert(now_ms);
        let elapsed = now_ms.saturating_sub(since);
        let ticks = policy::ticks(elapsed, self.tick_ms);
        if ticks == 0 {
            return Ok(false);
        }
        // The rest of a tick is not lost, the rest of a pause is.
        self.ticked_ms = Some(now_ms - elapsed % self.tick_ms);
        for _ in 0..ticks {
            if self.leads {
                self.node.offer_where_the_log_begins()?;
            }
            self.node.tick();
            self.work()?;
        }
        Ok(true)
    }

    fn look_at_syncs(&mut self) -> Result<bool> {
        if self.syncing.is_empty() {
            return Ok(false);
        }
        let synced = self.journal.synced()?;
        let due = self.syncing.iter().take_while(|number| **number <= synced).count();
        let Some(newest) = self.syncing.drain(..due).next_back() else { return Ok(false) };
        let messages = self.node.persisted(newest);
        self.send(messages)?;
        self.work()?;
        Ok(true)
    }
}
