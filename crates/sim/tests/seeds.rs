//! The simulator against itself: it repeats itself, and it finds what was planted.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use sim::{Features, Plan, PlantedBug, PlantedUpdateBug, TombstoneBug, run, shrink};

#[test]
fn same_seed_is_the_same_run() {
    let plan = Plan { steps: 600, ..Plan::default() };
    for seed in 0..12 {
        assert_eq!(run(seed, &plan).unwrap(), run(seed, &plan).unwrap(), "seed {seed}");
    }
    assert_ne!(run(0, &plan).unwrap().hash, run(1, &plan).unwrap().hash);
}

/// Planted: each bug of a member that may not go unseen.
#[test]
fn bugs_of_a_member_are_found_out() {
    let honest = Plan { steps: 600, only_member: true, ..Plan::default() };
    let mut overwritten = 0;
    for seed in 0..40 {
        overwritten += run(seed, &honest).unwrap().tally.commits_lost_unsynced;
    }
    assert!(overwritten > 1000, "tails are overwritten");
    for planted in
        [PlantedBug::KeepsForgotten, PlantedBug::DrainsInvisible, PlantedBug::IgnoresCuts]
    {
        let plan = Plan { planted: Some(planted), ..honest };
        assert!((0..40).any(|seed| run(seed, &plan).is_err()), "{planted:?} is not found");
    }
}

/// Planted: each bug of what is filled past the log.
#[test]
fn bugs_of_loads_are_found_out() {
    let features = Some(Features::only_loads());
    let honest = Plan { features, ..Plan::default() };
    let loads: u64 = (0..20).map(|seed| run(seed, &honest).unwrap().tally.loads).sum();
    assert!(loads > 40, "{loads} loads");
    for planted in [PlantedBug::AdoptsBeforeDurable, PlantedBug::AdoptsForAll] {
        let plan = Plan { planted: Some(planted), ..honest };
        assert!((0..100).any(|seed| run(seed, &plan).is_err()), "{planted:?} is not found");
    }
}

/// Planted: each bug in how trees handle updates.
#[test]
fn bugs_of_fast_updates_are_found_out() {
    let features = Some(Features::only_fast_updates());
    let honest = Plan { features, ..Plan::default() };
    for seed in 0..20 {
        run(seed, &honest).unwrap();
    }
    for planted in [
        PlantedUpdateBug::CombinesInWrongOrder,
        PlantedUpdateBug::HidesBaseBackward,
        PlantedUpdateBug::AppliesReplayAgain,
    ] {
        let plan = Plan { planted_update: Some(planted), ..honest };
        assert!((0..200).any(|seed| run(seed, &plan).is_err()), "{planted:?} is not found");
    }
}

/// Planted: one sync in ten does nothing. Some seed must lose what was acknowledged.
#[test]
fn disk_that_lies_about_syncs_is_found_out() {
    let plan = Plan { lying_syncs_ppm: 100_000, ..Plan::default() };
    let (seed, failure) =
        (0..40).find_map(|seed| Some((seed, run(seed, &plan).err()?))).expect("a seed fails");
    let (smaller, failure) = shrink(seed, &plan, *failure);
    assert!(run(seed, &smaller).is_err_and(|again| again.hash == failure.hash), "it fails again");
}

/// Planted: one sync in ten does nothing. With crashes and a history alone some seed finds in the history
/// what is not there any more, or not as it was.
#[test]
fn history_on_a_disk_that_lies_about_syncs_is_found_out() {
    let features = Some(Features::only_followed());
    let plan = Plan { lying_syncs_ppm: 100_000, features, ..Plan::default() };
    let failures = (0..300).filter_map(|seed| run(seed, &plan).err());
    let found = failures.map(|failure| failure.what).find(|what| what.contains("history"));
    assert!(found.is_some(), "no seed fails in the history");
    let honest = Plan { lying_syncs_ppm: 0, ..plan };
    let read = (0..20).map(|seed| run(seed, &honest).unwrap().tally.histories);
    assert!(read.filter(|histories| *histories > 0).count() > 10, "most seeds read the history");
}

/// Planted: each bug of deletes of ranges.
#[test]
fn bugs_of_deleted_ranges_are_found_out() {
    let features = Some(Features::only_tombstones());
    let honest = Plan { features, ..Plan::default() };
    let deleted: u64 = (0..12).map(|seed| run(seed, &honest).unwrap().tally.ranges_deleted).sum();
    assert!(deleted > 100, "only {deleted} ranges are deleted");
    for planted in
        [TombstoneBug::BackwardIgnores, TombstoneBug::ConflictIgnores, TombstoneBug::FreesSeen]
    {
        let plan = Plan { planted: Some(PlantedBug::Tombstones(planted)), ..honest };
        assert!((0..60).any(|seed| run(seed, &plan).is_err()), "{planted:?} is not found");
    }
}
