//! `bulkWrite`: inserts, updates and deletes of several collections in one command.
//!
//! From → to: `ops` and `nsInfo` are read and checked [`parse`]; neighbouring inserts into one
//! collection are one batch, every other operation runs by itself [`Run`]; what each did becomes a
//! document of the reply's cursor, and is summed up beside it.
//!
//! Always true: an operation that cannot be read ends the command before anything was written; one
//! that fails has a document with its error, and where `ordered` is the last.

use super::write_reply::batch;
use super::{delete, update};
use crate::batch::{CursorOptions, first_batch};
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use crate::security::asks;
use bson::raw::RawBson;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use catalog::Namespace;
use dispatch::fields::{Field, inner, missing};
use dispatch::rules::Counter;
use dispatch::writer::Writer;
use errors::{Code, Error, Result};
use query::{
    DeleteRequest, DeleteStatement, InsertRequest, OpContext, UpdateRequest, UpdateStatement,
};
use serverstate::Documents;
use serverstate::RetryableWrite;
use serverstate::profiler::OpFigures;
use std::sync::atomic::Ordering;

pub(crate) const BULK_WRITE: Command = Command::new(
    "bulkWrite",
    "Changes documents of several collections.",
    Needs::Computed(asks::bulk_write),
    run,
)
.writes(Counter::Command)
.admin_only()
.api_v1()
.sequences(&["ops", "nsInfo"]);

const PLACE: &str = "bulkWrite.ops";
/// The namespace of the cursor over the results.
const CURSOR_NAMESPACE: &str = "admin.$cmd.bulkWrite";

struct BulkWrite<'a> {
    ops: Vec<Op<'a>>,
    /// The UUIDs that the client named for collections.
    uuids: Vec<(Namespace, [u8; 16])>,
    /// The collections that have other ones, and the error for what is written to them.
    mismatches: Vec<(Namespace, Error)>,
    ordered: bool,
    errors_only: bool,
    let_variables: Option<&'a RawDocument>,
    wanted: CursorOptions,
}

/// One operation and the collection it is for.
struct Op<'a> {
    namespace: Namespace,
    kind: Kind<'a>,
}

enum Kind<'a> {
    Insert(&'a RawDocument),
    Update(Box<UpdateStatement<'a>>),
    Delete(DeleteStatement<'a>),
}

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let mut bulk = parse(context, fields)?;
    for (namespace, uuid) in std::mem::take(&mut bulk.uuids) {
        if let Err(error) = context.compare_uuid(&namespace, uuid) {
            bulk.mismatches.push((namespace, error));
        }
    }
    let in_transaction = context.transaction().is_some();
    for op in &bulk.ops {
        let multi = match &op.kind {
            Kind::Insert(_) => false,
            Kind::Update(statement) => statement.multi,
            Kind::Delete(statement) => !statement.only_one,
        };
        RetryableWrite::check_one(context.retryable.as_deref(), multi)?;
        let database = op.namespace.database();
        if in_transaction && matches!(database, "admin" | "config" | "local") {
            return Err(Error::new(
                Code::OPERATION_NOT_SUPPORTED_IN_TRANSACTION,
                format!("Cannot run command against the '{database}' database in a transaction."),
            ));
        }
    }
    if let Some(first) = bulk.ops.first() {
        context.at_collection(&first.namespace);
    }
    let mut results = Results { errors_only: bulk.errors_only, ..Results::default() };
    let mut op = context.op();
    Run { bulk: &bulk, op: &mut op, results: &mut results }.all()?;
    let metrics = &context.service.metrics;
    for (counter, count) in [
        (Counter::Insert, results.tried[0]),
        (Counter::Update, results.tried[1]),
        (Counter::Delete, results.tried[2]),
    ] {
        metrics.count(counter, count);
    }
    metrics.documents_inserted.fetch_add(results.inserted + results.upserted, Ordering::Relaxed);
    metrics.documents_updated.fetch_add(results.modified, Ordering::Relaxed);
    metrics.documents_deleted.fetch_add(results.deleted, Ordering::Relaxed);
    context.figures = OpFigures {
        inserted: Some(results.inserted),
        matched: Some(results.matched),
        modified: Some(results.modified),
        upserted: results.upserted,
        deleted: Some(results.deleted),
        ..OpFigures::default()
    };
    context.statement_failed = results.errors > 0;
    first_batch(context, CURSOR_NAMESPACE, Documents::list(results.items), None, &bulk.wanted)?;
    let reply = &mut context.reply;
    reply.number("nErrors", results.errors);
    reply.number("nInserted", results.inserted);
    reply.number("nMatched", results.matched);
    reply.number("nModified", results.modified);
    reply.number("nUpserted", results.upserted);
    reply.number("nDeleted", results.deleted);
    Ok(())
}

/// What was done so far.
#[derive(Default)]
struct Results {
    items: Vec<RawDocumentBuf>,
    errors_only: bool,
    /// Inserts, updates and deletes that were begun.
    tried: [u64; 3],
    errors: u64,
    inserted: u64,
    matched: u64,
    modified: u64,
    upserted: u64,
    deleted: u64,
}

impl Results {
    fn done(&mut self, index: usize, n: u64, modified: Option<u64>, upserted: Option<&RawBson>) {
        if self.errors_only {
            return;
        }
        let mut item = Writer::new();
        item.f64("ok", 1.0);
        item.i32("idx", index as i32);
        item.number("n", n);
        if let Some(modified) = modified {
            item.number("nModified", modified);
        }
        if let Some(id) = upserted {
            let open = item.begin_document("upserted");
            item.value("_id", id.as_raw_bson_ref());
            item.end(open);
        }
        self.items.push(item.finish());
    }

    fn failed(&mut self, index: usize, error: &Error, is_update: bool) {
        self.errors += 1;
        let mut item = Writer::new();
        item.f64("ok", 0.0);
        item.i32("idx", index as i32);
        item.i32("code", error.code().0);
        if let Some(extra) = error.extra() {
            item.fields_of(extra);
        }
        if let Some(info) = error.info() {
            item.bson("errInfo", &bson::Bson::Document(info.clone()));
        }
        item.str("errmsg", error.message());
        item.i32("n", 0);
        if is_update {
            item.i32("nModified", 0);
        }
        self.items.push(item.finish());
    }
}

struct Run<'r, 'a, 'c> {
    bulk: &'r BulkWrite<'a>,
    op: &'r mut OpContext<'c>,
    results: &'r mut Results,
}

