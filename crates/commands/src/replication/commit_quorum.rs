//! `commitQuorum` of `createIndexes`: which members are to be ready before the primary commits a build.
//!
//! The entries of an index travel by the log: a member is ready once it has on disk what the build has written before its
//! commit. It is waited for before writers are kept out of the collection.
//!
//! Always true: what the configuration can never give is refused before anything is built.

use super::woken::Woken;
use bson::RawBsonRef;
use dispatch::fields::{Field, as_i64};
use errors::{Code, Error, Result};
use serverstate::replication::config::{Config, member::Member};
use serverstate::{Holders, ServerState};
use std::sync::Arc;

/// The most members that a set may have.
const MOST_MEMBERS: i64 = 50;

/// See above.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CommitQuorum {
    /// All members that vote and hold data.
    VotingMembers,
    /// More than half of them.
    Majority,
    /// So many of them.
    Count(i64),
    /// A mode of the configuration.
    Mode(Box<str>),
}

impl CommitQuorum {
    /// What a client says.
    pub(crate) fn parse(field: &Field<'_>) -> Result<Self> {
        match field.value {
            RawBsonRef::String("votingMembers") => Ok(Self::VotingMembers),
            RawBsonRef::String("majority") => Ok(Self::Majority),
            RawBsonRef::String("") => {
                Err(Error::failed_to_parse("commitQuorum can't be an empty string"))
            }
            RawBsonRef::String(mode) => Ok(Self::Mode(mode.into())),
            value => match as_i64(value) {
                Some(count) if (0..=MOST_MEMBERS).contains(&count) => Ok(Self::Count(count)),
                Some(_) => Err(Error::failed_to_parse(format!(
                    "commitQuorum has to be a non-negative number and not greater than {MOST_MEMBERS}"
                ))),
                None => Err(Error::failed_to_parse("commitQuorum has to be a number or a string")),
            },
        }
    }

    /// Who is waited for; nobody where it says 0. Refuses what the configuration cannot give.
    pub(crate) fn holders(&self, config: Option<&Config>) -> Result<Option<Holders>> {
        // Before there is a set there is one node.
        let alone = 1;
        let votes = |member: &&Member| member.votes;
        let voters =
            config.map_or(alone, |config| config.data_bearing().filter(votes).count() as i64);
        let ready =
            config.map_or(alone, |config| config.index_bearing().filter(votes).count() as i64);
        let count = match self {
            Self::VotingMembers => voters,
            Self::Majority => voters / 2 + 1,
            Self::Count(count) => *count,
            Self::Mode(mode) => return mode_holders(mode, config),
        };
        if count > ready {
            return Err(unsatisfiable("Not enough data-bearing voting nodes"));
        }
        Ok((count > 1).then_some(Holders::IndexVoters(count)))
    }
}

fn mode_holders(mode: &str, config: Option<&Config>) -> Result<Option<Holders>> {
    let members: Vec<&Member> = config.iter().flat_map(|config| config.index_bearing()).collect();
    match config.and_then(|config| config.modes.is_reached(mode, &members)) {
        Some(true) => Ok(Some(Holders::Mode(mode.into()))),
        Some(false) => Err(unsatisfiable("Not enough nodes match the mode")),
        None => Err(Error::new(
            Code::UNKNOWN_REPL_WRITE_CONCERN,
            format!("No write concern mode named '{mode}' found in replica set configuration"),
        )),
    }
}

fn unsatisfiable(why: &str) -> Error {
    Error::new(
        Code::UNSATISFIABLE_COMMIT_QUORUM,
        format!("Commit quorum cannot be satisfied: {why}"),
    )
}

