//! What a commit tells of itself in the log, for the oplog and change streams: which documents came,
//! changed and went, and what became of collections.
//!
//! Only where the engine keeps history; elsewhere nothing is noted and nothing costs.
//!
//! Always true:
//! 1. A commit tells of every change of documents that a client would call one, in the order in which
//!    they were made; not of what the server keeps for itself, nor of what a cap pushes out.
//! 2. What was rolled back to a savepoint is not told.

use crate::catalog::Catalog;
use crate::data::txn::Txn;
use crate::failure::from_engine;
use crate::metadata::collection::{Collection, Index, required_id};
use crate::metadata::namespace::Namespace;
use crate::metadata::options::CollectionOptions;
use crate::metadata::partitions::Partition;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bsonval::Path;
use bsonval::raw::{Writer, document_of};
use errors::Result;
use limits::{Growth, Part};
use oplog::notes::{Command, Mark, Notes};
use std::sync::Arc;

pub use oplog::notes::Session as ToldSession;

/// How a document came to be another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Changed {
    /// In parts: the difference is told.
    InParts,
    /// As a whole: the new document is.
    AsAWhole,
}

/// What a transaction tells.
pub(crate) struct TxnNotes {
    notes: Notes,
    memory: Growth,
    session: Option<ToldSession>,
}

/// A change of collections, as it is told.
pub(crate) struct NotedCommand {
    database: String,
    uuid: Option<[u8; 16]>,
    object: RawDocumentBuf,
    object2: Option<RawDocumentBuf>,
}

/// Whether what happens under this name is told: not what the server keeps for itself.
pub(crate) fn is_told(namespace: &Namespace) -> bool {
    !matches!(namespace.database(), "local" | "config")
        && (!namespace.is_system() || namespace.collection() == "system.js")
}

/// Whether changes of this collection's documents are told. Of measurements MongoDB tells nothing
/// under their collection's name.
fn tells_documents(collection: &Collection) -> bool {
    is_told(&collection.namespace) && collection.options.time_series.is_none()
}

/// Whether changes of the collection as such are told. MongoDB keeps views as documents of a
/// collection of its own, and measurements under another name.
fn tells_changes(collection: &Collection) -> bool {
    tells_documents(collection) && !collection.is_view()
}

impl TxnNotes {
    /// Nothing yet. A client's transaction tells all of it as one.
    pub(crate) fn new(is_clients: bool) -> Self {
        let memory = Growth::new(Part::Values);
        Self { notes: Notes::new(is_clients), memory, session: None }
    }

    pub(crate) fn mark(&self) -> Mark {
        self.notes.mark()
    }

    pub(crate) fn truncate(&mut self, mark: Mark) {
        self.notes.truncate(mark);
    }

    fn slot(&mut self, collection: &Collection) -> usize {
        let uuid = collection.uuid.bytes();
        self.notes.slot(collection.primary.0, uuid, collection.namespace.as_str())
    }

    fn charge(&mut self) -> Result<()> {
        self.memory.reach(self.notes.memory_bytes())
    }

    /// Hands everything to the engine, which writes it with the commit.
    pub(crate) fn hand_over(
        &mut self,
        engine: &mut engine::EngineTxn,
        wall_ms: i64,
        is_clients: bool,
    ) -> Result<()> {
        if self.notes.is_empty() {
            return Ok(());
        }
        if let Some(session) = self.session.take() {
            self.notes.session(&session);
        }
        self.notes.wall(wall_ms);
        engine.set_span(self.notes.span());
        if let Some(note) = self.notes.take_only() {
            engine.note_given(note).map_err(from_engine)?;
        } else {
            for note in self.notes.each() {
                engine.note(note).map_err(from_engine)?;
            }
        }
        if is_clients {
            engine.set_client_transaction();
        }
        Ok(())
    }
}

impl Txn {
    /// Whose transaction it is, or whose numbered write.
    pub fn tell_session(&mut self, session: ToldSession) {
        if let Some(notes) = &mut self.notes {
            notes.session = Some(session);
        }
    }

