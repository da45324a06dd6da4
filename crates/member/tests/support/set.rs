//! A set of members in one process.

use member::{Arrival, Arrivals, Member, View, Watcher};
use os::Os;
use parking_lot::{Condvar, Mutex};
use quorum::state::MemberState;
use quorum::{Configuration, Descriptor, Entry, MemberId, Older, Position};
use replica::memory::{MemoryJournal, MemoryPromises};
use replica::{Frame, Journal, Links, LoadedLog, MemberReport, Options, Payload, Replica, Result};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use testkit::Gen;

/// Longer than anything here takes on a machine that works.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// What comes in at one member.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<(VecDeque<Arrival>, bool)>,
    called: Condvar,
    hung_up: Mutex<Vec<MemberId>>,
    hung: Condvar,
    /// Nothing comes in.
    pub(crate) cut: AtomicBool,
}

impl Queue {
    fn put(&self, arrival: Arrival) {
        if !self.cut.load(Ordering::Acquire) {
            self.state.lock().0.push_back(arrival);
            self.called.notify_one();
        }
    }

    pub(crate) fn refused(&self, member: MemberId) {
        self.put(Arrival::PortClosed(member));
    }

    /// A frame of `says` over the link of `link`.
    pub(crate) fn forge(&self, link: MemberId, says: MemberId) {
        let report = MemberReport { from: says, ..MemberReport::default() };
        self.put(Arrival::Frame(link, Frame::Report(report)));
    }

    pub(crate) fn wait_for_hang_up(&self, link: MemberId) -> bool {
        let mut hung_up = self.hung_up.lock();
        while !hung_up.contains(&link) {
            if self.hung.wait_for(&mut hung_up, LONG).timed_out() {
                return false;
            }
        }
        true
    }
}

impl Arrivals for Queue {
    fn take(&self, appends: bool) -> Option<Arrival> {
        let mut state = self.state.lock();
        let is_asked_for = |arrival: &Arrival| match arrival {
            Arrival::Frame(_, frame) => appends || !frame.is_append(),
            _ => true,
        };
        let at = state.0.iter().position(is_asked_for)?;
        state.0.remove(at)
    }

    fn wait(&self, time: Duration) {
        let mut state = self.state.lock();
        if state.0.is_empty() && !state.1 {
            self.called.wait_for(&mut state, time);
        }
        state.1 = false;
    }

    fn wake(&self) {
        self.state.lock().1 = true;
        self.called.notify_one();
    }

    fn hang_up(&self, link: MemberId, _why: &replica::Error) {
        self.hung_up.lock().push(link);
        self.hung.notify_all();
    }
}

struct Wires {
    from: MemberId,
    queues: Vec<Arc<Queue>>,
}

impl Links for Wires {
    fn send(&mut self, to: MemberId, frame: Frame) {
        let own = self.from.0 as usize - 1;
        if !self.queues[own].cut.load(Ordering::Acquire) {
            self.queues[to.0 as usize - 1].put(Arrival::Frame(self.from, frame));
        }
    }
}

/// A journal that the test writes to as well.
struct Shared(Arc<Mutex<MemoryJournal>>);

impl Journal for Shared {
    fn load(&mut self) -> Result<LoadedLog> {
        self.0.lock().load()
    }
    fn describe_open(&mut self, most: u64) -> Option<Descriptor> {
        self.0.lock().describe_open(most)
    }
    fn reset_description(&mut self) {
        self.0.lock().reset_description();
    }
    fn open_bytes(&self) -> u64 {
        self.0.lock().open_bytes()
    }
    fn lead(&mut self) -> Result<()> {
        self.0.lock().lead()
    }
    fn write_entry(&mut self, entry: &Entry, commit: u64) -> Result<()> {
        self.0.lock().write_entry(entry, commit)
    }
    fn append(&mut self, entry: &Entry, payload: &Payload, commit: u64) -> Result<()> {
        self.0.lock().append(entry, payload, commit)
    }
    fn apply_appended(&mut self) -> Result<()> {
        self.0.lock().apply_appended()
    }
    fn cut(&mut self, index: u64) -> Result<()> {
        self.0.lock().cut(index)
    }
    fn discard_open(&mut self) -> Result<()> {
        self.0.lock().discard_open()
    }
    fn older(&self) -> Box<dyn Older> {
        self.0.lock().older()
    }
    fn payload(&self, at: Position) -> Result<Option<Payload>> {
        self.0.lock().payload(at)
    }
    fn begin_sync(&mut self, number: u64) -> Result<()> {
        self.0.lock().begin_sync(number)
    }
    fn synced(&mut self) -> Result<u64> {
        self.0.lock().synced()
    }
    fn committed(&mut self, entries: &[Entry], configuration: &Configuration) -> Result<()> {
        self.0.lock().committed(entries, configuration)
    }
}

