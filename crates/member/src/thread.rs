//! The thread of a member: what has come, what is asked, what is due, and what of it others see.
//!
//! Always true: whatever ends the thread, a panic too, the last view says why the member has stopped.

use crate::answers::{Refusal, ReplySender};
use crate::view::{ConfigurationDocument, View, is_back};
use crate::{Arrival, MemberRequest, Shared, Watcher};
use os::Os;
use quorum::{MemberId, Position, ReadId};
use replica::{Event, Journal, Links, Promises, Replica};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long the thread waits where nothing calls it: half a tick of consensus.
const PAUSE: Duration = Duration::from_millis(25);
/// Arrivals between two looks at the time.
const ARRIVALS_A_ROUND: usize = 64;
/// How long a member that has started shows nothing where nobody tells it what is decided.
const WAITS_FOR_A_LEADER_MS: u64 = 10_000;
/// Questions for read points that are kept; beyond it the oldest ones are taken for lost.
const MAX_READS: usize = 4096;

pub(crate) struct MemberThread<J, L, P> {
    os: Os,
    replica: Replica<J, L, P>,
    shared: Arc<Shared>,
    watcher: Box<dyn Watcher>,
    view: Arc<View>,
    /// The last entry when it started, and when that was.
    started_with: Position,
    since_ms: Option<u64>,
    document: Option<ConfigurationDocument>,
    /// Read-index requests without an answer, by id.
    pending_reads: BTreeMap<ReadId, ReplySender<u64>>,
    /// Read points that are known and not applied yet.
    waiting_for_apply: Vec<(u64, ReplySender<u64>)>,
    /// To whom it hands over, and who wait for it.
    handing_over: Option<(MemberId, Vec<ReplySender<()>>)>,
    /// Who is answered when what this round has changed is told.
    asked_to_tell: Vec<ReplySender<()>>,
}

impl<J: Journal, L: Links, P: Promises> MemberThread<J, L, P> {
    pub(crate) fn new(
        os: &Os,
        replica: Replica<J, L, P>,
        shared: Arc<Shared>,
        watcher: Box<dyn Watcher>,
    ) -> Self {
        let view = shared.published.newest();
        let document = view.document.clone();
        Self {
            os: os.clone(),
            replica,
            shared,
            watcher,
            started_with: view.last,
            since_ms: None,
            view,
            document,
            pending_reads: BTreeMap::new(),
            waiting_for_apply: Vec::new(),
            handing_over: None,
            asked_to_tell: Vec::new(),
        }
    }

