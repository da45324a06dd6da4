//! `_fernCopyBegin`, `_fernCopyRead`, `_fernCopyLog`, `_fernCopyEnd`: another member copies this one's data. What they
//! say stands in `membership::copy`, which asks them.
//!
//! Always true: nothing but what belongs to a copy that was begun is read; a reply holds one part.

use super::initiate::member;
use super::several::check_version;
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use crate::security::asks;
use bson::RawBsonRef;
use dispatch::fields::Field;
use engine::CopiedFile;
use errors::{Code, Error, Result};
use membership::MemberId;
use membership::copy::{Outgoing, VERSION};
use std::sync::Arc;

pub(crate) const FERN_COPY_BEGIN: Command = Command::new(
    "_fernCopyBegin",
    "Holds this member's data for another member that copies it.",
    Needs::Computed(asks::internal),
    begin,
)
.admin_only()
.unprofiled();

pub(crate) const FERN_COPY_READ: Command = Command::new(
    "_fernCopyRead",
    "A part of the data that another member copies.",
    Needs::Computed(asks::internal),
    read,
)
.admin_only()
.unprofiled();

pub(crate) const FERN_COPY_LOG: Command = Command::new(
    "_fernCopyLog",
    "What of this member's log belongs to the copy that another one makes.",
    Needs::Computed(asks::internal),
    log,
)
.admin_only()
.unprofiled();

pub(crate) const FERN_COPY_END: Command = Command::new(
    "_fernCopyEnd",
    "Lets go of what was held for another member's copy.",
    Needs::Computed(asks::internal),
    end,
)
.admin_only()
.unprofiled();

/// What the commands are given beside their names.
#[derive(Default)]
struct Asked<'a> {
    copy: Option<i64>,
    source: Option<MemberId>,
    receiver: Option<MemberId>,
    founder: Option<MemberId>,
    log: Option<&'a str>,
    offset: u64,
    length: usize,
    known: Option<u128>,
    keys_for: Option<[u8; 32]>,
}

fn parse<'a>(context: &Context<'_>, fields: &'a [Field<'a>]) -> Result<Asked<'a>> {
    member(context)?;
    check_version(fields, VERSION)?;
    let mut asked = Asked::default();
    let name = context.command.name;
    let (begins, reads) = (name == FERN_COPY_BEGIN.name, name == FERN_COPY_READ.name);
    let id = |field: &Field<'_>| field.i64().map(|id| Some(MemberId(id.cast_unsigned())));
    for field in &fields[1..] {
        match (field.name, field.value) {
            ("copy", _) if !begins => asked.copy = Some(field.i64()?),
            ("source", _) if begins => asked.source = id(field)?,
            ("receiver", _) if begins => asked.receiver = id(field)?,
            ("founder", _) if begins => asked.founder = id(field)?,
            ("log", RawBsonRef::String(name)) if reads => asked.log = Some(name),
            ("offset", _) if reads => asked.offset = field.non_negative()?,
            ("length", _) if reads => {
                asked.length = usize::try_from(field.non_negative()?).unwrap_or(usize::MAX);
            }
            ("keysFor", RawBsonRef::Binary(binary)) if name == FERN_COPY_LOG.name => {
                let bytes = binary.bytes.as_array();
                asked.keys_for =
                    Some(*bytes.ok_or_else(|| Error::bad_value("keysFor has 32 bytes"))?);
            }
            ("known", RawBsonRef::Binary(binary)) if reads => {
                let bytes = binary.bytes.as_array();
                let bytes = bytes.ok_or_else(|| Error::bad_value("known has 16 bytes"))?;
                asked.known = Some(u128::from_le_bytes(*bytes));
            }
            _ => return Err(field.unknown()),
        }
    }
    Ok(asked)
}

fn held(context: &Context<'_>, asked: &Asked<'_>) -> Result<Arc<Outgoing>> {
    let number = asked.copy.ok_or_else(|| {
        Error::bad_value(format!("{} needs the number of a copy", context.command.name))
    })?;
    context.service.copies.get(number, context.now())
}

