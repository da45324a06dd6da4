//! A member of a set at work: a [`replica::Replica`] on a thread of its own.
//!
//! ```text
//!  links ─ frames ─► Arrivals ─► thread ─► Replica ─► journal, links
//!  commands ─ asks ──────────────►│  └─ View ─► whoever looks;  Watcher: role, configuration
//! ```
//!
//! The thread alone touches the replica. Others look at the newest [`View`], which is a plain value, and
//! ask by [`Member`]'s methods, whose answers they wait for as long as they like.
//!
//! Always true:
//! 1. The thread waits for nothing but [`Arrivals::wait`]: nobody who asks or looks can hold it up.
//! 2. Every ask is answered: done, refused, or [`Refusal::Ended`].
//! 3. A view is of one moment; views are published in their order, and the [`Watcher`] is told of each
//!    change of role or configuration before the thread goes on.

mod answers;
mod successor;
mod thread;
mod view;

pub use answers::{Pending, Refusal};
pub use successor::{keeps_up, successor};
pub use view::{ConfigurationDocument, Heard, View};

use crate::answers::ReplySender;
use crate::thread::MemberThread;
use crate::view::Published;
use os::{JoinHandle, Os, Panicked};
use parking_lot::Mutex;
use quorum::{Change, MemberId, Position};
use replica::{Frame, Journal, Kinds, Links, NeedsCopy, Promises, Replica};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What the links bring.
#[derive(Debug)]
pub enum Arrival {
    /// A frame over the link of a member.
    Frame(MemberId, Frame),
    /// The port of that member is closed: its process is gone.
    PortClosed(MemberId),
    /// What was sent to that member is lost, all or in part.
    Lost(MemberId),
    /// A long frame of that member is on its way, and comes on.
    Arriving(MemberId),
}

/// The seam to what receives from the other members, and what wakes the thread.
pub trait Arrivals: Send + Sync {
    /// What has come and was not taken yet, in the order of each link. Without `appends`, frames with which a leader adds
    /// to the log stay where they are, and what came behind them comes first.
    fn take(&self, appends: bool) -> Option<Arrival>;

    /// Returns when something has come beside what was left there, or [`Arrivals::wake`] was called since the last wait ended, or
    /// the time is over.
    fn wait(&self, time: Duration);

    /// There is work: ends a wait, or the next one.
    fn wake(&self);

    /// A frame over that member's link was refused: the link is closed.
    fn hang_up(&self, link: MemberId, why: &replica::Error);
}

/// Who is told of changes, on the member's thread. It must not wait.
pub trait Watcher: Send {
    /// Role, term, leader, configuration, or whether writes are taken: something of these has changed.
    fn changed(&mut self, before: &View, now: &View);
}

/// What is asked of the thread.
enum MemberRequest {
    Configure { changes: Vec<Change>, document: Vec<u8>, answer: ReplySender<Position> },
    HandOver { to: MemberId, answer: ReplySender<()> },
    ReadPoint(ReplySender<u64>),
    Campaign,
    SetPriority { electable: bool, rank: u32 },
    SetKinds(Kinds),
    SetElectionTimeout { milliseconds: u64 },
    Freeze { until_ms: Option<u64> },
    SetMaintenance(bool),
    SetTakesEntries(bool),
    Tell(ReplySender<()>),
    BeginCopy(ReplySender<NeedsCopy>),
    EndCopy,
}

struct Shared {
    requests: Mutex<VecDeque<MemberRequest>>,
    arrivals: Arc<dyn Arrivals>,
    published: Published,
    stops: AtomicBool,
}

/// A member at work. Ends its thread when it is dropped.
pub struct Member {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle>>,
}

