//! `fern migrate`: everything of one server, or of a dump, to another server.
//!
//! The order, each part in a module of its own:
//! 1. `plan` decides what to do with each collection, from what `source`, `target` and the `state` of an earlier run say.
//! 2. `follow` notes from where on the source's changes are to be taken over: a time before the collections were listed.
//! 3. `copy` copies documents, `follow` takes over what changed meanwhile, `indexes` builds indexes, makes views.
//! 4. `follow` goes on where that was asked for, and ends at one time of the source.
//! 5. `compare` reads both sides at that time, and `report` tells what is equal, and what was not taken over.
//!
//! What is always true:
//! - Nothing is written to the source, and nothing of the target is dropped but what this migration made.
//! - Killed at any moment, the same call goes on; what was copied already is copied again without harm.
//! - What is not taken over is told, with the target's error.

mod accounts;
mod changes;
mod compare;
mod copy;
mod digest;
mod facts;
mod follow;
mod indexes;
mod job;
mod names;
mod options;
mod plan;
mod report;
mod source;
mod state;
mod target;
mod throttle;
mod translate;

pub(crate) use names::Name;
pub use options::MigrateOptions;

use crate::failures::is_passing;
use crate::server::{connect, parse};
use anyhow::{Context, Result, anyhow, bail};
use compare::Circumstances;
use facts::{Facts, Kind};
use follow::Follower;
use job::{Ends, Job};
use names::Filter;
use os::{Os, Signal};
use plan::{Step, plan};
use source::{DumpSource, LiveSource, OldAddress, OldSource, Source, is_old};
use state::{State, StateFile, default_path};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use target::Target;
use throttle::Throttle;

/// Migrates; says whether both sides are equal.
///
/// # Errors
/// A side cannot be reached or does not permit it, or the target has a collection that is not this migration's.
pub fn run(os: &Os, options: &MigrateOptions) -> Result<bool> {
    if let Some(path) = &options.report {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        if !os.vfs.exists(directory.unwrap_or(Path::new(".")))? {
            bail!("{}: there is no such directory for --report", path.display());
        }
    }
    let stop = Arc::new(Stop::default());
    if options.follow {
        // Before any other thread: they must not be the ones that a signal ends.
        stop.listen(os)?;
    }
    let job = Arc::new(open(os, options)?);
    let equal = migrate(&job, options, &stop)?;
    let report = job.report();
    write!(std::io::stdout(), "{}", report.text())?;
    if let Some(path) = &options.report {
        let text = format!("{:#}\n", report.json());
        let written = state::write_file(os, path, text.as_bytes());
        written.with_context(|| path.display().to_string())?;
    }
    Ok(equal)
}

/// Connects to both ends, and reads the state of an earlier run.
fn open(os: &Os, options: &MigrateOptions) -> Result<Job> {
    let (source, shown_source) = open_source(os, options)?;
    let (client, shown_target) = connect(Some(&options.target), &options.target_login())?;
    let target = Target::new(os, client, shown_target.clone())?;
    if source.live().and_then(|live| live.identity.as_ref()).is_some_and(|one| target.is(one)) {
        bail!("{shown_source} and {shown_target} are the same server");
    }
    let path = options.state.clone();
    let path = path.unwrap_or_else(|| default_path(&shown_source, &shown_target));
    let (file, state) = StateFile::open(os, &path, &shown_source, &shown_target)?;
    let mut state = state.unwrap_or_else(|| State::new(&shown_source, &shown_target));
    let filter = Filter { include: options.include.clone(), exclude: options.exclude.clone() };
    if !state.has_patterns(&filter) {
        bail!(
            "{}: it is of a migration with other --include or --exclude, and changes of what those left out are lost: call it as before, or name another file by --state FILE",
            path.display()
        );
    }
    let throttle = Throttle::new(os, options.throttle);
    let mut job = Job::new(os, Ends { source, target, file, state }, filter, throttle);
    (job.parallel, job.into_existing) = (options.parallel, options.into_existing);
    for (what, why) in job.source.left_out() {
        job.report().note(what, why);
    }
    Ok(job)
}

fn open_source(os: &Os, options: &MigrateOptions) -> Result<(Box<dyn Source>, String)> {
    let text = &options.source;
    if !text.starts_with("mongodb://") && !text.starts_with("mongodb+srv://") {
        return Ok((Box::new(DumpSource::open(os, Path::new(text))?), text.clone()));
    }
    let (parsed, shown) = parse(Some(text), &options.source_login())?;
    if let Some(address) = OldAddress::of(os, &parsed, &shown) {
        if options.old_protocol || is_old(&address) {
            return Ok((Box::new(OldSource::new(address)?), shown));
        }
    } else if options.old_protocol {
        bail!("{shown}: it cannot be reached without TLS, which --oldProtocol does not speak");
    }
    let client = mongodb::sync::Client::with_options(parsed)?;
    Ok((Box::new(LiveSource::new(client, shown.clone())?), shown))
}