    /// The next `count` changes that belong to no statement yet are those of this statement of a
    /// retryable write, and of those behind it, one each.
    pub fn tell_statements(&mut self, statement: u32, count: u64) {
        if let Some(notes) = &mut self.notes {
            notes.notes.statements(u64::from(statement), count);
        }
    }

    /// Before a document is overwritten: where this transaction wrote it, only its notes know it then.
    /// Says whether the change is told.
    pub(crate) fn note_overwritten(
        &mut self,
        collection: &Collection,
        key: &[u8],
        old: &RawDocument,
    ) -> Result<bool> {
        let Some(notes) = &mut self.notes else { return Ok(false) };
        if !tells_documents(collection) {
            return Ok(false);
        }
        let written = self.engine.has_written(collection.primary, key).map_err(from_engine)?;
        if written {
            let slot = notes.slot(collection);
            notes.notes.overwritten(slot, key, old);
            notes.charge()?;
        }
        Ok(true)
    }

    pub(crate) fn note_insert(
        &mut self,
        collection: &Collection,
        key: &[u8],
        document: &RawDocument,
    ) -> Result<()> {
        let Some(notes) = &mut self.notes else { return Ok(()) };
        if !tells_documents(collection) {
            return Ok(());
        }
        let slot = notes.slot(collection);
        notes.notes.insert(slot, key, document.as_bytes().len());
        notes.charge()
    }

    pub(crate) fn note_update(
        &mut self,
        collection: &Collection,
        key: &[u8],
        (old, new): (&RawDocument, &RawDocument),
        touched: Option<&[Path]>,
        changed: Changed,
    ) -> Result<()> {
        let Some(notes) = &mut self.notes else { return Ok(()) };
        let diff = match changed {
            Changed::InParts => oplog::diff::diff(old, new, touched)?,
            Changed::AsAWhole => None,
        };
        let slot = notes.slot(collection);
        if collection.options.images {
            notes.notes.pre_image(old);
        }
        match diff {
            Some(diff) => notes.notes.update(slot, key, &diff),
            None => notes.notes.replace(slot, key, new.as_bytes().len()),
        }
        notes.charge()
    }

    pub(crate) fn note_delete(
        &mut self,
        collection: &Collection,
        key: &[u8],
        document: &RawDocument,
    ) -> Result<()> {
        let Some(notes) = &mut self.notes else { return Ok(()) };
        let id = document_of("_id", required_id(document)?);
        let slot = notes.slot(collection);
        if collection.options.images {
            notes.notes.pre_image(document);
        }
        notes.notes.delete(slot, key, &id);
        notes.charge()
    }

    /// A change of collections that this transaction makes.
    pub(crate) fn note_told(&mut self, told: impl IntoIterator<Item = NotedCommand>) -> Result<()> {
        let Some(notes) = &mut self.notes else { return Ok(()) };
        for told in told {
            told.note(&mut notes.notes);
        }
        notes.charge()
    }
}

impl Catalog {
    /// Whether commits tell of themselves.
    pub(crate) fn tells(&self) -> bool {
        self.engine().keeps_history()
    }

    /// Tells of changes of collections in the transaction that makes them, which is about to commit.
    pub(crate) fn tell(
        &self,
        txn: &mut engine::EngineTxn,
        told: impl FnOnce() -> Vec<NotedCommand>,
    ) -> Result<()> {
        if !self.tells() {
            return Ok(());
        }
        let mut notes = TxnNotes::new(false);
        for told in told() {
            told.note(&mut notes.notes);
        }
        notes.hand_over(txn, self.os().clock.wall_ms(), false)
    }
}

/// A document that is built field by field.
fn build(fill: impl FnOnce(&mut Writer)) -> RawDocumentBuf {
    let mut out = Writer::with_capacity(128);
    let open = out.begin();
    fill(&mut out);
    out.end(open);
    // What the writer wrote is a document; were it none, an empty one would be told.
    out.finish().unwrap_or_default()
}

fn text(out: &mut Writer, name: &str, value: &str) {
    out.value(name, RawBsonRef::String(value));
}

fn fields_of(out: &mut Writer, document: &RawDocument, but: &[&str]) {
    for (name, value) in document.iter().flatten() {
        if !but.contains(&name.as_str()) {
            out.value(name.as_str(), value);
        }
    }
}

