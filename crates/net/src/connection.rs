//! A connection, who has it, and what of its requests and replies is under way.
//!
//! Who has it is one atomic state ([`Ownership`]):
//!
//! | from           | event                                   | to             |
//! |----------------|-----------------------------------------|----------------|
//! | `Quiet`        | its socket has news                     | `Served`       |
//! | `Served`       | its socket has news                     | `ServedNews`   |
//! | `Served`       | nothing is left to do                   | `Quiet`        |
//! | `ServedNews`   | nothing is left to do                   | `Served` (look at the socket again) |
//! | `Served`(`News`) | its request waits                     | `Waits`        |
//! | `Waits`        | its time has come, what it waits for, or its client left | `Served` |
//! | `Served`(`News`) | its message waits for room            | `WaitsForRoom` |
//! | `WaitsForRoom` | there is room                           | `Served`       |
//! | `Served`(`News`) | it is over                            | `Closed`       |
//!
//! What is always true:
//! 1. At most one thread serves a connection: the one whose event led to `Served`.
//! 2. No news is lost: it is served, or noted for the one who serves, or found by whoever ends a wait.

use crate::channel::Channel;
use crate::envelope::SentAs;
use crate::inbox::Partial;
use crate::service::Service;
use crate::stream::Stream;
use bson::RawDocumentBuf;
use dispatch::{TakeOver, Unfinished};
use limits::Charge;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;
use wire::Compressor;

/// A connection, from being accepted until it is closed.
pub(crate) struct Connection<S: Service> {
    /// In logs and everywhere.
    pub(crate) id: u64,
    /// For the poller.
    pub(crate) token: u64,
    pub(crate) stream: Stream,
    /// The network that it comes from, where it comes by one ([`limits::network_of`]).
    pub(crate) network: Option<u128>,
    pub(crate) state: Arc<S::Connection>,
    pub(crate) owner: Ownership,
    /// Nobody has logged in on it, where clients are asked to, and it is open.
    pub(crate) unauthenticated: AtomicBool,
    /// The client closed its side.
    pub(crate) hung_up: AtomicBool,
    /// What its request waits for, or is about to, may have come ([`crate::shared::Shared::run_again`]).
    pub(crate) woken: AtomicBool,
    /// Locked by whoever serves; by nobody else.
    pub(crate) progress: Mutex<Progress>,
}

/// What is under way between two looks at a connection. A quiet one keeps nothing here.
#[derive(Default)]
pub(crate) struct Progress {
    /// How the bytes of its socket become those of messages.
    pub(crate) channel: Channel,
    /// A half message.
    pub(crate) partial: Partial,
    /// When the message that is being received began to come, and when it went on last.
    pub(crate) began: Option<Duration>,
    pub(crate) went_on: Duration,
    /// For what a connection that speaks TLS takes as long as it is open.
    pub(crate) tls_memory: Option<Charge>,
    /// For the large message that is being received or run.
    pub(crate) room: Option<Charge>,
    /// A request that waits.
    pub(crate) deferred: Option<Deferred>,
    /// A reply that the client has not taken.
    pub(crate) unsent: Option<Unsent>,
    /// Its last request was answered; from now on its socket is another's.
    pub(crate) hand_over: Option<TakeOver>,
    /// It stands in [`crate::waiting::Waiting`].
    pub(crate) listed: bool,
    /// Replies sent so far.
    pub(crate) replies: i32,
}

impl Progress {
    /// Whether something of it is half: it is the client's turn to send more.
    pub(crate) fn is_half(&self) -> bool {
        !self.partial.is_empty() || self.channel.is_half()
    }

    /// Memory of what is half.
    pub(crate) fn half_bytes(&self) -> usize {
        self.partial.bytes() + self.channel.half_bytes()
    }

    /// Whether something waits for the client to take it.
    pub(crate) fn awaits_room_to_send(&self) -> bool {
        self.unsent.is_some() || self.channel.has_unsent()
    }
}

/// A request that waits.
pub(crate) struct Deferred {
    pub(crate) what: DeferredWork,
    /// Server time; none where it does not wait but for its turn.
    pub(crate) until: Option<Duration>,
    /// For what is kept of it.
    pub(crate) memory: Charge,
}

/// What is left to do for a request that waits.
pub(crate) enum DeferredWork {
    /// It is run again: it as a plain message, and how its replies are packed.
    Run { frame: Vec<u8>, packed: Option<Compressor> },
    /// It is done, but for its answer, which is sent so; not sent at all where the client waits for none.
    Answer { unfinished: Box<dyn Unfinished>, sent_as: Option<SentAs> },
}

/// The rest of a reply: `head`, then `behind`, of which `sent` bytes are with the client.
pub(crate) struct Unsent {
    pub(crate) head: Vec<u8>,
    pub(crate) behind: Option<Behind>,
    pub(crate) sent: usize,
    pub(crate) began: Duration,
    /// When the client took something of it last.
    pub(crate) went_on: Duration,
    /// [`dispatch::Reply::until_sent`].
    pub(crate) until_sent: Option<Box<dyn Send>>,
    /// For `head`, and for what is behind it where that is charged to nobody else.
    pub(crate) _memory: Charge,
}

/// A document that is sent from where it was made.
pub(crate) struct Behind {
    pub(crate) document: RawDocumentBuf,
    /// For it, where whoever made it has charged it.
    pub(crate) memory: Option<Charge>,
}

/// Who has a connection: the table at the top of this file.
pub(crate) struct Ownership(AtomicU8);

const QUIET: u8 = 0;
const SERVED: u8 = 1;
const SERVED_NEWS: u8 = 2;
const WAITS: u8 = 3;
const WAITS_FOR_ROOM: u8 = 4;
const CLOSED: u8 = 5;

