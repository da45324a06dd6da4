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

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use quorum::{
    Body, Change, Configuration, Content, Entry, MemberId, Message, Node, Position, ReadId,
    ReadPoint, Ready, RoleState, Settings, Start, Status,
};

use crate::error::{Error, Result};
use crate::frame::{Frame, MAX_FRAME, MemberReport};
use crate::journal::{HeldBack, Journal, log_bytes};
use crate::links::Links;
use crate::payload::Payload;
use crate::policy::{self, Closing, MAX_ENTRY_BYTES, OpenLoad};
use crate::state_file::Promises;

/// How a member behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Consensus.
    pub settings: Settings,
    /// Milliseconds of a tick.
    pub tick_ms: u64,
    /// Between two reports to the others.
    pub report_ms: u64,
    /// It votes and keeps entries, applies none, and takes no writes.
    pub is_witness: bool,
}

/// What the members are, as the newest configuration says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kinds {
    /// Those that apply nothing.
    pub witnesses: BTreeSet<MemberId>,
    /// Those that show entries so many seconds after their commit.
    pub delays: BTreeMap<MemberId, u32>,
    /// Those that may take writes, and how many priorities are above theirs.
    pub ranks: BTreeMap<MemberId, u32>,
    /// Entries up to this one are sent to nobody; see [`Journal::set_log_begins`].
    pub log_begins: u64,
}

impl Kinds {
    /// Whether that member has no data, or not all of what it has acknowledged: nobody copies it.
    fn lacks_data(&self, member: MemberId) -> bool {
        self.witnesses.contains(&member) || self.delays.contains_key(&member)
    }
}

impl Options {
    /// The design's: ticks of 50 ms, a report every two seconds.
    pub fn new(id: MemberId) -> Self {
        Self { settings: Settings::new(id), tick_ms: 50, report_ms: 2000, is_witness: false }
    }
}

/// What the layers above must hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Another role, leader or term.
    Role(RoleState),
    /// This member leads, and what the leaders before it had decided is applied: it takes writes.
    Writable,
    /// A read may begin.
    Read(ReadPoint),
    /// A configuration is decided, and applied.
    Configured {
        /// Its entry.
        at: Position,
        /// As the layers above wrote it.
        document: Vec<u8>,
    },
}

/// A member that lacks entries which its leader does not have any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeedsCopy {
    /// Who leads, and said so.
    pub leader: MemberId,
    /// The place behind which the leader's log begins.
    pub log_begins: Position,
}

