//! `mapReduce`: a client's code over documents, its results inline or in a collection.
//!
//! From → to: each document found is mapped to keys and values; values of a key are reduced when
//! there are many of them, and at the end [`Groups`]; the results are replied, or written by the
//! stages that write collections, `$out` and `$merge`.
//!
//! Always true: keys are told apart, and ordered, as BSON values.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use crate::security::asks;
use bson::raw::{CString, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use catalog::Namespace;
use dispatch::fields::{Field, inner, missing};
use dispatch::rules::Counter;
use errors::{Code, Error, Result};
use keystring::{Direction, KeyBuilder};
use query::{AggregateRequest, AggregateTarget, FindRequest};
use script::Script;
use std::collections::BTreeMap;

pub(crate) const MAP_REDUCE: Command = Command::new(
    "mapReduce",
    "Maps and reduces documents by a client's code.",
    Needs::Computed(asks::map_reduce),
    run,
)
.aliases(&["mapreduce"])
.reads(Counter::Command)
.write_concern();

/// Values of one key that are reduced to one before more are taken.
const REDUCE_AT: usize = 1000;
/// Bytes of keys and values that are held; what cannot be reduced below is an error.
const MAX_BYTES: usize = 256 << 20;

struct MapReduce<'a> {
    namespace: Namespace,
    find: FindRequest<'a>,
    map: Script,
    reduce: Script,
    reduce_source: RawBsonRef<'a>,
    finalize: Option<(Script, RawBsonRef<'a>)>,
    out: Out,
}

/// What becomes of the results.
enum Out {
    Inline,
    Replace(Namespace),
    Merge(Namespace),
    Reduce(Namespace),
}

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let command = parse(context, fields)?;
    context.at_collection(&command.namespace);
    let results = results(context, &command)?;
    let (target, stage) = match &command.out {
        Out::Inline => {
            let list = context.reply.begin_array("results");
            for (at, document) in results.iter().enumerate() {
                context.reply.element_document(at, document);
            }
            context.reply.end(list);
            return Ok(());
        }
        Out::Replace(target) => (target, out_stage(target)),
        Out::Merge(target) => (target, merge_stage(target, RawBson::String("replace".into()))),
        Out::Reduce(target) => (target, merge_stage(target, reduce_pipeline(&command))),
    };
    write(context, &results, stage)?;
    if target.database() == context.database() {
        context.reply.str("result", target.collection());
    } else {
        let open = context.reply.begin_document("result");
        context.reply.str("db", target.database());
        context.reply.str("collection", target.collection());
        context.reply.end(open);
    }
    Ok(())
}

/// Maps, reduces and finishes.
fn results(context: &mut Context<'_>, command: &MapReduce<'_>) -> Result<Vec<RawDocumentBuf>> {
    let mut op = context.op();
    let mut cursor = query::find(&mut op, &command.namespace, &command.find)?.into_cursor();
    let mut groups = Groups { reduce: &command.reduce, all: BTreeMap::new(), bytes: 0 };
    while let Some(document) = cursor.next()? {
        for (key, value) in command.map.map(document)? {
            groups.add(key, value)?;
        }
    }
    let mut results = Vec::with_capacity(groups.all.len());
    for (_, group) in groups.all {
        let key = group.key.as_raw_bson_ref();
        let mut value = reduced(&command.reduce, &group)?;
        if let Some((finalize, _)) = &command.finalize {
            value = finalize.call(&[key, value.as_raw_bson_ref()])?;
        }
        let mut document = RawDocumentBuf::new();
        document.append(cstr!("_id"), key);
        document.append(cstr!("value"), value);
        results.push(document);
    }
    Ok(results)
}

/// What was emitted, by key.
struct Groups<'a> {
    reduce: &'a Script,
    all: BTreeMap<Vec<u8>, Group>,
    bytes: usize,
}

struct Group {
    key: RawBson,
    values: Vec<RawBson>,
}

