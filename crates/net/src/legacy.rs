//! The messages from before OP_MSG, translated into commands, and their replies translated back.
//!
//! ```text
//!   OP_QUERY db.c      -> find / explain      cursor.firstBatch -> OP_REPLY of many documents
//!   OP_QUERY db.$cmd   -> the command         its reply         -> OP_REPLY of one
//!   OP_GET_MORE        -> getMore             cursor.nextBatch  -> OP_REPLY of many
//!   OP_KILL_CURSORS, OP_INSERT, OP_UPDATE, OP_DELETE -> commands; no reply
//! ```
//!
//! What is always true: nothing here runs or sends anything; no document is dropped on the way
//! from a batch to its OP_REPLY; what cannot be said in a command is refused, not left out.

use bson::raw::cstr;
use bson::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};
use errors::{Code, Error, Result};
use wire::{Delete, GetMore, Insert, KillCursors, OpQuery, OpReply, QueryFlags, ReplyFlags};

/// Documents in one insert command.
const INSERT_PART: usize = 100_000;

/// How a command's reply becomes an OP_REPLY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// As it is.
    Command,
    /// Each document of the cursor's batch by itself.
    Batch,
    /// As a document that a query found.
    Plan,
    /// As an aggregation's `result`, from before it had cursors.
    Inline,
}

/// A command that says what an old message said.
#[derive(Debug)]
pub(crate) struct Translated<'a> {
    pub(crate) database: &'a str,
    pub(crate) body: RawDocumentBuf,
    pub(crate) sequences: Vec<wire::Sequence<'a>>,
    pub(crate) answer: Answer,
}

impl<'a> Translated<'a> {
    fn new(database: &'a str, body: RawDocumentBuf, answer: Answer) -> Self {
        Self { database, body, sequences: Vec::new(), answer }
    }
}

/// OP_QUERY: a command, or a find.
pub(crate) fn query<'a>(query: &OpQuery<'a>) -> Result<Translated<'a>> {
    if query.flags.contains(QueryFlags::EXHAUST) {
        return Err(Error::new(
            Code::NOT_IMPLEMENTED,
            "the exhaust flag of OP_QUERY is not supported: use OP_GET_MORE, or getMore in OP_MSG",
        ));
    }
    let (database, collection) = split(query.namespace)?;
    match collection {
        "$cmd" => Ok(command(database, unwrapped(query.query))),
        "$cmd.sys.inprog" => Ok(system_command("currentOp", query.query)),
        "$cmd.sys.killop" => Ok(system_command("killOp", query.query)),
        "$cmd.sys.unlock" => Ok(system_command("fsyncUnlock", query.query)),
        "system.namespaces" => Err(no_collection(collection, "listCollections")),
        "system.indexes" => Err(no_collection(collection, "listIndexes")),
        _ => find(query, database, collection),
    }
}

/// What lists collections and indexes is no collection here; an empty answer would be a lie.
fn no_collection(name: &str, command: &str) -> Error {
    Error::new(
        Code::COMMAND_NOT_SUPPORTED,
        format!("{name} cannot be read by this server: use the command {command}"),
    )
}

fn split(namespace: &str) -> Result<(&str, &str)> {
    namespace
        .split_once('.')
        .filter(|(database, collection)| !database.is_empty() && !collection.is_empty())
        .ok_or_else(|| {
            Error::new(
                Code::INVALID_NAMESPACE,
                format!("Invalid namespace specified '{namespace}'"),
            )
        })
}

/// Old clients wrap a command together with its read preference: `{$query: command, ...}`.
fn unwrapped(body: &RawDocument) -> &RawDocument {
    match body.iter().next() {
        Some(Ok((key, RawBsonRef::Document(inner))))
            if matches!(key.as_str(), "$query" | "query") =>
        {
            inner
        }
        _ => body,
    }
}

fn command<'a>(database: &'a str, body: &RawDocument) -> Translated<'a> {
    let mut answer = Answer::Command;
    let mut translated = body.to_owned();
    if is_inline_aggregate(body) {
        answer = Answer::Inline;
        let mut cursor = RawDocumentBuf::new();
        cursor.append(cstr!("batchSize"), i32::MAX);
        translated.append(cstr!("cursor"), cursor);
    }
    Translated::new(database, translated, answer)
}

/// An aggregation that wants its documents in the reply, as before 2.6.
fn is_inline_aggregate(body: &RawDocument) -> bool {
    let named = |wanted: &str| body.get(wanted).is_ok_and(|found| found.is_some());
    let first = body.iter().next();
    matches!(first, Some(Ok((key, _))) if key.as_str() == "aggregate")
        && !named("cursor")
        && !matches!(body.get("explain"), Ok(Some(value)) if truth(value))
}

