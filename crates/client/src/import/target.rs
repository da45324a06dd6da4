//! Where documents go: into a bulk load of a new collection, or into a collection by plain inserts.
//!
//! Always true: a load is of one connection, and so is the client that it has; what others see of it is all or nothing.

use super::options::Asked;
use crate::failures::{code, explained};
use crate::migrate::Name;
use anyhow::{Context, Result, anyhow, bail};
use bson::{Document, RawDocumentBuf, doc};
use mongodb::error::{Error as DriverError, ErrorKind};
use mongodb::event::EventHandler;
use mongodb::event::cmap::CmapEvent;
use mongodb::options::{ClientOptions, ServerMonitoringMode};
use mongodb::sync::{Client, Collection, Database};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// What a user needs for an import.
const ROLE: &str = "readWrite on the database";
/// A command that the server does not know: it has no transactions of a connection.
const COMMAND_NOT_FOUND: i32 = 59;
/// TokuMX's error where the collection of a load is there.
const LOADS_INTO_NEW: i32 = 16873;
/// What watches a server ends its connections where it answers late; a load needs its own, and sees by itself that it
/// is lost.
const RARELY: Duration = Duration::from_hours(24);

/// What a load leaves that has failed.
pub(super) const NOTHING: &str = "nothing was imported";

/// A document that the server has refused.
pub(super) struct Refused {
    /// Its place in the batch.
    pub(super) at: usize,
    pub(super) code: i32,
    pub(super) text: String,
}

/// The server.
pub(super) struct Target {
    client: Client,
    options: ClientOptions,
    shown: String,
    name: Name,
}

/// How documents get in.
pub(super) enum Way {
    Load(Load),
    /// With the indexes that are to be built at the end.
    Inserts(Collection<RawDocumentBuf>, Vec<Document>),
}

/// A bulk load that has begun.
pub(super) struct Load {
    database: Database,
    into: Collection<RawDocumentBuf>,
    /// Connections that there were: with a second one the load is gone, and what is inserted is no part of it.
    connections: Arc<AtomicU32>,
    /// The server does not answer there: its load is gone, or goes with the connection.
    is_lost: AtomicBool,
    /// What the server says of how it loads.
    pub(super) note: Option<String>,
}

impl Target {
    pub(super) fn new(options: ClientOptions, shown: String, name: Name) -> Result<Self> {
        let client =
            Client::with_options(options.clone()).map_err(|error| anyhow!("{shown}: {error}"))?;
        Ok(Self { client, options, shown, name })
    }

    fn told(&self, error: &DriverError) -> anyhow::Error {
        explained(error, &self.shown, ROLE)
    }

    fn database(&self) -> Database {
        self.client.database(&self.name.database)
    }

    fn run(&self, command: Document) -> Result<Document> {
        self.database().run_command(command).run().map_err(|error| self.told(&error))
    }

    /// Whether the collection is there; a view is no collection.
    fn exists(&self) -> Result<bool> {
        let filter = doc! { "name": &self.name.collection };
        let reply = self.run(doc! { "listCollections": 1, "filter": filter })?;
        let found = reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
        let found = found.ok().and_then(|found| found.first()).and_then(bson::Bson::as_document);
        if found.is_some_and(|found| found.get_str("type").is_ok_and(|kind| kind == "view")) {
            bail!("{}: it is a view, which takes no documents", self.name);
        }
        Ok(found.is_some())
    }

    /// Begins: a load where the collection is new and the server takes one, unless that is not wanted.
    pub(super) fn begin(&self, asked: &Asked, drop_first: bool, no_load: bool) -> Result<Way> {
        let mut exists = self.exists()?;
        if exists && drop_first {
            self.run(doc! { "drop": &self.name.collection })?;
            exists = false;
        }
        if exists && !(asked.options.is_empty() && asked.indexes.is_empty()) {
            bail!(
                "{}: it is there already, with its own indexes: --index and --primaryKey are for a new one",
                self.name
            );
        }
        if !exists
            && !no_load
            && let Some(load) = self.begin_load(asked)?
        {
            return Ok(Way::Load(load));
        }
        if !exists {
            let mut create = doc! { "create": &self.name.collection };
            create.extend(asked.options.clone());
            self.run(create)?;
        }
        Ok(Way::Inserts(self.database().collection(&self.name.collection), asked.indexes.clone()))
    }