impl Groups<'_> {
    fn add(&mut self, key: RawBson, value: RawBson) -> Result<()> {
        // A key that is not there is null.
        let key = if matches!(key, RawBson::Undefined) { RawBson::Null } else { key };
        let mut bytes = KeyBuilder::new();
        bytes
            .append(key.as_raw_bson_ref(), Direction::Ascending)
            .map_err(|error| Error::bad_value(error.to_string()))?;
        let size = size_of(&value);
        let group = self.all.entry(bytes.into_bytes()).or_insert_with(|| {
            self.bytes += size_of(&key);
            Group { key, values: Vec::new() }
        });
        group.values.push(value);
        self.bytes += size;
        if group.values.len() >= REDUCE_AT {
            self.bytes -= group.shrink(self.reduce)?;
        }
        if self.bytes > MAX_BYTES {
            for group in self.all.values_mut() {
                self.bytes = self.bytes.saturating_sub(group.shrink(self.reduce)?);
            }
            if self.bytes > MAX_BYTES / 2 {
                return Err(Error::new(
                    Code::EXCEEDED_MEMORY_LIMIT,
                    format!("mapReduce holds more than {MAX_BYTES} bytes of keys and values"),
                ));
            }
        }
        Ok(())
    }
}

impl Group {
    /// Reduces the values to one; gives the bytes that this frees.
    fn shrink(&mut self, reduce: &Script) -> Result<usize> {
        let before: usize = self.values.iter().map(size_of).sum();
        self.values = vec![reduced(reduce, self)?];
        Ok(before.saturating_sub(self.values.iter().map(size_of).sum()))
    }
}

/// A key's value: one is taken as it is, several are reduced.
fn reduced(reduce: &Script, group: &Group) -> Result<RawBson> {
    if let [only] = &group.values[..] {
        return Ok(only.clone());
    }
    let values: RawArrayBuf = group.values.iter().collect();
    reduce.call(&[group.key.as_raw_bson_ref(), RawBsonRef::Array(&values)])
}

fn size_of(value: &RawBson) -> usize {
    64 + match value {
        RawBson::Document(document) => document.as_bytes().len(),
        RawBson::Array(array) => array.as_bytes().len(),
        RawBson::String(text) => text.len(),
        RawBson::Binary(binary) => binary.bytes.len(),
        _ => 0,
    }
}

/// `[{$documents: …}, stage]` on the command's database.
fn write(
    context: &mut Context<'_>,
    results: &[RawDocumentBuf],
    stage: RawDocumentBuf,
) -> Result<()> {
    let list: RawArrayBuf =
        results.iter().map(|document| RawBson::Document(document.clone())).collect();
    let mut pipeline = RawArrayBuf::new();
    pipeline.push(of(cstr!("$documents"), of(cstr!("$literal"), list)));
    pipeline.push(stage);
    let target = AggregateTarget::Database(context.database().to_owned());
    let request = AggregateRequest {
        pipeline: &pipeline,
        let_variables: None,
        hint: None,
        collation: None,
        allow_disk_use: None,
    };
    let mut op = context.op();
    let mut cursor = query::aggregate(&mut op, &target, &request)?;
    while cursor.next()?.is_some() {}
    Ok(())
}

fn of(name: &bson::raw::CStr, value: impl Into<RawBson>) -> RawDocumentBuf {
    let mut document = RawDocumentBuf::new();
    document.append(name, value.into());
    document
}

fn place(target: &Namespace) -> RawDocumentBuf {
    let mut place = of(cstr!("db"), target.database().to_owned());
    place.append(cstr!("coll"), target.collection());
    place
}

fn out_stage(target: &Namespace) -> RawDocumentBuf {
    of(cstr!("$out"), place(target))
}

fn merge_stage(target: &Namespace, matched: RawBson) -> RawDocumentBuf {
    let mut merge = of(cstr!("into"), place(target));
    merge.append(cstr!("on"), "_id");
    merge.append(cstr!("whenMatched"), matched);
    merge.append(cstr!("whenNotMatched"), "insert");
    of(cstr!("$merge"), merge)
}

/// `[{$set: {value: finalize(_id, reduce(_id, [value, $$new.value]))}}]`
fn reduce_pipeline(command: &MapReduce<'_>) -> RawBson {
    let pair: RawArrayBuf = ["$value", "$$new.value"].into_iter().collect();
    let mut value = call(command.reduce_source, RawBson::Array(pair));
    if let Some((_, source)) = &command.finalize {
        value = call(*source, RawBson::Document(value));
    }
    let mut stages = RawArrayBuf::new();
    stages.push(of(cstr!("$set"), of(cstr!("value"), value)));
    RawBson::Array(stages)
}