/// What the shell once asked through collections that were none.
fn system_command(name: &str, arguments: &RawDocument) -> Translated<'static> {
    let mut body = RawDocumentBuf::new();
    append(&mut body, name, RawBsonRef::Int32(1));
    for (key, value) in unwrapped(arguments).iter().flatten() {
        body.append(key, value);
    }
    Translated::new("admin", body, Answer::Command)
}

fn append(body: &mut RawDocumentBuf, name: &str, value: RawBsonRef<'_>) {
    // Names here are our own, and none holds a NUL.
    if let Ok(name) = <&bson::raw::CStr>::try_from(name) {
        body.append(name, value);
    }
}

/// A yes in the loose way of old clients.
fn truth(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Boolean(value) => value,
        RawBsonRef::Int32(number) => number != 0,
        RawBsonRef::Int64(number) => number != 0,
        RawBsonRef::Double(number) => number != 0.0,
        RawBsonRef::Null | RawBsonRef::Undefined => false,
        _ => true,
    }
}

fn find<'a>(query: &OpQuery<'a>, database: &'a str, collection: &str) -> Result<Translated<'a>> {
    let mut body = RawDocumentBuf::new();
    body.append(cstr!("find"), collection);
    let explain = append_filter(&mut body, query.query)?;
    if let Some(fields) = query.fields.filter(|fields| !fields.is_empty()) {
        body.append(cstr!("projection"), fields);
    }
    if query.skip != 0 {
        body.append(cstr!("skip"), query.skip);
    }
    append_number(&mut body, query.number_to_return);
    append_flags(&mut body, query.flags);
    if !explain {
        return Ok(Translated::new(database, body, Answer::Batch));
    }
    let mut explained = RawDocumentBuf::new();
    explained.append(cstr!("explain"), body);
    explained.append(cstr!("verbosity"), "allPlansExecution");
    Ok(Translated::new(database, explained, Answer::Plan))
}

/// Appends the filter and the modifiers around it; says whether the plan is asked for.
fn append_filter(body: &mut RawDocumentBuf, query: &RawDocument) -> Result<bool> {
    if !is_wrapped(query) {
        body.append(cstr!("filter"), query);
        return Ok(false);
    }
    let mut explain = false;
    for element in query {
        let (name, value) = element?;
        let name = name.as_str();
        let modern = match name {
            "$query" | "query" => "filter",
            "$orderby" | "orderby" => "sort",
            "$hint" => "hint",
            "$min" => "min",
            "$max" => "max",
            "$maxTimeMS" => "maxTimeMS",
            "$comment" => "comment",
            "$returnKey" => "returnKey",
            "$showDiskLoc" => "showRecordId",
            "$readPreference" => "$readPreference",
            "$explain" => {
                explain = truth(value);
                continue;
            }
            // Every cursor of ours reads one snapshot.
            "$snapshot" => continue,
            _ => {
                return Err(Error::bad_value(format!(
                    "query modifier {name} is not supported by this server"
                )));
            }
        };
        append(body, modern, value);
    }
    Ok(explain)
}

/// Whether the filter stands inside, beside modifiers. `query` can be a field's name too: it is
/// one where other fields stand beside it.
fn is_wrapped(query: &RawDocument) -> bool {
    let mut fields = query.iter().flatten();
    match fields.next() {
        Some((name, RawBsonRef::Document(_))) if name.as_str() == "query" => {
            fields.all(|(name, _)| name.as_str() == "orderby" || name.as_str().starts_with('$'))
        }
        _ => matches!(query.get("$query"), Ok(Some(RawBsonRef::Document(_)))),
    }
}

/// `numberToReturn`: 0 leaves the batch to the server; 1 and negative numbers want so many
/// documents and no cursor; others are the first batch's size.
fn append_number(body: &mut RawDocumentBuf, number: i32) {
    match number {
        0 => {}
        2.. => body.append(cstr!("batchSize"), number),
        _ => {
            let limit = i64::from(number.unsigned_abs());
            body.append(cstr!("limit"), limit);
            body.append(cstr!("batchSize"), limit);
            body.append(cstr!("singleBatch"), true);
        }
    }
}

fn append_flags(body: &mut RawDocumentBuf, flags: QueryFlags) {
    if flags.contains(QueryFlags::TAILABLE) {
        body.append(cstr!("tailable"), true);
        // Without "tailable" it never meant anything.
        if flags.contains(QueryFlags::AWAIT_DATA) {
            body.append(cstr!("awaitData"), true);
        }
    }
    if flags.contains(QueryFlags::OPLOG_REPLAY) {
        body.append(cstr!("oplogReplay"), true);
    }
    if flags.contains(QueryFlags::NO_CURSOR_TIMEOUT) {
        body.append(cstr!("noCursorTimeout"), true);
    }
    if flags.contains(QueryFlags::PARTIAL) {
        body.append(cstr!("allowPartialResults"), true);
    }
}

