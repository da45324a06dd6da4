//! `applyOps`: entries of an oplog, done here. Tools restore with it what a dump says.
//!
//! Each entry is by itself, as in MongoDB 8: one that changes documents and fails is told of in
//! `results` and the others go on; one that changes collections and fails is the last. Applying an
//! entry twice gives what applying it once gives, so an insert of what is there replaces it, and a
//! delete of what is gone is done. So is the update of a document that is not there, where the entry has
//! its time (`ts`), and with that comes from a history: a dump that was taken during the history has the
//! document as it was later, when it was deleted. Without a time an entry is a wish, and has failed.
//!
//! Always true: an entry that names a UUID (`ui`) is applied to the collection that has it, or not
//! at all.

use crate::admin::create;
use crate::audit;
use crate::command::Command;
use crate::context::Context;
use crate::crud::update::blank;
use crate::gate;
use crate::needs::Needs;
use crate::security::asks;
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::spec::BinarySubtype;
use bson::{Bson, Document, Uuid, doc};
use bsonval::raw::document_of;
use catalog::Namespace;
use dispatch::Request;
use dispatch::arguments::{Arguments, Fields};
use dispatch::fields::{Field, type_name};
use errors::{Code, Error, Result};
use query::{
    DeleteRequest, DeleteStatement, InsertRequest, UpdateRequest, UpdateStatement, WriteError,
};

pub(crate) const APPLY_OPS: Command = Command::new(
    "applyOps",
    "Does what entries of an oplog say.",
    Needs::Computed(asks::apply_ops),
    run,
)
.write_concern();

/// How often `applyOps` may stand in `applyOps`.
const MAX_NESTING: usize = 10;

/// One entry.
struct Entry<'a> {
    kind: &'a str,
    namespace: &'a str,
    object: &'a RawDocument,
    /// `o2`: which document an update means.
    criteria: Option<&'a RawDocument>,
    uuid: Option<Uuid>,
    /// `b`: an update that makes what it does not find.
    upsert: bool,
    /// It has a time: it is of a history.
    is_of_history: bool,
}

/// What was done so far.
#[derive(Default)]
struct Applied {
    results: Vec<bool>,
}

impl Applied {
    fn fields(&self) -> Document {
        let results: Vec<Bson> = self.results.iter().map(|done| Bson::Boolean(*done)).collect();
        doc! { "applied": self.results.len() as i32, "results": results }
    }
}

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let operations = fields[0].documents()?;
    for field in &fields[1..] {
        match field.name {
            // The second is honoured by `Context::internal_op`.
            "allowAtomic" | "bypassDocumentValidation" => {
                field.bool()?;
            }
            "oplogApplicationMode" => check_mode(field.str()?)?,
            "preCondition" => {
                return Err(Error::location(
                    6711600,
                    "applyOps command no longer supports the 'preCondition' option",
                ));
            }
            "alwaysUpsert" if !field.bool()? => {}
            "alwaysUpsert" => {
                return Err(Error::location(
                    6711601,
                    "applyOps command no longer supports the 'alwaysUpsert' option",
                ));
            }
            "prepare" => {
                return Err(Error::bad_value("applyOps command can't have 'prepare' field"));
            }
            "partialTxn" => {
                return Err(Error::location(
                    31056,
                    "applyOps command can't have 'partialTxn' field.",
                ));
            }
            "count" => {
                return Err(Error::location(31240, "applyOps command can't have 'count' field."));
            }
            _ => return Err(field.unknown()),
        }
    }
    let entries = parse_all(&operations)?;
    let mut applied = Applied::default();
    apply_all(context, &entries, &mut applied, 0)?;
    let fields = applied.fields();
    if applied.results.contains(&false) {
        let failed =
            Error::new(Code::UNKNOWN_ERROR, "applyOps had one or more errors applying ops");
        return Err(failed.with_extra(fields));
    }
    context.reply.fields_of(&fields);
    Ok(())
}

fn check_mode(mode: &str) -> Result<()> {
    let known = ["InitialSync", "Recovering", "Secondary", "ApplyOps", "StableRecovering"];
    if known.contains(&mode) || mode == "UnstableRecovering" {
        return Ok(());
    }
    Err(Error::bad_value(format!("invalid oplog application mode provided: {mode}")))
}

fn parse_all<'a>(operations: &[&'a RawDocument]) -> Result<Vec<Entry<'a>>> {
    let entries: Vec<_> =
        operations.iter().map(|entry| Entry::parse(entry)).collect::<Result<_>>()?;
    let drops = |entry: &Entry<'_>| entry.command_name() == Some("dropDatabase");
    if entries.len() > 1 && entries.iter().any(drops) {
        return Err(Error::location(6275900, "dropDatabase in an applyOps must be the only entry"));
    }
    Ok(entries)
}

