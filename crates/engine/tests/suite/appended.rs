//! A leader's entries between the log and the trees: they are appended first, and applied while they are synced.

use crate::held_back::{all, latest, member};
use crate::members::{close, restart};
use crate::open;
use engine::{
    DictionaryId, DictionaryOptions, Engine, EntryHead, EntryRecords, Error, Options, PlantedBug,
};
use os::sim::{SimOs, Survival};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use testkit::Gen;

const ROOT: DictionaryId = DictionaryId::ROOT;

type Contents = BTreeMap<String, String>;

/// A leader's entries, and what is to be read behind each.
struct Sent {
    entries: Vec<(EntryHead, EntryRecords)>,
    /// By the timestamp of the commit; at 0 nothing is there.
    states: Vec<Contents>,
}

fn newest(engine: &Engine) -> Contents {
    all(&engine.begin_newest(latest()).snapshot())
}

/// Commits of one key and of many, some of them in several entries, and dictionaries that come and go.
fn sent(seed: u64) -> Sent {
    let options = member();
    let sizes = engine::Sizes { entry_bytes: 600, ..options.sizes };
    let leader = open(&SimOs::new(seed).os(), Options { sizes, ..options }).unwrap();
    let mut random = Gen::new(seed);
    let mut states = vec![Contents::new()];
    let mut made = Vec::new();
    while states.len() < 60 {
        let mut txn = leader.begin_newest(latest());
        let keys = if random.one_in(8) { 40 } else { 1 + random.below(3) };
        for _ in 0..keys {
            let value = "v".repeat(random.below(90) as usize);
            txn.put(ROOT, format!("key {}", random.below(60)).as_bytes(), value.as_bytes())
                .unwrap();
        }
        if random.one_in(6) {
            let dictionary = txn.create_dictionary(DictionaryOptions::default()).unwrap();
            txn.put(dictionary, b"k", b"v").unwrap();
            made.push(dictionary);
        } else if random.one_in(6)
            && let Some(dictionary) = made.pop()
        {
            txn.drop_dictionary(dictionary).unwrap();
        }
        assert_eq!(txn.submit().unwrap().timestamp().0, states.len() as u64);
        states.push(newest(&leader));
        while random.one_in(3) && leader.open_bytes() > 0 {
            close(&leader, 1, 0);
        }
    }
    while leader.open_bytes() > 0 {
        close(&leader, 1, 0);
    }
    let last = leader.entries().last.index as usize;
    let entry = |index: usize| {
        let (head, _, records) = leader.read_entry(index as u64).unwrap();
        (head, EntryRecords::read(records.into()).unwrap())
    };
    let entries = (1..=last).map(entry).collect();
    Sent { entries, states }
}

impl Sent {
    /// What is to be read behind an entry: its last commit, which it may share with the one before.
    fn state(&self, index: u64) -> &Contents {
        let last = index.checked_sub(1).map_or(0, |at| self.entries[at as usize].0.last_timestamp);
        &self.states[last as usize]
    }

    /// Appends the next entries, `most` of them, to the log.
    fn append(&self, follower: &Engine, most: u64) -> engine::Result<u64> {
        let mut index = follower.entries().last.index;
        for (head, records) in self.entries.iter().skip(index as usize).take(most as usize) {
            follower.append_read_entry(head, b"", records)?;
            index = head.index;
        }
        Ok(index)
    }
}

/// Entries are decided, and checkpoints written, while their commits are in the log alone; then the power goes.
fn checkpoints_between(seed: u64, planted: Option<PlantedBug>) {
    let (sent, sim) = (sent(seed), SimOs::new(seed));
    let mut random = Gen::new(seed);
    let mut options = member();
    options.sizes.planted = planted;
    let mut follower = open(&sim.os(), options.clone()).unwrap();
    loop {
        let before = follower.entries().last.timestamp;
        let index = sent.append(&follower, 1 + random.below(3)).unwrap();
        let complete = follower.complete().timestamp();
        assert!(complete.0 == before || planted.is_some());
        if random.one_in(2) {
            follower.commit_entries_up_to(index).unwrap();
        }
        while random.one_in(2) {
            follower.step().unwrap();
        }
        follower.checkpoint().unwrap();
        assert!(follower.visible().timestamp() <= complete || planted.is_some());
        if random.one_in(2) {
            follower.apply_appended().unwrap();
            assert_eq!(newest(&follower), *sent.state(index), "seed {seed}, entry {index}");
        }
        let survival = if random.one_in(2) {
            follower.sync().unwrap();
            Survival::Nothing
        } else {
            Survival::Random
        };
        if random.one_in(3) {
            let os = sim.reboot_with(survival);
            drop(follower);
            follower = open(&os, options.clone()).unwrap();
        }
        follower.apply_appended().unwrap();
        let last = follower.entries().last.index;
        assert_eq!(newest(&follower), *sent.state(last), "seed {seed}, at {last}");
        follower.verify_all().unwrap();
        if last as usize == sent.entries.len() {
            return;
        }
    }
}

