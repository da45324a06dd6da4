//! Where a migration writes to: a server that the driver speaks to.
//!
//! Always true: what the target refuses of a collection or an index is left out by its name, and told with the error; where
//! it would be another one without it, the whole is refused.

mod write;

pub(crate) use write::DUPLICATE_KEY;

use super::facts::{Facts, Identity};
use super::names::{Name, is_internal_database};
use super::translate::left_out_next;
use crate::failures::{code, explained, is_passing, retried};
use anyhow::{Result, anyhow};
use bson::{Document, RawDocument, RawDocumentBuf, doc};
use mongodb::sync::Client;
use os::Os;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

/// What a user needs to write everything, and to read it for the comparison.
const ROLE: &str = "restore and readAnyDatabase on admin, the second for the comparison; readWriteAnyDatabase and dbAdminAnyDatabase do, too, without --users";
/// Documents that a batch may have; servers end one at 16 MiB before.
const READ_BATCH: u32 = 10_000;
const NAMESPACE_EXISTS: i32 = 48;
const NAMESPACE_NOT_FOUND: i32 = 26;
/// The longest that is told of a server's error.
const ERROR_CHARACTERS: usize = 300;

/// What the target has left out of a collection or an index, and why.
pub(crate) struct LeftOut {
    pub(crate) option: String,
    pub(crate) error: String,
}

/// A server as a target.
pub(crate) struct Target {
    os: Os,
    client: Client,
    shown: String,
    identity: Option<Identity>,
    /// Collections that judge documents by a rule which those that are there already need not obey.
    validated: Mutex<BTreeSet<Name>>,
}

impl Target {
    /// Connects.
    pub(crate) fn new(os: &Os, client: Client, shown: String) -> Result<Self> {
        let hello = client.database("admin").run_command(doc! { "hello": 1 }).run();
        let hello = hello.map_err(|error| explained(&error, &shown, ROLE))?;
        let identity = Identity::of(&hello);
        Ok(Self { os: os.clone(), client, shown, identity, validated: Mutex::default() })
    }

    /// Whether it is the server or the set that answers so.
    pub(crate) fn is(&self, other: &Identity) -> bool {
        self.identity.as_ref().is_some_and(|own| own.is(other))
    }

    /// Runs a command; the driver's own error stands below the line where it may be asked for its code.
    pub(crate) fn command(&self, database: &str, command: &RawDocumentBuf) -> Result<Document> {
        let mut is_waiting = false;
        retried(&self.os, || {
            let reply = self.client.database(database).run_raw_command(command.clone()).run();
            reply.map_err(|error| {
                let error = anyhow::Error::from(error);
                if is_passing(&error) && !is_waiting {
                    is_waiting = true;
                    self.say_waiting();
                }
                error
            })
        })
    }

    fn run(&self, database: &str, command: &Document) -> Result<Document> {
        self.command(database, &RawDocumentBuf::try_from(command)?)
    }

    /// The next minutes may pass without anything to see.
    fn say_waiting(&self) {
        let _nobody_reads_it = writeln!(std::io::stderr(), "waiting for {}", self.shown);
    }

    /// An error in a line that says what to do.
    pub(crate) fn explain(&self, error: anyhow::Error) -> anyhow::Error {
        match error.downcast_ref() {
            Some(driver) => explained(driver, &self.shown, ROLE),
            None => error,
        }
    }

    /// Lets documents of a collection with a validator through: the source has them, too.
    pub(crate) fn expect_validator(&self, facts: &Facts) {
        if facts.options.contains_key("validator") {
            self.validated
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(facts.name.clone());
        }
    }

    fn append_bypass(&self, name: &Name, command: &mut RawDocumentBuf) {
        if self.validated.lock().unwrap_or_else(PoisonError::into_inner).contains(name) {
            command.append(bson::raw::cstr!("bypassDocumentValidation"), true);
        }
    }

    /// Whether a collection or view is there.
    pub(crate) fn has(&self, name: &Name) -> Result<bool> {
        let filter = doc! { "name": &name.collection };
        let asked = doc! { "listCollections": 1, "nameOnly": true, "filter": filter };
        let reply = self.run(&name.database, &asked).map_err(|error| self.explain(error))?;
        let found = reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
        Ok(found.is_ok_and(|found| !found.is_empty()))
    }

    /// The names of a collection's indexes.
    pub(crate) fn index_names(&self, name: &Name) -> Result<BTreeSet<String>> {
        let collection =
            self.client.database(&name.database).collection::<Document>(&name.collection);
        let names = collection.list_index_names().run();
        let names = names.map_err(|error| explained(&error, &self.shown, ROLE))?;
        Ok(names.into_iter().collect())
    }