/// Applies entries in order. An error is that of the entry that ended it all.
fn apply_all(
    context: &Context<'_>,
    entries: &[Entry<'_>],
    applied: &mut Applied,
    depth: usize,
) -> Result<()> {
    if depth > MAX_NESTING {
        return Err(Error::failed_to_parse("too many nested applyOps"));
    }
    for entry in entries.iter().filter(|entry| entry.kind != "n") {
        context.check_interrupt()?;
        let outcome = match entry.kind {
            "c" => apply_command(context, entry, depth).map(|()| true),
            _ => apply_change(context, entry),
        };
        match outcome {
            Ok(done) => applied.results.push(done),
            Err(error) => {
                applied.results.push(false);
                return Err(error.with_extra(applied.fields()));
            }
        }
    }
    Ok(())
}

impl<'a> Entry<'a> {
    fn parse(entry: &'a RawDocument) -> Result<Self> {
        let (mut kind, mut namespace, mut object) = (None, None, None);
        let (mut criteria, mut uuid, mut upsert) = (None, None, false);
        let mut is_of_history = false;
        for element in entry {
            let (name, value) = element?;
            let field = Field { place: "applyOps", name: name.as_str(), value };
            match field.name {
                "op" => kind = Some(field.str()?),
                "ns" => namespace = Some(field.str()?),
                "o" => object = Some(field.document()?),
                "o2" if !matches!(value, RawBsonRef::Null) => criteria = Some(field.document()?),
                "ui" => uuid = Some(uuid_of(&field)?),
                "b" => upsert = field.bool()?,
                "ts" => is_of_history = true,
                // Terms, wall clocks, sessions: of where the entry comes from.
                _ => {}
            }
        }
        let missing = |name: &str| {
            Error::failed_to_parse(format!("applyOps: '{name}' is missing or of the wrong type"))
        };
        let kind = kind.ok_or_else(|| missing("op"))?;
        if !matches!(kind, "i" | "u" | "d" | "c" | "n") {
            return Err(Error::bad_value(format!(
                "Enumeration value '{kind}' for field 'op' is not a valid value."
            )));
        }
        let namespace = namespace.ok_or_else(|| missing("ns"))?;
        let object = match object {
            Some(object) => object,
            None if kind == "n" => RawDocument::from_bytes(EMPTY)?,
            None => return Err(missing("o")),
        };
        Ok(Self { kind, namespace, object, criteria, uuid, upsert, is_of_history })
    }

    /// The command of an entry that is one.
    fn command_name(&self) -> Option<&'a str> {
        let first = self.object.iter_elements().next().filter(|_| self.kind == "c");
        first.and_then(std::result::Result::ok).map(|first| first.key().as_str())
    }
}

const EMPTY: &[u8] = &[5, 0, 0, 0, 0];

fn uuid_of(field: &Field<'_>) -> Result<Uuid> {
    match field.value {
        RawBsonRef::Binary(binary) if binary.subtype == BinarySubtype::Uuid => {
            binary.bytes.try_into().map(Uuid::from_bytes).map_err(|_| field.wrong_type("UUID"))
        }
        _ => Err(field.wrong_type("UUID")),
    }
}

/// An insert, update or delete; says whether it could be done.
fn apply_change(context: &Context<'_>, entry: &Entry<'_>) -> Result<bool> {
    let namespace = context.opened(Namespace::parse(entry.namespace)?)?;
    let collection = context.service.catalog.collection(&namespace);
    if let Some(uuid) = entry.uuid
        && collection.as_ref().is_none_or(|found| found.uuid() != uuid)
    {
        return Ok(false);
    }
    if collection.is_none() {
        if entry.kind == "d" {
            return Ok(true);
        }
        return Err(Error::new(
            Code::NAMESPACE_NOT_FOUND,
            format!(
                "cannot apply insert or update operation on a non-existent namespace {namespace}"
            ),
        ));
    }
    match entry.kind {
        "i" => insert(context, &namespace, entry.object),
        "u" => update(context, &namespace, entry),
        _ => delete(context, &namespace, entry.object),
    }
}

/// `{_id: ...}` of a document.
fn by_id(document: &RawDocument) -> Result<RawDocumentBuf> {
    match document.get("_id")? {
        Some(id) => Ok(document_of("_id", id)),
        None => Err(Error::new(Code::NO_SUCH_KEY, "an entry of the oplog has no _id")),
    }
}