#[test]
fn no_checkpoint_counts_what_is_only_in_the_log() {
    (1..20).for_each(|seed| checkpoints_between(seed, None));
    let planted = Some(PlantedBug::CompleteBeforeApplied);
    let is_found = |seed| catch_unwind(|| checkpoints_between(seed, planted)).is_err();
    let found = (1..20).filter(|seed| is_found(*seed)).count();
    assert!(found >= 10, "a checkpoint that counts it is found in {found} of 19 runs");
}

#[test]
fn tail_that_is_only_in_the_log_can_be_made_void() {
    for seed in 1..10 {
        let (sent, sim) = (sent(seed), SimOs::new(seed));
        let follower = open(&sim.os(), member()).unwrap();
        let first = sent.append(&follower, 10).unwrap();
        follower.apply_appended().unwrap();
        let last = sent.append(&follower, 10).unwrap();
        follower.cut(first + 1).unwrap();
        assert_eq!((newest(&follower), first + 10), (sent.state(first).clone(), last));
        follower.apply_appended().unwrap();
        assert_eq!(newest(&follower), *sent.state(first), "what is void is not applied");
        let last = sent.append(&follower, 10).unwrap();
        follower.apply_appended().unwrap();
        assert_eq!(newest(&follower), *sent.state(last), "it comes again");
        follower.sync().unwrap();
        let (_os, follower) = restart(&sim, follower, member());
        assert_eq!(newest(&follower), *sent.state(last), "over a restart");
    }
}

/// The power goes at any call to the disk: what is left is a beginning of the entries, with all that was synced.
#[test]
fn what_a_crash_leaves_of_appended_entries_is_a_beginning_of_them() {
    for seed in 1..60 {
        let (sent, sim) = (sent(1 + seed % 4), SimOs::new(seed));
        let mut random = Gen::new(seed);
        let mut synced = 0;
        let follower = open(&sim.os(), member()).unwrap();
        sim.crash_after(1 + random.below(120));
        let mut work = || -> engine::Result<()> {
            loop {
                let index = sent.append(&follower, 1 + random.below(4))?;
                if random.one_in(2) {
                    follower.sync()?;
                    synced = index;
                }
                follower.apply_appended()?;
                if random.one_in(3) {
                    follower.commit_entries_up_to(index.saturating_sub(random.below(3)))?;
                    follower.checkpoint()?;
                }
                follower.step()?;
                if index as usize == sent.entries.len() {
                    return Ok(());
                }
            }
        };
        let _ends_with_the_power = catch_unwind(AssertUnwindSafe(&mut work)).unwrap();
        let os = sim.reboot_with(Survival::Random);
        drop(follower);
        let follower = open(&os, member()).unwrap();
        let last = follower.entries().last.index;
        assert!(last >= synced, "seed {seed}: {last}, {synced} was synced");
        assert_eq!(newest(&follower), *sent.state(last), "seed {seed}");
    }
}

#[test]
fn entry_that_cannot_be_applied_stops_the_engine() {
    let sim = SimOs::new(3);
    let (sent, follower) = (sent(2), open(&sim.os(), member()).unwrap());
    // A commit with chunks, which are read from the disk again.
    let chunked =
        sent.entries.iter().position(|(head, _)| head.first_timestamp > head.last_timestamp);
    let behind = chunked.unwrap() as u64 + 10;
    let last = sent.append(&follower, behind).unwrap();
    sim.crash_after(1);
    let applied = follower.apply_appended();
    assert!(matches!(applied, Err(Error::Stopped(_))), "{applied:?}");
    let stopped = follower.cut(last);
    assert!(matches!(stopped, Err(Error::Stopped(_))), "nobody waits for it: {stopped:?}");
}