    /// Begins a load; nothing where the server takes none, or another client has made the collection meanwhile.
    fn begin_load(&self, asked: &Asked) -> Result<Option<Load>> {
        let connections = Arc::new(AtomicU32::new(0));
        let client = Client::with_options(self.options_of_one(&connections))
            .map_err(|error| self.told(&error))?;
        let database = client.database(&self.name.database);
        let run = |command| database.run_command(command).run();
        match run(doc! { "beginTransaction": 1 }) {
            Err(error) if code(&error) == Some(COMMAND_NOT_FOUND) => return Ok(None),
            other => other.map_err(|error| self.told(&error))?,
        };
        let indexes = asked.indexes.clone();
        let begun = run(doc! {
            "beginLoad": 1,
            "ns": &self.name.collection,
            "indexes": indexes,
            "options": asked.options.clone(),
        });
        let begun = match begun {
            Err(error) if code(&error) == Some(LOADS_INTO_NEW) => return Ok(None),
            other => other.map_err(|error| self.told(&error))?,
        };
        let note = begun.get_str("note").ok().map(str::to_owned);
        let into = database.collection(&self.name.collection);
        Ok(Some(Load { database, into, connections, is_lost: AtomicBool::new(false), note }))
    }

    /// A client of one connection, which nothing but its own loss ends. What is written waits for the commit alone.
    fn options_of_one(&self, connections: &Arc<AtomicU32>) -> ClientOptions {
        let mut options = self.options.clone();
        options.max_pool_size = Some(1);
        options.min_pool_size = None;
        options.max_idle_time = None;
        options.retry_writes = Some(false);
        options.write_concern = None;
        options.heartbeat_freq = Some(RARELY);
        options.server_monitoring_mode = Some(ServerMonitoringMode::Poll);
        let counted = connections.clone();
        options.cmap_event_handler = Some(EventHandler::callback(move |event| {
            if matches!(event, CmapEvent::ConnectionCreated(_)) {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        }));
        options
    }

    /// Inserts a batch; what is refused of it.
    pub(super) fn insert(&self, way: &Way, batch: &[RawDocumentBuf]) -> Result<Vec<Refused>> {
        let into = match way {
            Way::Load(load) => &load.into,
            Way::Inserts(into, _) => into,
        };
        let inserted = into.insert_many(batch).ordered(false).run();
        if let Way::Load(load) = way {
            load.check_connection(&self.name)?;
        }
        let Err(error) = inserted else { return Ok(Vec::new()) };
        let ErrorKind::InsertMany(failed) = &*error.kind else {
            return Err(match way {
                Way::Load(load) => load.failed(self, &error),
                Way::Inserts(..) => self.told(&error),
            });
        };
        if let Some(concern) = &failed.write_concern_error {
            bail!("{}: the write concern was not met: {}", self.shown, concern.message);
        }
        let refused = failed.write_errors.iter().flatten();
        Ok(refused
            .map(|one| Refused { at: one.index, code: one.code, text: one.message.clone() })
            .collect())
    }

    /// Ends it: what was loaded is there from now on; else indexes are built.
    pub(super) fn finish(&self, way: &Way) -> Result<()> {
        match way {
            Way::Load(load) => {
                let filled = load.database.run_command(doc! { "commitLoad": 1 }).run();
                filled.map_err(|error| load.failed(self, &error).context(NOTHING))?;
                self.commit(load)
            }
            Way::Inserts(_, indexes) if indexes.is_empty() => Ok(()),
            Way::Inserts(_, indexes) => {
                let build = doc! { "createIndexes": &self.name.collection, "indexes": indexes };
                let built = self.run(build);
                built.map(drop).context("the documents are there, and not all of the indexes")
            }
        }
    }

    /// Commits what was loaded, as durable as inserts are by the connection string; in the log at least.
    fn commit(&self, load: &Load) -> Result<()> {
        let mut concern = doc! { "w": "majority", "j": true };
        if let Some(given) = &self.options.write_concern {
            concern.extend(bson::serialize_to_document(given)?);
        }
        let commit = doc! { "commitTransaction": 1, "writeConcern": concern };
        let reply = load.database.run_command(commit).run().map_err(|error| {
            let is_known = code(&error).is_some();
            let what = if is_known {
                NOTHING
            } else {
                "nobody answers whether it was committed: look for the collection"
            };
            load.failed(self, &error).context(what)
        })?;
        match reply.get("writeConcernError") {
            Some(error) => bail!("it is there, and the write concern was not met: {error}"),
            None => Ok(()),
        }
    }

    /// Takes a load back. Where that is not answered the connection's end does it.
    pub(super) fn abandon(way: &Way) {
        if let Way::Load(load) = way
            && !load.is_lost.load(Ordering::Relaxed)
        {
            for command in ["abortLoad", "rollbackTransaction"] {
                let _lost_with_its_connection =
                    load.database.run_command(doc! { command: 1 }).run();
            }
        }
    }
}

impl Load {
    /// An error of the load's connection, in a line.
    fn failed(&self, target: &Target, error: &DriverError) -> anyhow::Error {
        if code(error).is_none() {
            self.is_lost.store(true, Ordering::Relaxed);
        }
        target.told(error)
    }

    fn check_connection(&self, name: &Name) -> Result<()> {
        if self.connections.load(Ordering::Relaxed) > 1 {
            bail!(
                "{name}: the connection of the load was lost, and the load with it; look whether the last documents went into a collection of that name"
            );
        }
        Ok(())
    }
}
