//! A finished operation, told of in the log and in `system.profile` where the profiler's settings
//! want it.
//!
//! From → to: a command leaves its [`OpFigures`](serverstate::profiler::OpFigures); the thread knows what
//! was looked at ([`Examined`]); both become one [`Entry`], in the log's words and in the profile's.
//!
//! Always true: an entry that cannot be written fails no operation; writing one makes none.

use crate::command::Command;
use crate::context::Context;
use bson::raw::RawDocumentBuf;
use bson::{Bson, DateTime, Document, RawBsonRef, RawDocument, doc};
use catalog::{CollectionOptions, Namespace, TxnKind};
use dispatch::OpKind;
use dispatch::rules::Counter;
use errors::{Code, Error, Result};
use os::{Wait, Waits};
use query::{Examined, Interrupt};
use serverstate::profiler::{COLLECTION, OpFigures};
use serverstate::security::Identity;
use serverstate::{Connection, LogEvent, ServerState, Severity};
use std::time::Duration;

/// What it may hold, in bytes, where the client did not make it.
const PROFILE_BYTES: i64 = 1 << 20;
/// A longer command would leave no room for others.
const MAX_COMMAND_BYTES: usize = 50 << 10;
/// How often an entry is tried to be written before it is left out.
const WRITE_ATTEMPTS: usize = 5;

/// Makes the collection that a level above 0 of a database writes to.
pub(crate) fn make_collection(
    service: &ServerState,
    interrupt: &dyn Interrupt,
    database: &str,
) -> Result<()> {
    let namespace = Namespace::new(database, COLLECTION)?;
    let catalog = &service.catalog;
    if catalog.collection(&namespace).is_some() {
        return Ok(());
    }
    let options = RawDocumentBuf::try_from(&doc! { "capped": true, "size": PROFILE_BYTES })?;
    let options = CollectionOptions::parse(&options)?;
    match catalog.create_collection(&namespace, &options, &|| interrupt.check()) {
        Err(error) if error.code() != Code::NAMESPACE_EXISTS => Err(error),
        _ => Ok(()),
    }
}

/// A finished operation.
pub(crate) struct Entry<'a> {
    pub(crate) service: &'a ServerState,
    pub(crate) connection: &'a Connection,
    pub(crate) command: &'static Command,
    pub(crate) op: OpKind,
    /// The one that it was sent to.
    pub(crate) database: &'a str,
    pub(crate) collection: Option<&'a Namespace>,
    pub(crate) identity: Option<&'a Identity>,
    pub(crate) shown: Shown<'a>,
    pub(crate) figures: &'a OpFigures,
    pub(crate) is_explained: bool,
    pub(crate) waits: Waited,
    pub(crate) reply_bytes: usize,
    /// Without what it waited because the client asked for it.
    pub(crate) time: Duration,
    pub(crate) examined: Examined,
    pub(crate) error: Option<&'a Error>,
}

/// Where the command is that an entry shows.
pub(crate) enum Shown<'a> {
    /// In the request.
    Of(&'a Context<'a>),
    /// In a copy of it ([`kept_command`]).
    Kept(&'a RawDocument),
}

/// What an operation waited for.
pub(crate) enum Waited {
    /// What this thread has since this.
    Since(Waits),
    /// This.
    Kept(Waits),
}

/// The command as an entry shows it, for who tells of it once the request is gone.
pub(crate) fn kept_command(context: &Context<'_>) -> RawDocumentBuf {
    let command = shown_command(context);
    if command.as_bytes().len() <= MAX_COMMAND_BYTES {
        return command.to_owned();
    }
    RawDocumentBuf::try_from(&shortened(command)).unwrap_or_default()
}

/// The command; of an update or delete of one statement that statement.
fn shown_command<'c>(context: &'c Context<'_>) -> &'c RawDocument {
    let list = match context.command.counter {
        Counter::Update => "updates",
        Counter::Delete => "deletes",
        _ => return &context.shown,
    };
    if let Some(section) = context.sequence(list) {
        return match section {
            [only] => only,
            _ => &context.shown,
        };
    }
    let statements = context.body.get_array(list).ok();
    let mut statements = statements.into_iter().flatten().flatten();
    match (statements.next(), statements.next()) {
        (Some(RawBsonRef::Document(only)), None) => only,
        _ => &context.shown,
    }
}

