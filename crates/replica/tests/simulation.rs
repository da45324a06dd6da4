//! Members of a set over journals in memory, with clients, from seeds: frames late, lost, repeated; cuts in
//! one direction; crashes that lose what was not synced; hand-overs and changes of members. What must
//! hold stands in `simulation/world.rs`. Bugs are planted to show that they would be found.
//!
//! `FERN_REPLICA_SEEDS=10000 cargo test -p replica --test simulation` for long runs; `FERN_REPLICA_SEED=7`
//! plays one again.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "simulation/world.rs"]
mod world;

use std::panic::catch_unwind;
use world::{Planted, World};

const STEPS: u64 = 1200;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn play(seed: u64, planted: Planted) -> Result<World, String> {
    let voters = if seed.is_multiple_of(3) { 5 } else { 3 };
    let mut world = World::new(seed, voters, planted);
    world.run(STEPS).map(|()| world)
}

#[test]
fn what_was_acknowledged_is_in_each_later_leader() {
    let seeds = match number("FERN_REPLICA_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("FERN_REPLICA_SEEDS").unwrap_or(80),
    };
    let many = seeds.end - seeds.start >= 50;
    let mut done = [0; 3];
    for seed in seeds {
        let world =
            play(seed, Planted::Nothing).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let of = [world.acknowledged(), world.leaders(), world.voided];
        done.iter_mut().zip(of).for_each(|(sum, n)| *sum += n);
    }
    // A simulation in which nothing happens shows nothing.
    assert!(!many || done.iter().all(|n| *n >= 100), "acknowledged, leaders, voided: {done:?}");
}

/// Some seed shows it.
fn found(planted: Planted, most: u64) {
    let found = (0..most)
        .any(|seed| !matches!(catch_unwind(|| play(seed, planted).map(|_| ())), Ok(Ok(()))));
    assert!(found, "{planted:?} is not found by {most} seeds");
}

#[test]
fn planted_bugs_are_found() {
    found(Planted::AcknowledgedBeforeSync, 200);
    found(Planted::CutsNotWritten, 200);
    found(Planted::AnsweredBeforeCommitted, 200);
    found(Planted::CommitForgotten, 300);
}
