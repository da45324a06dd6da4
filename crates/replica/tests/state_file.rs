//! `raft.state` on a simulated disk: what was kept is there after every crash, and a damaged file is
//! told from a new one.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use os::sim::{SimOs, Survival};
use quorum::{HardState, MemberId};
use replica::{Promises, StateFile};

const PATH: &str = "/db/raft.state";

fn open(sim: &SimOs) -> replica::Result<StateFile> {
    StateFile::open(&*sim.os().vfs, Path::new(PATH), || MemberId(7))
}

fn machine(seed: u64) -> SimOs {
    let sim = SimOs::new(seed);
    sim.os().vfs.create_dir_all(Path::new("/db")).unwrap();
    sim
}

fn hard(term: u64) -> HardState {
    HardState { term, vote: Some(MemberId(term % 3 + 1)) }
}

#[test]
fn a_vote_that_was_kept_survives_a_crash_at_any_call() {
    for seed in 0..8 {
        for call in 1..60 {
            let sim = machine(seed);
            let before = sim.syscalls();
            sim.crash_at(before + call);
            let mut kept = 0;
            if let Ok(mut file) = open(&sim) {
                for term in 1..8 {
                    if file.keep(hard(term), term).is_err() {
                        break;
                    }
                    kept = term;
                }
            }
            sim.reboot_with(Survival::Random);
            let file = open(&sim).unwrap();
            let state = file.state();
            assert!(state.term == kept || state.term == kept + 1, "{} of {kept}", state.term);
            assert_eq!(state.vote, (state.term > 0).then(|| hard(state.term).vote.unwrap()));
            assert_eq!(state.member, MemberId(7));
        }
    }
}

#[test]
fn one_damaged_block_is_repaired_and_two_are_an_error() {
    let sim = machine(1);
    let mut file = open(&sim).unwrap();
    file.keep(hard(5), 9).unwrap();
    file.set_name("rs0", 0).unwrap();
    drop(file);
    let damage = |at: u64| {
        let file = sim.os().vfs.open(Path::new(PATH), os::OpenOptions::default()).unwrap();
        file.write_all_at(b"x", at).unwrap();
    };
    for block in [0, 4096] {
        damage(block + 50);
        let file = open(&sim).unwrap();
        assert_eq!((file.state().term, file.state().set_name.as_str()), (5, "rs0"));
    }
    damage(50);
    damage(4096 + 50);
    let error = open(&sim).err().unwrap().to_string();
    assert!(error.contains("damaged"), "{error}");
    // Cut off, it is not a new member's either.
    let file = sim.os().vfs.open(Path::new(PATH), os::OpenOptions::default()).unwrap();
    file.set_len(0).unwrap();
    assert!(open(&sim).is_err());
}
