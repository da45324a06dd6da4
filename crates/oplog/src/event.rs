//! Change events, as clients of `$changeStream` see them, made of a commit's operations.
//!
//! [`of`] says which event an operation is to a stream, if any; [`Event::document`] builds it once it
//! is known what the document was before and is now.
//!
//! Always true: the token of an event says its place, so that a stream goes on behind it.

use crate::Time;
use crate::commit::{Commit, Operation, What, id_of};
use crate::description::describe;
use crate::notes::Name;
use crate::token::Token;
use bson::DateTime;
use bson::raw::{RawBinaryRef, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::spec::BinarySubtype;
use bsonval::raw::{self, Writer};
use errors::Result;
use std::borrow::Cow;

/// What a stream is of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// A collection, `database.collection`.
    Collection(String),
    /// All collections of a database.
    Database(String),
    /// All of all databases, but for the server's own.
    Cluster,
}

/// Databases that no stream of the whole server tells of.
const APART: [&str; 3] = ["admin", "config", "local"];

fn parts(ns: &str) -> (&str, &str) {
    ns.split_once('.').unwrap_or((ns, ""))
}

impl Target {
    /// Whether the stream tells of documents of a collection.
    pub fn has(&self, ns: &str) -> bool {
        let (database, collection) = parts(ns);
        match self {
            Self::Collection(own) => own == ns,
            Self::Database(own) => own == database && !collection.starts_with("system."),
            Self::Cluster => !APART.contains(&database) && !collection.starts_with("system."),
        }
    }

    /// Whether it tells of the database as such.
    fn has_database(&self, database: &str) -> bool {
        match self {
            // Its own drop has ended it.
            Self::Collection(_) => false,
            Self::Database(own) => own == database,
            Self::Cluster => !APART.contains(&database),
        }
    }

    /// Whether an operation on documents of the collection may be an event, or a command at all.
    pub fn wants(&self, name: Option<&Name>) -> bool {
        name.is_none_or(|name| self.has(&name.ns))
    }
}

/// A document that a change stream attaches to an event, as `fullDocument` or
/// `fullDocumentBeforeChange`.
#[derive(Clone, Debug, Default)]
pub enum AttachedDocument {
    /// Not asked for.
    #[default]
    Absent,
    /// Asked for and not there.
    Null,
    /// There.
    Document(RawDocumentBuf),
}

/// What kind of event, by MongoDB's names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A document came.
    Insert,
    /// A document changed.
    Update,
    /// A document took another's place.
    Replace,
    /// A document went.
    Delete,
    /// A collection went.
    Drop,
    /// A collection has another name.
    Rename,
    /// A database went.
    DropDatabase,
    /// A collection came.
    Create,
    /// Indexes came.
    CreateIndexes,
    /// Indexes went.
    DropIndexes,
    /// Options of a collection changed.
    Modify,
}

impl Kind {
    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Update => "update",
            Self::Replace => "replace",
            Self::Delete => "delete",
            Self::Drop => "drop",
            Self::Rename => "rename",
            Self::DropDatabase => "dropDatabase",
            Self::Create => "create",
            Self::CreateIndexes => "createIndexes",
            Self::DropIndexes => "dropIndexes",
            Self::Modify => "modify",
        }
    }

    /// Whether only a stream with `showExpandedEvents` tells of it.
    fn is_expanded(self) -> bool {
        matches!(self, Self::Create | Self::CreateIndexes | Self::DropIndexes | Self::Modify)
    }
}

/// An event before it is built.
pub struct Event<'a> {
    commit: &'a Commit,
    operation: &'a Operation,
    /// What it is.
    pub kind: Kind,
    /// Where it stands.
    pub token: Token,
    ns: String,
    to: Option<String>,
    id: Option<Cow<'a, RawDocument>>,
    expanded: bool,
    /// The stream ends behind it.
    pub invalidates: bool,
}