impl Run<'_, '_, '_> {
    fn all(&mut self) -> Result<()> {
        let mut next = 0;
        while next < self.bulk.ops.len() {
            self.op.interrupt.check()?;
            self.op.first_statement = next;
            let before = self.results.errors;
            let op = &self.bulk.ops[next];
            let refused = self.bulk.mismatches.iter().find(|(at, _)| *at == op.namespace);
            if let Some((_, error)) = refused {
                self.results.failed(next, error, matches!(op.kind, Kind::Update(_)));
                next += 1;
                if self.bulk.ordered {
                    break;
                }
                continue;
            }
            next = match &op.kind {
                Kind::Insert(_) => self.inserts(next)?,
                Kind::Update(statement) => {
                    self.update(next, &op.namespace, statement)?;
                    next + 1
                }
                Kind::Delete(statement) => {
                    self.delete(next, &op.namespace, statement)?;
                    next + 1
                }
            };
            if self.bulk.ordered && self.results.errors > before {
                break;
            }
        }
        Ok(())
    }

    /// The inserts from `first` on that are for one collection; gives where they end.
    fn inserts(&mut self, first: usize) -> Result<usize> {
        let namespace = &self.bulk.ops[first].namespace;
        let documents: Vec<&RawDocument> = self.bulk.ops[first..]
            .iter()
            .map_while(|op| match op.kind {
                Kind::Insert(document) if op.namespace == *namespace => Some(document),
                _ => None,
            })
            .collect();
        self.results.tried[0] += documents.len() as u64;
        let request = InsertRequest { documents: &documents, ordered: self.bulk.ordered };
        let end = first + documents.len();
        let done = match query::insert(self.op, namespace, &request) {
            Ok(done) => done,
            Err(error) => {
                self.fail(first, error, false)?;
                // Refused as a whole: each of them for the same reason.
                return Ok(first + 1);
            }
        };
        self.results.inserted += done.n;
        let mut errors = done.errors.iter().peekable();
        for at in 0..documents.len() {
            match errors.next_if(|failed| failed.index == at) {
                Some(failed) => {
                    self.results.failed(first + at, &failed.error, false);
                    if self.bulk.ordered {
                        break;
                    }
                }
                None => self.results.done(first + at, 1, None, None),
            }
        }
        Ok(end)
    }

    fn update(
        &mut self,
        index: usize,
        namespace: &Namespace,
        statement: &UpdateStatement<'_>,
    ) -> Result<()> {
        self.results.tried[1] += 1;
        let request = UpdateRequest {
            updates: std::slice::from_ref(statement),
            ordered: true,
            let_variables: self.bulk.let_variables,
        };
        match query::update(self.op, namespace, &request) {
            Err(error) => self.fail(index, error, true),
            Ok(done) => {
                if let Some(failed) = done.errors.first() {
                    self.results.failed(index, &failed.error, true);
                    return Ok(());
                }
                let upserted = done.upserted.first().map(|(_, id)| id);
                let results = &mut *self.results;
                results.upserted += u64::from(upserted.is_some());
                results.matched += done.n - u64::from(upserted.is_some());
                results.modified += done.n_modified;
                results.done(index, done.n, Some(done.n_modified), upserted);
                Ok(())
            }
        }
    }

    fn delete(
        &mut self,
        index: usize,
        namespace: &Namespace,
        statement: &DeleteStatement<'_>,
    ) -> Result<()> {
        self.results.tried[2] += 1;
        let request = DeleteRequest {
            deletes: std::slice::from_ref(statement),
            ordered: true,
            let_variables: self.bulk.let_variables,
        };
        match query::delete(self.op, namespace, &request) {
            Err(error) => self.fail(index, error, false),
            Ok(done) => {
                self.results.deleted += done.n;
                match done.errors.first() {
                    Some(failed) => self.results.failed(index, &failed.error, false),
                    None => self.results.done(index, done.n, None, None),
                }
                Ok(())
            }
        }
    }

    /// A refusal of the collection is the operation's; the end of the command is everybody's.
    fn fail(&mut self, index: usize, error: Error, is_update: bool) -> Result<()> {
        if query::ends_command(&error) {
            return Err(error);
        }
        self.results.failed(index, &error, is_update);
        Ok(())
    }
}

