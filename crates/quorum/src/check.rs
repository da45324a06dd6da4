//! What a message may say, given what this member knows. The raft crate takes it for granted that
//! members are honest and panics where they are not; here each such place is an error instead, before
//! the message reaches it. Pure, with a table of hostile messages as its test.

use crate::codec::{MAX_DOCUMENT, MAX_ENTRIES, MAX_SNAPSHOT};
use crate::entry::{Content, Entry, MAX_MEMBERS, MemberId, Position};
use crate::error::{Error, Result};
use crate::message::{Body, Message};
use crate::state::MAX_COUNT;

/// What this member knows when a message comes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    pub(crate) me: MemberId,
    pub(crate) term: u64,
    /// Whom this member follows, or itself.
    pub(crate) leader: Option<MemberId>,
    /// The last entry of its log.
    pub(crate) last: u64,
    /// Whether it knows who the members are.
    pub(crate) configured: bool,
}

/// Whether the message may be acted on.
pub(crate) fn check(message: &Message, view: &View) -> Result<()> {
    let from = message.from;
    judge(message, view).map_err(|what| Error::Impossible { from, what })
}

type Verdict = std::result::Result<(), &'static str>;

fn judge(message: &Message, view: &View) -> Verdict {
    let Message { from, to, term, body } = message;
    ensure(*to == view.me, "it is for somebody else")?;
    ensure(*from != MemberId(0) && *from != view.me, "its sender cannot be")?;
    let is_read = matches!(body, Body::ReadRequest(_));
    ensure(is_read == (*term == 0) && *term < MAX_COUNT, "its term cannot be")?;
    bounded(body)?;
    // Of an older term raft looks at nothing but who sent it.
    if !is_read && *term < view.term {
        return Ok(());
    }
    let of_this_term = *term == view.term;
    let leads_here = view.leader == Some(view.me);
    match body {
        Body::Append { previous, entries, .. } => {
            one_leader(of_this_term, *from, view)?;
            in_order(*previous, entries, *term)?;
            ensure(
                view.configured || entries.is_empty() || previous.index > 0,
                "a member without configuration begins with a snapshot",
            )
        }
        Body::Heartbeat { commit, .. } => {
            one_leader(of_this_term, *from, view)?;
            ensure(*commit <= view.last, "what this member does not have is committed")
        }
        Body::Snapshot(snapshot) => {
            one_leader(of_this_term, *from, view)?;
            let Position { term: of_entry, index } = snapshot.position;
            ensure(index > 0 && of_entry > 0 && of_entry <= *term, "its place cannot be")?;
            snapshot.configuration.verify()
        }
        Body::Accepted { index, commit } if of_this_term && leads_here => {
            ensure(*index <= view.last && *commit <= view.last, "it has more than the leader")
        }
        Body::Refused { index, hint, commit } if of_this_term && leads_here => {
            let known = *index <= view.last && *commit <= view.last && hint.index <= *index;
            ensure(known, "it refuses what it was not asked")
        }
        Body::VoteRequest { last, commit, .. } => {
            ensure(place(*last) && place(*commit), "its place cannot be")?;
            let behind = commit.index <= last.index && commit.term <= last.term;
            ensure(last.term <= *term && behind, "its log cannot be")
        }
        Body::ReadRequest(read) => ensure(read.member == *from, "it reads for somebody else"),
        Body::ReadAnswer { read, .. } => ensure(read.member == view.me, "it answers somebody else"),
        Body::Accepted { .. }
        | Body::Refused { .. }
        | Body::Vote { .. }
        | Body::HeartbeatAnswer { .. }
        | Body::CampaignNow => Ok(()),
    }
}

fn ensure(holds: bool, what: &'static str) -> Verdict {
    if holds { Ok(()) } else { Err(what) }
}

/// The entry before the first has neither index nor term; every other one has both.
fn place(position: Position) -> bool {
    (position.index == 0) == (position.term == 0)
}

