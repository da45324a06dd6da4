//! Takes over what changes at the source while it is copied, and after.
//!
//! A change names a document, and the document is taken over as the source has it: at this moment, or, for the last
//! changes, at one time of the source, at which both sides are then equal while the source goes on.
//!
//! Always true: the token in the state moves only when everything before it is at the target.

mod apply;

use super::changes::{Changes, Event, event, time};
use super::copy::{copy_at, ours};
use super::facts::Facts;
use super::job::Job;
use super::names::Name;
use super::source::LiveSource;
use super::state::Packed;
use crate::failures::{RETRY_WAIT, is_passing};
use anyhow::{Context, Result, bail};
use bson::{Bson, Document, Timestamp};
use mongodb::sync::ChangeStream;
use std::time::Duration;

/// Changes that are gathered before they are taken over, and how long.
const CHANGES_AT_ONCE: usize = 1000;
const GATHER_TIME: Duration = Duration::from_secs(1);
/// How often the stream must be empty before nothing older is to come: once for each member, and for as long as a router
/// waits for a shard on which nothing happens.
const EMPTY_READS: u32 = 2;
const EMPTY_READS_OF_ROUTER: u32 = 30;
/// How long a source that is lost is asked for again.
const LOST_TRIES: u32 = 300;
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// The source's changes, as far as they are taken over.
pub(crate) struct Follower<'a> {
    job: &'a Job,
    live: &'a LiveSource,
    stream: ChangeStream<Document>,
    /// Read, and later than what was to be read.
    held: Option<Document>,
    changes: Changes,
    /// Documents whose values in a unique index another document still has.
    postponed: Vec<(Name, Bson)>,
    /// Behind the last change that was read.
    token: Option<Bson>,
    /// When that happened.
    time: Option<Timestamp>,
    /// The time whose state is taken over.
    pub(crate) at: Option<Timestamp>,
    flushed: Duration,
}

/// Notes in the state that the source's changes are to be taken over from a time on, which is one before its collections
/// were listed. False where it tells none.
pub(crate) fn begin(job: &Job, live: &LiveSource, since: Option<Timestamp>) -> Result<bool> {
    let Some(since) = since.map(Bson::Timestamp) else { return Ok(false) };
    if live.watch(Some(&since))?.is_none() {
        return Ok(false);
    }
    job.change(|state| {
        state.token = Some(Packed(since));
        state.has_stream = true;
    })?;
    job.write_state()?;
    Ok(true)
}

impl<'a> Follower<'a> {
    /// Goes on where the state says.
    pub(crate) fn open(job: &'a Job, live: &'a LiveSource) -> Result<Self> {
        let token = job.state(|state| state.token.clone()).map(|token| token.0);
        let again = || {
            format!(
                "what changed since is not known any more: remove {} and what was copied, and begin again",
                job.state_path()
            )
        };
        let stream = live.watch(token.as_ref()).with_context(again)?;
        let stream = stream.context("the source has no change stream any more")?;
        Ok(Self {
            job,
            live,
            stream,
            held: None,
            changes: Changes::default(),
            postponed: Vec::new(),
            token,
            time: None,
            at: None,
            flushed: job.os.clock.monotonic(),
        })
    }

    /// Takes over everything up to a time.
    pub(crate) fn catch_up(&mut self, until: Timestamp) -> Result<()> {
        let mut empty = 0;
        let enough = if self.live.is_router { EMPTY_READS_OF_ROUTER } else { EMPTY_READS };
        while empty < enough {
            match self.next()? {
                Some(told) if time(&told).is_some_and(|at| at > until) => {
                    self.held = Some(told);
                    break;
                }
                Some(told) => {
                    empty = 0;
                    self.take(&told)?;
                }
                None => empty += 1,
            }
        }
        self.flush()
    }

    /// Gives up the documents that are still kept out of a unique index, and tells of them. Only at the end: before, the
    /// change that makes room for one may not have been read.
    pub(crate) fn give_up_postponed(&mut self) -> Result<()> {
        let mut before = usize::MAX;
        while !self.postponed.is_empty() && self.postponed.len() < before {
            before = self.postponed.len();
            self.flush()?;
        }
        for (name, id) in std::mem::take(&mut self.postponed) {
            let why = "another document has its values in a unique index";
            self.job.report().refused_document(&name, &id.to_string(), why);
        }
        self.flush()
    }

