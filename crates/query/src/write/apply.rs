//! A parsed update with what it needs to be applied.

use super::new_object_id;
use crate::canonical::StatementContext;
use crate::context::OpContext;
use bson::raw::{RawArray, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{DateTime, Timestamp};
use bsonval::Path;
use catalog::Changed;
use errors::{Error, Result};
use matcher::{Filter, MatchDetails};
use std::sync::atomic::{AtomicU32, Ordering};
use update::{Update, UpdateContext, UpdateOutcome};

/// What one statement does to documents.
pub(crate) struct Change {
    update: Update,
    context: UpdateContext,
}

impl Change {
    pub(crate) fn parse(
        ctx: &OpContext<'_>,
        update: RawBsonRef<'_>,
        array_filters: Option<&RawArray>,
        statement: &StatementContext,
    ) -> Result<Self> {
        let bound = match array_filters {
            None => Update::bind(update, statement.collation())?,
            Some(_) => None,
        };
        let update = if let Some(bound) = bound {
            bound
        } else {
            let parse = statement.get(ctx)?;
            let pipeline = |stages: &RawArray| crate::write::pipeline_update(stages, parse);
            Update::parse(update, array_filters, parse, &pipeline)?
        };
        Ok(Self::of(ctx, update, statement.now()))
    }

    /// What the difference of an oplog entry does.
    pub(crate) fn of_delta(
        ctx: &OpContext<'_>,
        diff: RawBsonRef<'_>,
        statement: &StatementContext,
    ) -> Result<Self> {
        let RawBsonRef::Document(diff) = diff else {
            return Err(Error::failed_to_parse("the diff of an oplog entry is a document"));
        };
        Ok(Self::of(ctx, Update::from_delta(diff)?, statement.now()))
    }

    fn of(ctx: &OpContext<'_>, update: Update, now: DateTime) -> Self {
        let context = UpdateContext {
            details: MatchDetails::default(),
            now,
            timestamp: next_timestamp(now.timestamp_millis()),
            keep_empty_timestamps: ctx.keep_empty_timestamps,
        };
        Self { update, context }
    }

    /// When it runs.
    pub(crate) fn time(&self) -> (DateTime, Timestamp) {
        (self.context.now, self.context.timestamp)
    }

    /// Whether it is a whole document, which must not be applied to many.
    pub(crate) fn is_replacement(&self) -> bool {
        self.update.is_replacement()
    }

    /// The paths that may change; `None` where any may.
    pub(crate) fn touched(&self) -> Option<&[Path]> {
        self.update.touched()
    }

    /// How a document comes to be another by it.
    pub(crate) fn changed(&self) -> Changed {
        if self.is_replacement() { Changed::AsAWhole } else { Changed::InParts }
    }

    /// Whether it needs to know how a document matched the filter.
    pub(crate) fn is_positional(&self) -> bool {
        self.update.is_positional()
    }

    /// The document after the change. A filter is there where the change is positional.
    pub(crate) fn apply(
        &self,
        document: &RawDocument,
        filter: Option<&Filter>,
    ) -> Result<UpdateOutcome> {
        let mut context = self.context;
        if let Some(filter) = filter
            && self.is_positional()
        {
            context.details = filter.matches_with_details(document)?.unwrap_or_default();
        }
        self.update.apply(document, &context)
    }

    /// The document to insert where nothing matched.
    pub(crate) fn upsert(&self, ctx: &OpContext<'_>, filter: &Filter) -> Result<RawDocumentBuf> {
        let new_id = new_object_id(ctx.catalog.os());
        let document = self.update.upsert(filter, &self.context, new_id)?;
        catalog::check_document(&document)?;
        Ok(document)
    }
}

/// Seconds and a counter, as `$currentDate` and empty timestamps get them.
pub(super) fn next_timestamp(now_ms: i64) -> Timestamp {
    static COUNTER: AtomicU32 = AtomicU32::new(1);
    Timestamp {
        time: u32::try_from(now_ms / 1000).unwrap_or(0),
        increment: COUNTER.fetch_add(1, Ordering::Relaxed),
    }
}
