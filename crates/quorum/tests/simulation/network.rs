//! Messages on their way: late, lost, twice, out of order, cut off in one direction.

use std::collections::{BTreeMap, BTreeSet};

use quorum::MemberId;
use testkit::Gen;

/// What a network does to messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    pub(crate) delay: u64,
    /// One in so many is lost; 0 for none.
    pub(crate) loss: u64,
    pub(crate) repeats: u64,
    /// Messages from one member to another keep their order.
    pub(crate) ordered: bool,
}

pub(crate) struct Network {
    now: u64,
    sent: u64,
    on_the_way: BTreeMap<(u64, u64), (MemberId, MemberId, Vec<u8>)>,
    newest: BTreeMap<(MemberId, MemberId), u64>,
    pub(crate) weather: Weather,
    pub(crate) cut: BTreeSet<(MemberId, MemberId)>,
}

impl Network {
    pub(crate) fn new(weather: Weather) -> Self {
        Self {
            now: 0,
            sent: 0,
            on_the_way: BTreeMap::new(),
            newest: BTreeMap::new(),
            weather,
            cut: BTreeSet::new(),
        }
    }

    /// Answers whether anything of it will arrive.
    pub(crate) fn send(
        &mut self,
        from: MemberId,
        to: MemberId,
        bytes: &[u8],
        random: &mut Gen,
    ) -> bool {
        let Weather { delay, loss, repeats, ordered } = self.weather;
        if self.cut.contains(&(from, to)) || (loss > 0 && random.one_in(loss)) {
            return false;
        }
        let times = if repeats > 0 && random.one_in(repeats) { 2 } else { 1 };
        for _ in 0..times {
            let mut at = self.now + 1 + random.below(delay + 1);
            let newest = self.newest.entry((from, to)).or_default();
            if ordered {
                at = at.max(*newest);
            }
            *newest = at;
            self.sent += 1;
            self.on_the_way.insert((at, self.sent), (from, to, bytes.to_vec()));
        }
        true
    }

    /// It lies in the socket's buffer of a member that does not read.
    pub(crate) fn put_back(&mut self, from: MemberId, to: MemberId, bytes: Vec<u8>) {
        self.sent += 1;
        self.on_the_way.insert((self.now + 1, self.sent), (from, to, bytes));
    }

    /// Time passes.
    pub(crate) fn advance(&mut self) {
        self.now += 1;
    }

    /// The next message that is due.
    pub(crate) fn arrived(&mut self) -> Option<(MemberId, MemberId, Vec<u8>)> {
        let entry = self.on_the_way.first_entry().filter(|entry| entry.key().0 <= self.now)?;
        Some(entry.remove())
    }

    /// Takes away what is on its way to somebody who is down; answers from whom it came.
    pub(crate) fn drop_for(&mut self, member: MemberId) -> BTreeSet<MemberId> {
        let gone = self.on_the_way.values().filter(|(_, to, _)| *to == member);
        let senders = gone.map(|(from, _, _)| *from).collect();
        self.on_the_way.retain(|_, (_, to, _)| *to != member);
        senders
    }
}
