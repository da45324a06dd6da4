//! All links of this member: made, changed and ended here.
//!
//! Always true:
//! 1. To each member of [`Links::set_peers`] there is one thread that sends, or tries to connect; from each
//!    member that has opened a link, one that reads.
//! 2. Behind [`Links::shutdown`] nothing arrives and nothing is sent.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bson::spec::BinarySubtype;
use bson::{Binary, RawDocument, doc};
use dispatch::{AcceptedLink, ConnectionInfo, HandedOver, LinkAcceptor};
use errors::{Code, Error};
use limits::Account;
use os::sync::{Condvar, Mutex, RwLock};
use quorum::MemberId;
use replica::{FRAME_VERSION, Frame};

use crate::address::HostAndPort;
use crate::dialer::Dialer;
use crate::hello::{LinkHello, MAX_SET_OF_REFUSAL, SET_OF_REFUSAL};
use crate::identity::{Admission, LinkRefusal};
use crate::inbox::{Arrival, Inbox, Received};
use crate::incoming::Incoming;
use crate::peer::{LinkContext, Peer};
use crate::tuning::Tuning;

/// Whether frames go out to a member, and come from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkState {
    /// There is a connection to it.
    pub sends: bool,
    /// It has a connection to this member.
    pub receives: bool,
}

/// The links; ended when this is dropped.
pub struct Links(Arc<Shared>);

struct Shared {
    context: LinkContext,
    peers: RwLock<Peers>,
    incoming: Incoming,
    /// Threads that run.
    threads: Mutex<usize>,
    ends: Condvar,
}

#[derive(Default)]
struct Peers {
    all: BTreeMap<MemberId, Arc<Peer>>,
    /// Connections that were made to members: the next one's number is above.
    connections: BTreeMap<MemberId, u64>,
    ended: bool,
}

impl Links {
    /// No links yet: [`Links::set_peers`] says to whom. What clients and members hold is charged to `memory`.
    pub fn new(
        dialer: Dialer,
        memory: Arc<Account>,
        admission: Arc<dyn Admission>,
        tuning: Tuning,
    ) -> Self {
        let inbox = Arc::new(Inbox::new(tuning.share_bytes, tuning.inbox_bytes));
        let start = dialer.os.entropy.next_u64();
        Self(Arc::new(Shared {
            context: LinkContext { dialer, tuning, admission, inbox, memory, start },
            peers: RwLock::default(),
            incoming: Incoming::default(),
            threads: Mutex::new(0),
            ends: Condvar::new(),
        }))
    }

    /// What the replica sends by.
    pub fn sender(&self) -> Sender {
        Sender(Arc::clone(&self.0))
    }

    /// Where what comes is found.
    pub fn inbox(&self) -> Arc<Inbox> {
        Arc::clone(&self.0.context.inbox)
    }

    /// What has come, as a member's thread takes it.
    pub fn arrivals(&self) -> Arc<dyn member::Arrivals> {
        Arc::new(Arrivals(Arc::clone(&self.0)))
    }

    /// What lets other members' links in.
    pub fn acceptor(&self) -> Arc<dyn LinkAcceptor> {
        Arc::new(Acceptor(Arc::clone(&self.0)))
    }

    /// These are the other members from now on, and there they listen. Links of others are closed; of one
    /// that listens elsewhere now, the link to it is made anew.
    ///
    /// # Errors
    /// Where the machine gives no descriptor or no thread; of the members before that one the links are as
    /// they should be, and it can be called again.
    pub fn set_peers(&self, members: &[(MemberId, HostAndPort)]) -> io::Result<()> {
        let shared = &self.0;
        let stays = |member: MemberId| members.iter().any(|(other, _)| *other == member);
        let mut peers = shared.peers.write();
        if peers.ended {
            return Ok(());
        }
        let Peers { all, connections, .. } = &mut *peers;
        all.retain(|member, peer| {
            let same = members.iter().any(|(other, at)| other == member && *at == peer.address);
            if !same {
                connections.insert(*member, peer.connections());
                peer.end();
            }
            same
        });
        // The number of a member that comes back later must still be above those before.
        for (member, address) in members {
            if all.contains_key(member) {
                continue;
            }
            let before = connections.get(member).copied().unwrap_or(0);
            let peer = Arc::new(Peer::new(*member, address.clone(), before, &shared.context)?);
            let running = Arc::clone(&peer);
            shared.spawn(&format!("link-to-{:.4}", member.to_string()), move |shared| {
                running.run(&shared.context);
            })?;
            all.insert(*member, peer);
        }
        drop(peers);
        shared.incoming.retain(stays, &shared.context);
        Ok(())
    }

    /// The members and how it is with them.
    pub fn states(&self) -> BTreeMap<MemberId, LinkState> {
        let peers = self.0.peers.read();
        let state = |peer: &Peer| LinkState {
            sends: peer.is_up(),
            receives: self.0.incoming.is_open(peer.member),
        };
        peers.all.iter().map(|(member, peer)| (*member, state(peer))).collect()
    }

    /// Ends everything and waits for the threads; whether all ended within that time. Those that did not (the
    /// system's resolver cannot be interrupted) touch nothing any more.
    pub fn shutdown(&self, time: Duration) -> bool {
        let shared = &self.0;
        let mut peers = shared.peers.write();
        peers.ended = true;
        for peer in std::mem::take(&mut peers.all).into_values() {
            peer.end();
        }
        drop(peers);
        shared.incoming.end();
        shared.context.inbox.close();
        let clock = &shared.context.dialer.os.clock;
        let until = clock.monotonic().saturating_add(time);
        let mut threads = shared.threads.lock();
        while *threads > 0 {
            let left = until.saturating_sub(clock.monotonic());
            if left.is_zero() {
                tracing::warn!(target: "REPL", threads = *threads, "Links did not end in time");
                return false;
            }
            shared.ends.wait_for(&mut threads, left);
        }
        true
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        self.shutdown(Duration::from_secs(2));
    }
}