    /// Every document of a collection, in any order.
    pub(crate) fn documents(&self, name: &Name, mut each: impl FnMut(&RawDocument)) -> Result<()> {
        let database = self.client.database(&name.database);
        let asked = doc! { "find": &name.collection };
        let mut cursor = database.run_cursor_command(asked).batch_size(READ_BATCH).run()?;
        while cursor.advance()? {
            each(cursor.current());
        }
        Ok(())
    }

    /// Every collection and view that is there.
    pub(crate) fn names(&self) -> Result<BTreeSet<Name>> {
        let mut names = BTreeSet::new();
        let told = |error: mongodb::error::Error| explained(&error, &self.shown, ROLE);
        for database in self.client.list_database_names().run().map_err(told)? {
            if is_internal_database(&database) {
                continue;
            }
            let found = self.client.database(&database).list_collection_names().run();
            let found = found.map_err(told)?;
            names.extend(found.into_iter().map(|collection| Name::new(&database, collection)));
        }
        Ok(names)
    }

    /// Makes a collection or view, without the options that the target refuses.
    pub(crate) fn create(&self, facts: &Facts, options: Document) -> Result<Vec<LeftOut>> {
        self.without_refused(options, |options| {
            let mut command = doc! { "create": &facts.name.collection };
            command.extend(options.clone());
            command.insert("writeConcern", logged());
            match self.run(&facts.name.database, &command) {
                Err(error) if driver_code(&error) == Some(NAMESPACE_EXISTS) => Ok(()),
                result => result.map(drop),
            }
        })
    }

    /// Makes one index, without the options that the target refuses; waits until it is built.
    pub(crate) fn create_index(&self, name: &Name, index: Document) -> Result<Vec<LeftOut>> {
        self.without_refused(index, |index| {
            let indexes = vec![index.clone()];
            let command = doc! { "createIndexes": &name.collection, "indexes": indexes, "writeConcern": logged() };
            self.run(&name.database, &command).map(drop)
        })
    }

    fn without_refused(
        &self,
        mut options: Document,
        make: impl Fn(&Document) -> Result<()>,
    ) -> Result<Vec<LeftOut>> {
        let mut left_out = Vec::new();
        loop {
            let Err(error) = make(&options) else { return Ok(left_out) };
            // Only an answer of the server is about an option.
            if driver_code(&error).is_none() || is_passing(&error) {
                return Err(self.explain(error));
            }
            let text = shortened(&error);
            let Some(option) = left_out_next(&options, &text) else { return Err(anyhow!(text)) };
            options.remove(&option);
            left_out.push(LeftOut { option, error: text });
        }
    }

    /// Gives a partitioned collection the partitions of its source.
    pub(crate) fn add_partition(&self, name: &Name, max: &Document) -> Result<()> {
        let command = doc! { "addPartition": &name.collection, "newMax": max.clone() };
        self.run(&name.database, &command).map(drop).map_err(|error| anyhow!(shortened(&error)))
    }

    pub(crate) fn drop(&self, name: &Name) -> Result<()> {
        let command = doc! { "drop": &name.collection, "writeConcern": logged() };
        match self.run(&name.database, &command) {
            Err(error) if driver_code(&error) == Some(NAMESPACE_NOT_FOUND) => Ok(()),
            result => result.map(drop).map_err(|error| self.explain(error)),
        }
    }

    /// Runs a command of `admin`, for users and roles.
    pub(crate) fn admin(&self, command: &Document) -> Result<Document> {
        self.run("admin", command).map_err(|error| self.explain(error))
    }
}

fn driver_code(error: &anyhow::Error) -> Option<i32> {
    error.downcast_ref().and_then(code)
}

/// What is acknowledged is in the target's log: the state must not know of a collection or a drop that a crash of the
/// target undoes.
fn logged() -> Document {
    doc! { "w": 1, "j": true }
}

/// A server's error, short enough for a line.
fn shortened(error: &anyhow::Error) -> String {
    let text = match error.downcast_ref::<mongodb::error::Error>().map(|error| &*error.kind) {
        Some(mongodb::error::ErrorKind::Command(command)) => {
            format!("{} (code {})", command.message, command.code)
        }
        _ => format!("{error:#}"),
    };
    let text: String = text.chars().take(ERROR_CHARACTERS).collect();
    text.replace(['\n', '\r'], " ")
}
