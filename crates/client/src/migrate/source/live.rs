//! A source that the driver speaks to: MongoDB from 4.4 on, FernDB, FerretDB.
//!
//! Always true: ranges are read by bounds in the index of `_id`, which values of every type are in.

use super::{Accounts, Documents, Source, behind};
use crate::failures::{code, explained};
use crate::migrate::facts::{Facts, Identity, Kind, Part, is_true, number};
use crate::migrate::names::{Name, is_internal_database};
use anyhow::{Context, Result};
use bson::{Bson, Document, RawDocumentBuf, Timestamp, doc};
use mongodb::change_stream::event::ResumeToken;
use mongodb::sync::{ChangeStream, Client, Cursor};
use std::time::Duration;

/// What a user needs to read everything.
const ROLE: &str = "backup on admin (and clusterMonitor for its sizes)";

/// What a server says of a collection that it has not.
const NAMESPACE_NOT_FOUND: i32 = 26;
const UNAUTHORIZED: i32 = 13;
/// The time from which on changes are asked for is no longer in the source's log of them.
const HISTORY_LOST: i32 = 286;

/// Documents that a batch may have; servers end one at 16 MiB before.
const BATCH: i32 = 10_000;

/// How long the source may wait for a change before it says that there is none.
const STREAM_WAIT: Duration = Duration::from_millis(500);

/// A server as a source.
pub(crate) struct LiveSource {
    client: Client,
    shown: String,
    /// A router of a sharded cluster.
    pub(crate) is_router: bool,
    pub(crate) identity: Option<Identity>,
}

impl LiveSource {
    /// Connects, and asks who is there.
    pub(crate) fn new(client: Client, shown: String) -> Result<Self> {
        let hello = client.database("admin").run_command(doc! { "hello": 1 }).run();
        let hello = hello.map_err(|error| explained(&error, &shown, ROLE))?;
        let is_router = hello.get_str("msg").is_ok_and(|told| told == "isdbgrid");
        let identity = Identity::of(&hello);
        Ok(Self { client, shown, is_router, identity })
    }

    fn command(&self, database: &str, command: Document) -> Result<Document> {
        let reply = self.client.database(database).run_command(command).run();
        reply.map_err(|error| self.told(error))
    }

    /// Keeps the driver's error below the line that explains it, for who asks whether it passes.
    fn told(&self, error: mongodb::error::Error) -> anyhow::Error {
        let line = explained(&error, &self.shown, ROLE);
        if crate::failures::is_passing(&anyhow::Error::from(error.clone())) {
            return anyhow::Error::from(error);
        }
        line
    }

    fn cursor(&self, database: &str, command: Document) -> Result<Cursor<Document>> {
        let database = self.client.database(database);
        let cursor = database.run_cursor_command(command).batch_size(BATCH as u32).run();
        cursor.map_err(|error| self.told(error))
    }

    fn all(&self, database: &str, command: Document) -> Result<Vec<Document>> {
        let all = self.cursor(database, command)?.map(|one| one.map_err(|error| self.told(error)));
        all.collect()
    }