/// All parts in their order.
fn migrate(job: &Arc<Job>, options: &MigrateOptions, stop: &Stop) -> Result<bool> {
    let live = job.source.live();
    // Before anything is listed: what is new at the source after that is told as a change from its first document on.
    let since = match live.map(LiveSource::time) {
        Some(Err(error)) if is_passing(&error) => return Err(error),
        // A server that belongs to no set tells none.
        since => since.and_then(Result::ok),
    };
    let planned = decide(job)?;
    let is_first = job.state(|state| state.collections.is_empty() && state.token.is_none());
    let mut has_stream = job.state(|state| state.has_stream);
    if let Some(live) = live.filter(|_| is_first) {
        has_stream = follow::begin(job, live, since)?;
    }
    if !has_stream && options.follow {
        bail!("--follow needs a source with change streams: a replica set of MongoDB or of FernDB");
    }
    if !has_stream && live.is_some() {
        let why = "it has no change stream (no replica set): what was written to it while it was copied is missing";
        job.report().note("the source", why);
    }
    copy::copy_all(job, &planned)?;
    let mut follower = match live.filter(|_| has_stream) {
        Some(live) => {
            let mut follower = Follower::open(job, live)?;
            follower.catch_up(live.time()?)?;
            Some((follower, live))
        }
        None => None,
    };
    let collections: Vec<Facts> = planned.iter().map(|(facts, _)| facts.clone()).collect();
    indexes::build(job, &collections)?;
    indexes::make_views(job, &planned)?;
    if options.users && !job.state(|state| state.has_users) {
        accounts::copy(job)?;
    }
    let mut how = Circumstances { at: None, is_live: live.is_some() };
    let mut collections = collections;
    if let Some((follower, live)) = &mut follower {
        if options.follow {
            stop.begin_to_follow();
            let quiet = options.until_quiet.map(Duration::from_secs);
            follower.follow(|idle| stop.is_told() || quiet.is_some_and(|quiet| idle >= quiet))?;
        }
        // What is new since the beginning: collections, indexes, views.
        collections = reconcile(job, follower, live)?;
        how.at = end_at_one_time(follower, live, &collections)?;
    }
    drop(follower);
    job.write_state()?;
    if options.verify {
        let rows = compare::compare(job, &collections, how)?;
        job.report().compared = Some(rows);
    }
    Ok(job.report().is_equal())
}

/// What to do with each collection.
fn decide(job: &Job) -> Result<Vec<(Facts, Step)>> {
    let found = job.source.list()?;
    if let Some(pattern) = job.filter.fits_nothing(found.iter().map(|facts| &facts.name))
        && job.state(|state| state.collections.is_empty())
    {
        bail!("--include {pattern} fits no collection of the source");
    }
    let there = job.target.names()?;
    let plan = job.state(|state| plan(found, &job.filter, &there, state, job.into_existing));
    plan.map_err(|refused| {
        let names: Vec<String> = refused.iter().take(3).map(ToString::to_string).collect();
        let more = if refused.len() > 3 { format!(" and {} more", refused.len() - 3) } else { String::new() };
        anyhow!(
            "the target has {}{more} already: drop what is there, leave it out by --exclude, or add --intoExisting",
            names.join(", ")
        )
    })
}

/// Catches up, and makes what the source has got since the migration began.
fn reconcile(job: &Arc<Job>, follower: &mut Follower<'_>, live: &LiveSource) -> Result<Vec<Facts>> {
    follower.catch_up(live.time()?)?;
    let found = job.source.list()?;
    let found: Vec<Facts> =
        found.into_iter().filter(|facts| job.filter.takes(&facts.name)).collect();
    for facts in found.iter().filter(|facts| facts.kind != Kind::View) {
        // One without documents is told by no change.
        if copy::ours(job, &facts.name).is_none() && !job.target.has(&facts.name)? {
            if facts.options.contains_key("timeseries") {
                // MongoDB tells no changes of one.
                copy::copy_at(job, facts, None)?;
            } else {
                copy::begin_empty(job, facts)?;
            }
        }
    }
    indexes::build(job, &found)?;
    let names = job.target.names()?;
    let new_views =
        found.iter().filter(|facts| facts.kind == Kind::View && !names.contains(&facts.name));
    let new_views: Vec<_> = new_views.map(|facts| (facts.clone(), Step::Create)).collect();
    for (view, step) in &new_views {
        copy::note_beginning(job, view, *step)?;
    }
    indexes::make_views(job, &new_views)?;
    Ok(found)
}

/// Takes over the last changes, so that the target is as the source was at one time; that time, where the source can
/// still be read as it was then.
fn end_at_one_time(
    follower: &mut Follower<'_>,
    live: &LiveSource,
    collections: &[Facts],
) -> Result<Option<bson::Timestamp>> {
    let some = collections.iter().find(|facts| facts.kind == Kind::Ordered);
    follower.at = some.and_then(|facts| live.snapshot_time(&facts.name));
    let until = match follower.at {
        Some(at) => at,
        None => live.time()?,
    };
    follower.catch_up(until)?;
    follower.give_up_postponed()?;
    Ok(follower.at)
}

/// Whether the user has said that following is to end. Before [`FOLLOWING`] documents are copied.
#[derive(Default)]
struct Stop(AtomicU8);

const FOLLOWING: u8 = 1;
const TOLD: u8 = 2;

impl Stop {
    /// The first signal ends following in order; before, and the second time, it ends the program.
    fn listen(self: &Arc<Self>, os: &Os) -> Result<()> {
        let stop = self.clone();
        let handler = move |signal| {
            if !matches!(signal, Signal::Interrupt | Signal::Terminate | Signal::HangUp) {
                return;
            }
            let next = stop.0.compare_exchange(FOLLOWING, TOLD, Ordering::SeqCst, Ordering::SeqCst);
            if next.is_err() {
                // The state is written, and the next call goes on from it.
                std::process::exit(2);
            }
        };
        let _runs_as_long_as_the_process = os::on_signals(&*os.spawner, handler)?;
        Ok(())
    }

    fn begin_to_follow(&self) {
        self.0.store(FOLLOWING, Ordering::SeqCst);
    }

    fn is_told(&self) -> bool {
        self.0.load(Ordering::SeqCst) == TOLD
    }
}