/// Sums of indices and terms must not overflow, whatever they say; lengths hold what the codec holds.
fn bounded(body: &Body) -> Verdict {
    let numbers: &[u64] = match body {
        Body::Append { previous, commit, .. } => &[previous.index, previous.term, *commit],
        Body::Accepted { index, commit } => &[*index, *commit],
        Body::Refused { index, hint, commit } => &[*index, hint.index, hint.term, *commit],
        Body::VoteRequest { last, commit, .. } => {
            &[last.index, last.term, commit.index, commit.term]
        }
        Body::Vote { commit, .. } => &[commit.index, commit.term],
        Body::Heartbeat { commit, .. } | Body::HeartbeatAnswer { commit, .. } => &[*commit],
        Body::ReadAnswer { index, .. } => &[*index],
        Body::Snapshot(snapshot) => {
            ensure(snapshot.data.len() <= MAX_SNAPSHOT, "too long a snapshot")?;
            &[snapshot.position.index, snapshot.position.term]
        }
        Body::CampaignNow | Body::ReadRequest(_) => &[],
    };
    ensure(numbers.iter().all(|number| *number < MAX_COUNT), "a counter is out of range")
}

fn one_leader(of_this_term: bool, from: MemberId, view: &View) -> Verdict {
    let other = view.leader.is_some_and(|leader| leader != from);
    ensure(!(of_this_term && other), "a term has two leaders")
}

fn in_order(previous: Position, entries: &[Entry], term: u64) -> Verdict {
    ensure(place(previous) && previous.term <= term, "its place cannot be")?;
    ensure(entries.len() <= MAX_ENTRIES, "too many entries")?;
    let mut before = previous;
    for entry in entries {
        let follows = entry.index == before.index + 1 && entry.term >= before.term.max(1);
        ensure(follows && entry.term <= term, "its entries are out of order")?;
        content(&entry.content)?;
        before = entry.position();
    }
    Ok(())
}