type Seen = Arc<Mutex<Vec<View>>>;

struct Note(Seen);

impl Watcher for Note {
    fn changed(&mut self, before: &View, now: &View) {
        assert_ne!(before, now);
        if before.writable && !now.writable {
            // Those who ask must not be faster.
            std::thread::sleep(Duration::from_millis(50));
        }
        self.0.lock().push(now.clone());
    }
}

/// Members 1, 2 and 3, at 0, 1 and 2.
pub(crate) struct Set {
    pub(crate) members: Vec<Member>,
    pub(crate) queues: Vec<Arc<Queue>>,
    pub(crate) journals: Vec<Arc<Mutex<MemoryJournal>>>,
    pub(crate) told: Vec<Seen>,
}

impl Set {
    pub(crate) fn of_three() -> Self {
        let queues: Vec<Arc<Queue>> = (0..3).map(|_| Arc::default()).collect();
        let mut set = Self {
            members: Vec::new(),
            queues: queues.clone(),
            journals: Vec::new(),
            told: Vec::new(),
        };
        let base = Position { term: 1, index: 1 };
        for member in 1..=3 {
            let id = MemberId(member);
            let voters = Configuration::of_voters([1, 2, 3].map(MemberId));
            let journal = Arc::new(Mutex::new(MemoryJournal::new(base, voters)));
            let mut random = Gen::new(member);
            let mut options = Options::new(id);
            options.tick_ms = 10;
            options.report_ms = 50;
            let replica = Replica::new(
                options,
                Shared(Arc::clone(&journal)),
                Wires { from: id, queues: queues.clone() },
                MemoryPromises::new(MemberState::new(id)),
                Box::new(move || random.u64()),
            );
            let arrivals: Arc<dyn Arrivals> = Arc::clone(&queues[member as usize - 1]) as _;
            let told = Seen::default();
            let watcher = Box::new(Note(Arc::clone(&told)));
            let started = Member::start(&Os::real(), replica.unwrap(), None, arrivals, watcher);
            set.members.push(started.unwrap());
            set.journals.push(journal);
            set.told.push(told);
        }
        set
    }

    pub(crate) fn leader(&self) -> usize {
        self.leader_but(None)
    }

    /// Waits until one leads and takes writes that is not `but`.
    pub(crate) fn leader_but(&self, but: Option<usize>) -> usize {
        for _ in 0..3000 {
            let leads = |at: &usize| {
                let view = self.members[*at].view();
                Some(*at) != but && view.writable && view.leads()
            };
            if let Some(leader) = (0..3).find(leads) {
                return leader;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("nobody leads");
    }

    pub(crate) fn commit(&self, leader: usize, byte: u8) {
        self.journals[leader].lock().commit(vec![byte]);
        self.members[leader].wake();
    }

    /// Waits until a member shows just these records.
    pub(crate) fn shows(&self, member: usize, expected: &[u8]) {
        let shown = || -> Vec<u8> {
            self.journals[member].lock().shown().iter().map(|record| record.bytes[0]).collect()
        };
        let shows = |_: &View| shown() == expected;
        assert!(self.members[member].wait_for(LONG, shows), "{:?}", shown());
    }
}
