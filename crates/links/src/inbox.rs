//! What the replica's thread waits for: frames of the others, events of the links, and the word of
//! anybody who has work for it.
//!
//! Always true:
//! 1. Of one member frames come in their order, and none of an older connection behind one of a newer; but while no
//!    appends are taken, other frames come before those.
//! 2. Each member's frames take at most a share of memory, all together at most a bound; one frame is always
//!    let in where there is none. Who brings more waits, and reads nothing meanwhile.
//! 3. Events of a link are kept once, however often they are reported: lost, port closed and arriving
//!    until they are taken, up until it is lost.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use limits::Charge;
use os::sync::{Condvar, Mutex};
use quorum::MemberId;
use replica::Frame;

/// Frames of one member at most.
const MAX_FRAMES: usize = 4096;
/// While a frame waits for room, what its sender says behind it is not read: it is told that he goes on, so often, and
/// no more often than that. Then he counts as silent.
const TELL_EVERY: Duration = Duration::from_millis(200);
const MOST_TOLD: u32 = 50;

/// What has arrived.
#[derive(Debug)]
pub enum Arrival {
    /// A frame.
    Frame(Box<Received>),
    /// What was sent to that member is lost, all or in part.
    Lost(MemberId),
    /// That member's port is closed: its process is gone.
    PortClosed(MemberId),
    /// What is sent to that member goes out from now on.
    Up(MemberId),
    /// A long frame of that member is on its way, and comes on.
    Arriving(MemberId),
}

/// A frame from a member.
#[derive(Debug)]
pub struct Received {
    /// Over whose link.
    pub from: MemberId,
    /// What came.
    pub frame: Frame,
    /// Its memory, until this is dropped.
    _memory: Charge,
}

/// One connection by which frames come. Frames of all but a member's newest connection are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionGeneration {
    pub(crate) member: MemberId,
    pub(crate) generation: u64,
}

/// A newer connection of that member is there, or the inbox is closed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Superseded;

#[derive(Default)]
struct State {
    frames: VecDeque<(Received, usize)>,
    bytes: usize,
    shares: BTreeMap<MemberId, Share>,
    link_events: BTreeMap<MemberId, LinkEvents>,
    /// The first so many frames are appends that were left here.
    left: usize,
    generations: u64,
    /// Links that wait for room.
    blocked_senders: usize,
    woken: bool,
    closed: bool,
}

/// What one member has in here.
#[derive(Default)]
struct Share {
    /// Of its newest connection; 0 where it has none.
    generation: u64,
    frames: usize,
    bytes: usize,
}

#[derive(Clone, Copy, Default)]
#[expect(clippy::struct_excessive_bools, reason = "four events, each of which has come or not")]
struct LinkEvents {
    lost: bool,
    port_closed: bool,
    up: bool,
    arriving: bool,
}

impl State {
    /// The next frame that is asked for.
    fn next_frame(&mut self, appends: bool) -> Option<(Received, usize)> {
        if appends {
            self.left = 0;
            return self.frames.pop_front();
        }
        let others = self.frames.iter().skip(self.left);
        let passed = others.take_while(|(received, _)| received.frame.is_append()).count();
        self.left += passed;
        self.frames.remove(self.left)
    }

    fn taken(&mut self, from: MemberId, bytes: usize) {
        self.bytes -= bytes;
        if let Some(share) = self.shares.get_mut(&from) {
            share.frames -= 1;
            share.bytes -= bytes;
        }
    }

    /// Takes out the appends of that member that were left here.
    fn forget_left(&mut self, member: MemberId) -> Vec<Received> {
        let mut forgotten = Vec::new();
        for at in (0..self.left).rev() {
            if self.frames.get(at).is_some_and(|(received, _)| received.from == member)
                && let Some((received, bytes)) = self.frames.remove(at)
            {
                self.taken(member, bytes);
                self.left -= 1;
                forgotten.push(received);
            }
        }
        forgotten
    }
}

/// The inbox.
pub struct Inbox {
    share_bytes: usize,
    total_bytes: usize,
    state: Mutex<State>,
    /// Something has arrived.
    arrived: Condvar,
    /// Frames were taken out, or a connection counts no more.
    room: Condvar,
}

impl Inbox {
    /// An empty one, with bounds for one member and for all together.
    pub(crate) fn new(share_bytes: usize, total_bytes: usize) -> Self {
        let (state, arrived, room) = (Mutex::default(), Condvar::new(), Condvar::new());
        Self { share_bytes, total_bytes, state, arrived, room }
    }