/// Whether raft can apply it.
pub(crate) fn content(content: &Content) -> Verdict {
    let Content::Configuration { changes, document } = content else { return Ok(()) };
    ensure(document.len() <= MAX_DOCUMENT, "too long a configuration")?;
    ensure(changes.len() <= MAX_MEMBERS, "too many changes")?;
    let known = changes.iter().all(|change| change.member != MemberId(0));
    ensure(known, "a configuration names member 0")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Configuration, Descriptor};
    use crate::message::{ReadId, Snapshot};

    fn at(term: u64, index: u64) -> Position {
        Position { term, index }
    }

    fn entry(term: u64, index: u64) -> Entry {
        Entry { term, index, content: Content::Records(Descriptor::default()) }
    }

    /// A follower of 2 in term 5 with ten entries.
    fn view() -> View {
        View { me: MemberId(1), term: 5, leader: Some(MemberId(2)), last: 10, configured: true }
    }

    fn said(from: u64, term: u64, body: Body) -> Option<&'static str> {
        of(&view(), from, term, body)
    }

    fn of(view: &View, from: u64, term: u64, body: Body) -> Option<&'static str> {
        let message = Message { from: MemberId(from), to: MemberId(1), term, body };
        match check(&message, view) {
            Ok(()) => None,
            Err(Error::Impossible { what, .. }) => Some(what),
            Err(other) => panic!("{other:?}"),
        }
    }

    fn append(previous: Position, entries: &[Entry]) -> Body {
        Body::Append { previous, commit: 3, entries: entries.to_vec() }
    }

    #[test]
    fn appends_are_in_order_and_of_the_leader() {
        let check = |from, term, previous, entries: &[Entry], expected| {
            assert_eq!(said(from, term, append(previous, entries)), expected);
        };
        check(2, 5, at(4, 10), &[entry(5, 11), entry(5, 12)], None);
        check(3, 6, at(4, 10), &[entry(6, 11)], None);
        check(3, 4, at(9, 10), &[entry(9, 99)], None); // raft answers by its term alone
        check(3, 5, at(4, 10), &[], Some("a term has two leaders"));
        check(2, 5, at(0, 10), &[], Some("its place cannot be"));
        check(2, 5, at(4, 0), &[], Some("its place cannot be"));
        check(2, 5, at(6, 10), &[], Some("its place cannot be"));
        check(2, 5, at(4, 10), &[entry(5, 12)], Some("its entries are out of order"));
        check(2, 5, at(4, 10), &[entry(3, 11)], Some("its entries are out of order"));
        check(2, 5, at(4, 10), &[entry(6, 11)], Some("its entries are out of order"));
        check(2, 5, at(0, 0), &[entry(0, 1)], Some("its entries are out of order"));
        check(2, 5, at(4, u64::MAX), &[], Some("a counter is out of range"));
    }

    #[test]
    fn a_member_without_configuration_takes_no_first_entry() {
        let new = View { configured: false, leader: None, last: 0, ..view() };
        let expected = Some("a member without configuration begins with a snapshot");
        assert_eq!(of(&new, 2, 5, append(at(0, 0), &[entry(5, 1)])), expected);
        assert_eq!(of(&new, 2, 5, append(at(4, 10), &[entry(5, 11)])), None);
    }

    #[test]
    fn nobody_commits_what_this_member_does_not_have() {
        let beat = |commit| Body::Heartbeat { commit, read: None };
        assert_eq!(said(2, 5, beat(10)), None);
        assert_eq!(said(3, 4, beat(11)), None);
        let expected = Some("what this member does not have is committed");
        assert_eq!(said(2, 5, beat(11)), expected);
        assert_eq!(said(3, 6, beat(11)), expected);
    }

    #[test]
    fn a_leader_believes_nobody_who_has_more_than_itself() {
        let leader = View { leader: Some(MemberId(1)), ..view() };
        let accepted = |index, commit| Body::Accepted { index, commit };
        assert_eq!(of(&leader, 2, 5, accepted(10, 10)), None);
        assert!(of(&leader, 2, 5, accepted(11, 3)).is_some());
        assert!(of(&leader, 2, 5, accepted(10, 11)).is_some());
        let refused = |index, hint| Body::Refused { index, hint, commit: 3 };
        assert_eq!(of(&leader, 2, 5, refused(10, at(4, 9))), None);
        assert!(of(&leader, 2, 5, refused(10, at(4, 11))).is_some());
        assert!(of(&leader, 2, 5, refused(11, at(4, 9))).is_some());
        assert_eq!(of(&leader, 2, 5, append(at(4, 10), &[])), Some("a term has two leaders"));
    }

    #[test]
    fn terms_senders_and_receivers_are_those_that_can_be() {
        let beat = || Body::Heartbeat { commit: 0, read: None };
        assert_eq!(said(0, 5, beat()), Some("its sender cannot be"));
        assert_eq!(said(1, 5, beat()), Some("its sender cannot be"));
        assert_eq!(said(2, 0, beat()), Some("its term cannot be"));
        assert_eq!(said(2, u64::MAX, beat()), Some("its term cannot be"));
        let read = |member| Body::ReadRequest(ReadId { member: MemberId(member), number: 1 });
        assert_eq!(said(3, 0, read(3)), None);
        assert_eq!(said(3, 0, read(4)), Some("it reads for somebody else"));
        assert_eq!(said(3, 5, read(3)), Some("its term cannot be"));
        let to = MemberId(9);
        let elsewhere = Message { from: MemberId(2), to, term: 5, body: beat() };
        assert!(check(&elsewhere, &view()).is_err());
    }

    #[test]
    fn candidates_and_snapshots_have_logs_that_can_be() {
        let vote = |last, commit| Body::VoteRequest { pre: false, transfer: false, last, commit };
        assert_eq!(said(3, 6, vote(at(5, 10), at(5, 9))), None);
        assert_eq!(said(3, 6, vote(at(0, 0), at(0, 0))), None);
        assert!(said(3, 6, vote(at(7, 10), at(5, 9))).is_some());
        assert!(said(3, 6, vote(at(5, 10), at(5, 11))).is_some());
        assert!(said(3, 6, vote(at(0, 10), at(0, 0))).is_some());
        let snapshot = |position, voters: &[u64]| {
            let configuration = Configuration::of_voters(voters.iter().copied().map(MemberId));
            Body::Snapshot(Snapshot { position, configuration, data: Vec::new() })
        };
        assert_eq!(said(2, 5, snapshot(at(5, 20), &[1, 2])), None);
        assert!(said(2, 5, snapshot(at(6, 20), &[1, 2])).is_some());
        assert!(said(2, 5, snapshot(at(0, 0), &[1, 2])).is_some());
        assert!(said(2, 5, snapshot(at(5, 20), &[])).is_some());
        assert!(said(3, 5, snapshot(at(5, 20), &[1, 2])).is_some());
    }
}