    pub(crate) fn run(mut self) {
        while !self.shared.stops.load(Ordering::Acquire) {
            let mut worked = self.take_arrivals();
            worked |= self.take_requests();
            let now = self.os.clock.monotonic();
            // An error stops the replica, which the view says.
            worked |= self.replica.step(now, self.os.clock.wall_ms()).unwrap_or(false);
            self.take_events();
            self.publish(u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
            self.answer();
            if !worked {
                self.shared.arrivals.wait(self.replica.looks_again().min(PAUSE));
            }
        }
    }

    fn take_arrivals(&mut self) -> bool {
        let mut worked = false;
        for _ in 0..ARRIVALS_A_ROUND {
            let Some(arrival) = self.shared.arrivals.take(self.replica.has_room()) else { break };
            worked = true;
            match arrival {
                Arrival::Frame(link, frame) => {
                    let received = self.replica.receive(link, frame);
                    // Where the member itself has stopped, it is not the link that is at fault.
                    if let Err(why) = received
                        && self.replica.stopped().is_none()
                    {
                        self.shared.arrivals.hang_up(link, &why);
                    }
                }
                Arrival::PortClosed(peer) => drop(self.replica.port_closed(peer)),
                Arrival::Lost(peer) => drop(self.replica.link_lost(peer)),
                Arrival::Arriving(peer) => drop(self.replica.frame_arriving(peer)),
            }
        }
        worked
    }

    fn take_requests(&mut self) -> bool {
        let requests = std::mem::take(&mut *self.shared.requests.lock());
        let worked = !requests.is_empty();
        for request in requests {
            match request {
                MemberRequest::Configure { changes, document, answer } => {
                    answer.give(refused(self.replica.propose_configuration(changes, document)));
                }
                MemberRequest::HandOver { to, answer } => self.hand_over(to, answer),
                MemberRequest::ReadPoint(answer) => match refused(self.replica.read_index()) {
                    Ok(read) => {
                        self.pending_reads.insert(read, answer);
                        if self.pending_reads.len() > MAX_READS {
                            self.pending_reads.pop_first();
                        }
                    }
                    Err(refusal) => answer.give(Err(refusal)),
                },
                // Where it cannot, it says so by not becoming what was asked.
                MemberRequest::Campaign => drop(self.replica.campaign_now()),
                MemberRequest::SetPriority { electable, rank } => {
                    self.replica.set_priority(electable, rank);
                }
                MemberRequest::SetKinds(kinds) => self.replica.set_kinds(kinds),
                MemberRequest::SetElectionTimeout { milliseconds } => {
                    self.replica.set_election_timeout(milliseconds);
                }
                MemberRequest::Freeze { until_ms } => self.replica.freeze(until_ms),
                MemberRequest::SetMaintenance(is_on) => self.replica.set_maintenance(is_on),
                MemberRequest::SetTakesEntries(takes) => self.replica.set_takes_entries(takes),
                MemberRequest::Tell(answer) => self.asked_to_tell.push(answer),
                MemberRequest::BeginCopy(answer) => {
                    answer.give(self.replica.begin_copy().ok_or_else(|| {
                        Refusal::Refused("this member needs no copy any more".to_owned())
                    }));
                }
                MemberRequest::EndCopy => self.replica.end_copy(),
            }
        }
        worked
    }

    /// One at a time: another one would end the first, and nobody takes writes meanwhile.
    fn hand_over(&mut self, to: MemberId, answer: ReplySender<()>) {
        match &mut self.handing_over {
            Some((other, waiting)) if *other == to => waiting.push(answer),
            Some((other, _)) => {
                let text = format!("this member hands over to {other}");
                answer.give(Err(Refusal::NotNow(text)));
            }
            None => match refused(self.replica.transfer_to(to)) {
                Ok(()) => self.handing_over = Some((to, vec![answer])),
                Err(refusal) => answer.give(Err(refusal)),
            },
        }
    }

    fn take_events(&mut self) {
        for event in self.replica.take_events() {
            match event {
                // The view has them.
                Event::Role(_) | Event::Writable => {}
                Event::Configured { at, document } => {
                    self.document = Some(ConfigurationDocument { at, bytes: document.into() });
                }
                Event::Read(point) => {
                    if let Some(answer) = self.pending_reads.remove(&point.read) {
                        self.waiting_for_apply.push((point.index, answer));
                    }
                }
            }
        }
    }

    fn publish(&mut self, now_ms: u64) {
        let mut view = self.view.next(&self.replica, now_ms);
        view.document.clone_from(&self.document);
        let since_ms = *self.since_ms.get_or_insert(now_ms);
        let has_waited = now_ms.saturating_sub(since_ms) >= WAITS_FOR_A_LEADER_MS;
        view.is_back |= has_waited || is_back(self.started_with, &view);
        if view == *self.view {
            return;
        }
        let view = Arc::new(view);
        let before = std::mem::replace(&mut self.view, Arc::clone(&view));
        self.shared.published.publish(view);
        if self.view.differs_in_role(&before) {
            self.watcher.changed(&before, &self.view);
        }
    }

    /// Gives the answers that the new view allows.
    fn answer(&mut self) {
        for answer in self.asked_to_tell.drain(..) {
            answer.give(Ok(()));
        }
        let applied = self.view.applied_index;
        let (ready, later) =
            self.waiting_for_apply.drain(..).partition::<Vec<_>, _>(|(index, _)| *index <= applied);
        self.waiting_for_apply = later;
        for (index, answer) in ready {
            answer.give(Ok(index));
        }
        let Some((to, waiting)) = self.handing_over.take() else { return };
        let leads = self.view.leads();
        if leads && self.view.handing_over_to == Some(to) {
            self.handing_over = Some((to, waiting));
            return;
        }
        for answer in waiting {
            answer.give(if leads { Err(Refusal::NotInTime(to)) } else { Ok(()) });
        }
    }
}

fn refused<T>(result: replica::Result<T>) -> Result<T, Refusal> {
    result.map_err(|error| match error {
        replica::Error::Quorum(quorum::Error::NotNow(_)) => Refusal::NotNow(error.to_string()),
        _ => Refusal::Refused(error.to_string()),
    })
}

impl<J, L, P> Drop for MemberThread<J, L, P> {
    fn drop(&mut self) {
        if self.view.stopped.is_none() {
            let why = if std::thread::panicking() { "its thread panicked" } else { "it was ended" };
            let stopped = Some(why.to_owned());
            let view = View { writable: false, stopped, ..(*self.view).clone() };
            let before = std::mem::replace(&mut self.view, Arc::new(view));
            self.shared.published.publish(Arc::clone(&self.view));
            self.watcher.changed(&before, &self.view);
        }
        // Who asks from now on is told at once, and who waits is told by this.
        self.shared.stops.store(true, Ordering::Release);
        self.shared.requests.lock().clear();
    }
}
