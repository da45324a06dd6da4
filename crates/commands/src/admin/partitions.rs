//! TokuMX's `addPartition`, `dropPartition` and `getPartitionInfo`.
//!
//! Always true: partitions are told as TokuMX tells them; the last one's `max` is the largest key.

use super::is_a_view;
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use bson::Bson;
use catalog::{Collection, Namespace, PartitionSelector};
use dispatch::fields::Field;
use errors::{Error, Result};
use std::sync::Arc;

pub(crate) const ADD_PARTITION: Command = Command::new(
    "addPartition",
    "Ends the last partition of a collection, and begins another one behind it.",
    Needs::Collection(&[Action::AddPartition]),
    add,
)
.write_concern();

pub(crate) const DROP_PARTITION: Command = Command::new(
    "dropPartition",
    "Drops partitions of a collection with all that they hold.",
    Needs::Collection(&[Action::DropPartition]),
    drop_partitions,
)
.write_concern();

pub(crate) const GET_PARTITION_INFO: Command = Command::new(
    "getPartitionInfo",
    "The partitions of a collection.",
    Needs::Collection(&[Action::GetPartitionInfo]),
    info,
);

fn add(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let namespace = context.namespace(&fields[0])?;
    let mut new_max = None;
    for field in &fields[1..] {
        match field.name {
            "newMax" => new_max = Some(field.document()?),
            _ => return Err(field.unknown()),
        }
    }
    partitioned(context, &namespace)?;
    let check = || context.check_interrupt();
    context.service.catalog.add_partition(&namespace, new_max, &check)
}

fn drop_partitions(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let namespace = context.namespace(&fields[0])?;
    let (mut id, mut max) = (None, None);
    for field in &fields[1..] {
        match field.name {
            "id" => id = Some(field.non_negative()?),
            "max" => max = Some(field.document()?),
            _ => return Err(field.unknown()),
        }
    }
    let selector = match (id, max) {
        (Some(id), None) => PartitionSelector::Id(id),
        (None, Some(max)) => PartitionSelector::UpTo(max),
        _ => return Err(Error::bad_value("dropPartition takes one of 'id' and 'max'")),
    };
    partitioned(context, &namespace)?;
    let check = || context.check_interrupt();
    context.service.catalog.drop_partitions(&namespace, selector, &check)?;
    Ok(())
}

fn info(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let namespace = context.namespace(&fields[0])?;
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    let collection = partitioned(context, &namespace)?;
    let partitions = collection.partitions();
    let reply = &mut context.reply;
    reply.long("numPartitions", partitions.len() as u64);
    let list = reply.begin_array("partitions");
    for (at, partition) in partitions.iter().enumerate() {
        let one = reply.begin_element(at);
        reply.long("_id", partition.id);
        if let Some(max) = &partition.max {
            reply.document("max", max);
        } else {
            let max = reply.begin_document("max");
            for path in collection.primary_paths() {
                reply.bson(path, &Bson::MaxKey);
            }
            reply.end(max);
        }
        reply.date("createTime", partition.created_ms);
        reply.end(one);
    }
    reply.end(list);
    Ok(())
}

/// The collection, which must be there and partitioned.
fn partitioned(context: &mut Context<'_>, namespace: &Namespace) -> Result<Arc<Collection>> {
    context.at_collection(namespace);
    let collection = context.service.catalog.require(namespace)?;
    if collection.is_view() {
        return Err(is_a_view(namespace));
    }
    catalog::check_partitioned(&collection)?;
    Ok(collection)
}
