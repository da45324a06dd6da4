//! A source that speaks only the messages from before OP_MSG: TokuMX, and MongoDB up to 4.2, which the driver refuses.
//!
//! Always true: each reader has a connection of its own; a cursor that is lost is opened again behind the last document.

use super::old_login::{OldUser, log_in};
use super::old_wire::{Connection, SECONDARY_OK, hello};
use super::{Accounts, Documents, Source, behind};
use crate::migrate::facts::{Facts, Kind, Part, is_true, number};
use crate::migrate::names::{Name, is_internal_database};
use anyhow::{Context, Result, anyhow};
use bson::{Document, RawDocumentBuf, doc};
use os::Os;
use std::collections::VecDeque;

/// What the driver wants at least: MongoDB 4.4.
const DRIVER_WIRE_VERSION: f64 = 9.0;
/// Since this one (MongoDB 3.0) collections are listed by commands and not by reading `system.namespaces`, and users log
/// in by SCRAM.
const LISTING_WIRE_VERSION: f64 = 3.0;
/// More collections than this in one database are no list that a server gives at once.
const LIST_BATCH: i32 = 1_000_000;

/// Where an old server is, and as whom to log in.
#[derive(Clone)]
pub(crate) struct OldAddress {
    os: Os,
    pub(crate) address: String,
    pub(crate) shown: String,
    pub(crate) user: Option<OldUser>,
}

impl OldAddress {
    /// From what the driver reads in a connection string. None where no old server can be meant.
    pub(crate) fn of(
        os: &Os,
        options: &mongodb::options::ClientOptions,
        shown: &str,
    ) -> Option<Self> {
        if matches!(options.tls, Some(mongodb::options::Tls::Enabled(_))) {
            return None;
        }
        let user = options.credential.as_ref().map(|credential| OldUser {
            name: credential.username.clone().unwrap_or_default(),
            password: credential.password.clone().unwrap_or_default(),
            database: credential.source.clone().unwrap_or_else(|| "admin".to_owned()),
        });
        let hosts = || options.hosts.iter().map(ToString::to_string);
        // Any member will do that answers; where none does the driver says what is wrong.
        let address = hosts().find(|host| Connection::open(host).is_ok())?;
        Some(Self { os: os.clone(), address, shown: shown.to_owned(), user })
    }

    fn open(&self) -> Result<Connection> {
        let mut connection = Connection::open(&self.address).with_context(|| self.shown.clone())?;
        if let Some(user) = &self.user {
            let version = number(hello(&mut connection)?.get("maxWireVersion"));
            let knows_scram = version >= LISTING_WIRE_VERSION;
            let done = log_in(&self.os, &mut connection, user, knows_scram);
            done.with_context(|| self.shown.clone())?;
        }
        Ok(connection)
    }
}

/// Whether the driver would refuse the server for its age.
pub(crate) fn is_old(address: &OldAddress) -> bool {
    let asked = Connection::open(&address.address).and_then(|mut server| hello(&mut server));
    asked.is_ok_and(|hello| number(hello.get("maxWireVersion")) < DRIVER_WIRE_VERSION)
}

/// An old server as a source.
pub(crate) struct OldSource {
    address: OldAddress,
    wire_version: f64,
    /// What it calls itself, for who reads along.
    pub(crate) version: String,
}

impl OldSource {
    /// Connects, and asks who is there.
    pub(crate) fn new(address: OldAddress) -> Result<Self> {
        let mut server = address.open()?;
        let wire_version = number(hello(&mut server)?.get("maxWireVersion"));
        let about = server.command("admin", &doc! { "buildInfo": 1 })?.unwrap_or_default();
        let tokumx = about.get_str("tokumxVersion").map(|version| format!("TokuMX {version}"));
        let mongodb =
            || format!("MongoDB {}", about.get_str("version").unwrap_or("of unknown version"));
        Ok(Self { wire_version, version: tokumx.unwrap_or_else(|_| mongodb()), address })
    }

    /// Runs a command, and tells what to do where it is refused.
    fn command(
        &self,
        server: &mut Connection,
        database: &str,
        command: &Document,
    ) -> Result<Document> {
        let name = command.keys().next().cloned().unwrap_or_default();
        server.command(database, command)?.map_err(|error| {
            anyhow!(
                "{}: {name} on {database} is refused ({error}); a user needs to read all",
                self.address.shown
            )
        })
    }

    /// Everything in a collection; only for those that describe others.
    fn all(&self, database: &str, collection: &str) -> Result<Vec<Document>> {
        let documents = self.query(&format!("{database}.{collection}"), &doc! {})?;
        documents.map(|one| Ok(Document::try_from(&*one?)?)).collect()
    }

    fn query<'a>(&self, namespace: &str, query: &Document) -> Result<Documents<'a>> {
        let mut server = self.address.open()?;
        let query = RawDocumentBuf::try_from(query)?;
        let first = server.query(namespace, SECONDARY_OK, 0, &query)?;
        let (mut left, mut cursor) = (VecDeque::from(first.documents), first.cursor);
        let namespace = namespace.to_owned();
        Ok(Box::new(std::iter::from_fn(move || {
            while left.is_empty() && cursor != 0 {
                match server.get_more(&namespace, cursor) {
                    Ok(reply) => (left, cursor) = (reply.documents.into(), reply.cursor),
                    Err(error) => {
                        cursor = 0;
                        return Some(Err(error));
                    }
                }
            }
            left.pop_front().map(Ok)
        })))
    }

