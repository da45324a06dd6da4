//! Compares both sides, document by document, by a digest of each collection.

use super::digest::Digest;
use super::facts::{Facts, Kind, Part};
use super::job::{Job, in_parallel};
use super::report::Compared;
use crate::failures::retried;
use anyhow::Result;
use bson::Timestamp;
use std::sync::{Arc, Mutex, PoisonError};

/// What a difference may come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Circumstances {
    /// The source's state of this time is compared.
    pub(crate) at: Option<Timestamp>,
    /// The source was running, and could be written to.
    pub(crate) is_live: bool,
}

/// Reads both sides of every collection.
pub(crate) fn compare(job: &Arc<Job>, all: &[Facts], how: Circumstances) -> Result<Vec<Compared>> {
    let all: Vec<Facts> = all.iter().filter(|facts| facts.kind != Kind::View).cloned().collect();
    job.progress.begin("comparing", all.iter().map(|facts| facts.bytes * 2).sum(), 0);
    let rows = Arc::new(Mutex::new(Vec::new()));
    let found = rows.clone();
    in_parallel(job, all, move |job, facts| {
        let row = compare_one(job, &facts, how)?;
        found.lock().unwrap_or_else(PoisonError::into_inner).push(row);
        Ok(())
    })?;
    job.progress.end();
    let mut rows = std::mem::take(&mut *rows.lock().unwrap_or_else(PoisonError::into_inner));
    rows.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(rows)
}

fn compare_one(job: &Job, facts: &Facts, how: Circumstances) -> Result<Compared> {
    // In whatever order is the fastest.
    let facts = Facts { kind: Kind::Natural, ..facts.clone() };
    let source = |at| retried(&job.os, || digest_of_source(job, &facts, at));
    let (source, at) = match source(how.at) {
        Err(_) if how.at.is_some() => (source(None)?, None),
        digest => (digest?, how.at),
    };
    let target = retried(&job.os, || {
        let mut digest = Digest::default();
        let (mut told, name) = (0, facts.name.to_string());
        job.target.documents(&facts.name, |document| {
            digest.add(document);
            tell(job, &digest, &mut told, &name);
        })?;
        job.progress.add(digest.bytes - told, &name);
        Ok(digest)
    });
    let target = target.map_err(|error| job.target.explain(error))?;
    let remark = remark(at.is_some(), how.is_live).map(str::to_owned);
    Ok(Compared { name: facts.name, source, target, remark })
}

fn digest_of_source(job: &Job, facts: &Facts, at: Option<Timestamp>) -> Result<Digest> {
    let mut digest = Digest::default();
    let (mut told, name) = (0, facts.name.to_string());
    for document in job.source.read(facts, &Part { at, ..Part::default() })? {
        digest.add(&document?);
        tell(job, &digest, &mut told, &name);
    }
    job.progress.add(digest.bytes - told, &name);
    Ok(digest)
}

/// Shows how far it is, now and then.
fn tell(job: &Job, digest: &Digest, told: &mut u64, name: &str) {
    const TOLD_BYTES: u64 = 4 << 20;
    if digest.bytes - *told >= TOLD_BYTES {
        job.progress.add(digest.bytes - *told, name);
        *told = digest.bytes;
    }
}

/// What a difference may come from.
fn remark(is_at_one_time: bool, is_live: bool) -> Option<&'static str> {
    (is_live && !is_at_one_time)
        .then_some("the source may have been written to since it was copied; stop its writers and run it again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_excused_only_where_the_source_could_change() {
        assert!(remark(false, true).is_some());
        assert_eq!(remark(true, true), None);
        assert_eq!(remark(false, false), None);
    }
}