    /// What has arrived and was not taken yet: events first, then frames in their order. Appends stay here where they are
    /// not asked for.
    pub fn take(&self, appends: bool) -> Option<Arrival> {
        let mut state = self.state.lock();
        while let Some(mut entry) = state.link_events.first_entry() {
            let (member, events) = (*entry.key(), entry.get_mut());
            if std::mem::take(&mut events.lost) {
                return Some(Arrival::Lost(member));
            }
            if std::mem::take(&mut events.port_closed) {
                return Some(Arrival::PortClosed(member));
            }
            if std::mem::take(&mut events.arriving) {
                return Some(Arrival::Arriving(member));
            }
            let up = events.up;
            entry.remove();
            if up {
                return Some(Arrival::Up(member));
            }
        }
        let (received, bytes) = state.next_frame(appends)?;
        state.taken(received.from, bytes);
        let is_awaited = state.blocked_senders > 0;
        drop(state);
        if is_awaited {
            self.room.notify_all();
        }
        Some(Arrival::Frame(Box::new(received)))
    }

    /// Returns when something has arrived beside appends that were left here, when [`Inbox::wake`] was called since the last wait ended, or when
    /// the time is over.
    pub fn wait(&self, time: Duration) {
        let mut state = self.state.lock();
        let has_frames = state.frames.len() > state.left;
        if !has_frames && state.link_events.is_empty() && !state.woken {
            self.arrived.wait_for(&mut state, time);
        }
        state.woken = false;
    }

    /// Ends the wait of [`Inbox::wait`], or the next one: there is work. For committers, and for syncs that
    /// are done.
    pub fn wake(&self) {
        let mut state = self.state.lock();
        let was_woken = std::mem::replace(&mut state.woken, true);
        drop(state);
        if !was_woken {
            self.arrived.notify_one();
        }
    }

    /// Whether nothing more will arrive.
    pub fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Bytes of frames in here.
    pub fn bytes(&self) -> usize {
        self.state.lock().bytes
    }

    /// A new connection of that member: older ones count no more.
    pub(crate) fn begin(&self, member: MemberId) -> ConnectionGeneration {
        let mut state = self.state.lock();
        state.generations += 1;
        let generation = state.generations;
        state.shares.entry(member).or_default().generation = generation;
        // Frames of the new connection would come before them. Who sent them takes what he sent by the older for lost.
        let dropped = state.forget_left(member);
        drop(state);
        drop(dropped);
        self.room.notify_all();
        ConnectionGeneration { member, generation }
    }

    /// No connection of that member counts any more.
    pub(crate) fn end(&self, member: MemberId) {
        let mut state = self.state.lock();
        if let Some(share) = state.shares.get_mut(&member) {
            share.generation = 0;
        }
        state.shares.retain(|_, share| share.generation != 0 || share.frames > 0);
        drop(state);
        self.room.notify_all();
    }

    /// Puts a frame in; waits while there is no room for it.
    pub(crate) fn put(
        &self,
        connection: ConnectionGeneration,
        frame: Frame,
        bytes: usize,
        memory: Charge,
    ) -> Result<(), Superseded> {
        let mut state = self.state.lock();
        let mut told = 0;
        loop {
            let share = state.shares.get(&connection.member).ok_or(Superseded)?;
            if state.closed || share.generation != connection.generation {
                return Err(Superseded);
            }
            let is_only_frame = share.frames == 0;
            let in_share = share.bytes + bytes <= self.share_bytes && share.frames < MAX_FRAMES;
            let in_total = state.bytes == 0 || state.bytes + bytes <= self.total_bytes;
            if in_total && (is_only_frame || in_share) {
                break;
            }
            state.blocked_senders += 1;
            let timed_out = self.room.wait_for(&mut state, TELL_EVERY).timed_out();
            state.blocked_senders -= 1;
            if timed_out && told < MOST_TOLD {
                told += 1;
                state.link_events.entry(connection.member).or_default().arriving = true;
                self.arrived.notify_one();
            }
        }
        state.bytes += bytes;
        if let Some(share) = state.shares.get_mut(&connection.member) {
            share.frames += 1;
            share.bytes += bytes;
        }
        let was_empty = state.frames.len() <= state.left;
        let received = Received { from: connection.member, frame, _memory: memory };
        state.frames.push_back((received, bytes));
        drop(state);
        if was_empty {
            self.arrived.notify_one();
        }
        Ok(())
    }

    /// What was sent to that member is lost.
    pub(crate) fn report_lost(&self, member: MemberId) {
        self.tell(member, |events| *events = LinkEvents { lost: true, up: false, ..*events });
    }