    /// Collections with their indexes, as MongoDB up to 2.6 and TokuMX keep them: as documents.
    fn list_documents(&self, database: &str) -> Result<Vec<Facts>> {
        let indexes = self.all(database, "system.indexes")?;
        let mut found = Vec::new();
        for listed in self.all(database, "system.namespaces")? {
            let name = listed.get_str("name").ok().and_then(Name::parse);
            let Some(name) = name.filter(|name| !name.is_internal()) else { continue };
            let options = listed.get_document("options").cloned().unwrap_or_default();
            let text = name.to_string();
            let mut facts = Facts::new(name, "", options);
            let own = indexes.iter().filter(|index| index.get_str("ns").is_ok_and(|ns| ns == text));
            facts.indexes = own.cloned().collect();
            found.push(facts);
        }
        Ok(found)
    }

    /// The same by the commands since MongoDB 3.0.
    fn list_by_commands(&self, server: &mut Connection, database: &str) -> Result<Vec<Facts>> {
        let cursor = doc! { "batchSize": LIST_BATCH };
        let asked = doc! { "listCollections": 1, "cursor": cursor.clone() };
        let mut found = Vec::new();
        for listed in first_batch(&self.command(server, database, &asked)?) {
            let name = Name::new(database, listed.get_str("name").unwrap_or_default());
            if name.is_internal() {
                continue;
            }
            let options = listed.get_document("options").cloned().unwrap_or_default();
            let mut facts = Facts::new(name, listed.get_str("type").unwrap_or_default(), options);
            if facts.kind != Kind::View {
                let asked =
                    doc! { "listIndexes": &facts.name.collection, "cursor": cursor.clone() };
                facts.indexes = first_batch(&self.command(server, database, &asked)?);
            }
            found.push(facts);
        }
        Ok(found)
    }
}

fn first_batch(reply: &Document) -> Vec<Document> {
    let batch = reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
    let batch = batch.map(Vec::as_slice).unwrap_or_default();
    batch.iter().filter_map(|one| one.as_document().cloned()).collect()
}

impl Source for OldSource {
    fn list(&self) -> Result<Vec<Facts>> {
        let mut server = self.address.open()?;
        let reply = self.command(&mut server, "admin", &doc! { "listDatabases": 1 })?;
        let mut found = Vec::new();
        for database in reply.get_array("databases").map(Vec::as_slice).unwrap_or_default() {
            let name = database.as_document().and_then(|one| one.get_str("name").ok());
            let Some(database) = name.filter(|name| !is_internal_database(name)) else { continue };
            let collections = if self.wire_version < LISTING_WIRE_VERSION {
                self.list_documents(database)?
            } else {
                self.list_by_commands(&mut server, database)?
            };
            for mut facts in collections {
                let collection = facts.name.collection.clone();
                let sizes = server.command(database, &doc! { "collStats": &collection })?;
                let sizes = sizes.unwrap_or_default();
                facts.documents = number(sizes.get("count")) as u64;
                facts.bytes = number(sizes.get("size")) as u64;
                if is_true(facts.options.get("partitioned")) {
                    let asked = doc! { "getPartitionInfo": &collection };
                    facts.set_partitions(&self.command(&mut server, database, &asked)?);
                }
                let has_id = facts
                    .indexes
                    .iter()
                    .any(|index| index.get_document("key").is_ok_and(|key| key.keys().eq(["_id"])));
                if facts.kind == Kind::Ordered && !has_id {
                    facts.kind = Kind::Natural;
                }
                found.push(facts);
            }
        }
        Ok(found)
    }

    fn read<'a>(&'a self, facts: &Facts, part: &Part) -> Result<Documents<'a>> {
        let mut asked = doc! { "$query": {} };
        if facts.kind == Kind::Ordered {
            asked.extend(doc! { "$orderby": { "_id": 1 }, "$hint": { "_id": 1 } });
            let (min, max) = part.bounds();
            for (name, bound) in [("$min", min), ("$max", max)] {
                if let Some(bound) = bound {
                    asked.insert(name, bound);
                }
            }
        }
        let documents = self.query(&facts.name.to_string(), &asked)?;
        Ok(behind(documents, part.last.as_ref()))
    }

    fn accounts(&self) -> Result<Accounts> {
        let mut accounts = Accounts::default();
        let mut server = self.address.open()?;
        let reply = self.command(&mut server, "admin", &doc! { "listDatabases": 1 })?;
        let databases = reply.get_array("databases").map(Vec::as_slice).unwrap_or_default();
        for database in databases {
            let name = database.as_document().and_then(|one| one.get_str("name").ok());
            let Some(database) = name.filter(|name| *name != "local") else { continue };
            for user in self.all(database, "system.users")? {
                if user.contains_key("credentials") {
                    accounts.users.push(user);
                } else {
                    accounts.old_users.push((database.to_owned(), user));
                }
            }
        }
        if !accounts.users.is_empty() {
            accounts.roles = self.all("admin", "system.roles")?;
        }
        Ok(accounts)
    }

    fn left_out(&self) -> Vec<(String, String)> {
        let what =
            "it tells no changes: what is written to it while it is copied is not taken over";
        vec![(self.version.clone(), what.to_owned())]
    }
}