impl NotedCommand {
    fn note(&self, notes: &mut Notes) {
        notes.command(&Command {
            ns: &format!("{}.$cmd", self.database),
            uuid: self.uuid,
            object: &self.object,
            object2: self.object2.as_deref(),
        });
    }

    fn about(
        collection: &Collection,
        object: RawDocumentBuf,
        object2: Option<RawDocumentBuf>,
    ) -> Option<Self> {
        tells_changes(collection).then(|| Self {
            database: collection.namespace.database().to_owned(),
            uuid: Some(collection.uuid.bytes()),
            object,
            object2,
        })
    }

    /// A collection came.
    pub(crate) fn created(collection: &Collection) -> Option<Self> {
        let object = build(|out| {
            text(out, "create", collection.namespace.collection());
            fields_of(out, &collection.options.shown, &["idIndex"]);
            let options = &collection.options;
            if options.clustered.is_none() && options.view.is_none() {
                let index = out.begin_document("idIndex");
                out.value("v", RawBsonRef::Int32(2));
                let key = out.begin_document("key");
                out.value("_id", RawBsonRef::Int32(1));
                out.end(key);
                text(out, "name", "_id_");
                if let Some(collation) = collection.collation() {
                    let collation = bsonval::collation::to_document(collation);
                    out.value("collation", RawBsonRef::Document(&collation));
                }
                out.end(index);
            }
        });
        // A view has no UUID; that it came is told all the same.
        if collection.is_view() && is_told(&collection.namespace) {
            let database = collection.namespace.database().to_owned();
            return Some(Self { database, uuid: None, object, object2: None });
        }
        Self::about(collection, object, None)
    }

    /// A collection went.
    pub(crate) fn dropped(collection: &Collection) -> Option<Self> {
        let object = build(|out| text(out, "drop", collection.namespace.collection()));
        Self::about(collection, object, Some(records(collection)))
    }

    /// A database went, behind its collections.
    pub(crate) fn dropped_database(database: &str) -> Option<Self> {
        let object = build(|out| out.value("dropDatabase", RawBsonRef::Int32(1)));
        let told = Self { database: database.to_owned(), uuid: None, object, object2: None };
        (!matches!(database, "local" | "config")).then_some(told)
    }

    /// A collection has another name, over another collection where there was one.
    pub(crate) fn renamed(
        from: &Collection,
        to: &Namespace,
        target: Option<&Collection>,
    ) -> Option<Self> {
        let object = build(|out| {
            text(out, "renameCollection", from.namespace.as_str());
            text(out, "to", to.as_str());
            out.value("stayTemp", RawBsonRef::Boolean(false));
            if let Some(target) = target {
                let bytes = target.uuid.bytes();
                let subtype = bson::spec::BinarySubtype::Uuid;
                let binary = bson::raw::RawBinaryRef { subtype, bytes: &bytes };
                out.value("dropTarget", RawBsonRef::Binary(binary));
            }
        });
        let replaced = target.unwrap_or(from);
        Self::about(from, object, Some(records(replaced)))
    }

