//! Makes the target's documents what the source's are, once they are known to have changed.
//!
//! Always true: a document that another one keeps out of a unique index is postponed and not lost; while one is, the
//! state's token stays where it is.

use super::Follower;
use crate::failures::retried;
use crate::migrate::changes::bytes_of;
use crate::migrate::copy::{Batch, begin_empty, ours, shown_id};
use crate::migrate::names::Name;
use crate::migrate::state::Packed;
use crate::migrate::target::DUPLICATE_KEY;
use anyhow::{Result, bail};
use bson::{Bson, RawDocumentBuf};
use std::collections::{BTreeMap, BTreeSet};

/// Documents that the source is asked for at once.
const IDS_AT_ONCE: usize = 100;

impl Follower<'_> {
    /// Takes over what was gathered, and moves the state's token.
    pub(super) fn flush(&mut self) -> Result<()> {
        self.flushed = self.job.os.clock.monotonic();
        let again = std::mem::take(&mut self.postponed);
        for (name, ids) in self.changes.take() {
            self.job.report().changes += ids.len() as u64;
            self.take_over(&name, &ids)?;
        }
        // Those that stood in their way may be gone by now.
        for (name, id) in again.into_iter().chain(std::mem::take(&mut self.postponed)) {
            self.take_over(&name, &[id])?;
        }
        if self.postponed.is_empty() {
            let token = self.token.clone().map(Packed);
            self.job.change(|state| state.token = token)?;
        }
        Ok(())
    }

    /// Makes the target's documents what the source's are.
    fn take_over(&mut self, name: &Name, ids: &[Bson]) -> Result<()> {
        if ours(self.job, name).is_none() {
            // Where it is gone already its drop is still to come.
            let Some(facts) = self.facts(name)? else { return Ok(()) };
            if self.job.target.has(name)? && !self.job.into_existing {
                bail!(
                    "{name} is new at the source, and the target has one already: drop it there, or add --intoExisting"
                );
            }
            begin_empty(self.job, &facts)?;
        }
        for ids in ids.chunks(IDS_AT_ONCE) {
            let mut missing: BTreeSet<Vec<u8>> = ids.iter().map(bytes_of).collect();
            let mut batch = Batch::default();
            for document in self.read(name, ids)? {
                if let Some(id) = document.get("_id")? {
                    missing.remove(&bytes_of(&Bson::try_from(id)?));
                }
                batch.push(document);
                if batch.is_full() {
                    self.replace(name, &std::mem::take(&mut batch).documents)?;
                }
            }
            self.replace(name, &batch.documents)?;
            let gone = ids.iter().filter(|id| missing.contains(&bytes_of(id)));
            let gone: Vec<Bson> = gone.cloned().collect();
            if !gone.is_empty() {
                self.job.target.delete(name, &gone)?;
            }
        }
        Ok(())
    }

    /// The documents with these `_id`s, in their order.
    fn read(&mut self, name: &Name, ids: &[Bson]) -> Result<Vec<RawDocumentBuf>> {
        let os = &self.job.os;
        let read = |at| retried(os, || self.live.with_ids(name, ids, at));
        let mut documents = match read(self.at) {
            Err(_) if self.at.is_some() => {
                // The source keeps that state no longer: both sides are compared as they are.
                self.at = None;
                retried(os, || self.live.with_ids(name, ids, None))?
            }
            result => result?,
        };
        let places: BTreeMap<Vec<u8>, usize> =
            ids.iter().enumerate().map(|(at, id)| (bytes_of(id), at)).collect();
        documents.sort_by_key(|document| {
            let id = document.get("_id").ok().flatten().and_then(|id| Bson::try_from(id).ok());
            id.and_then(|id| places.get(&bytes_of(&id)).copied())
        });
        Ok(documents)
    }

    fn replace(&mut self, name: &Name, documents: &[RawDocumentBuf]) -> Result<()> {
        self.job.throttle.wait_for(documents.iter().map(|one| one.as_bytes().len() as u64).sum());
        let (_, refused) = self.job.target.replace(name, documents)?;
        let mut stand_in_the_way = Vec::new();
        for error in refused {
            let Some(document) = documents.get(error.at) else { continue };
            if error.code == DUPLICATE_KEY {
                stand_in_the_way.push(document.clone());
            } else {
                self.job.report().refused_document(name, &shown_id(document), &error.error);
            }
        }
        if stand_in_the_way.is_empty() {
            return Ok(());
        }
        // Two may have changed their values with each other: each is removed before both are written.
        let id = |document: &RawDocumentBuf| Bson::try_from(document.get("_id").ok()??).ok();
        let ids: Vec<Bson> = stand_in_the_way.iter().filter_map(id).collect();
        self.job.target.delete(name, &ids)?;
        let (_, refused) = self.job.target.replace(name, &stand_in_the_way)?;
        let still = refused.iter().filter_map(|error| id(stand_in_the_way.get(error.at)?));
        self.postponed.extend(still.map(|id| (name.clone(), id)));
        Ok(())
    }
}
