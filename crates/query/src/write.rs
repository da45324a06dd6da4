//! Writes: statements that run in engine transactions and repeat themselves where they conflict.
//!
//! From → to: candidates are found on a snapshot; each is locked, read again in its newest version
//! and asked the filter again; then it is changed. A client never sees a write conflict outside
//! its own transaction. A statement that changes many documents is one transaction: all or nothing.

mod apply;
mod delete;
mod fast;
mod find_and_modify;
mod insert;
mod object_id;
mod point;
mod range;
mod targets;
mod time_series;
mod update;

pub use delete::delete;
pub use find_and_modify::find_and_modify;
pub use insert::insert;
pub use object_id::new_object_id;
pub use update::update;

pub(crate) use insert::{as_stored, fit};
pub(crate) use range::deletes_range;
pub(crate) use targets::{Targets, lock};

use crate::context::{Atomicity, OpContext, StatementOutcome};
use crate::permit::Opening;
use crate::repeat::DdlRetries;
use crate::request::WriteError;
use ::update::PipelineUpdate;
use bson::raw::RawArray;
use catalog::{Collection, DEADLOCK, Namespace, QUEUED, Txn, TxnKind, is_retryable};
use engine::thread_commits;
use errors::{Code, Error, Result};
use matcher::ParseContext;
use pipeline::UpdatePipeline;
use std::sync::Arc;
use std::time::Duration;

/// Candidates are taken so many at a time…
pub(crate) const CHUNK_DOCUMENTS: usize = 1000;
/// …or so many bytes of them. Inserts commit in such parts.
pub(crate) const CHUNK_BYTES: usize = 4 << 20;

/// Runs `step` in the client's transaction, under a savepoint; or in one of its own, which is
/// committed, and repeated from the start as long as it conflicts with others.
pub(crate) fn in_transaction<T>(
    ctx: &mut OpContext<'_>,
    step: impl FnMut(&mut Txn) -> Result<T>,
) -> Result<T> {
    remembered(ctx, step, |_| Vec::new())
}

/// As [`in_transaction`]; what a retryable write's statements did, as `describe` tells it, is
/// remembered in the same transaction.
pub(crate) fn remembered<T>(
    ctx: &mut OpContext<'_>,
    mut step: impl FnMut(&mut Txn) -> Result<T>,
    describe: impl Fn(&T) -> Vec<(usize, StatementOutcome)>,
) -> Result<T> {
    if let Some(txn) = ctx.txn.as_deref_mut() {
        let savepoint = txn.savepoint();
        txn.bypass_validation(ctx.bypass_validation);
        let result = step(txn);
        if result.is_err() {
            txn.rollback_to(savepoint);
        }
        return result;
    }
    let mut attempts = 0;
    let mut retries = DdlRetries::default();
    loop {
        let result = {
            // It ends here, before anything is waited for.
            let mut txn = ctx.catalog.begin(TxnKind::Statement);
            ctx.interrupt.works_in(txn.id());
            txn.bypass_validation(ctx.bypass_validation);
            step(&mut txn).and_then(|value| {
                if let Some(log) = ctx.statements.as_deref_mut() {
                    for (statement, outcome) in describe(&value) {
                        log.write(&mut txn, ctx.first_statement + statement, &outcome)?;
                    }
                }
                txn.commit_in_place()?;
                Ok(value)
            })
        };
        if let Some(log) = ctx.statements.as_deref_mut() {
            log.ended(result.is_ok());
        }
        match result {
            Err(error) if is_retryable(&error) => back_off(ctx, &mut attempts)?,
            Err(error) if retries.again(&error, ctx.catalog, &*ctx.interrupt)? => {}
            other => return other,
        }
    }
}