/// What news of a socket means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum News {
    /// Serve it: it is the caller's now.
    Serve,
    /// Another thread serves it and will look again.
    Noted,
    /// Its request waits; what the client says meanwhile stays in the socket.
    Waits,
    /// Its message waits for room; whoever ends that looks at the socket.
    WaitsForRoom,
    /// It is over.
    Closed,
}

impl Ownership {
    /// Nobody has it.
    pub(crate) fn new() -> Self {
        Self(AtomicU8::new(QUIET))
    }

    fn change(&self, from: u8, to: u8) -> Result<u8, u8> {
        self.0.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst)
    }

    /// The socket has news.
    pub(crate) fn news(&self) -> News {
        let mut seen = QUIET;
        loop {
            let (to, meaning) = match seen {
                QUIET => (SERVED, News::Serve),
                SERVED => (SERVED_NEWS, News::Noted),
                SERVED_NEWS => return News::Noted,
                WAITS => return News::Waits,
                WAITS_FOR_ROOM => return News::WaitsForRoom,
                _ => return News::Closed,
            };
            match self.change(seen, to) {
                Ok(_) => return meaning,
                Err(now) => seen = now,
            }
        }
    }

    /// Whoever serves it has nothing left to do. `false` where there was news meanwhile: it is still
    /// the caller's.
    pub(crate) fn settle(&self) -> bool {
        if self.change(SERVED, QUIET).is_ok() {
            return true;
        }
        debug_assert_eq!(self.0.load(Ordering::SeqCst), SERVED_NEWS, "the caller serves it");
        self.0.store(SERVED, Ordering::SeqCst);
        false
    }

    /// Whoever serves it parks it until [`Self::end_wait`].
    pub(crate) fn wait(&self) {
        self.leave_for(WAITS);
    }

    /// Takes it up again where it waits; it is the caller's then.
    pub(crate) fn end_wait(&self) -> bool {
        self.change(WAITS, SERVED).is_ok()
    }

    /// Whoever serves it parks it until [`Self::end_wait_for_room`].
    pub(crate) fn wait_for_room(&self) {
        self.leave_for(WAITS_FOR_ROOM);
    }

    /// Takes it up again where it waits for room; it is the caller's then.
    pub(crate) fn end_wait_for_room(&self) -> bool {
        self.change(WAITS_FOR_ROOM, SERVED).is_ok()
    }

    /// Takes it where nobody has it; it is the caller's then.
    pub(crate) fn take_quiet(&self) -> bool {
        self.change(QUIET, SERVED).is_ok()
    }

    /// Whoever serves it is done with it for ever.
    pub(crate) fn close(&self) {
        self.leave_for(CLOSED);
    }

    fn leave_for(&self, state: u8) {
        let before = self.0.swap(state, Ordering::SeqCst);
        debug_assert!(matches!(before, SERVED | SERVED_NEWS), "the caller serves it");
    }

    /// Whether a thread serves it.
    pub(crate) fn is_served(&self) -> bool {
        matches!(self.0.load(Ordering::Relaxed), SERVED | SERVED_NEWS)
    }
}

/// The open connections, by the token under which the poller knows them.
///
/// A token goes to another connection once its own is closed, so news may be told to the wrong one:
/// that one looks at its socket and finds nothing.
pub(crate) struct Table<S: Service> {
    places: Vec<Option<Arc<Connection<S>>>>,
    free: Vec<usize>,
}

impl<S: Service> Default for Table<S> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<S: Service> Table<S> {
    /// Takes in what is made with its token.
    pub(crate) fn insert(&mut self, make: impl FnOnce(u64) -> Connection<S>) -> Arc<Connection<S>> {
        let at = self.free.pop().unwrap_or(self.places.len());
        if at == self.places.len() {
            self.places.push(None);
        }
        let connection = Arc::new(make(at as u64));
        self.places[at] = Some(Arc::clone(&connection));
        connection
    }

    /// The one with this token.
    pub(crate) fn get(&self, token: u64) -> Option<Arc<Connection<S>>> {
        self.places.get(usize::try_from(token).ok()?)?.clone()
    }

    /// Takes one out.
    pub(crate) fn remove(&mut self, token: u64) {
        if let Ok(at) = usize::try_from(token)
            && self.places.get_mut(at).and_then(Option::take).is_some()
        {
            self.free.push(at);
        }
    }

    /// Everyone.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Connection<S>>> {
        self.places.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_states_of_a_connection_are_those_of_the_table() {
        let owner = Ownership::new();
        assert_eq!(owner.news(), News::Serve);
        assert!(owner.is_served() && !owner.take_quiet());
        assert_eq!(owner.news(), News::Noted);
        assert_eq!(owner.news(), News::Noted);
        assert!(!owner.settle(), "there was news");
        assert!(owner.settle() && !owner.is_served());
        assert!(!owner.end_wait() && owner.take_quiet());
        assert_eq!(owner.news(), News::Noted);
        owner.wait();
        assert_eq!(owner.news(), News::Waits);
        assert!(!owner.take_quiet() && owner.end_wait() && !owner.end_wait());
        assert!(owner.settle(), "whoever ends a wait looks at the socket anyway");
        assert_eq!(owner.news(), News::Serve);
        owner.wait_for_room();
        assert_eq!(owner.news(), News::WaitsForRoom);
        assert!(!owner.end_wait() && owner.end_wait_for_room());
        owner.close();
        assert_eq!(owner.news(), News::Closed);
        assert!(!owner.take_quiet() && !owner.end_wait());
    }
}