    /// Takes over what comes, until told otherwise; that is asked with how long nothing has come.
    pub(crate) fn follow(&mut self, is_over: impl Fn(Duration) -> bool) -> Result<()> {
        let clock = self.job.os.clock.clone();
        let (mut last_change, mut last_line) = (clock.monotonic(), Duration::ZERO);
        loop {
            let now = clock.monotonic();
            if is_over(now.saturating_sub(last_change)) {
                return self.flush();
            }
            if last_line.is_zero() || now.saturating_sub(last_line) >= LINE_INTERVAL {
                last_line = now;
                self.say_how_far();
            }
            if let Some(told) = self.next()? {
                last_change = clock.monotonic();
                self.take(&told)?;
            } else {
                self.flush()?;
                self.time = None;
            }
        }
    }

    fn say_how_far(&self) {
        let changes = self.job.report().changes;
        let behind = self
            .time
            .map_or(0, |time| (self.job.os.clock.wall_ms() / 1000 - i64::from(time.time)).max(0));
        let text = format!(
            "following: {changes} changes taken over, {behind} s behind; Ctrl-C ends it in order"
        );
        self.job.progress.say(&text);
    }

    /// The next change, if there is one by now. A source that is lost is asked again.
    fn next(&mut self) -> Result<Option<Document>> {
        if let Some(held) = self.held.take() {
            return Ok(Some(held));
        }
        let mut tries = 0;
        loop {
            let error = match self.stream.next_if_any() {
                Ok(told) => {
                    if told.is_none() {
                        self.note_token()?;
                    }
                    return Ok(told);
                }
                Err(error) => anyhow::Error::from(error),
            };
            tries += 1;
            if !is_passing(&error) || tries > LOST_TRIES {
                return Err(error);
            }
            self.job.os.clock.sleep(RETRY_WAIT);
            match self.live.watch(self.token.as_ref()) {
                Ok(Some(stream)) => self.stream = stream,
                Ok(None) => bail!("the source has no change stream any more"),
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Everything that was read up to now is behind the stream's token.
    fn note_token(&mut self) -> Result<()> {
        if let Some(token) = self.stream.resume_token() {
            self.token = Some(bson::serialize_to_bson(&token)?);
        }
        Ok(())
    }

    /// Gathers a change, or does what it says.
    fn take(&mut self, told: &Document) -> Result<()> {
        match event(told) {
            Event::Document(name, id) if self.job.filter.takes(&name) => self.changes.add(name, id),
            Event::Drop(name) => self.dropped(&name)?,
            Event::Rename(from, to) => {
                self.dropped(&from)?;
                self.dropped(&to)?;
                let facts = if self.job.filter.takes(&to) { self.facts(&to)? } else { None };
                if let Some(facts) = facts {
                    self.copy(&facts)?;
                }
            }
            Event::DropDatabase(database) => {
                let all =
                    self.job.state(|state| state.collections.keys().cloned().collect::<Vec<_>>());
                for name in all.iter().filter_map(|name| Name::parse(name)) {
                    if name.database == database {
                        self.dropped(&name)?;
                    }
                }
            }
            Event::Document(..) | Event::Other => {}
        }
        self.time = time(told).or(self.time);
        self.note_token()?;
        let gathered = self.job.os.clock.monotonic().saturating_sub(self.flushed);
        if self.changes.count >= CHANGES_AT_ONCE || gathered >= GATHER_TIME {
            self.flush()?;
        }
        Ok(())
    }

    /// What a collection is. Of the last changes it may be gone by now, and was there at the time that is taken over, or its
    /// drop is still to come.
    fn facts(&self, name: &Name) -> Result<Option<Facts>> {
        let was = || Facts::new(name.clone(), "collection", Document::new());
        Ok(self.live.one(name)?.or_else(|| self.at.map(|_| was())))
    }

    fn copy(&mut self, facts: &Facts) -> Result<()> {
        match copy_at(self.job, facts, self.at) {
            Err(_) if self.at.is_some() => {
                // The source keeps that state no longer: both sides are compared as they are.
                self.at = None;
                self.dropped(&facts.name)?;
                copy_at(self.job, facts, None)
            }
            copied => copied,
        }
    }

    fn dropped(&mut self, name: &Name) -> Result<()> {
        self.changes.forget(name);
        self.postponed.retain(|(postponed, _)| postponed != name);
        match ours(self.job, name) {
            None => Ok(()),
            Some(true) => {
                let why = "the source has dropped it; at the target it was before, and stays";
                self.job.report().note(name.to_string(), why);
                Ok(())
            }
            Some(false) => {
                self.job.target.drop(name)?;
                self.job.change(|state| drop(state.collections.remove(&name.to_string())))
            }
        }
    }
}