fn insert(context: &Context<'_>, namespace: &Namespace, object: &RawDocument) -> Result<bool> {
    let id = by_id(object)?;
    let mut op = context.internal_op();
    op.keep_empty_timestamps = true;
    let documents = [object];
    let request = InsertRequest { documents: &documents, ordered: true };
    let inserted = query::insert(&mut op, namespace, &request)?;
    match inserted.errors.first() {
        None => Ok(true),
        Some(WriteError { error, .. }) if error.code() == Code::DUPLICATE_KEY => {
            let replacement = RawBsonRef::Document(object);
            let statement = UpdateStatement { upsert: true, update: replacement, ..blank(&id) };
            change(context, namespace, statement).map(|found| found == Some(1))
        }
        Some(_) => Ok(false),
    }
}

fn update(context: &Context<'_>, namespace: &Namespace, entry: &Entry<'_>) -> Result<bool> {
    let criteria = entry
        .criteria
        .ok_or_else(|| Error::new(Code::NO_SUCH_KEY, "an update of the oplog has no 'o2'"))?;
    let id = by_id(criteria)?;
    let plain;
    let (update, is_delta) = match entry.object.get("$v")? {
        None => (RawBsonRef::Document(entry.object), false),
        Some(version) => match dispatch::fields::as_i64(version) {
            Some(1) => {
                plain = without_version(entry.object)?;
                (RawBsonRef::Document(&plain), false)
            }
            Some(2) => {
                let diff = entry.object.get("diff")?.unwrap_or(RawBsonRef::Null);
                (diff, true)
            }
            _ => {
                return Err(Error::location(
                    4772600,
                    format!(
                        "Unsupported version of an update of the oplog: {}",
                        type_name(version)
                    ),
                ));
            }
        },
    };
    let statement = UpdateStatement { upsert: entry.upsert, update, is_delta, ..blank(&id) };
    let found = change(context, namespace, statement)?;
    Ok(found == Some(1) || found == Some(0) && entry.is_of_history)
}

/// The operators of `{$v: 1, $set: ..., $unset: ...}`.
fn without_version(object: &RawDocument) -> Result<RawDocumentBuf> {
    let mut plain = RawDocumentBuf::new();
    for element in object {
        let (name, value) = element?;
        if name.as_str() != "$v" {
            plain.append(name, value);
        }
    }
    Ok(plain)
}

/// How many documents an update found or made; `None` where it failed.
fn change(
    context: &Context<'_>,
    namespace: &Namespace,
    statement: UpdateStatement<'_>,
) -> Result<Option<u64>> {
    let mut op = context.internal_op();
    op.keep_empty_timestamps = true;
    let updates = [statement];
    let request = UpdateRequest { updates: &updates, ordered: true, let_variables: None };
    let updated = query::update(&mut op, namespace, &request)?;
    Ok(updated.errors.is_empty().then_some(updated.n))
}

fn delete(context: &Context<'_>, namespace: &Namespace, object: &RawDocument) -> Result<bool> {
    let id = by_id(object)?;
    let mut op = context.internal_op();
    let deletes = [DeleteStatement { filter: &id, only_one: true, hint: None, collation: None }];
    let request = DeleteRequest { deletes: &deletes, ordered: true, let_variables: None };
    let deleted = query::delete(&mut op, namespace, &request)?;
    Ok(deleted.errors.is_empty())
}

/// A change of collections or indexes, run as the command that a client would send.
fn apply_command(context: &Context<'_>, entry: &Entry<'_>, depth: usize) -> Result<()> {
    let database = entry.namespace.split_once('.').map_or(entry.namespace, |(name, _)| name);
    let Some(name) = entry.command_name() else {
        return Err(Error::failed_to_parse("an entry of the oplog holds no command"));
    };
    let body = match name {
        "create" => return run_create(context, database, entry),
        "drop" | "dropIndexes" | "deleteIndexes" | "collMod" | "convertToCapped"
        | "emptycapped" | "addPartition" | "dropPartition" => under_uuid(context, database, entry)?,
        "createIndexes" => create_indexes(&under_uuid(context, database, entry)?)?,
        "commitIndexBuild" => commit_index_build(&under_uuid(context, database, entry)?)?,
        // What they begin or take back is not visible before it is committed.
        "startIndexBuild" | "abortIndexBuild" => return Ok(()),
        "renameCollection" => rename(entry.object)?,
        "dropDatabase" => entry.object.to_owned(),
        "applyOps" => {
            let field = Field {
                place: "applyOps",
                name: "applyOps",
                value: entry.object.get("applyOps")?.unwrap_or(RawBsonRef::Null),
            };
            let operations = field.documents()?;
            let entries = parse_all(&operations)?;
            return apply_all(context, &entries, &mut Applied::default(), depth + 1);
        }
        other => {
            return Err(Error::bad_value(format!("applyOps does not apply the command '{other}'")));
        }
    };
    let database = if name == "renameCollection" { "admin" } else { database };
    run_as_client(context, database, &body, |inner, command, fields| (command.run)(inner, fields))
}

