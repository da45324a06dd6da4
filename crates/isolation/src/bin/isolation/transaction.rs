//! One transaction by either of the two ways: a modern session, or TokuMX's commands, which bind it
//! to the connection.

use isolation::{Level, TxnOutcome};
use mongodb::bson::{Bson, Document, doc};
use mongodb::error::{Error, ErrorKind, Result};
use mongodb::options::{Acknowledgment, ReadConcern, WriteConcern};
use mongodb::sync::{Client, ClientSession, Collection};

/// How statements become a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Way {
    /// `startTransaction` in a session, snapshot reads, majority writes; needs a replica set.
    Session,
    /// TokuMX's `beginTransaction` with isolation `mvcc`.
    Mvcc,
    /// TokuMX's `beginTransaction` with isolation `serializable`.
    Serializable,
    /// Not at all: each statement by itself. Breaks the promise on purpose.
    None,
}

impl Way {
    /// What the database promises this way.
    pub(crate) fn level(self) -> Level {
        if self == Self::Serializable { Level::Serializable } else { Level::Snapshot }
    }

    pub(crate) fn needs_replica_set(self) -> bool {
        self == Self::Session
    }

    /// The transaction is the connection's. A driver that reconnects between two statements does
    /// not tell: those on the new connection are in no transaction.
    pub(crate) fn is_bound_to_connection(self) -> bool {
        matches!(self, Self::Mvcc | Self::Serializable)
    }

    /// The connection string's parameters. A transaction that lives on a connection must not be
    /// carried to another one by a retry.
    pub(crate) fn parameters(self) -> &'static str {
        match self {
            Self::Session => "directConnection=true",
            _ => {
                "directConnection=true&maxPoolSize=1&retryReads=false&retryWrites=false&journal=true"
            }
        }
    }
}

/// When a commit is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Acknowledged {
    /// Once it is visible (`w: 1`): on disk within `logFlushPeriod`. TokuMX's default.
    Visible,
    /// Once it is on disk (`w: "majority"`, `j: true`).
    Durable,
}

/// A transaction that was begun.
pub(crate) struct Running {
    client: Client,
    way: Way,
    acknowledged: Acknowledged,
    session: Option<ClientSession>,
}

impl Running {
    pub(crate) fn begin(client: &Client, way: Way) -> Result<Self> {
        Self::begin_with(client, way, Acknowledged::Durable)
    }

    pub(crate) fn begin_with(
        client: &Client,
        way: Way,
        acknowledged: Acknowledged,
    ) -> Result<Self> {
        let mut running = Self { client: client.clone(), way, acknowledged, session: None };
        match way {
            Way::Session => {
                let mut session = client.start_session().run()?;
                let nodes = match acknowledged {
                    Acknowledged::Visible => Acknowledgment::Nodes(1),
                    Acknowledged::Durable => Acknowledgment::Majority,
                };
                let concern = WriteConcern::builder().w(nodes).build();
                session
                    .start_transaction()
                    .read_concern(ReadConcern::snapshot())
                    .write_concern(concern)
                    .run()?;
                running.session = Some(session);
            }
            Way::Mvcc => running.command(doc! { "beginTransaction": 1, "isolation": "mvcc" })?,
            Way::Serializable => {
                running.command(doc! { "beginTransaction": 1, "isolation": "serializable" })?;
            }
            Way::None => {}
        }
        Ok(running)
    }

    fn command(&self, command: Document) -> Result<()> {
        self.client.database("test").run_command(command).run().map(drop)
    }

    fn collection(&self, name: &str) -> Collection<Document> {
        self.client.database("test").collection(name)
    }

    pub(crate) fn find(
        &mut self,
        collection: &str,
        id: impl Into<Bson>,
    ) -> Result<Option<Document>> {
        let collection = self.collection(collection);
        let find = collection.find_one(doc! { "_id": id.into() });
        match &mut self.session {
            Some(session) => find.session(session).run(),
            None => find.run(),
        }
    }

    /// Changes one document, or makes it.
    pub(crate) fn upsert(
        &mut self,
        collection: &str,
        id: impl Into<Bson>,
        update: Document,
    ) -> Result<()> {
        let collection = self.collection(collection);
        let update = collection.update_one(doc! { "_id": id.into() }, update).upsert(true);
        match &mut self.session {
            Some(session) => update.session(session).run().map(drop),
            None => update.run().map(drop),
        }
    }

    /// All documents of a collection.
    pub(crate) fn all(&mut self, collection: &str) -> Result<Vec<Document>> {
        let collection = self.collection(collection);
        match &mut self.session {
            Some(session) => {
                let mut cursor = collection.find(doc! {}).session(&mut *session).run()?;
                cursor.iter(session).collect()
            }
            None => collection.find(doc! {}).run()?.collect(),
        }
    }

    /// Commits; where the answer did not come nobody knows.
    pub(crate) fn commit(&mut self) -> (TxnOutcome, Option<Error>) {
        let result = match (&mut self.session, self.way) {
            (Some(session), _) => session.commit_transaction().run(),
            (None, Way::None) => Ok(()),
            (None, _) => {
                let j = self.acknowledged == Acknowledged::Durable;
                self.command(doc! { "commitTransaction": 1, "writeConcern": { "j": j } })
            }
        };
        match result {
            Ok(()) => (TxnOutcome::Committed, None),
            Err(error) => (after_failed_commit(&error), Some(error)),
        }
    }

    pub(crate) fn abort(&mut self) {
        // The server may be down: it forgets the transaction then.
        let _forgotten = match (&mut self.session, self.way) {
            (Some(session), _) => session.abort_transaction().run(),
            (None, Way::None) => Ok(()),
            (None, _) => self.command(doc! { "rollbackTransaction": 1 }),
        };
    }
}

fn after_failed_commit(error: &Error) -> TxnOutcome {
    let refused = matches!(*error.kind, ErrorKind::Command(_));
    if refused && !error.contains_label("UnknownTransactionCommitResult") {
        TxnOutcome::Aborted
    } else {
        TxnOutcome::Unknown
    }
}