/// The event that an operation is to a stream.
pub fn change_event<'a>(
    commit: &'a Commit,
    operation: &'a Operation,
    target: &Target,
    expanded: bool,
) -> Result<Option<Event<'a>>> {
    let (mut to, mut id) = (None, None);
    let (kind, ns) = match (&operation.what, &operation.name) {
        (What::Command { ns, object, .. }, _) => {
            let Some((kind, ns, target)) = command_of(ns, object)? else { return Ok(None) };
            to = target;
            (kind, ns)
        }
        (_, None) => return Ok(None),
        (what, Some(name)) => {
            let kind = match what {
                What::Insert(document) => {
                    id = Some(Cow::Owned(id_of(document)?));
                    Kind::Insert
                }
                What::Replace(document) => {
                    id = Some(Cow::Owned(id_of(document)?));
                    Kind::Replace
                }
                What::Update { id: own, .. } => {
                    id = Some(Cow::Borrowed(&**own));
                    Kind::Update
                }
                What::Delete(own) => {
                    id = Some(Cow::Borrowed(&**own));
                    Kind::Delete
                }
                What::Command { .. } => return Ok(None),
            };
            (kind, name.ns.clone())
        }
    };
    let is_of_target = match kind {
        Kind::DropDatabase => target.has_database(&ns),
        _ => target.has(&ns) || to.as_deref().is_some_and(|to| target.has(to)),
    };
    if !is_of_target || kind.is_expanded() && !expanded {
        return Ok(None);
    }
    let index = if commit.head().is_transaction { operation.index } else { 0 };
    let token = Token::event(commit.time_of(operation), index, operation.uuid, id.as_deref())?;
    let invalidates = matches!(
        (target, kind),
        (Target::Collection(_), Kind::Drop | Kind::Rename)
            | (Target::Database(_), Kind::DropDatabase)
    );
    Ok(Some(Event { commit, operation, kind, token, ns, to, id, expanded, invalidates }))
}

/// What a command changes: the kind of event, the namespace (or database), and its new name.
fn command_of(ns: &str, object: &RawDocument) -> Result<Option<(Kind, String, Option<String>)>> {
    let Some(first) = raw::first(object) else { return Ok(None) };
    let first = first?;
    let database = parts(ns).0;
    let named = || match first.value() {
        Ok(RawBsonRef::String(name)) => format!("{database}.{name}"),
        _ => database.to_owned(),
    };
    let kind = match first.name() {
        "drop" => Kind::Drop,
        "create" => Kind::Create,
        "createIndexes" | "commitIndexBuild" => Kind::CreateIndexes,
        "dropIndexes" => Kind::DropIndexes,
        "collMod" | "addPartition" | "dropPartition" => Kind::Modify,
        "dropDatabase" => return Ok(Some((Kind::DropDatabase, database.to_owned(), None))),
        "renameCollection" => {
            let RawBsonRef::String(from) = first.value()? else { return Ok(None) };
            let to = match object.get("to")? {
                Some(RawBsonRef::String(to)) => Some(to.to_owned()),
                _ => None,
            };
            return Ok(Some((Kind::Rename, from.to_owned(), to)));
        }
        _ => return Ok(None),
    };
    Ok(Some((kind, named(), None)))
}