/// OP_GET_MORE. Whatever its number, the cursor stays open until its end was sent.
pub(crate) fn get_more<'a>(more: &GetMore<'a>) -> Result<Translated<'a>> {
    let (database, collection) = split(more.namespace)?;
    let mut body = RawDocumentBuf::new();
    body.append(cstr!("getMore"), more.cursor_id);
    body.append(cstr!("collection"), collection);
    if more.number_to_return != 0 {
        body.append(cstr!("batchSize"), i64::from(more.number_to_return.unsigned_abs()));
    }
    Ok(Translated::new(database, body, Answer::Batch))
}

/// OP_KILL_CURSORS, which names no collection.
pub(crate) fn kill_cursors(kill: &KillCursors) -> Translated<'static> {
    let mut ids = RawArrayBuf::new();
    for id in &kill.cursor_ids {
        ids.push(*id);
    }
    let mut body = RawDocumentBuf::new();
    body.append(cstr!("killCursors"), "$cmd");
    body.append(cstr!("cursors"), ids);
    Translated::new("admin", body, Answer::Command)
}

/// Whether an insert goes on after an error.
pub(crate) fn continues(insert: &Insert<'_>) -> bool {
    insert.flags & 1 != 0
}

/// OP_INSERT, in parts that a command can owner. Into `system.indexes` it makes indexes.
pub(crate) fn insert<'a>(insert: &Insert<'a>) -> Result<Vec<Translated<'a>>> {
    let (database, collection) = split(insert.namespace)?;
    if collection == "system.indexes" {
        let one = |description: &&RawDocument| create_index(database, description);
        return insert.documents.iter().map(one).collect();
    }
    let parts = insert.documents.chunks(INSERT_PART).map(|part| {
        let mut body = RawDocumentBuf::new();
        body.append(cstr!("insert"), collection);
        body.append(cstr!("ordered"), !continues(insert));
        let mut translated = Translated::new(database, body, Answer::Command);
        translated.sequences.push(("documents", part.to_vec()));
        translated
    });
    Ok(parts.collect())
}

/// `{ns, key, name, ...}`: how indexes were made before there was a command for it.
fn create_index<'a>(database: &'a str, description: &RawDocument) -> Result<Translated<'a>> {
    let Ok(Some(RawBsonRef::String(namespace))) = description.get("ns") else {
        return Err(Error::bad_value("an index description needs the namespace as ns"));
    };
    let (of, collection) = split(namespace)?;
    if of != database {
        return Err(Error::new(
            Code::CANNOT_CREATE_INDEX,
            format!("cannot make an index of {namespace} in the database {database}"),
        ));
    }
    let mut index = RawDocumentBuf::new();
    for element in description {
        let (name, value) = element?;
        if !matches!(name.as_str(), "ns" | "_id") {
            index.append(name, value);
        }
    }
    let mut indexes = RawArrayBuf::new();
    indexes.push(index);
    let mut body = RawDocumentBuf::new();
    body.append(cstr!("createIndexes"), collection);
    body.append(cstr!("indexes"), indexes);
    Ok(Translated::new(database, body, Answer::Command))
}

/// OP_UPDATE.
pub(crate) fn update<'a>(update: &wire::Update<'a>) -> Result<Translated<'a>> {
    let (database, collection) = split(update.namespace)?;
    let mut statement = RawDocumentBuf::new();
    statement.append(cstr!("q"), update.selector);
    statement.append(cstr!("u"), update.update);
    statement.append(cstr!("upsert"), update.flags & 1 != 0);
    statement.append(cstr!("multi"), update.flags & 2 != 0);
    Ok(one_statement(database, cstr!("update"), collection, cstr!("updates"), statement))
}

/// OP_DELETE.
pub(crate) fn delete<'a>(delete: &Delete<'a>) -> Result<Translated<'a>> {
    let (database, collection) = split(delete.namespace)?;
    let mut statement = RawDocumentBuf::new();
    statement.append(cstr!("q"), delete.selector);
    statement.append(cstr!("limit"), i32::from(delete.flags & 1 != 0));
    Ok(one_statement(database, cstr!("delete"), collection, cstr!("deletes"), statement))
}

fn one_statement<'a>(
    database: &'a str,
    name: &bson::raw::CStr,
    collection: &str,
    list: &bson::raw::CStr,
    statement: RawDocumentBuf,
) -> Translated<'a> {
    let mut statements = RawArrayBuf::new();
    statements.push(statement);
    let mut body = RawDocumentBuf::new();
    body.append(name, collection);
    body.append(list, statements);
    Translated::new(database, body, Answer::Command)
}