    fn documents(&self, database: &str, command: Document) -> Result<Documents<'_>> {
        let mut cursor = self.cursor(database, command)?;
        Ok(Box::new(std::iter::from_fn(move || match cursor.advance() {
            Ok(true) => Some(Ok(cursor.current().to_owned())),
            Ok(false) => None,
            Err(error) => Some(Err(self.told(error))),
        })))
    }

    /// The facts of what `listCollections` says. None where it is gone by now, or has got another name.
    fn facts(&self, database: &str, listed: &Document) -> Result<Option<Facts>> {
        let name = Name::new(database, listed.get_str("name").context("a collection has no name")?);
        let options = listed.get_document("options").cloned().unwrap_or_default();
        let mut facts = Facts::new(name, listed.get_str("type").unwrap_or_default(), options);
        if facts.kind == Kind::View {
            return Ok(Some(facts));
        }
        let collection = facts.name.collection.clone();
        let asked = doc! { "listIndexes": &collection };
        let indexes = self.client.database(database).run_cursor_command(asked).run();
        match indexes.and_then(Iterator::collect) {
            Ok(indexes) => facts.indexes = indexes,
            // It may have none; what it lacks is found by who compares.
            Err(_) if facts.kind != Kind::Ordered => {}
            Err(error) if code(&error) == Some(NAMESPACE_NOT_FOUND) => return Ok(None),
            Err(error) => return Err(self.told(error)),
        }
        // Sizes are for the progress alone: a user may be kept from them.
        if let Ok(sizes) = self.command(database, doc! { "collStats": &collection }) {
            facts.documents = number(sizes.get("count")) as u64;
            facts.bytes = number(sizes.get("size")) as u64;
        }
        if is_true(facts.options.get("partitioned")) {
            facts
                .set_partitions(&self.command(database, doc! { "getPartitionInfo": &collection })?);
        }
        if facts.kind == Kind::Ordered && !self.has_bounds(&facts.name) {
            facts.kind = Kind::Natural;
        }
        Ok(Some(facts))
    }

    /// Whether ranges of the collection can be read; FerretDB knows no bounds.
    fn has_bounds(&self, name: &Name) -> bool {
        let bound = doc! { "_id": Bson::MinKey };
        let asked =
            doc! { "find": &name.collection, "min": bound, "hint": { "_id": 1 }, "limit": 1 };
        self.command(&name.database, asked).is_ok()
    }

    /// One collection, as it is now.
    pub(crate) fn one(&self, name: &Name) -> Result<Option<Facts>> {
        let asked = doc! { "listCollections": 1, "filter": { "name": &name.collection } };
        let listed = self.all(&name.database, asked)?;
        let Some(listed) = listed.first() else { return Ok(None) };
        self.facts(&name.database, listed)
    }

    /// The documents with these `_id`s, as they are now or were at a time.
    pub(crate) fn with_ids(
        &self,
        name: &Name,
        ids: &[Bson],
        at: Option<Timestamp>,
    ) -> Result<Vec<RawDocumentBuf>> {
        let mut asked = doc! { "find": &name.collection, "filter": { "_id": { "$in": ids } } };
        read_at(&mut asked, at);
        self.documents(&name.database, asked)?.collect()
    }

    /// The changes of all databases from a token or a time on, or from now. None where the source has no change streams.
    pub(crate) fn watch(&self, from: Option<&Bson>) -> Result<Option<ChangeStream<Document>>> {
        let watch = self.client.watch().max_await_time(STREAM_WAIT);
        let (watch, is_token) = match from {
            Some(Bson::Timestamp(time)) => (watch.start_at_operation_time(*time), false),
            Some(token) => {
                let token: ResumeToken = bson::deserialize_from_bson(token.clone())?;
                (watch.resume_after(token), true)
            }
            None => (watch, false),
        };
        let is_refused = |code: i32| !matches!(code, UNAUTHORIZED | HISTORY_LOST);
        match watch.run() {
            Ok(stream) => Ok(Some(stream.with_type())),
            Err(error) if !is_token && code(&error).is_some_and(is_refused) => Ok(None),
            Err(error) => Err(self.told(error)),
        }
    }

    /// A time whose state can be read of every collection, now and for a while. None where the source cannot do that.
    pub(crate) fn snapshot_time(&self, name: &Name) -> Option<Timestamp> {
        let concern = doc! { "level": "snapshot" };
        let asked = doc! { "find": &name.collection, "limit": 1, "readConcern": concern };
        let reply = self.command(&name.database, asked).ok()?;
        reply.get_document("cursor").ok()?.get_timestamp("atClusterTime").ok()
    }

    /// A time that everything is behind that was acknowledged to anyone before now.
    pub(crate) fn time(&self) -> Result<Timestamp> {
        let reply = self.command("admin", doc! { "ping": 1 })?;
        reply.get_timestamp("operationTime").context("the source tells no time of its operations")
    }
}

/// Has a command read the state of a time.
fn read_at(command: &mut Document, at: Option<Timestamp>) {
    if let Some(at) = at {
        command.insert("readConcern", doc! { "level": "snapshot", "atClusterTime": at });
    }
}

impl Source for LiveSource {
    fn list(&self) -> Result<Vec<Facts>> {
        let reply = self.command("admin", doc! { "listDatabases": 1, "nameOnly": true })?;
        let mut found = Vec::new();
        for database in reply.get_array("databases").map(Vec::as_slice).unwrap_or_default() {
            let name = database.as_document().and_then(|one| one.get_str("name").ok());
            let Some(database) = name.filter(|name| !is_internal_database(name)) else { continue };
            for listed in self.all(database, doc! { "listCollections": 1 })? {
                let name = Name::new(database, listed.get_str("name").unwrap_or_default());
                if !name.is_internal() {
                    found.extend(self.facts(database, &listed)?);
                }
            }
        }
        Ok(found)
    }

    fn read<'a>(&'a self, facts: &Facts, part: &Part) -> Result<Documents<'a>> {
        let mut asked = doc! { "find": &facts.name.collection };
        if facts.kind == Kind::Ordered {
            asked.extend(doc! { "sort": { "_id": 1 }, "hint": { "_id": 1 } });
            let (min, max) = part.bounds();
            asked.extend(min.map(|min| ("min".to_owned(), Bson::Document(min))));
            asked.extend(max.map(|max| ("max".to_owned(), Bson::Document(max))));
        }
        read_at(&mut asked, part.at);
        let documents = self.documents(&facts.name.database, asked)?;
        Ok(behind(documents, part.last.as_ref()))
    }

    fn sample(&self, facts: &Facts, count: usize) -> Vec<Bson> {
        let pipeline = vec![
            doc! { "$sample": { "size": count as i64 } },
            doc! { "$project": { "_id": 1 } },
            doc! { "$sort": { "_id": 1 } },
        ];
        let asked =
            doc! { "aggregate": &facts.name.collection, "pipeline": pipeline, "cursor": {} };
        // Where it is refused the collection is read as one range.
        let found = self.all(&facts.name.database, asked).unwrap_or_default();
        found.iter().filter_map(|one| one.get("_id").cloned()).collect()
    }

    fn accounts(&self) -> Result<Accounts> {
        let read = |collection: &str| self.all("admin", doc! { "find": collection });
        let (users, roles) = (read("system.users")?, read("system.roles")?);
        Ok(Accounts { users, roles, old_users: Vec::new() })
    }

    fn live(&self) -> Option<&LiveSource> {
        Some(self)
    }
}