/// Runs a command as if a client had sent it; its reply is nobody's.
fn run_as_client(
    context: &Context<'_>,
    database: &str,
    body: &RawDocument,
    run: impl for<'i, 'f> FnOnce(&mut Context<'i>, &'static Command, &'f [Field<'i>]) -> Result<()>,
) -> Result<()> {
    let name = match body.iter_elements().next() {
        Some(first) => first?.key().as_str().to_owned(),
        None => String::new(),
    };
    let Some((_, command)) = context.registry.find(&name) else {
        return Err(Error::new(Code::COMMAND_NOT_FOUND, format!("no such command: '{name}'")));
    };
    let judged = gate::judge_within(&context.admitted, context.registry, (database, body), || {
        gate::refusal(context.database(), context.command, context.body)
    })?;
    let request =
        Request { database, body, sequences: &[], exhaust_allowed: false, ..*context.request };
    let mut fields = Fields::new();
    let arguments = Arguments::parse(command, body, context.admitted.digest(), &mut fields)?;
    let mut inner = Context::new(
        context.service,
        context.registry,
        context.connection,
        &request,
        body,
        command,
        context.started,
    );
    inner.arguments = arguments;
    inner.admit(context.admitted.clone(), judged);
    let result = run(&mut inner, command, &fields);
    // Told as if a client had sent it.
    if context.service.audits { audit::ended(&inner, result) } else { result }
}

fn run_create(context: &Context<'_>, database: &str, entry: &Entry<'_>) -> Result<()> {
    let body = without(entry.object, &["ns"])?;
    if let (Some(uuid), Some(RawBsonRef::String(name))) = (entry.uuid, body.get("create")?) {
        // Applied before.
        let here = context.service.catalog.collection(&Namespace::new(database, name)?);
        if here.is_some_and(|here| here.uuid() == uuid) {
            return Ok(());
        }
    }
    run_as_client(context, database, &body, |inner, _, fields| {
        create::make(inner, fields, entry.uuid)
    })
}

/// The command over the collection that has the entry's UUID, whatever it is called here.
fn under_uuid(context: &Context<'_>, database: &str, entry: &Entry<'_>) -> Result<RawDocumentBuf> {
    let Some(uuid) = entry.uuid else { return Ok(entry.object.to_owned()) };
    let found = context.service.catalog.collection_of(uuid);
    let found =
        found.filter(|found| found.namespace().database() == database).ok_or_else(|| {
            Error::new(
                Code::NAMESPACE_NOT_FOUND,
                format!("Failed to find a collection with the UUID {uuid} in {database}"),
            )
        })?;
    let mut body = RawDocumentBuf::new();
    for (at, element) in entry.object.iter().enumerate() {
        let (name, value) = element?;
        match at {
            0 => body.append(name, found.namespace().collection()),
            _ => body.append(name, value),
        }
    }
    Ok(body)
}

fn without(document: &RawDocument, names: &[&str]) -> Result<RawDocumentBuf> {
    let mut rest = RawDocumentBuf::new();
    for element in document {
        let (name, value) = element?;
        if !names.contains(&name.as_str()) {
            rest.append(name, value);
        }
    }
    Ok(rest)
}

/// `{createIndexes: "c", v: 2, key: ..., name: ...}` as clients send it.
fn create_indexes(entry: &RawDocument) -> Result<RawDocumentBuf> {
    let mut indexes = RawArrayBuf::new();
    indexes.push(RawBsonRef::Document(&without(entry, &["createIndexes", "ns"])?));
    with_indexes(entry, "createIndexes", RawBsonRef::Array(&indexes))
}

fn commit_index_build(entry: &RawDocument) -> Result<RawDocumentBuf> {
    let indexes = entry.get("indexes")?.unwrap_or(RawBsonRef::Null);
    with_indexes(entry, "commitIndexBuild", indexes)
}

fn with_indexes(
    entry: &RawDocument,
    first: &str,
    indexes: RawBsonRef<'_>,
) -> Result<RawDocumentBuf> {
    let mut body = RawDocumentBuf::new();
    body.append(cstr!("createIndexes"), entry.get(first)?.unwrap_or(RawBsonRef::Null));
    body.append(cstr!("indexes"), indexes);
    Ok(body)
}

/// In an entry `dropTarget` is the UUID of what is replaced.
fn rename(entry: &RawDocument) -> Result<RawDocumentBuf> {
    let mut body = RawDocumentBuf::new();
    for element in entry {
        let (name, value) = element?;
        match (name.as_str(), value) {
            ("dropTarget", RawBsonRef::Binary(_)) => body.append(name, true),
            _ => body.append(name, value),
        }
    }
    Ok(body)
}