    /// That member's port is closed.
    pub(crate) fn report_port_closed(&self, member: MemberId) {
        self.tell(member, |events| {
            *events = LinkEvents { port_closed: true, up: false, ..*events }
        });
    }

    /// What is sent to that member goes out.
    pub(crate) fn report_up(&self, member: MemberId) {
        self.tell(member, |events| events.up = true);
    }

    /// A long frame comes on, by a connection that counts.
    pub(crate) fn report_arriving(&self, connection: ConnectionGeneration) {
        let state = self.state.lock();
        let share = state.shares.get(&connection.member);
        let counts = share.is_some_and(|share| share.generation == connection.generation);
        drop(state);
        if counts {
            self.tell(connection.member, |events| events.arriving = true);
        }
    }

    fn tell(&self, member: MemberId, change: impl FnOnce(&mut LinkEvents)) {
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        change(state.link_events.entry(member).or_default());
        drop(state);
        self.arrived.notify_one();
    }

    /// Nothing more arrives; what is here can still be taken.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.arrived.notify_all();
        self.room.notify_all();
    }
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use limits::{Account, Part};
    use quorum::{Body, Message, Position};
    use replica::MemberReport;

    const MEMBER: MemberId = MemberId(1);

    fn frame(term: u64) -> Frame {
        Frame::Report(MemberReport { from: MEMBER, term, ..MemberReport::default() })
    }

    fn free() -> Charge {
        Charge::uncharged(Part::Links)
    }

    fn take(inbox: &Inbox) -> Vec<String> {
        let told = |arrival| match arrival {
            Arrival::Frame(received) => match &received.frame {
                Frame::Report(report) => format!("{} of {}", report.term, received.from.0),
                Frame::Consensus { .. } => "another".to_owned(),
            },
            Arrival::Lost(member) => format!("{} lost", member.0),
            Arrival::PortClosed(member) => format!("{} refused", member.0),
            Arrival::Up(member) => format!("{} up", member.0),
            Arrival::Arriving(member) => format!("{} arriving", member.0),
        };
        std::iter::from_fn(|| inbox.take(true)).map(told).collect()
    }

    #[test]
    fn nothing_of_an_older_connection_comes_behind_a_newer() {
        let inbox = Inbox::new(100, 1000);
        let older = inbox.begin(MEMBER);
        assert_eq!(inbox.put(older, frame(1), 10, free()), Ok(()));
        let newer = inbox.begin(MEMBER);
        assert_eq!(inbox.put(older, frame(2), 10, free()), Err(Superseded));
        assert_eq!(inbox.put(newer, frame(3), 10, free()), Ok(()));
        inbox.end(MEMBER);
        assert_eq!(inbox.put(newer, frame(4), 10, free()), Err(Superseded));
        assert_eq!(take(&inbox), ["1 of 1", "3 of 1"]);
        assert_eq!(inbox.bytes(), 0);
    }

    fn append(index: u64) -> Frame {
        let at = Position { term: 1, index };
        let body = Body::Append { previous: at, commit: 1, entries: Vec::new() };
        let message = Message { from: MEMBER, to: MemberId(9), term: index, body };
        Frame::Consensus { message, payloads: Vec::new() }
    }

    fn term_of(frame: &Frame) -> u64 {
        match frame {
            Frame::Report(report) => report.term,
            Frame::Consensus { message, .. } => message.term,
        }
    }

    /// Returns once that sender waits for room.
    fn until_it_waits<T>(inbox: &Inbox, sender: &std::thread::ScopedJoinHandle<'_, T>) {
        while inbox.state.lock().blocked_senders == 0 {
            assert!(!sender.is_finished(), "there was room for it");
            std::thread::yield_now();
        }
    }

    /// The term of the next frame. How often a sender that waits is said to be arriving depends on the time that passes.
    fn next_frame(inbox: &Inbox, appends: bool) -> Option<u64> {
        loop {
            match inbox.take(appends)? {
                Arrival::Frame(received) => return Some(term_of(&received.frame)),
                Arrival::Arriving(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn all_frames(inbox: &Inbox, appends: bool) -> Vec<u64> {
        std::iter::from_fn(|| next_frame(inbox, appends)).collect()
    }

    #[test]
    fn appends_that_are_not_asked_for_stay_in_their_order() {
        let inbox = Inbox::new(1000, 1000);
        let (one, two) = (inbox.begin(MEMBER), inbox.begin(MemberId(2)));
        for (index, from) in [(1, one), (2, two), (3, one)] {
            inbox.put(from, append(index), 10, free()).unwrap();
            inbox.put(from, frame(10 + index), 10, free()).unwrap();
        }
        assert_eq!(all_frames(&inbox, false), [11, 12, 13]);
        assert_eq!(inbox.bytes(), 30);
        // What was left does not end the wait.
        inbox.wait(Duration::from_millis(20));
        inbox.put(one, append(4), 10, free()).unwrap();
        inbox.put(one, frame(14), 10, free()).unwrap();
        inbox.wait(Duration::from_mins(10));
        assert_eq!(all_frames(&inbox, false), [14]);
        // By a newer connection they come again.
        let newer = inbox.begin(MEMBER);
        assert_eq!(inbox.bytes(), 10);
        inbox.put(newer, append(5), 10, free()).unwrap();
        assert_eq!(all_frames(&inbox, false), []);
        assert_eq!(all_frames(&inbox, true), [2, 5]);
        assert_eq!(inbox.bytes(), 0);
        inbox.put(two, frame(1), 10, free()).unwrap();
        inbox.wait(Duration::from_mins(10));
    }

    #[test]
    fn of_a_sender_whose_frames_wait_for_room_it_is_told_that_he_goes_on() {
        let inbox = Inbox::new(100, 1000);
        let connection = inbox.begin(MEMBER);
        inbox.put(connection, append(1), 100, free()).unwrap();
        assert!(inbox.take(false).is_none());
        std::thread::scope(|scope| {
            scope.spawn(|| inbox.put(connection, append(2), 100, free()));
            inbox.wait(Duration::from_mins(10));
            assert!(matches!(inbox.take(false), Some(Arrival::Arriving(MEMBER))));
            assert_eq!(next_frame(&inbox, false), None);
            assert_eq!(next_frame(&inbox, true), Some(1));
        });
        assert_eq!(inbox.bytes(), 100);
    }

    #[test]
    fn news_are_kept_once_and_the_newest_counts() {
        let inbox = Inbox::new(100, 1000);
        for _ in 0..1000 {
            inbox.report_lost(MEMBER);
        }
        inbox.report_up(MEMBER);
        inbox.report_up(MemberId(2));
        inbox.report_port_closed(MemberId(2));
        let (older, newer) = (inbox.begin(MEMBER), inbox.begin(MEMBER));
        for connection in [newer, newer, older] {
            inbox.report_arriving(connection);
        }
        assert_eq!(take(&inbox), ["1 lost", "1 arriving", "1 up", "2 refused"]);
        inbox.report_arriving(older);
        assert!(inbox.take(true).is_none(), "by a connection that counts no more");
        inbox.wake();
        inbox.wake();
        inbox.wait(Duration::from_mins(10));
        assert!(inbox.take(true).is_none(), "woken, and nothing has come");
        inbox.wait(Duration::from_millis(1));
        inbox.close();
        inbox.report_lost(MEMBER);
        assert!(inbox.take(true).is_none() && inbox.is_closed());
    }

    #[test]
    fn who_brings_too_much_waits_and_one_frame_is_always_let_in() {
        let inbox = Inbox::new(100, 150);
        let account = Account::new(1 << 20);
        let large = |bytes| account.charge_regardless(Part::Links, bytes);
        let (first, second) = (inbox.begin(MEMBER), inbox.begin(MemberId(2)));
        inbox.put(first, frame(1), 5000, large(5000)).unwrap();
        let put = std::thread::scope(|scope| {
            let other = scope.spawn(|| inbox.put(second, frame(2), 10, free()));
            until_it_waits(&inbox, &other);
            assert_eq!(inbox.bytes(), 5000, "the second waits, though it has nothing here yet");
            assert_eq!(account.usage().of(Part::Links), 5000);
            // The second may put its frame in from here on.
            assert_eq!(next_frame(&inbox, true), Some(1));
            assert_eq!(account.usage().of(Part::Links), 0);
            other.join().unwrap()
        });
        assert_eq!(put, Ok(()));
        inbox.put(first, frame(3), 90, free()).unwrap();
        let end = std::thread::scope(|scope| {
            let other = scope.spawn(|| inbox.put(first, frame(4), 20, free()));
            until_it_waits(&inbox, &other);
            inbox.begin(MEMBER);
            other.join().unwrap()
        });
        assert_eq!(end, Err(Superseded), "a newer connection ends the wait of the older");
        assert_eq!(all_frames(&inbox, true), [2, 3]);
    }
}