fn parse<'a>(context: &Context<'a>, fields: &[Field<'a>]) -> Result<BulkWrite<'a>> {
    let (mut ops, mut infos) = (None, None);
    let mut bulk = BulkWrite {
        ops: Vec::new(),
        uuids: Vec::new(),
        mismatches: Vec::new(),
        ordered: true,
        errors_only: false,
        let_variables: None,
        wanted: CursorOptions { batch_size: Some(u64::MAX), ..CursorOptions::default() },
    };
    for field in &fields[1..] {
        match field.name {
            "ops" => ops = Some(field),
            "nsInfo" => infos = Some(field),
            "ordered" => bulk.ordered = field.bool()?,
            "errorsOnly" => bulk.errors_only = field.bool()?,
            "let" => bulk.let_variables = Some(field.document()?),
            "cursor" => {
                for part in inner(field.document()?, "bulkWrite.cursor") {
                    let part = part?;
                    match part.name {
                        "batchSize" => bulk.wanted.batch_size = Some(part.non_negative()?),
                        _ => return Err(part.unknown()),
                    }
                }
            }
            // The first is honoured by `Context::op`; timestamps are kept as they come.
            "bypassDocumentValidation" | "bypassEmptyTsReplacement" => {
                field.bool()?;
            }
            "stmtId" | "stmtIds" => {}
            _ => return Err(field.unknown()),
        }
    }
    let ops = batch(context, ops, "ops")?;
    let infos = match (context.sequence("nsInfo"), infos) {
        (Some(section), None) => section.to_vec(),
        (None, Some(field)) => field.documents()?,
        (None, None) => return Err(missing("bulkWrite", "nsInfo")),
        (Some(_), Some(_)) => {
            return Err(Error::location(
                40413,
                "BSON field 'bulkWrite.nsInfo' is a duplicate field",
            ));
        }
    };
    check_statement_numbers(context.body, ops.len())?;
    let infos: Vec<_> = infos.into_iter().map(parse_info).collect::<Result<_>>()?;
    bulk.uuids = infos.iter().filter_map(|(ns, uuid)| Some((ns.clone(), (*uuid)?))).collect();
    let infos: Vec<Namespace> = infos.into_iter().map(|(namespace, _)| namespace).collect();
    bulk.ops = ops.iter().map(|op| parse_op(op, &infos)).collect::<Result<_>>()?;
    Ok(bulk)
}

fn check_statement_numbers(body: &RawDocument, ops: usize) -> Result<()> {
    let Some(RawBsonRef::Array(list)) = body.get("stmtIds")? else { return Ok(()) };
    if body.get("stmtId")?.is_some() {
        return Err(Error::new(
            Code::INVALID_OPTIONS,
            "May not specify both stmtId and stmtIds in bulkWrite command",
        ));
    }
    let given = list.into_iter().count();
    if given != ops {
        return Err(Error::new(
            Code::INVALID_LENGTH,
            format!(
                "Number of statement ids must match the number of batch entries. Got {given} \
                 statement ids but {ops} operations."
            ),
        ));
    }
    Ok(())
}

/// An entry of `nsInfo`: a collection, and its UUID where the client wants to be sure of it.
fn parse_info(info: &RawDocument) -> Result<(Namespace, Option<[u8; 16]>)> {
    const PLACE: &str = "bulkWrite.nsInfo";
    let (mut namespace, mut uuid) = (None, None);
    for field in inner(info, PLACE) {
        let field = field?;
        match field.name {
            "ns" => namespace = Some(Namespace::parse(field.str()?)?),
            "collectionUUID" if field.is_null() => {}
            "collectionUUID" => uuid = Some(field.uuid()?),
            "encryptionInformation" => return Err(field.not_yet()),
            _ => return Err(field.unknown()),
        }
    }
    let namespace = namespace.ok_or_else(|| missing(PLACE, "ns"))?;
    Ok((namespace, uuid))
}

/// The first field says what it is, and for which entry of `nsInfo`.
fn parse_op<'a>(op: &'a RawDocument, infos: &[Namespace]) -> Result<Op<'a>> {
    let mut fields = inner(op, PLACE);
    let Some(kind) = fields.next().transpose()? else {
        return Err(missing(PLACE, "insert"));
    };
    let at = match kind.name {
        "insert" | "update" | "delete" => kind.i64()?,
        _ => return Err(kind.unknown()),
    };
    let namespace = usize::try_from(at).ok().and_then(|at| infos.get(at)).ok_or_else(|| {
        Error::bad_value(format!(
            "BulkWrite ops entry {} has an invalid nsInfo index.",
            bsonval::show::document(op)
        ))
    })?;
    let kind = match kind.name {
        "insert" => Kind::Insert(parse_insert(fields)?),
        "update" => Kind::Update(Box::new(parse_update(op, fields)?)),
        _ => Kind::Delete(parse_delete(op, fields)?),
    };
    Ok(Op { namespace: namespace.clone(), kind })
}

