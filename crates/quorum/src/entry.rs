//! What the replicated log holds, as consensus sees it: an entry is its place and a small *content*.
//!
//! The records that an entry stands for are never here. They lie in the redo log of each member; a
//! [`Descriptor`] says how many bytes they are and what their checksum is, and who sends an entry reads
//! them from its own log and puts them beside it. So an entry in memory is a few dozen bytes, whatever
//! was committed by it.
//!
//! Always true of what this crate hands out: indices ascend by one, terms never fall from an entry to
//! the next, and a [`Configuration`] can be restored (see [`Configuration::verify`]).

use std::collections::BTreeSet;

/// One member as consensus knows it: a random number that is made with a data directory and never
/// used for another one. Zero is nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u64);

impl std::fmt::Display for MemberId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A place in the log: which entry, and the term of the leader that made it. Two logs that hold the
/// same place are equal up to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The leader's term.
    pub term: u64,
    /// Counts entries from 1; 0 is before the first.
    pub index: u64,
}

/// The records of an entry, without their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// The timestamp of the last commit in it.
    pub last_ts: u64,
    /// The cluster time of the last commit in it.
    pub last_time: u64,
    /// How many bytes the records are.
    pub bytes: u32,
    /// crc32c of those bytes, carried unchanged to every member's disk.
    pub checksum: u32,
}

/// What one change does to one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It votes, and counts for the majority.
    Voter,
    /// It gets the log and counts for nothing.
    Learner,
    /// It is no member any more.
    Gone,
}

/// One member's new standing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Whose.
    pub member: MemberId,
    /// What it is from now on.
    pub standing: Standing,
}

/// What an entry says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// The first entry of a term: whatever the leader before had begun and not ended is void.
    Fence,
    /// Commit records.
    Records(Descriptor),
    /// A new configuration of the set. Where it changes who the members are, both the old and the new
    /// majority decide until a [`Content::Joined`] ends that.
    Configuration {
        /// Whose standing changes; empty where only settings do.
        changes: Vec<Change>,
        /// The configuration as the layers above write it.
        document: Vec<u8>,
    },
    /// The new configuration alone counts from here on. The leader appends it by itself.
    Joined,
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The leader's term.
    pub term: u64,
    /// Its number.
    pub index: u64,
    /// What it says.
    pub content: Content,
}

impl Entry {
    /// Where it stands.
    pub fn position(&self) -> Position {
        Position { term: self.term, index: self.index }
    }

    /// How many bytes of records belong to it, in the redo log and in a frame.
    pub fn record_bytes(&self) -> u64 {
        match &self.content {
            Content::Records(descriptor) => u64::from(descriptor.bytes),
            Content::Configuration { document, .. } => document.len() as u64,
            Content::Fence | Content::Joined => 0,
        }
    }
}

/// Who the members are. Joint while `outgoing` is not empty: then a decision takes a majority of
/// `voters` and one of `outgoing`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// Who votes.
    pub voters: BTreeSet<MemberId>,
    /// Who gets the log and does not vote.
    pub learners: BTreeSet<MemberId>,
    /// Who voted before the change that is under way.
    pub outgoing: BTreeSet<MemberId>,
    /// Outgoing voters that are learners once the change is complete.
    pub learners_next: BTreeSet<MemberId>,
}

/// Members in all, and voters, that a configuration may name. MongoDB has 50 and 7; while a change is
/// under way both sides count.
pub const MAX_MEMBERS: usize = 128;

impl Configuration {
    /// A configuration of voters alone.
    pub fn of_voters(voters: impl IntoIterator<Item = MemberId>) -> Self {
        Self { voters: voters.into_iter().collect(), ..Self::default() }
    }

    /// Whether a change is under way.
    pub fn is_joint(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Whether the member has a vote, in the old or the new configuration.
    pub fn is_voter(&self, member: MemberId) -> bool {
        self.voters.contains(&member) || self.outgoing.contains(&member)
    }

    /// Whether it names the member.
    pub fn is_member(&self, member: MemberId) -> bool {
        let sets = [&self.voters, &self.learners, &self.outgoing, &self.learners_next];
        sets.into_iter().any(|set| set.contains(&member))
    }

    /// Everybody in it, once.
    pub fn members(&self) -> BTreeSet<MemberId> {
        let sets = [&self.voters, &self.learners, &self.outgoing, &self.learners_next];
        sets.into_iter().flatten().copied().collect()
    }

    /// Whether consensus can be restored from it; what is wrong otherwise.
    pub fn verify(&self) -> Result<(), &'static str> {
        let all = self.members();
        if all.contains(&MemberId(0)) {
            return Err("a configuration names member 0");
        }
        if all.len() > MAX_MEMBERS {
            return Err("a configuration names too many members");
        }
        if self.voters.is_empty() {
            return Err("a configuration has no voter");
        }
        if self.learners.iter().any(|member| self.is_voter(*member)) {
            return Err("a learner votes");
        }
        let next = &self.learners_next;
        if !next.is_subset(&self.outgoing) || !next.is_disjoint(&self.voters) {
            return Err("who is to be a learner is no outgoing voter");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(of: &[u64]) -> BTreeSet<MemberId> {
        of.iter().copied().map(MemberId).collect()
    }

    #[test]
    fn configurations_that_cannot_be_are_named() {
        let check = |voters: &[u64], learners: &[u64], outgoing: &[u64], next: &[u64]| {
            let configuration = Configuration {
                voters: ids(voters),
                learners: ids(learners),
                outgoing: ids(outgoing),
                learners_next: ids(next),
            };
            configuration.verify().is_ok()
        };
        assert!(check(&[1], &[], &[], &[]));
        assert!(check(&[1, 2], &[3], &[1, 4], &[4]));
        assert!(!check(&[], &[1], &[], &[]), "no voter");
        assert!(!check(&[0], &[], &[], &[]), "nobody votes");
        assert!(!check(&[1], &[1], &[], &[]), "a learner that votes");
        assert!(!check(&[1], &[2], &[2], &[]), "a learner that voted");
        assert!(!check(&[1], &[], &[], &[2]), "a next learner that did not vote");
        assert!(!check(&[1, 2], &[], &[2], &[2]), "a next learner that goes on voting");
        let many: Vec<u64> = (1..=MAX_MEMBERS as u64 + 1).collect();
        assert!(!check(&many, &[], &[], &[]), "too many");
    }

    #[test]
    fn an_entry_knows_how_many_bytes_go_with_it() {
        let entry = |content| Entry { term: 1, index: 1, content };
        let records = Descriptor { bytes: 4096, ..Descriptor::default() };
        assert_eq!(entry(Content::Records(records)).record_bytes(), 4096);
        assert_eq!(entry(Content::Fence).record_bytes(), 0);
        let document = vec![0; 17];
        let configuration = Content::Configuration { changes: Vec::new(), document };
        assert_eq!(entry(configuration).record_bytes(), 17);
    }
}
