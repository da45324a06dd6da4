//! One seed from start to end, and the smallest set of features with which it still fails.

use crate::features::{ALL, Features};
use crate::member::MemberRun;
use crate::world::{Tally, World};
use engine::PlantedBug;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use testkit::Gen;

/// What is the same for all seeds.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Steps of a run.
    pub steps: u64,
    /// Only these features, instead of the seed's own.
    pub features: Option<Features>,
    /// So many of a million syncs do nothing and say they did: a planted bug, to see it found.
    pub lying_syncs_ppm: u32,
    /// Only as a member of a set; without, a third of the seeds run as one too.
    pub only_member: bool,
    /// A bug in the engine, to see it found.
    pub planted: Option<PlantedBug>,
    /// Print every step.
    pub is_verbose: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            steps: 1500,
            features: None,
            lying_syncs_ppm: 0,
            only_member: false,
            planted: None,
            is_verbose: false,
        }
    }
}

/// A run that held everything it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Of every step and of the disk at the end.
    pub hash: u64,
    /// What happened.
    pub tally: Tally,
}

/// A run that did not.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What is wrong.
    pub what: String,
    /// Where.
    pub step: u64,
    /// What the run could do.
    pub features: Features,
    /// The last steps before.
    pub tail: Vec<String>,
    /// Of every step so far.
    pub hash: u64,
    /// It ran as a member of a set.
    pub is_member: bool,
}

/// The features a seed chooses.
fn features_of(seed: u64) -> Features {
    Features::random(&mut Gen::new(seed ^ 0x6665_6174))
}

/// Runs one seed, a third of them also as a member of a set.
pub fn run(seed: u64, plan: &Plan) -> Result<Summary, Box<Failure>> {
    if plan.only_member {
        return run_member(seed, plan);
    }
    let mut summary = run_alone(seed, plan)?;
    if plan.features.is_none() && plan.lying_syncs_ppm == 0 && seed.is_multiple_of(3) {
        let member = run_member(seed, plan)?;
        summary.hash ^= member.hash.rotate_left(1);
        summary.tally.add(&member.tally);
    }
    Ok(summary)
}

/// As a member of a set.
fn run_member(seed: u64, plan: &Plan) -> Result<Summary, Box<Failure>> {
    let mut member = MemberRun::new(seed, plan.planted, plan.is_verbose);
    let what = match catch_unwind(AssertUnwindSafe(|| member.run(plan.steps))) {
        Ok(Ok(())) => return Ok(Summary { hash: member.trace.hash(), tally: member.tally }),
        Ok(Err(violation)) => format!("as a member: {violation:#}"),
        Err(panic) => text_of(&*panic),
    };
    let (step, tail, hash) = (member.step, member.trace.tail(), member.trace.hash());
    std::mem::forget(member);
    Err(Box::new(Failure { what, step, features: Features::none(), tail, hash, is_member: true }))
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panic: {}", text.unwrap_or("without a text"))
}

fn run_alone(seed: u64, plan: &Plan) -> Result<Summary, Box<Failure>> {
    let features = plan.features.unwrap_or_else(|| features_of(seed));
    let mut world = World::new(seed, features, plan.lying_syncs_ppm, plan.planted, plan.is_verbose);
    let result = catch_unwind(AssertUnwindSafe(|| world.run(plan.steps)));
    let what = match result {
        Ok(Ok(())) => return Ok(Summary { hash: world.trace.hash(), tally: world.tally }),
        Ok(Err(violation)) => format!("{violation:#}"),
        Err(panic) => text_of(&*panic),
    };
    let (step, tail, hash) = (world.step, world.trace.tail(), world.trace.hash());
    // After a panic the engine's destructors may panic too, or wait for a lock that is held.
    std::mem::forget(world);
    Err(Box::new(Failure { what, step, features, tail, hash, is_member: false }))
}

/// Takes away one feature after the other as long as the seed still fails, and all steps behind
/// the failure.
pub fn shrink(seed: u64, plan: &Plan, failure: Failure) -> (Plan, Failure) {
    if failure.is_member {
        let steps = failure.step.min(plan.steps);
        return (Plan { only_member: true, is_verbose: false, steps, ..*plan }, failure);
    }
    let mut best = Plan { features: Some(failure.features), is_verbose: false, ..*plan };
    best.steps = failure.step.min(plan.steps);
    let mut smallest = failure;
    for feature in ALL {
        let features = smallest.features;
        if !features.has(feature) {
            continue;
        }
        let tried = Plan { features: Some(features.without(feature)), ..best };
        if let Err(failure) = run(seed, &tried) {
            best = Plan { steps: failure.step.min(tried.steps), ..tried };
            smallest = *failure;
        }
    }
    (best, smallest)
}
