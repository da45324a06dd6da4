//! `$merge`: each document is put into the target by itself.
//!
//! Always true: the document it is merged with is locked before it is decided what to write, so
//! concurrent writers are never overwritten unseen.

use super::QueryEnv;
use crate::canonical::{Canonical, Purpose};
use crate::write::{Targets, as_stored, in_transaction, lock};
use bson::raw::{RawBson, RawDocument, RawDocumentBuf};
use catalog::{Changed, Collection, Namespace, Txn};
use errors::{Code, Error, Result};
use expr::agg::Variables;
use keystring::Collation;
use matcher::{Filter, Leaf, Node, Predicate};
use pipeline::OutWriter;
use pipeline::stage::merge::{MergeAction, MergeSpec, WhenMatched};
use std::borrow::Cow;
use std::sync::Arc;

/// How often a document is tried again after somebody else inserted the same key.
const ATTEMPTS: u32 = 5;

pub(super) struct MergeWriter {
    env: QueryEnv,
    target: Namespace,
    spec: MergeSpec,
    variables: Arc<Variables>,
    /// The same under the target's collation, for finding documents there.
    own: Arc<Variables>,
}

impl MergeWriter {
    pub(super) fn create(
        env: QueryEnv,
        spec: MergeSpec,
        variables: Arc<Variables>,
    ) -> Result<Self> {
        let target = Namespace::new(&spec.into.database, &spec.into.collection)?;
        let exists = env.catalog().newest(&target).is_some();
        let collection = env.catalog().ensure_collection(&target)?;
        if collection.is_view() {
            return Err(Error::new(
                Code::COMMAND_NOT_SUPPORTED_ON_VIEW,
                format!("Namespace {target} is a view, not a collection"),
            ));
        }
        // A collection that is made here has nothing yet that the operation could see otherwise.
        let under = if exists { variables.collation() } else { collection.collation() };
        if !identifies(&collection, &spec.on, under) {
            return Err(Error::location(
                51183,
                "Cannot find index to verify that join fields will be unique",
            ));
        }
        let own = Variables::clone(&variables).with_collation(collection.collation().cloned());
        Ok(Self { env, target, spec, variables, own: Arc::new(own) })
    }

    fn put(&self, document: &RawDocument) -> Result<()> {
        let mut ctx = self.env.context();
        let filter = self.filter(document)?;
        let row = match &filter {
            None => None,
            Some(filter) => {
                let collection = ctx.catalog.newest(&self.target);
                let query =
                    Canonical::of_filter(&ctx, collection, filter.clone(), None, Purpose::Write)?;
                match Targets::of(&ctx, query)? {
                    Some(mut targets) => targets.take(&ctx, true)?.into_iter().next(),
                    None => None,
                }
            }
        };
        in_transaction(&mut ctx, |txn| {
            let Some(collection) = txn.open_for_write(&self.target)? else {
                return Err(Error::new(
                    Code::QUERY_PLAN_KILLED,
                    "the target of $merge was dropped",
                ));
            };
            let existing = match (&row, &filter) {
                (Some(row), Some(filter)) => lock(txn, &collection, filter, row)?,
                _ => None,
            };
            if matches!(self.spec.when_matched, WhenMatched::Fail) {
                // The insert itself says which key is there already.
                let action = self.spec.resolve(None, document, &self.variables)?;
                return self.write(txn, &collection, None, action);
            }
            let Some(locked) = existing else {
                let action = self.spec.resolve(None, document, &self.variables)?;
                return self.write(txn, &collection, None, action);
            };
            let old = locked.document()?;
            let action = self.spec.resolve(Some(old), document, &self.variables)?;
            self.write(txn, &collection, Some((&locked.record_key, old)), action)
        })
    }

    /// The filter for the document to merge with; `None` where there can be none.
    fn filter(&self, document: &RawDocument) -> Result<Option<Filter>> {
        let values = self.spec.on_values(document)?;
        if values.len() < self.spec.on.len() {
            return Ok(None);
        }
        let leaves = values
            .into_iter()
            .map(|(name, value): (String, RawBson)| {
                Node::Leaf(Leaf {
                    path: bsonval::Path::new(&name),
                    predicate: Predicate::Eq(value),
                })
            })
            .collect();
        Ok(Some(Filter::new(Node::And(leaves), Arc::clone(&self.own))))
    }

    /// The document as it is stored; empty timestamps are filled in where it is a new document or
    /// a whole one, not where it was made of the old one.
    fn as_stored<'a>(
        &self,
        document: &'a RawDocument,
        whole: bool,
    ) -> Result<Cow<'a, RawDocument>> {
        let keep = self.env.keeps_empty_timestamps() || !whole;
        as_stored(self.env.catalog().os(), document, keep)
    }

    fn write(
        &self,
        txn: &mut Txn,
        collection: &Arc<Collection>,
        existing: Option<(&[u8], &RawDocument)>,
        action: MergeAction,
    ) -> Result<()> {
        match (action, existing) {
            (MergeAction::Nothing, _) => Ok(()),
            (MergeAction::Insert(document), _) | (MergeAction::Replace(document), None) => {
                let fitted = self.as_stored(&document, true)?;
                catalog::check_document(&fitted)?;
                txn.insert_document(collection, &fitted)
            }
            (MergeAction::Replace(document), Some((key, old))) => {
                let replaces = matches!(self.spec.when_matched, WhenMatched::Replace);
                let fitted = self.as_stored(&document, replaces)?;
                let id_of = |document: &RawDocument| {
                    document.get("_id")?.map(|id| collection.id_key(id)).transpose()
                };
                if id_of(&fitted)? != id_of(old)? {
                    return Err(Error::new(
                        Code::IMMUTABLE_FIELD,
                        "$merge failed to update the matching document, did you attempt to modify \
                         the _id or the shard key?",
                    ));
                }
                if fitted.as_bytes() == old.as_bytes() {
                    return Ok(());
                }
                let changed = if replaces { Changed::AsAWhole } else { Changed::InParts };
                txn.change_document(collection, key, (old, &fitted), None, changed)
            }
        }
    }
}

impl OutWriter for MergeWriter {
    fn write(&mut self, document: RawDocumentBuf) -> Result<()> {
        let document = bsonval::text_score::strip(document);
        let mut attempts = 0;
        loop {
            match self.put(&document) {
                Err(error)
                    if error.code() == Code::DUPLICATE_KEY
                        && attempts < ATTEMPTS
                        && !matches!(self.spec.when_matched, WhenMatched::Fail) =>
                {
                    attempts += 1;
                }
                other => return other,
            }
        }
    }

    fn finish(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// Whether a unique index of this collation covers exactly these fields.
fn identifies(collection: &Collection, on: &[String], under: Option<&Collation>) -> bool {
    if matches!(on, [only] if only == "_id") {
        return collection.collation() == under;
    }
    collection.primary_index().into_iter().chain(collection.indexes()).any(|index| {
        let spec = index.spec();
        spec.unique
            && spec.collation.as_ref() == under
            && !spec.sparse
            && !spec.is_geo()
            && spec.partial.is_none()
            && spec.parts.len() == on.len()
            && spec.parts.iter().all(|part| on.contains(&part.path))
    })
}
