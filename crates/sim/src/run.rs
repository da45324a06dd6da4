//! One seed from start to end, and the smallest set of features with which it still fails.

use crate::features::{ALL, Features};
use crate::world::{Tally, World};
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
    pub lies_ppm: u32,
    /// Print every step.
    pub loud: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self { steps: 1500, features: None, lies_ppm: 0, loud: false }
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
}

/// The features a seed chooses.
fn features_of(seed: u64) -> Features {
    Features::random(&mut Gen::new(seed ^ 0x6665_6174))
}

/// Runs one seed.
pub fn run(seed: u64, plan: &Plan) -> Result<Summary, Box<Failure>> {
    let features = plan.features.unwrap_or_else(|| features_of(seed));
    let mut world = World::new(seed, features, plan.lies_ppm, plan.loud);
    let result = catch_unwind(AssertUnwindSafe(|| world.run(plan.steps)));
    let what = match result {
        Ok(Ok(())) => return Ok(Summary { hash: world.trace.hash(), tally: world.tally }),
        Ok(Err(violation)) => format!("{violation:#}"),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            format!("panic: {}", text.unwrap_or("without a text"))
        }
    };
    let (step, tail, hash) = (world.step, world.trace.tail(), world.trace.hash());
    // After a panic the engine's destructors may panic too, or wait for a lock that is held.
    std::mem::forget(world);
    Err(Box::new(Failure { what, step, features, tail, hash }))
}

/// Takes away one feature after the other as long as the seed still fails, and all steps behind
/// the failure.
pub fn shrink(seed: u64, plan: &Plan, failure: Failure) -> (Plan, Failure) {
    let mut best = Plan { features: Some(failure.features), loud: false, ..*plan };
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