/// Whether a command, or a part of its batch, failed.
pub(crate) fn failed(reply: &RawDocument) -> bool {
    error_of(reply).is_some() || reply.get("writeErrors").is_ok_and(|errors| errors.is_some())
}

fn error_of(reply: &RawDocument) -> Option<Error> {
    if reply.get("ok").ok().flatten().is_some_and(truth) {
        return None;
    }
    let code = reply.get_i32("code").map_or(Code::UNKNOWN_ERROR, Code);
    Some(Error::new(code, reply.get_str("errmsg").unwrap_or("unknown error")))
}

/// An OP_REPLY that holds one document.
pub(crate) fn reply_of(document: &RawDocument) -> OpReply<'_> {
    OpReply {
        flags: ReplyFlags::AWAIT_CAPABLE,
        cursor_id: 0,
        starting_from: 0,
        documents: vec![document],
    }
}

/// The batch of a `find` or a `getMore`. A cursor that is not there has a flag of its own.
pub(crate) fn batch(reply: &RawDocument) -> Result<OpReply<'_>> {
    if let Some(error) = error_of(reply) {
        if error.code() != Code::CURSOR_NOT_FOUND {
            return Err(error);
        }
        let flags = ReplyFlags(ReplyFlags::AWAIT_CAPABLE.0 | ReplyFlags::CURSOR_NOT_FOUND.0);
        return Ok(OpReply { flags, cursor_id: 0, starting_from: 0, documents: Vec::new() });
    }
    let cursor = reply.get_document("cursor")?;
    let batch = match cursor.get_array("firstBatch") {
        Ok(batch) => batch,
        Err(_) => cursor.get_array("nextBatch")?,
    };
    let mut documents = Vec::new();
    for element in batch {
        let RawBsonRef::Document(document) = element? else {
            return Err(Error::new(Code::INTERNAL_ERROR, "a batch holds only documents"));
        };
        documents.push(document);
    }
    let starting_from = match cursor.get("startingFrom") {
        Ok(Some(RawBsonRef::Int32(number))) => number,
        // The field is 32 bits wide and only informs.
        Ok(Some(RawBsonRef::Int64(number))) => number as i32,
        _ => 0,
    };
    Ok(OpReply {
        flags: ReplyFlags::AWAIT_CAPABLE,
        cursor_id: cursor.get_i64("id")?,
        starting_from,
        documents,
    })
}

/// The plan of an explained find, as a document.
pub(crate) fn plan(reply: &RawDocument) -> Result<RawDocumentBuf> {
    if let Some(error) = error_of(reply) {
        return Err(error);
    }
    let mut plan = RawDocumentBuf::new();
    for element in reply {
        let (name, value) = element?;
        if name.as_str() != "ok" {
            plan.append(name, value);
        }
    }
    Ok(plan)
}

/// An aggregation's documents as `result`, and what kills a cursor that has more.
pub(crate) fn inline(reply: &RawDocument) -> (RawDocumentBuf, Option<Translated<'static>>) {
    let Ok(cursor) = reply.get_document("cursor") else { return (reply.to_owned(), None) };
    let mut out = RawDocumentBuf::new();
    match (cursor.get_i64("id"), cursor.get_array("firstBatch")) {
        (Ok(0), Ok(batch)) => {
            out.append(cstr!("result"), batch);
            out.append(cstr!("ok"), 1.0);
            (out, None)
        }
        (id, _) => {
            let error = Error::location(
                16389,
                "aggregation result exceeds maximum document size (16MB); ask for a cursor",
            );
            out.append(cstr!("ok"), 0.0);
            out.append(cstr!("errmsg"), error.message());
            out.append(cstr!("code"), error.code().0);
            out.append(cstr!("codeName"), error.code().name().as_ref());
            let cursor_ids = id.into_iter().collect();
            (out, Some(kill_cursors(&KillCursors { cursor_ids })))
        }
    }
}

/// The flags of a reply that holds [`failure`].
pub(crate) fn failure_flags() -> ReplyFlags {
    ReplyFlags(ReplyFlags::AWAIT_CAPABLE.0 | ReplyFlags::QUERY_FAILURE.0)
}

/// What an old client is told of a query that failed.
pub(crate) fn failure(error: &Error) -> RawDocumentBuf {
    let mut document = RawDocumentBuf::new();
    document.append(cstr!("$err"), error.message());
    document.append(cstr!("code"), error.code().0);
    document.append(cstr!("codeName"), error.code().name().as_ref());
    document.append(cstr!("ok"), 0.0);
    document
}

#[cfg(test)]
mod tests;