impl std::fmt::Debug for Links {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Links").field("states", &self.states()).finish()
    }
}

/// Counts a thread down when it ends, whatever ends it.
struct ThreadCountGuard(Arc<Shared>);

impl Drop for ThreadCountGuard {
    fn drop(&mut self) {
        *self.0.threads.lock() -= 1;
        self.0.ends.notify_all();
    }
}

impl Shared {
    fn spawn(
        self: &Arc<Self>,
        name: &str,
        work: impl FnOnce(&Arc<Self>) + Send + 'static,
    ) -> io::Result<()> {
        *self.threads.lock() += 1;
        let counted = ThreadCountGuard(Arc::clone(self));
        let job = Box::new(move || work(&counted.0));
        // Its end is told by what it counts.
        self.context.dialer.os.spawner.spawn(name, job).map(drop)
    }

    fn send(&self, to: MemberId, frame: Frame) {
        let peers = self.peers.read();
        let taken = peers.all.get(&to).is_some_and(|peer| peer.push(frame));
        drop(peers);
        if !taken {
            self.context.inbox.report_lost(to);
        }
    }

    /// Takes a connection over whose hello was answered.
    fn take(self: &Arc<Self>, hello: &LinkHello, link: HandedOver) -> io::Result<()> {
        let Some(reading) = self.incoming.begin(hello, link, &self.context)? else {
            return Ok(());
        };
        let member = hello.from;
        let spawned = self.spawn(&format!("link-from-{:.4}", member.to_string()), move |shared| {
            shared.incoming.run(reading, &shared.context);
        });
        if let Err(error) = spawned {
            self.incoming.close(member, &self.context);
            return Err(error);
        }
        if let Some(peer) = self.peers.read().all.get(&member) {
            peer.retry_now();
        }
        Ok(())
    }
}

/// What the replica sends by.
#[derive(Clone)]
pub struct Sender(Arc<Shared>);

impl replica::Links for Sender {
    fn send(&mut self, to: MemberId, frame: Frame) {
        self.0.send(to, frame);
    }
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sender")
    }
}

/// What has come.
struct Arrivals(Arc<Shared>);

impl member::Arrivals for Arrivals {
    fn take(&self, appends: bool) -> Option<member::Arrival> {
        loop {
            return Some(match self.0.context.inbox.take(appends)? {
                Arrival::Frame(received) => {
                    let Received { from, frame, .. } = *received;
                    member::Arrival::Frame(from, frame)
                }
                Arrival::Lost(member) => member::Arrival::Lost(member),
                Arrival::PortClosed(member) => member::Arrival::PortClosed(member),
                Arrival::Arriving(member) => member::Arrival::Arriving(member),
                // What it sends goes out by itself.
                Arrival::Up(_) => continue,
            });
        }
    }

    fn wait(&self, time: Duration) {
        self.0.context.inbox.wait(time);
    }

    fn wake(&self) {
        self.0.context.inbox.wake();
    }

    fn hang_up(&self, link: MemberId, why: &replica::Error) {
        self.0.incoming.hang_up(link, &why.to_string(), &self.0.context);
    }
}

/// What lets links in.
struct Acceptor(Arc<Shared>);

impl Acceptor {
    fn judge(&self, hello: &LinkHello) -> Result<(), LinkRefusal> {
        if self.0.peers.read().ended {
            return Err("this server is shutting down".to_owned().into());
        }
        self.0.context.admission.admit(hello)?;
        if self.0.incoming.is_outdated(hello) {
            return Err("a newer connection of that member is there".to_owned().into());
        }
        Ok(())
    }
}

impl LinkAcceptor for Acceptor {
    fn accept(&self, hello: &RawDocument, peer: &ConnectionInfo) -> errors::Result<AcceptedLink> {
        let refused = |of: u64, LinkRefusal { cause, document }: LinkRefusal| {
            if self.0.incoming.refused(of, &cause) {
                tracing::warn!(target: "REPL", remote = peer.remote, cause, "A link is refused");
            }
            let text = format!("the link is refused: {cause}");
            let error = Error::new(Code::INVALID_REPLICA_SET_CONFIG, text);
            Err(match document.filter(|bytes| bytes.len() <= MAX_SET_OF_REFUSAL) {
                Some(bytes) => error.with_extra(
                    doc! { SET_OF_REFUSAL: Binary { subtype: BinarySubtype::Generic, bytes } },
                ),
                None => error,
            })
        };
        let hello = match LinkHello::decode(hello) {
            Ok(hello) => hello,
            Err(error) => return refused(0, error.to_string().into()),
        };
        if let Err(cause) = self.judge(&hello) {
            return refused(hello.from.0, cause);
        }
        let identity = self.0.context.admission.identity();
        let answer = LinkHello {
            set: identity.set,
            set_id: identity.set_id,
            from: identity.member,
            to: hello.from,
            lineage: identity.lineage,
            ..hello
        };
        let shared = Arc::clone(&self.0);
        let take = Box::new(move |link: HandedOver| {
            if let Err(error) = shared.take(&hello, link) {
                tracing::error!(target: "REPL", member = %hello.from, %error,
                    "A member's link cannot be taken over");
            }
        });
        Ok(AcceptedLink { answer: answer.encode(), frames: FRAME_VERSION.into(), take })
    }
}