/// Payloads in one frame: what a frame holds, less room for the message.
const MAX_PAYLOADS: u64 = (MAX_FRAME as u64) - (8 << 20);
/// Entries that one step proposes at most, so that frames are looked at between.
const ENTRIES_A_STEP: usize = 16;

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

    /// Proposes a configuration; [`quorum::Node::propose_configuration`] says when that can be.
    pub fn propose_configuration(
        &mut self,
        changes: Vec<Change>,
        document: Vec<u8>,
    ) -> Result<Position> {
        let at = self.node.propose_configuration(changes, document)?;
        self.guarded(Self::work)?;
        Ok(at)
    }

    /// Hands over to that member.
    pub fn transfer_to(&mut self, member: MemberId) -> Result<()> {
        self.node.transfer_to(member)?;
        self.guarded(Self::work)
    }

    /// Campaigns at once, where the others would vote for it.
    pub fn campaign_now(&mut self) -> Result<()> {
        self.node.campaign_now()?;
        self.guarded(Self::work)
    }

    /// Asks from where on a read is up to date; an [`Event::Read`] answers.
    pub fn read_index(&mut self) -> Result<ReadId> {
        let read = self.node.read_index()?;
        self.guarded(Self::work)?;
        Ok(read)
    }

    /// Whether and how early this member campaigns.
    pub fn set_priority(&mut self, electable: bool, rank: u32) {
        self.priority = (electable, rank);
        self.apply_priority();
    }

    /// What the members are.
    pub fn set_kinds(&mut self, kinds: Kinds) {
        self.journal.set_log_begins(kinds.log_begins);
        self.journal.set_delay(kinds.delays.get(&self.id).copied().unwrap_or(0));
        self.kinds = kinds;
    }

    /// Whether this member takes entries of others. Where it does not, they are as good as lost, and come again; it goes
    /// on voting, and answering its leader. For tests.
    pub fn set_takes_entries(&mut self, takes: bool) {
        self.takes_entries = takes;
    }

    /// How long no word from the leader comes before an election, in milliseconds; heartbeats go with it.
    pub fn set_election_timeout(&mut self, election_ms: u64) {
        self.tick_ms = policy::tick_ms(election_ms, self.election_ticks, self.least_election_ms);
        self.node.set_hand_over_ticks(policy::hand_over_ticks(self.tick_ms, self.election_ticks));
    }

    /// This member does not campaign before that time, by the clock of [`Replica::step`]; `None` ends that.
    pub fn freeze(&mut self, until_ms: Option<u64>) {
        self.ineligibility.frozen_until_ms = until_ms;
        self.apply_priority();
    }

    /// Whether the operator keeps this member from leading. The others are told.
    pub fn set_maintenance(&mut self, is_on: bool) {
        self.ineligibility.in_maintenance = is_on;
        self.apply_priority();
    }

    fn apply_priority(&mut self) {
        let (electable, rank) = self.priority;
        self.node.set_priority(electable && self.ineligibility == Ineligibility::default(), rank);
        // The others are told at once: a leader may be looking for who takes over.
        self.reported_ms = None;
    }

    /// A copy of the leader's data and log is about to be made, which takes the place of this member's at its next
    /// start. Until then it acknowledges nothing that the copy might lack: it takes no entries, and never leads. It
    /// votes. Returns who leads; `None` where no copy is needed any more.
    ///
    /// Whatever is decided and this member had a part in is in the log of that leader now, and stays there, also
    /// where it leads no more: so the copy may be made at any time from here on.
    pub fn begin_copy(&mut self) -> Option<NeedsCopy> {
        let now = self.node.role_state();
        let needed = self.needs_copy.filter(|needed| now.leader == Some(needed.leader))?;
        self.ineligibility.copying = true;
        self.apply_priority();
        Some(needed)
    }

    /// The copy is not made: this member goes on as it is.
    pub fn end_copy(&mut self) {
        self.ineligibility.copying = false;
        self.needs_copy = None;
        self.apply_priority();
    }

    /// Whether clients' records may come into the journal: this member leads, has applied what the
    /// leaders before it decided, and is not handing over.
    pub fn is_writable(&self) -> bool {
        self.writable && self.stopped.is_none() && self.node.handing_over_to().is_none()
    }

    /// What happened since it was asked last.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Whether this member lacks what its leader's log has no more.
    pub fn needs_copy(&self) -> Option<NeedsCopy> {
        self.needs_copy
    }

    /// What this member has and does not show yet.
    pub fn held_back(&self) -> Option<HeldBack> {
        self.journal.held_back()
    }

    /// What the others last said of themselves.
    pub fn reports(&self) -> &BTreeMap<MemberId, MemberReport> {
        &self.reports
    }

    /// Grows whenever [`Replica::reports`] says something else.
    pub fn reports_version(&self) -> u64 {
        self.reports_version
    }

    /// The state of consensus.
    pub fn status(&self) -> Status {
        self.node.status()
    }

    /// Who the members are.
    pub fn configuration(&self) -> &Arc<Configuration> {
        self.node.configuration()
    }

    /// Whether a witness has let go of what a member with data lacks, because its log was as long as it may be.
    pub fn has_given_up(&self) -> bool {
        self.journal.has_given_up()
    }

    /// Why this member has stopped.
    pub fn stopped(&self) -> Option<&str> {
        self.stopped.as_deref()
    }

    /// The journal.
    pub fn journal(&mut self) -> &mut J {
        &mut self.journal
    }

    /// The links.
    pub fn links(&mut self) -> &mut L {
        &mut self.links
    }

    /// Takes the member apart.
    pub fn into_parts(self) -> (J, L, P) {
        (self.journal, self.links, self.promises)
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

    /// For how long at most there is nothing to be done about open records, unless the journal wakes this member.
    pub fn looks_again(&self) -> Duration {
        self.looks_again.0
    }

    /// What is open, and since when.
    fn open_load(&mut self, now: Duration) -> OpenLoad {
        let bytes = self.journal.open_bytes();
        let is_unawaited = bytes > 0 && !self.journal.is_open_awaited();
        let since = is_unawaited.then(|| *self.unawaited_since.get_or_insert(now));
        self.unawaited_since = since;
        let undecided = self.made.0.saturating_sub(self.applied.index);
        let waiting = self.journal.waiting();
        let (decided, writers) = if undecided > 0 {
            (now, 0)
        } else {
            let journal = &mut self.journal;
            *self
                .decided
                .get_or_insert_with(|| (now, journal.take_released().saturating_add(waiting)))
        };
        OpenLoad {
            bytes,
            unawaited: since.map(|since| now.saturating_sub(since)),
            waiting,
            writers,
            undecided,
            since_made: now.saturating_sub(self.made.1),
            since_decided: now.saturating_sub(decided),
            took: decided.saturating_sub(self.made.1),
        }
    }

    fn propose_what_is_open(&mut self, now: Duration) -> Result<bool> {
        let mut done = false;
        for _ in 0..ENTRIES_A_STEP {
            if !self.writable {
                (self.unawaited_since, self.regathers) = (None, false);
                self.look_again(Duration::MAX, 0);
                break;
            }
            let open = self.open_load(now);
            let closing = policy::closing(&open);
            self.regathers = matches!(closing, Closing::Regather(..));
            if let Closing::Later(after, waiting) | Closing::Regather(after, waiting) = closing {
                // Who came before this may not have woken anybody.
                let asks_sooner = self.look_again(after, waiting);
                done |= asks_sooner && self.journal.open_bytes() > 0;
                break;
            }
            self.unawaited_since = None;
            let Some(records) = self.journal.describe_open(MAX_ENTRY_BYTES) else { break };
            if self.node.propose(records).is_err() {
                // It takes nothing now: too much is under way, or it hands over.
                self.journal.reset_description();
                self.look_again(Duration::MAX, 0);
                break;
            }
            (self.made.1, self.decided) = (now, None);
            self.work()?;
            done = true;
        }
        Ok(done)
    }

    /// What is open is looked at again after so long, or when so many wait for it. Says whether fewer must wait than before.
    fn look_again(&mut self, after: Duration, waiting: u64) -> bool {
        let (_, before) = std::mem::replace(&mut self.looks_again, (after, waiting));
        if waiting != before {
            self.journal.wake_from(waiting);
        }
        waiting < before
    }

    fn report(&mut self, now_ms: u64, wall_ms: i64) -> bool {
        let due = self.reported_ms.is_none_or(|at| now_ms.saturating_sub(at) >= self.report_ms);
        if !due {
            return false;
        }
        self.reported_ms = Some(now_ms);
        let status = self.node.status();
        if self.leads {
            // The others keep what the bound allows: whoever leads next sends from its memory.
            let matched = status.peers.iter().map(|peer| peer.matched);
            self.node.compact_to(policy::forgets(status.applied_index, matched));
        }
        self.forget_what_others_have(&status);
        let members = status.configuration.members();
        let known = self.reports.len();
        self.reports.retain(|member, _| members.contains(member));
        self.reports_version += u64::from(self.reports.len() < known);
        let last = match (self.journal.held_back(), &self.applied.content) {
            (Some(held_back), _) => held_back.shown,
            (None, Content::Records(records)) => (records.last_ts, records.last_time),
            _ => (0, 0),
        };
        let report = MemberReport {
            from: self.id,
            term: status.role_state.term,
            applied: self.applied.index,
            synced: status.synced_index,
            last_ts: last.0,
            last_time: last.1,
            wall_ms,
            stopped: self.stopped.is_some(),
            in_maintenance: self.ineligibility.in_maintenance,
            frozen: self.ineligibility.frozen_until_ms.is_some(),
        };
        for member in members.into_iter().filter(|member| *member != self.id) {
            self.links.send(member, Frame::Report(report));
        }
        true
    }

    /// A witness keeps the entries that a member with data may need of it. What a member has applied and has on disk is
    /// decided, and its own for good. An error is met again by what is written next.
    fn forget_what_others_have(&mut self, status: &Status) {
        if !self.is_witness {
            return;
        }
        let has = |member: MemberId| {
            self.reports.get(&member).map_or(0, |report| report.applied.min(report.synced))
        };
        let members = status.configuration.members().into_iter();
        let with_data = members.filter(|member| !self.kinds.witnesses.contains(member));
        if let Some(index) = with_data.filter(|member| *member != self.id).map(has).min() {
            let _met_again = self.journal.others_have(index);
        }
    }

    /// Whether clients' writes come where this member leads.
    fn may_take_writes(&self) -> bool {
        let is_delayed = self.kinds.delays.contains_key(&self.id);
        !self.is_witness && !is_delayed && self.journal.takes_writes()
    }

    /// A witness that leads, or a delayed member, hands over as soon as a member that may take writes has all entries,
    /// decided or not: what the others lack, that one may be able to give them, and the witness not (seed 671).
    fn hand_over_without_writing(&mut self) -> Result<()> {
        if self.may_take_writes() || !self.leads || self.node.handing_over_to().is_some() {
            return Ok(());
        }
        let status = self.node.status();
        let is_able = |peer: &&quorum::Peer| {
            let report = self.reports.get(&peer.member).copied().unwrap_or_default();
            peer.member != self.id
                && peer.active
                && peer.matched == status.last.index
                // One that votes only until a change is over is handed nothing (seed 792).
                && status.configuration.voters.contains(&peer.member)
                && report.may_lead()
        };
        let able = status.peers.iter().filter(is_able);
        let ranked =
            able.filter_map(|peer| Some((self.kinds.ranks.get(&peer.member)?, peer.member)));
        let Some((_, next)) = ranked.min() else { return Ok(()) };
        // What consensus refuses now is asked for again with the next step.
        if self.node.transfer_to(next).is_err() {
            return Ok(());
        }
        self.work()
    }

    /// Does what consensus says until it says nothing more.
    fn work(&mut self) -> Result<()> {
        while let Some(ready) = self.node.ready() {
            self.take_role(&ready)?;
            self.write(&ready)?;
            self.send(ready.send)?;
            self.apply(&ready.committed)?;
            self.events.extend(ready.reads.into_iter().map(Event::Read));
        }
        Ok(())
    }

    fn take_role(&mut self, ready: &Ready) -> Result<()> {
        let Some(now) = ready.role else { return Ok(()) };
        let leads = now.leader == Some(self.id);
        if self.leads || leads {
            // What was open belongs to no entry, and never will.
            self.journal.discard_open()?;
            self.writable = false;
        }
        self.leads = leads;
        if leads {
            self.led = now.term;
            (self.made, self.decided) = ((0, Duration::ZERO), None);
        }
        self.events.push(Event::Role(now));
        Ok(())
    }

    fn write(&mut self, ready: &Ready) -> Result<()> {
        if let Some(hard) = ready.hard_state {
            self.promises.keep(hard, ready.commit)?;
        }
        if let Some(snapshot) = &ready.snapshot {
            self.journal.begin_anew(snapshot.position, &snapshot.configuration)?;
            self.applied = Entry {
                term: snapshot.position.term,
                index: snapshot.position.index,
                content: Content::Fence,
            };
        }
        if let Some(index) = ready.cut {
            self.journal.cut(index)?;
        }
        for entry in &ready.entries {
            match self.arriving.remove(&entry.position()) {
                Some(payload) => self.journal.append(entry, &payload, ready.commit)?,
                None if entry.term == self.led => {
                    self.journal.write_entry(entry, ready.commit)?;
                    self.made.0 = entry.index;
                }
                None => {
                    let what = format!("the records of {:?} did not come", entry.position());
                    return Err(Error::Journal(what));
                }
            }
        }
        if let Some(number) = ready.persist {
            self.journal.begin_sync(number)?;
            self.syncing.push_back(number);
        }
        Ok(())
    }

    fn send(&mut self, messages: Vec<Message>) -> Result<()> {
        for mut message in messages {
            let to = message.to;
            if let Body::Snapshot(snapshot) = &mut message.body
                && self.kinds.witnesses.contains(&to)
                && !self.tell_what_is_applied(snapshot)
            {
                // It is told once the leader knows what is decided.
                self.node.snapshot_sent(to, false);
                continue;
            }
            let tells_where_the_log_begins = matches!(message.body, Body::Snapshot(_));
            match self.with_payloads(message)? {
                Some(frame) => {
                    self.links.send(to, frame);
                    if tells_where_the_log_begins {
                        // It is told again with the next heartbeat, until the member has what it needs.
                        self.node.snapshot_sent(to, false);
                    }
                }
                // The log has been cut since, or reaches less far back than consensus thinks.
                None => self.node.unreachable(to),
            }
        }
        Ok(())
    }

    /// A witness gets the place up to which this leader has applied, and the configuration that counts there.
    fn tell_what_is_applied(&self, snapshot: &mut quorum::Snapshot) -> bool {
        let Some(at) = self.node.applied_position() else { return false };
        if !self.leads || at.term != self.led || at.index < snapshot.position.index {
            return false;
        }
        snapshot.position = at;
        snapshot.configuration = (**self.node.configuration()).clone();
        snapshot.data = OF_WHAT_IS_APPLIED.to_vec();
        true
    }

    /// The message with what belongs to its entries; as many of those as fit into a frame.
    fn with_payloads(&self, mut message: Message) -> Result<Option<Frame>> {
        let mut payloads = Vec::new();
        if let Body::Append { entries, .. } = &mut message.body {
            let mut bytes = 0;
            for entry in entries.iter() {
                let Some(payload) = self.journal.payload(entry.position())? else { break };
                bytes += payload.len() as u64;
                if bytes > MAX_PAYLOADS && !payloads.is_empty() {
                    break;
                }
                payloads.push(payload);
            }
            if payloads.is_empty() && !entries.is_empty() {
                return Ok(None);
            }
            entries.truncate(payloads.len());
        }
        Ok(Some(Frame::Consensus { message, payloads }))
    }

    fn apply(&mut self, committed: &[Entry]) -> Result<()> {
        let Some(last) = committed.last() else { return Ok(()) };
        self.journal.committed(committed, self.node.configuration())?;
        self.events.extend(committed.iter().filter_map(|entry| match &entry.content {
            Content::Configuration { document, .. } => {
                Some(Event::Configured { at: entry.position(), document: document.clone() })
            }
            _ => None,
        }));
        if let Some(records) =
            committed.iter().rev().find(|entry| matches!(entry.content, Content::Records(_)))
        {
            self.applied.content = records.content.clone();
        }
        (self.applied.term, self.applied.index) = (last.term, last.index);
        self.take_writes_where_due()
    }

    /// A leader takes writes once it has applied what the leaders before it decided.
    fn take_writes_where_due(&mut self) -> Result<()> {
        let leads = self.leads && !self.writable && self.applied.term == self.led;
        if leads && self.may_take_writes() {
            self.journal.lead()?;
            self.writable = true;
            self.events.push(Event::Writable);
        }
        Ok(())
    }
}