impl Member {
    /// Starts the thread of a replica. `document` is the configuration that stands with what it has applied.
    ///
    /// # Errors
    /// The machine gives no thread.
    pub fn start<J, L, P>(
        os: &Os,
        replica: Replica<J, L, P>,
        document: Option<ConfigurationDocument>,
        arrivals: Arc<dyn Arrivals>,
        watcher: Box<dyn Watcher>,
    ) -> io::Result<Self>
    where
        J: Journal + Send + 'static,
        L: Links + Send + 'static,
        P: Promises + Send + 'static,
    {
        let shared = Arc::new(Shared {
            requests: Mutex::default(),
            arrivals,
            published: Published::new(View::of(&replica, document)),
            stops: AtomicBool::new(false),
        });
        let work = MemberThread::new(os, replica, Arc::clone(&shared), watcher);
        let thread = os.spawner.spawn("member", Box::new(move || work.run()))?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// What can be seen of it.
    pub fn view(&self) -> Arc<View> {
        self.shared.published.newest()
    }

    /// Waits until the view is as asked, or the time is over; says whether it is.
    pub fn wait_for(&self, time: Duration, is_so: impl FnMut(&View) -> bool) -> bool {
        self.shared.published.wait_for(time, is_so)
    }

    /// Has `call` made once, when the view is another one. It must not wait: it is made on the member's thread. The
    /// caller looks at the view after this and before it relies on being called.
    pub fn watch(&self, call: os::Call) -> os::Watch {
        self.shared.published.watch(call)
    }

    /// Records are open, or something was synced.
    pub fn wake(&self) {
        self.shared.arrivals.wake();
    }

    /// Proposes a configuration: who changes, and the document. Answered with its place once it is
    /// proposed; it counts when [`View::document`] shows it or a later one.
    pub fn configure(&self, changes: Vec<Change>, document: Vec<u8>) -> Pending<Position> {
        self.ask(|answer| MemberRequest::Configure { changes, document, answer })
    }

    /// Hands over to that member. Answered when this member leads no more, or goes on leading; at once where it hands over
    /// to another one.
    pub fn hand_over(&self, to: MemberId) -> Pending<()> {
        self.ask(|answer| MemberRequest::HandOver { to, answer })
    }

    /// Asks the leader what is decided now. Answered with the index, once it is applied here. A question
    /// that is lost is never answered: who asks gives up and asks again.
    pub fn read_point(&self) -> Pending<u64> {
        self.ask(MemberRequest::ReadPoint)
    }

    /// Campaigns at once, where the others would vote for it.
    pub fn campaign(&self) {
        self.tell(MemberRequest::Campaign);
    }

    /// Whether and how early this member campaigns.
    pub fn set_priority(&self, electable: bool, rank: u32) {
        self.tell(MemberRequest::SetPriority { electable, rank });
    }

    /// What the members are.
    pub fn set_kinds(&self, kinds: Kinds) {
        self.tell(MemberRequest::SetKinds(kinds));
    }

    /// After how many milliseconds without a word from the leader an election begins.
    pub fn set_election_timeout(&self, milliseconds: u64) {
        self.tell(MemberRequest::SetElectionTimeout { milliseconds });
    }

    /// This member does not campaign before that moment of the monotonic clock; `None` ends that.
    pub fn freeze(&self, until: Option<Duration>) {
        let milliseconds = |at: Duration| u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
        self.tell(MemberRequest::Freeze { until_ms: until.map(milliseconds) });
    }

    /// Whether the operator keeps this member from leading.
    pub fn set_maintenance(&self, is_on: bool) {
        self.tell(MemberRequest::SetMaintenance(is_on));
    }

    /// Whether it takes entries of others: [`Replica::set_takes_entries`].
    pub fn set_takes_entries(&self, takes: bool) {
        self.tell(MemberRequest::SetTakesEntries(takes));
    }

    /// Answered when what the member is by now is published, and those who watch were told.
    pub fn tell_what_is(&self) -> Pending<()> {
        self.ask(MemberRequest::Tell)
    }

    /// A copy of the leader's data is about to be made: [`Replica::begin_copy`].
    pub fn begin_copy(&self) -> Pending<NeedsCopy> {
        self.ask(MemberRequest::BeginCopy)
    }

    /// The copy is not made: this member goes on as it is.
    pub fn end_copy(&self) {
        self.tell(MemberRequest::EndCopy);
    }

    /// Ends the thread, at the next moment in which it has nothing in hand. What was asked and is not
    /// answered yet gets [`Refusal::Ended`].
    pub fn stop(&self) -> Result<(), Panicked> {
        self.shared.stops.store(true, Ordering::Release);
        self.shared.arrivals.wake();
        let thread = self.thread.lock().take();
        thread.map_or(Ok(()), JoinHandle::join)
    }

    fn ask<T>(&self, request: impl FnOnce(ReplySender<T>) -> MemberRequest) -> Pending<T> {
        let (answer, pending) = answers::pair();
        self.tell(request(answer));
        pending
    }

    fn tell(&self, request: MemberRequest) {
        let mut requests = self.shared.requests.lock();
        // An ask that comes too late goes with its answer, which says so.
        if !self.shared.stops.load(Ordering::Acquire) {
            requests.push_back(request);
            drop(requests);
            self.shared.arrivals.wake();
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _panicked = self.stop();
    }
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Member").field("view", &self.view()).finish_non_exhaustive()
    }
}