/// `{$function: {body, args: ["$_id", value], lang: "js"}}`
fn call(body: RawBsonRef<'_>, value: RawBson) -> RawDocumentBuf {
    let mut args = RawArrayBuf::new();
    args.push("$_id");
    args.push(value);
    let mut function = of(cstr!("body"), RawBson::from(body));
    function.append(cstr!("args"), args);
    function.append(cstr!("lang"), "js");
    of(cstr!("$function"), function)
}

fn parse<'a>(context: &Context<'a>, fields: &[Field<'a>]) -> Result<MapReduce<'a>> {
    const PLACE: &str = "mapReduce";
    let namespace = context.namespace(&fields[0])?;
    let mut find = FindRequest::default();
    let (mut map, mut reduce, mut finalize, mut out, mut scope) = (None, None, None, None, None);
    for field in &fields[1..] {
        match field.name {
            "map" => map = Some(field),
            "reduce" => reduce = Some(field),
            "finalize" | "query" | "sort" | "scope" if field.is_null() => {}
            "finalize" => finalize = Some(field),
            "out" => out = Some(field),
            "query" => find.filter = Some(field.document()?),
            "sort" => find.sort = Some(field.document()?),
            "collation" => find.collation = Some(field.document()?),
            "limit" => find.limit = field.non_negative()?,
            "scope" => scope = Some(field.document()?),
            // How MongoDB once ran it; there is one way.
            "jsMode" | "verbose" | "bypassDocumentValidation" => {
                field.bool()?;
            }
            _ => return Err(field.unknown()),
        }
    }
    if !script::is_allowed() {
        return Err(Error::location(
            31264,
            "Cannot run server-side javascript without the javascript engine enabled",
        ));
    }
    let map = map.ok_or_else(|| missing(PLACE, "map"))?;
    let reduce = reduce.ok_or_else(|| missing(PLACE, "reduce"))?;
    let out = parse_out(context, out.ok_or_else(|| missing(PLACE, "out"))?)?;
    let finalize = match finalize {
        Some(field) => Some((code(field, scope)?, field.value)),
        None => None,
    };
    Ok(MapReduce {
        namespace,
        find,
        map: code(map, scope)?,
        reduce: code(reduce, scope)?,
        reduce_source: reduce.value,
        finalize,
        out,
    })
}

/// Code, in the command's scope and its own.
fn code(field: &Field<'_>, scope: Option<&RawDocument>) -> Result<Script> {
    let (source, own) = match field.value {
        RawBsonRef::String(source) | RawBsonRef::JavaScriptCode(source) => (source, None),
        RawBsonRef::JavaScriptCodeWithScope(code) => (code.code, Some(code.scope)),
        _ => return Err(field.wrong_types("string, javascript, javascriptWithScope")),
    };
    let mut all = RawDocumentBuf::new();
    for scope in [scope, own].into_iter().flatten() {
        for element in scope {
            let (name, value) = element?;
            all.append(CString::from(name), value);
        }
    }
    Ok(Script::new(source, Some(&all)).knowing_stored())
}

fn parse_out(context: &Context<'_>, field: &Field<'_>) -> Result<Out> {
    let document = match field.value {
        RawBsonRef::String(name) => {
            return Ok(Out::Replace(Namespace::new(context.database(), name)?));
        }
        RawBsonRef::Document(document) => document,
        _ => return Err(field.wrong_types("string, object")),
    };
    let mut database = context.database();
    let mut action = None;
    for part in inner(document, "mapReduce.out") {
        let part = part?;
        match part.name {
            "inline" | "replace" | "merge" | "reduce" => action = Some(part),
            "db" => database = part.str()?,
            "nonAtomic" | "sharded" => {
                part.bool()?;
            }
            _ => return Err(part.unknown()),
        }
    }
    let action = action.ok_or_else(|| {
        Error::bad_value("'out' must have one of 'inline', 'replace', 'merge' or 'reduce'")
    })?;
    if action.name == "inline" {
        return Ok(Out::Inline);
    }
    let target = Namespace::new(database, action.str()?)?;
    Ok(match action.name {
        "replace" => Out::Replace(target),
        "merge" => Out::Merge(target),
        _ => Out::Reduce(target),
    })
}