impl Entry<'_> {
    /// Tells of it where the settings want it.
    pub(crate) fn tell(&self) {
        let service = self.service;
        let profiler = &service.profiler;
        let is_slow =
            || self.time.as_millis() >= u128::from(profiler.slow_ms()) && is_sampled(service);
        if !profiler.is_active() {
            if is_slow() {
                self.log();
            }
            return;
        }
        let database = self.database();
        let settings = profiler.settings(database);
        let picked = match &settings.filter {
            None => is_slow(),
            Some(picked) => RawDocumentBuf::try_from(&self.profile())
                .is_ok_and(|entry| picked.filter.matches(&entry).unwrap_or(false)),
        };
        if picked {
            self.log();
        }
        if !self.command.is_profiled {
            return;
        }
        // What a member of several writes all members get.
        let keeps = !service.replication.is_of_several() && !service.follows();
        if keeps && (settings.level == 2 || settings.level == 1 && picked) {
            // The operation itself went well.
            let _unwritten = self.write(database);
        }
    }

    /// The database whose profile it stands in.
    fn database(&self) -> &str {
        self.collection.map_or(self.database, Namespace::database)
    }

    /// A scan that an index would have spared.
    fn note_scan(&self) {
        if let Some(namespace) = self.collection {
            let Examined { scanned, found_by_scan, .. } = self.examined;
            let advice = &self.service.index_advice;
            advice.note_scan(namespace, self.command(), scanned, found_by_scan);
        }
    }

    fn log(&self) {
        self.note_scan();
        let mut attributes = doc! { "type": "command", "ns": self.namespace() };
        if let Some(application) = self.application() {
            attributes.insert("appName", application);
        }
        self.add_figures(&mut attributes, "numYields");
        attributes.insert("reslen", self.reply_bytes as i64);
        attributes.insert("remote", &self.connection.info().remote);
        attributes.insert("protocol", self.protocol());
        attributes.insert("durationMillis", self.time.as_millis() as i64);
        self.service.host.log(&LogEvent {
            severity: Severity::Info,
            component: "COMMAND",
            id: 51803,
            context: &format!("conn{}", self.connection.id()),
            message: "Slow query",
            attributes,
        });
    }

    /// The entry as `system.profile` has it.
    fn profile(&self) -> Document {
        let mut entry = doc! { "op": self.kind(), "ns": self.namespace() };
        self.add_figures(&mut entry, "numYield");
        entry.insert("responseLength", self.reply_bytes as i64);
        entry.insert("protocol", self.protocol());
        entry.insert("millis", self.time.as_millis() as i64);
        entry.insert("ts", DateTime::from_millis(self.service.os.clock.wall_ms()));
        let remote = &*self.connection.info().remote;
        entry.insert("client", remote.rsplit_once(':').map_or(remote, |(host, _)| host));
        if let Some(application) = self.application() {
            entry.insert("appName", application);
        }
        let identity = self.identity;
        let users: Vec<Bson> = identity
            .map(|id| Bson::Document(doc! { "user": &id.name.user, "db": &id.name.db }))
            .into_iter()
            .collect();
        entry.insert("allUsers", users);
        entry.insert("user", identity.map_or(String::new(), |id| id.name.to_string()));
        entry
    }

    /// What the log and the profile have in common.
    fn add_figures(&self, to: &mut Document, yields: &str) {
        let OpFigures { returned, inserted, matched, modified, deleted, .. } = *self.figures;
        to.insert("command", shortened(self.command()));
        if let Some(originating) = &self.figures.originating {
            to.insert("originatingCommand", shortened(originating));
        }
        if self.figures.cursor != 0 {
            to.insert("cursorid", self.figures.cursor);
        }
        if let (Some(summary), true) = (self.examined.plan_summary(), !self.is_explained) {
            to.insert("planSummary", summary);
            to.insert("keysExamined", self.examined.keys as i64);
            to.insert("docsExamined", self.examined.documents as i64);
        }
        if self.examined.sorts {
            to.insert("hasSortStage", true);
        }
        for (name, count) in [
            ("nMatched", matched),
            ("nModified", modified),
            ("ninserted", inserted),
            ("ndeleted", deleted),
        ] {
            if let Some(count) = count {
                to.insert(name, count as i64);
            }
        }
        if self.figures.upserted > 0 {
            to.insert("upsert", true);
        }
        if self.figures.exhausted {
            to.insert("cursorExhausted", true);
        }
        to.insert(yields, 0_i64);
        if let Some(returned) = returned {
            to.insert("nreturned", returned as i64);
        }
        if let Some(error) = self.error {
            to.insert("ok", 0_i32);
            to.insert("errMsg", error.message());
            to.insert("errName", error.code().name().into_owned());
            to.insert("errCode", error.code().0);
        }
        to.insert("locks", Document::new());
        let waits = storage_waits(match self.waits {
            Waited::Since(before) => Waits::now().since(before),
            Waited::Kept(waits) => waits,
        });
        if !waits.is_empty() {
            to.insert("storage", waits);
        }
    }

    fn namespace(&self) -> String {
        self.connection.operation.namespace()
    }

    fn kind(&self) -> &'static str {
        match self.command.counter {
            Counter::Query => "query",
            Counter::GetMore => "getmore",
            Counter::Insert => "insert",
            Counter::Update => "update",
            Counter::Delete => "remove",
            Counter::Command => "command",
        }
    }

    fn command(&self) -> &RawDocument {
        match self.shown {
            Shown::Of(context) => shown_command(context),
            Shown::Kept(command) => command,
        }
    }

    fn protocol(&self) -> &'static str {
        if self.op == OpKind::Msg { "op_msg" } else { "op_query" }
    }

    /// What the client calls itself.
    fn application(&self) -> Option<&str> {
        let client = self.connection.client_metadata()?;
        client.get_document("application").ok()?.get_str("name").ok()
    }

    /// Adds it to the database's profile. May wait for whoever writes one at the same time.
    fn write(&self, database: &str) -> Result<()> {
        let catalog = &self.service.catalog;
        let namespace = Namespace::new(database, COLLECTION)?;
        if catalog.collection(&namespace).is_none() {
            // Profiling makes no database.
            if !catalog.database_exists(database) {
                return Ok(());
            }
            make_collection(self.service, &*self.connection.interrupt, database)?;
        }
        let mut entry = doc! { "_id": query::new_object_id(&self.service.os) };
        entry.extend(self.profile());
        let entry = RawDocumentBuf::try_from(&entry)?;
        for _ in 0..WRITE_ATTEMPTS {
            let mut txn = catalog.begin(TxnKind::Statement);
            let Some(collection) = txn.open_for_write(&namespace)? else { return Ok(()) };
            let written = txn.insert_document(&collection, &entry);
            match written.and_then(|()| txn.commit().map(drop)) {
                Err(error) if catalog::is_retryable(&error) => {}
                other => return other,
            }
        }
        Ok(())
    }
}