    /// Indexes came.
    pub(crate) fn indexed<'a>(
        collection: &Collection,
        indexes: impl Iterator<Item = &'a Index>,
        build_id: [u8; 16],
    ) -> Option<Self> {
        let specs: Vec<&RawDocument> = indexes.map(|index| &*index.spec.shown).collect();
        let object = match &specs[..] {
            [] => return None,
            [one] => build(|out| {
                text(out, "createIndexes", collection.namespace.collection());
                fields_of(out, one, &[]);
            }),
            several => build(|out| {
                text(out, "commitIndexBuild", collection.namespace.collection());
                let subtype = bson::spec::BinarySubtype::Uuid;
                let binary = bson::raw::RawBinaryRef { subtype, bytes: &build_id };
                out.value("indexBuildUUID", RawBsonRef::Binary(binary));
                let list = out.begin_array("indexes");
                for (at, spec) in several.iter().enumerate() {
                    out.value(&at.to_string(), RawBsonRef::Document(spec));
                }
                out.end(list);
            }),
        };
        Self::about(collection, object, None)
    }

    /// An index went.
    pub(crate) fn unindexed(collection: &Collection, index: &Index) -> Option<Self> {
        let object = build(|out| {
            text(out, "dropIndexes", collection.namespace.collection());
            text(out, "index", &index.spec.name);
        });
        Self::about(collection, object, Some(index.spec.shown.clone()))
    }

    /// Every index that is in one version and not in another went.
    pub(crate) fn unindexed_all(before: &Collection, after: &[Arc<Index>]) -> Vec<Self> {
        let gone = before.indexes.iter().filter(|index| {
            let is_it = |kept: &Arc<Index>| kept.dictionary == index.dictionary;
            !index.spec.is_internal() && !after.iter().any(is_it)
        });
        gone.filter_map(|index| Self::unindexed(before, index)).collect()
    }

    /// Options of a collection, or of one of its indexes, are others.
    pub(crate) fn modified(
        collection: &Collection,
        fill: impl FnOnce(&mut Writer),
        old_index: Option<&RawDocument>,
    ) -> Option<Self> {
        let object = build(|out| {
            text(out, "collMod", collection.namespace.collection());
            fill(out);
        });
        let object2 = build(|out| {
            let options = out.begin_document("collectionOptions_old");
            fields_of(out, &collection.options.shown, &[]);
            out.end(options);
            if let Some(index) = old_index {
                out.value("indexOptions_old", RawBsonRef::Document(index));
            }
        });
        Self::about(collection, object, Some(object2))
    }

    /// What of a collection's options is another than before.
    pub(crate) fn options_changed(
        collection: &Collection,
        options: &CollectionOptions,
    ) -> Option<Self> {
        const CAP: [(&str, &str); 2] = [("size", "cappedSize"), ("max", "cappedMax")];
        let fill = |out: &mut Writer| {
            let before = &collection.options.shown;
            for (name, value) in options.shown.iter().flatten() {
                let was = before.get(name.as_str()).ok().flatten();
                if was != Some(value) {
                    let known = CAP.iter().find(|(shown, _)| *shown == name.as_str());
                    out.value(known.map_or(name.as_str(), |(_, told)| told), value);
                }
            }
            if collection.options.images && !options.images {
                let images = out.begin_document("changeStreamPreAndPostImages");
                out.value("enabled", RawBsonRef::Boolean(false));
                out.end(images);
            }
        };
        Self::modified(collection, fill, None)
    }

    /// A partitioned collection's last partition ended here, and another one began.
    pub(crate) fn partition_added(collection: &Collection, max: &RawDocument) -> Option<Self> {
        let object = build(|out| {
            text(out, "addPartition", collection.namespace.collection());
            out.value("newMax", RawBsonRef::Document(max));
        });
        Self::about(collection, object, None)
    }

    /// A partition went with its documents.
    pub(crate) fn partition_dropped(collection: &Collection, gone: &Partition) -> Option<Self> {
        let object = build(|out| {
            text(out, "dropPartition", collection.namespace.collection());
            out.value("id", RawBsonRef::Int64(gone.id as i64));
        });
        let count = i64::try_from(gone.shared.counts.documents()).unwrap_or(i64::MAX);
        Self::about(collection, object, Some(document_of("numRecords", RawBsonRef::Int64(count))))
    }

    /// A collection became capped.
    pub(crate) fn capped(collection: &Collection, size: i64) -> Option<Self> {
        let object = build(|out| {
            text(out, "convertToCapped", collection.namespace.collection());
            out.value("size", RawBsonRef::Int64(size));
        });
        Self::about(collection, object, None)
    }

    /// Every document of a capped collection went.
    pub(crate) fn emptied(collection: &Collection) -> Option<Self> {
        let object = build(|out| text(out, "emptycapped", collection.namespace.collection()));
        Self::about(collection, object, None)
    }
}

/// How many documents went with a collection.
fn records(collection: &Collection) -> RawDocumentBuf {
    let count = i64::try_from(collection.count()).unwrap_or(i64::MAX);
    document_of("numRecords", RawBsonRef::Int64(count))
}