fn parse_insert<'a>(fields: impl Iterator<Item = Result<Field<'a>>>) -> Result<&'a RawDocument> {
    let mut document = None;
    for field in fields {
        let field = field?;
        match field.name {
            "document" => document = Some(field.document()?),
            _ => return Err(field.unknown()),
        }
    }
    document.ok_or_else(|| missing(PLACE, "document"))
}

fn parse_update<'a>(
    op: &'a RawDocument,
    fields: impl Iterator<Item = Result<Field<'a>>>,
) -> Result<UpdateStatement<'a>> {
    let (mut filter, mut mods) = (None, None);
    let mut statement = update::blank(op);
    for field in fields {
        let field = field?;
        match field.name {
            "filter" => filter = Some(field.document()?),
            "updateMods" => mods = Some(field.value),
            "upsertSupplied" => {
                field.strict_bool()?;
            }
            "constants" => statement.constants = Some(field.document()?),
            "sort" => statement.sort = Some(field.document()?),
            _ => update::shared_field(&mut statement, &field)?,
        }
    }
    statement.filter = filter.ok_or_else(|| missing(PLACE, "filter"))?;
    statement.update = mods.ok_or_else(|| missing(PLACE, "updateMods"))?;
    update::check_update_value(&statement)?;
    Ok(statement)
}

fn parse_delete<'a>(
    op: &'a RawDocument,
    fields: impl Iterator<Item = Result<Field<'a>>>,
) -> Result<DeleteStatement<'a>> {
    let mut filter = None;
    let mut statement = DeleteStatement { filter: op, only_one: true, hint: None, collation: None };
    for field in fields {
        let field = field?;
        match field.name {
            "filter" => filter = Some(field.document()?),
            "multi" => statement.only_one = !field.strict_bool()?,
            _ => delete::shared_field(&mut statement, &field)?,
        }
    }
    statement.filter = filter.ok_or_else(|| missing(PLACE, "filter"))?;
    Ok(statement)
}