impl Event<'_> {
    /// The document after the change, as the log has it.
    pub fn after(&self) -> Option<&RawDocumentBuf> {
        match &self.operation.what {
            What::Insert(document) | What::Replace(document) => Some(document),
            What::Update { after, .. } => Some(after),
            What::Delete(_) | What::Command { .. } => None,
        }
    }

    /// The document before the change, where the log has it.
    pub fn before(&self) -> Option<&RawDocumentBuf> {
        self.operation.before.as_ref()
    }

    /// When the change was committed, in milliseconds.
    pub fn wall(&self) -> i64 {
        self.commit.wall()
    }

    /// The `_id` of the document, as a document.
    pub fn id(&self) -> Option<&RawDocument> {
        self.id.as_deref()
    }

    /// `database.collection`, or the database.
    pub fn ns(&self) -> &str {
        &self.ns
    }

    /// The collection's UUID.
    pub fn uuid(&self) -> Option<[u8; 16]> {
        self.operation.uuid
    }

    /// The event.
    pub fn document(
        &self,
        full: &AttachedDocument,
        before: &AttachedDocument,
    ) -> Result<RawDocumentBuf> {
        let mut out = Writer::with_capacity(512);
        let open = out.begin();
        self.head(&mut out, &self.token, self.kind.name());
        if let (true, Some(session)) = (self.commit.head().is_transaction, self.commit.session()) {
            let lsid = out.begin_document("lsid");
            uuid_into(&mut out, "id", &session.id);
            let user = RawBinaryRef { subtype: BinarySubtype::Generic, bytes: &session.user };
            out.value("uid", RawBsonRef::Binary(user));
            out.end(lsid);
            out.value("txnNumber", RawBsonRef::Int64(session.number));
        }
        if let (true, Some(uuid)) = (self.expanded, &self.operation.uuid) {
            uuid_into(&mut out, "collectionUUID", uuid);
        }
        match full {
            AttachedDocument::Absent => {}
            AttachedDocument::Null => out.value("fullDocument", RawBsonRef::Null),
            AttachedDocument::Document(document) => {
                out.value("fullDocument", RawBsonRef::Document(document));
            }
        }
        namespace_into(&mut out, "ns", &self.ns);
        if self.kind == Kind::Create {
            let is_view = match &self.operation.what {
                What::Command { object, .. } => object.get("viewOn")?.is_some(),
                _ => false,
            };
            let kind = if is_view { "view" } else { "collection" };
            out.value("nsType", RawBsonRef::String(kind));
        }
        if let Some(to) = &self.to {
            namespace_into(&mut out, "to", to);
        }
        if let Some(id) = &self.id {
            out.value("documentKey", RawBsonRef::Document(id));
        }
        match &self.operation.what {
            What::Update { diff, .. } => {
                let description = describe(diff, self.expanded)?;
                out.value("updateDescription", RawBsonRef::Document(&description));
            }
            What::Command { object, object2, .. } if self.expanded => {
                self.describe_command(&mut out, object, object2.as_deref())?;
            }
            _ => {}
        }
        match before {
            AttachedDocument::Absent => {}
            AttachedDocument::Null => out.value("fullDocumentBeforeChange", RawBsonRef::Null),
            AttachedDocument::Document(document) => {
                out.value("fullDocumentBeforeChange", RawBsonRef::Document(document));
            }
        }
        out.end(open);
        out.finish()
    }

    /// The invalidate that follows it.
    pub fn invalidate(&self) -> Result<(Token, RawDocumentBuf)> {
        let token = self.token.invalidate();
        let mut out = Writer::with_capacity(256);
        let open = out.begin();
        self.head(&mut out, &token, "invalidate");
        out.end(open);
        Ok((token, out.finish()?))
    }

    fn head(&self, out: &mut Writer, token: &Token, kind: &str) {
        out.value("_id", RawBsonRef::Document(&token.to_document()));
        out.value("operationType", RawBsonRef::String(kind));
        let time: Time = self.commit.time_of(self.operation);
        out.value("clusterTime", RawBsonRef::Timestamp(time.timestamp()));
        out.value("wallTime", RawBsonRef::DateTime(DateTime::from_millis(self.commit.wall())));
    }

    fn describe_command(
        &self,
        out: &mut Writer,
        object: &RawDocument,
        object2: Option<&RawDocument>,
    ) -> Result<()> {
        match self.kind {
            Kind::Rename => {
                let open = out.begin_document("operationDescription");
                if let Some(to) = &self.to {
                    namespace_into(out, "to", to);
                }
                if let Some(RawBsonRef::Binary(target)) = object.get("dropTarget")? {
                    out.value("dropTarget", RawBsonRef::Binary(target));
                }
                out.end(open);
            }
            Kind::Create => rest_into(out, "operationDescription", object, &["create"])?,
            Kind::Modify => {
                describe_into(out, object)?;
                let open = out.begin_document("stateBeforeChange");
                for (from, to) in [
                    ("collectionOptions_old", "collectionOptions"),
                    ("indexOptions_old", "indexOptions"),
                ] {
                    if let Some(value) = object2.map(|o2| o2.get(from)).transpose()?.flatten() {
                        out.value(to, value);
                    }
                }
                out.end(open);
            }
            Kind::CreateIndexes => {
                let open = out.begin_document("operationDescription");
                if let Some(RawBsonRef::Array(indexes)) = object.get("indexes")? {
                    out.value("indexes", RawBsonRef::Array(indexes));
                } else {
                    let list = out.begin_array("indexes");
                    rest_into(out, "0", object, &["createIndexes"])?;
                    out.end(list);
                }
                out.end(open);
            }
            Kind::DropIndexes => {
                let open = out.begin_document("operationDescription");
                let list = out.begin_array("indexes");
                if let Some(index) = object2 {
                    out.value("0", RawBsonRef::Document(index));
                }
                out.end(list);
                out.end(open);
            }
            _ => {}
        }
        Ok(())
    }
}

/// The fields of a document but for some.
fn rest_into(out: &mut Writer, name: &str, document: &RawDocument, but: &[&str]) -> Result<()> {
    let open = out.begin_document(name);
    for field in raw::elements(document) {
        let field = field?;
        if !but.contains(&field.name()) {
            out.element(&field);
        }
    }
    out.end(open);
    Ok(())
}

/// What became of a collection: its new options, or which partition came or went.
fn describe_into(out: &mut Writer, object: &RawDocument) -> Result<()> {
    let name = raw::first_name(object).unwrap_or_default();
    if name == "collMod" {
        return rest_into(out, "operationDescription", object, &[name]);
    }
    let open = out.begin_document("operationDescription");
    rest_into(out, name, object, &[name])?;
    out.end(open);
    Ok(())
}

fn uuid_into(out: &mut Writer, name: &str, uuid: &[u8; 16]) {
    let binary = RawBinaryRef { subtype: BinarySubtype::Uuid, bytes: uuid };
    out.value(name, RawBsonRef::Binary(binary));
}

/// `{db, coll}`, or `{db}`.
fn namespace_into(out: &mut Writer, name: &str, ns: &str) {
    let (database, collection) = parts(ns);
    let open = out.begin_document(name);
    out.value("db", RawBsonRef::String(database));
    if !collection.is_empty() {
        out.value("coll", RawBsonRef::String(collection));
    }
    out.end(open);
}