fn begin(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let Asked { source, receiver, founder, .. } = parse(context, fields)?;
    let service = context.service;
    let Some(membership) = service.replication.membership() else {
        let text = "this server is no member of a replica set of several";
        return Err(Error::new(Code::NOT_YET_INITIALIZED, text));
    };
    let (Some(source), Some(receiver), Some(founder)) = (source, receiver, founder) else {
        return Err(Error::bad_value("_fernCopyBegin needs source, receiver and founder"));
    };
    if (source, founder) != (membership.own(), membership.founder()) {
        let text = "this server is another member, or of another set, than the one whose data is asked for";
        return Err(Error::new(Code::INVALID_REPLICA_SET_CONFIG, text));
    }
    let refusal = |text: &str| Err(Error::new(Code::NOT_PRIMARY_OR_SECONDARY, text));
    if membership.document().is_witness(source) {
        return refusal("this server is an arbiter and has no data that could be copied");
    }
    if membership.view().held_back.is_some() {
        return refusal(
            "this server is delayed: its data has less than the other member may have acknowledged",
        );
    }
    if service.catalog.leaves_out_indexes() {
        let document = membership.document();
        return refusal(&format!(
            "{} has no indexes (buildIndexes: false): nobody copies its data",
            document.host_of(source).unwrap_or("this server")
        ));
    }
    if membership.document().id_of(receiver).is_none() {
        let text = "the configuration does not have the member that asks for this one's data";
        return Err(Error::new(Code::INVALID_REPLICA_SET_CONFIG, text));
    }
    let (number, data) = service.copies.begin(receiver, service.catalog.engine(), &service.os)?;
    let parts = data.parts();
    let pairs = parts.taken.iter().flat_map(|range| [range.start, range.end]);
    let taken: Vec<u8> = pairs.flat_map(u64::to_le_bytes).collect();
    context.reply.i64("copy", number);
    context.reply.i64("fileBytes", parts.file_bytes.cast_signed());
    context.reply.binary("superblocks", &parts.superblocks);
    context.reply.binary("taken", &taken);
    if let Some(master) = data.master() {
        context.reply.str("master", &master);
    }
    Ok(())
}

fn read(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let asked = parse(context, fields)?;
    let data = held(context, &asked)?;
    let file = asked.log.map_or(CopiedFile::Data, |name| CopiedFile::Log(name.to_owned()));
    let Some(part) = data.part(&file, asked.offset, asked.length) else {
        return Err(Error::bad_value("there is no such part of the copy"));
    };
    // It is read to where it is sent from.
    let sum = context.reply.binary_by("bytes", part.len(), |into| {
        let sum = part.read(into)?;
        Ok((asked.known != Some(sum)).then_some(sum))
    });
    match sum.map_err(catalog::from_engine)? {
        Some(sum) => context.reply.binary("checksum", &sum.to_le_bytes()),
        None => context.reply.bool("known", true),
    }
    Ok(())
}

fn log(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let asked = parse(context, fields)?;
    let data = held(context, &asked)?;
    // First the log: the document may be newer than what it has, and never older.
    let files = data.log();
    let Some(membership) = context.service.replication.membership() else {
        return Err(Error::new(Code::NOT_YET_INITIALIZED, "this server is no member of a set"));
    };
    let document = membership.document().encode();
    let document = document.map_err(|error| Error::new(Code::INTERNAL_ERROR, error.to_string()))?;
    let list = context.reply.begin_array("files");
    for (at, file) in files.iter().enumerate() {
        let row = context.reply.begin_element(at);
        context.reply.str("name", &file.name);
        context.reply.i64("bytes", file.bytes.cast_signed());
        context.reply.i64("length", file.length.cast_signed());
        context.reply.end(row);
    }
    context.reply.end(list);
    context.reply.binary("document", &document);
    let keys = match &asked.keys_for {
        Some(receiver) => data.data_keys_for(receiver),
        None => data.keys(),
    };
    if let Some(keys) = keys.map_err(catalog::from_engine)? {
        context.reply.binary("keys", &keys);
    }
    Ok(())
}

fn end(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    if let Some(number) = parse(context, fields)?.copy {
        context.service.copies.end(number);
    }
    Ok(())
}
