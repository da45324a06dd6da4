//! Indexes and views, made after the documents.
//!
//! Always true: an index whose name the target has is left as it is, so that making them twice changes nothing.

use super::facts::{Facts, Kind};
use super::job::{Job, in_parallel};
use super::plan::Step;
use super::state::Phase;
use super::translate::{collection_options, index, index_of};
use anyhow::Result;
use std::sync::Arc;

/// Builds the indexes that the target has not.
pub(crate) fn build(job: &Arc<Job>, all: &[Facts]) -> Result<()> {
    let all: Vec<Facts> = all.iter().filter(|facts| facts.kind != Kind::View).cloned().collect();
    let count = all.iter().flat_map(|facts| &facts.indexes).filter_map(index).count();
    if count > 0 {
        job.progress.say(&format!("indexes: {count}"));
    }
    in_parallel(job, all, |job, facts| {
        let there = match job.target.index_names(&facts.name) {
            Ok(names) => names,
            // A collection that the source has dropped meanwhile is gone here, too.
            Err(error) if job.target.has(&facts.name)? => return Err(error),
            Err(_) => return Ok(()),
        };
        for index in facts.indexes.iter().filter_map(|index| index_of(&facts.options, index)) {
            let name = index.get_str("name").unwrap_or_default().to_owned();
            if there.contains(&name) {
                continue;
            }
            let what = format!("{}, index {name}", facts.name);
            match job.target.create_index(&facts.name, index) {
                Ok(left_out) => job.note_left_out(&what, left_out),
                Err(error) => job.report().note(what, format!("{error:#}")),
            }
        }
        job.change_collection(&facts.name, |one| one.phase = Phase::Indexed)
    })?;
    job.write_state()
}

/// Makes the views; those that are built on others after them.
pub(crate) fn make_views(job: &Job, planned: &[(Facts, Step)]) -> Result<()> {
    let views = planned.iter().filter(|(facts, _)| facts.kind == Kind::View);
    for (facts, step) in views {
        match step {
            Step::Copied | Step::Refuse => continue,
            Step::Into => {
                let why = "the target has a view or collection of this name, which stays";
                job.report().note(facts.name.to_string(), why);
                continue;
            }
            Step::StartOver => job.target.drop(&facts.name)?,
            Step::Create | Step::Continue => {}
        }
        match job.target.create(facts, collection_options(&facts.options)) {
            Ok(left_out) => job.note_left_out(&facts.name.to_string(), left_out),
            Err(error) => job.report().note(format!("view {}", facts.name), format!("{error:#}")),
        }
        job.change_collection(&facts.name, |one| one.phase = Phase::Indexed)?;
    }
    job.write_state()
}