/// Runs one statement of a batch, again where it met a change of the metadata before it wrote. In a
/// client's transaction it leaves nothing where it fails, also where it has written several times by
/// then.
pub(crate) fn statement<T>(
    ctx: &mut OpContext<'_>,
    mut run: impl FnMut(&mut OpContext<'_>) -> Result<T>,
) -> Result<T> {
    let savepoint = ctx.txn.as_ref().map(|txn| txn.savepoint());
    let mut retries = DdlRetries::default();
    let result = loop {
        let before = thread_commits();
        let result = run(ctx);
        let repeatable = ctx.reads_newest() && thread_commits() == before;
        match &result {
            Err(error) if repeatable && retries.again(error, ctx.catalog, &*ctx.interrupt)? => {}
            _ => break result,
        }
    };
    if let (true, Some(txn), Some(savepoint)) = (result.is_err(), &mut ctx.txn, savepoint) {
        txn.rollback_to(savepoint);
    }
    result
}

/// Runs a statement that writes many documents as one transaction, all or nothing: in the client's
/// transaction, or in one of its own, which is repeated from the start as long as it conflicts
/// with others.
pub(crate) fn as_a_whole<T>(
    ctx: &mut OpContext<'_>,
    mut run: impl FnMut(&mut OpContext<'_>) -> Result<T>,
) -> Result<T> {
    if ctx.txn.is_some() {
        return statement(ctx, run);
    }
    if ctx.atomicity == Atomicity::Part {
        return run(ctx);
    }
    let mut attempts = 0;
    let mut retries = DdlRetries::default();
    loop {
        let mut txn = ctx.catalog.begin(TxnKind::Statement);
        ctx.interrupt.works_in(txn.id());
        let mut inside = OpContext::new(ctx.catalog, Arc::clone(&ctx.interrupt));
        inside.bypass_validation = ctx.bypass_validation;
        inside.keep_empty_timestamps = ctx.keep_empty_timestamps;
        inside.cluster_time = ctx.cluster_time;
        inside.user_roles.clone_from(&ctx.user_roles);
        inside.permit = ctx.permit;
        inside.txn = Some(&mut txn);
        let result = match run(&mut inside) {
            Ok(value) => txn.commit().map(|_| value),
            Err(error) => Err(error),
        };
        match result {
            Err(error) if is_retryable(&error) => back_off(ctx, &mut attempts)?,
            Err(error) if retries.again(&error, ctx.catalog, &*ctx.interrupt)? => {}
            other => return other,
        }
    }
}

/// Counts an attempt, unless the operation was ended, and lets the other side of the conflict
/// finish: up to a millisecond, at random.
fn back_off(ctx: &OpContext<'_>, attempts: &mut u32) -> Result<()> {
    ctx.interrupt.check()?;
    *attempts += 1;
    if *attempts > 2 {
        let os = ctx.catalog.os();
        let micros = os.entropy.next_u64() % (1 << (*attempts).min(10));
        os.clock.sleep(Duration::from_micros(micros));
    }
    Ok(())
}

/// Refuses the server's own collections, and views. Gives what stands under the name.
pub(crate) fn check_target(ctx: &OpContext<'_>, ns: &Namespace) -> Result<Option<Arc<Collection>>> {
    ns.check_writable()?;
    ctx.catalog.check_not_oplog(ns)?;
    if ns.collection() == "system.profile" {
        return Err(Error::new(Code::INVALID_NAMESPACE, format!("cannot write to '{ns}'")));
    }
    let collection = ctx.collection_for(ns, Opening::Write)?;
    if collection.as_ref().is_some_and(|collection| collection.is_view()) {
        return Err(Error::new(
            Code::COMMAND_NOT_SUPPORTED_ON_VIEW,
            format!("Namespace {ns} is a view, not a collection"),
        ));
    }
    Ok(collection)
}

/// The collection of a statement as [`check_target`] found it, once; then it is looked up again: statements before it,
/// and others, may have changed what stands under the name.
pub(crate) enum FoundOnce {
    /// This, or nothing, as of a moment ago.
    Found(Option<Arc<Collection>>),
    /// It was taken.
    Taken,
}

impl FoundOnce {
    pub(crate) fn take(
        &mut self,
        ctx: &OpContext<'_>,
        ns: &Namespace,
    ) -> Result<Option<Arc<Collection>>> {
        match std::mem::replace(self, Self::Taken) {
            Self::Found(found) => Ok(found),
            Self::Taken => ctx.collection_for(ns, Opening::Write),
        }
    }
}

/// Whether an error ends the command instead of standing in its `writeErrors`.
pub fn ends_command(error: &Error) -> bool {
    matches!(
        error.code(),
        Code::MAX_TIME_MS_EXPIRED
            | Code::INTERRUPTED
            | Code::INTERRUPTED_AT_SHUTDOWN
            | Code::SHUTDOWN_IN_PROGRESS
            | Code::CURSOR_KILLED
            | Code::WRITE_CONFLICT
            | DEADLOCK
            | QUEUED
            | Code::LOCK_TIMEOUT
            | Code::SNAPSHOT_UNAVAILABLE
            | Code::QUERY_PLAN_KILLED
            | Code::NOT_WRITABLE_PRIMARY
            | Code::PRIMARY_STEPPED_DOWN
            | Code::INTERRUPTED_DUE_TO_REPL_STATE_CHANGE
    )
}

/// Runs the statements of a batch until the disk is full. That meets the statements behind it too: they
/// fail with the same error and are not tried, for each would wait for space again.
#[derive(Default)]
pub(crate) struct UntilFull(Option<Error>);

impl UntilFull {
    pub(crate) fn run<T>(&mut self, statement: impl FnOnce() -> Result<T>) -> Result<T> {
        if let Some(error) = &self.0 {
            return Err(error.clone());
        }
        let result = statement();
        if let Err(error) = &result
            && is_full(error)
        {
            self.0 = Some(error.clone());
        }
        result
    }
}

/// Whether the disk has no room for what was to be written.
pub(crate) fn is_full(error: &Error) -> bool {
    error.code() == Code::OUT_OF_DISK_SPACE
}

/// Notes an error of one statement; true where the batch must stop.
pub(crate) fn note(
    errors: &mut Vec<WriteError>,
    index: usize,
    error: Error,
    ordered: bool,
) -> Result<bool> {
    if ends_command(&error) {
        return Err(error);
    }
    errors.push(WriteError { index, error });
    Ok(ordered)
}

/// The stages of an update in pipeline form.
pub(crate) fn pipeline_update(
    stages: &RawArray,
    parse: &ParseContext,
) -> Result<Box<dyn PipelineUpdate>> {
    Ok(Box::new(UpdatePipeline::parse(stages, parse)?))
}