/// What an operation waited for, in microseconds, under MongoDB's names where it has some: `cache` is
/// the wait for room in memory. What was not waited for is not there.
fn storage_waits(waits: Waits) -> Document {
    let micros = |kind: Wait| waits.of(kind).as_micros() as i64;
    let mut storage = Document::new();
    if micros(Wait::DiskRead) > 0 {
        storage.insert("data", doc! { "timeReadingMicros": micros(Wait::DiskRead) });
    }
    let mut waiting = Document::new();
    for (name, kind) in [("cache", Wait::Throttle), ("lock", Wait::Lock), ("log", Wait::LogSync)] {
        if micros(kind) > 0 {
            waiting.insert(name, micros(kind));
        }
    }
    if !waiting.is_empty() {
        storage.insert("timeWaitingMicros", waiting);
    }
    storage
}

/// Whether `sampleRate` picks this operation.
fn is_sampled(service: &ServerState) -> bool {
    let rate = service.profiler.sample_rate();
    // 53 bits are what a double holds.
    let throw = || (service.os.entropy.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    rate >= 1.0 || throw() < rate
}

/// A command as entries show it: whole, or the text of its beginning.
fn shortened(command: &RawDocument) -> Document {
    if command.as_bytes().len() <= MAX_COMMAND_BYTES
        && let Ok(command) = Document::try_from(command)
    {
        return command;
    }
    let name = match command.iter_elements().next() {
        Some(Ok(first)) => first.key().as_str().to_owned(),
        _ => String::new(),
    };
    doc! { "$truncated": format!("{{ {name}: ...") }
}