/// Waits until these members have on disk all that is decided now.
pub(crate) fn wait(
    state: &ServerState,
    holders: &Holders,
    check: &dyn Fn() -> Result<()>,
) -> Result<()> {
    if !state.replication.is_of_several() {
        return Ok(());
    }
    let index = state.catalog.engine().committed_index();
    let woken = Woken::default();
    let call = woken.call();
    loop {
        // Before the look, so that what comes between them is not missed.
        let _watch = state.when_held(holders.clone(), index, Arc::clone(&call));
        match state.replication.held_up_to(holders) {
            Some(up_to) if up_to >= index => return Ok(()),
            Some(_) => {}
            None => {
                let text = "Primary stepped down while waiting for the commit quorum";
                return Err(Error::new(Code::PRIMARY_STEPPED_DOWN, text));
            }
        }
        check()?;
        woken.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{Bson, Document, doc};

    fn parse(value: impl Into<Bson>) -> Result<CommitQuorum> {
        let body = bson::RawDocumentBuf::try_from(&doc! { "commitQuorum": value.into() }).unwrap();
        let value = body.get("commitQuorum").unwrap().unwrap();
        CommitQuorum::parse(&Field { place: "createIndexes", name: "commitQuorum", value })
    }

    /// Some sets have no member with the other tag, and so no mode of both.
    fn set(members: &[Document]) -> Config {
        let members: Vec<Document> = (0..)
            .zip(members)
            .map(|(id, more)| {
                let mut member = doc! { "_id": id, "host": format!("a:{}", id + 1) };
                member.extend(more.clone());
                member
            })
            .collect();
        let in_west = members.iter().any(|member| member.to_string().contains("west"));
        let modes = if in_west {
            doc! { "both": { "dc": 2 } }
        } else {
            doc! {}
        };
        let config = doc! { "_id": "rs", "version": 1, "members": members, "settings": { "getLastErrorModes": modes } };
        Config::parse("rs", &bson::RawDocumentBuf::try_from(&config).unwrap()).unwrap()
    }

    #[test]
    fn what_is_no_quorum_is_refused() {
        assert_eq!(parse("votingMembers").unwrap(), CommitQuorum::VotingMembers);
        assert_eq!(parse("majority").unwrap(), CommitQuorum::Majority);
        assert_eq!(parse(0).unwrap(), CommitQuorum::Count(0));
        assert_eq!(parse(50_i64).unwrap(), CommitQuorum::Count(50));
        assert_eq!(parse("east").unwrap(), CommitQuorum::Mode("east".into()));
        for wrong in
            [Bson::from(-1), Bson::from(51), Bson::from(""), Bson::from(true), Bson::from(doc! {})]
        {
            assert_eq!(parse(wrong.clone()).unwrap_err().code(), Code::FAILED_TO_PARSE, "{wrong}");
        }
    }

    #[test]
    fn voters_that_hold_data_and_keep_indexes_are_counted() {
        let east = || doc! { "tags": { "dc": "east" } };
        let west = doc! { "tags": { "dc": "west" } };
        let arbiter = doc! { "arbiterOnly": true };
        let silent = doc! { "votes": 0, "priority": 0 };
        let bare = doc! { "buildIndexes": false, "priority": 0 };
        let (unknown, never) =
            (Code::UNKNOWN_REPL_WRITE_CONCERN, Code::UNSATISFIABLE_COMMIT_QUORUM);
        let voters = |count| Ok(Some(Holders::IndexVoters(count)));
        let mode = || CommitQuorum::Mode("both".into());
        let plain = || vec![east(), west.clone(), east()];
        for (members, quorum, wanted) in [
            (plain(), CommitQuorum::VotingMembers, voters(3)),
            (plain(), CommitQuorum::Majority, voters(2)),
            (plain(), CommitQuorum::Count(0), Ok(None)),
            (plain(), CommitQuorum::Count(1), Ok(None)),
            (plain(), CommitQuorum::Count(3), voters(3)),
            (plain(), CommitQuorum::Count(4), Err(never)),
            (plain(), mode(), Ok(Some(Holders::Mode("both".into())))),
            (plain(), CommitQuorum::Mode("other".into()), Err(unknown)),
            (vec![east(), west.clone(), arbiter], CommitQuorum::VotingMembers, voters(2)),
            (vec![east(), west.clone(), silent.clone()], CommitQuorum::VotingMembers, voters(2)),
            (vec![east(), west, silent], CommitQuorum::Count(3), Err(never)),
            (vec![east(), east(), bare.clone()], CommitQuorum::VotingMembers, Err(never)),
            (vec![east(), east(), bare], CommitQuorum::Majority, voters(2)),
        ] {
            let config = set(&members);
            let found = quorum.holders(Some(&config));
            assert_eq!(found.map_err(|error| error.code()), wanted, "{quorum:?} of {members:?}");
        }
        assert_eq!(CommitQuorum::VotingMembers.holders(None).unwrap(), None);
        assert!(CommitQuorum::Count(2).holders(None).is_err());
    }
}
