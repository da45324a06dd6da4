//! A backup that is written into a directory while the engine works: what it holds, and what is left of one that was
//! not finished.

use crate::{open, tiny};
use engine::{BackupProgress, DictionaryId, Durability, Engine, Error, Options, TxnOptions};
use os::sim::{SimOs, Survival};
use std::path::Path;

const ROOT: DictionaryId = DictionaryId::ROOT;
/// Keys of each round: all are of one round, or of two that follow each other.
const KEYS: u32 = 50;

fn write(engine: &Engine, round: u32) {
    let mut txn = engine.begin(TxnOptions::default());
    for key in 0..KEYS {
        txn.put(ROOT, &key.to_be_bytes(), &[&round.to_be_bytes()[..], &[7; 300]].concat()).unwrap();
    }
    txn.commit(Durability::Buffered).unwrap().durable().unwrap();
}

/// The round that a copy is of.
fn round_of(engine: &Engine) -> u32 {
    let snapshot = engine.snapshot();
    let rounds: Vec<u32> = (0..KEYS)
        .map(|key| {
            let value = snapshot.get(ROOT, &key.to_be_bytes()).unwrap().unwrap();
            u32::from_be_bytes(value[..4].try_into().unwrap())
        })
        .collect();
    assert!(
        rounds.iter().all(|round| *round == rounds[0]),
        "a copy holds whole commits: {rounds:?}"
    );
    rounds[0]
}

fn at(directory: &str) -> Options {
    Options { dir: directory.into(), ..tiny() }
}

#[test]
fn a_backup_under_writes_holds_every_commit_before_it_and_whole_ones_after() {
    let source = SimOs::new(1);
    let engine = open(&source.os(), tiny()).unwrap();
    for round in 1..=20 {
        write(&engine, round);
    }
    let target = SimOs::new(2);
    let backup = engine.backup().unwrap();
    let (mut round, mut told) = (20, Vec::new());
    let mut look = |progress: &BackupProgress| {
        round += 1;
        write(&engine, round);
        engine.checkpoint().unwrap();
        told.push(progress.clone());
        Ok(())
    };
    let done = backup.write_to(&target.os(), Path::new("/backup"), &mut look).unwrap();
    drop(backup);
    assert_eq!((done.bytes_done, done.files_done), (done.bytes_total, done.files_total));
    assert!(told.windows(2).all(|two| two[0].bytes_done < two[1].bytes_done));
    // Everything that it says is done is on disk.
    let copy = open(&target.reboot_with(Survival::Nothing), at("/backup")).unwrap();
    assert!((20..=round).contains(&round_of(&copy)));
    copy.verify_all().unwrap();
    write(&copy, 1000);
    assert_eq!(round_of(&copy), 1000);
    write(&engine, 1001);
    engine.verify_all().unwrap();
}

#[test]
fn no_engine_opens_a_backup_that_was_ended_and_the_next_one_works() {
    let source = SimOs::new(1);
    let engine = open(&source.os(), tiny()).unwrap();
    write(&engine, 1);
    let target = SimOs::new(2);
    let backup = engine.backup().unwrap();
    let mut pieces = 0;
    let mut count = |_: &BackupProgress| {
        pieces += 1;
        Ok(())
    };
    backup.write_to(&target.os(), Path::new("/whole"), &mut count).unwrap();
    for stop_at in 1..=pieces {
        let os = SimOs::new(3).os();
        let mut left = stop_at;
        let mut look = |_: &BackupProgress| {
            left -= 1;
            if left == 0 { Err(Error::InvalidOption("ended".to_owned())) } else { Ok(()) }
        };
        let ended = backup.write_to(&os, Path::new("/backup"), &mut look);
        assert!(matches!(ended, Err(Error::InvalidOption(_))));
        let opened = open(&os, at("/backup")).map(drop);
        let refusal = opened.unwrap_err().to_string();
        assert!(refusal.contains("not written to its end"), "{refusal}");
        backup.write_to(&os, Path::new("/backup"), &mut |_| Ok(())).unwrap();
        assert_eq!(round_of(&open(&os, at("/backup")).unwrap()), 1);
    }
}

#[test]
fn a_crash_at_any_moment_leaves_a_whole_backup_or_none() {
    let source = SimOs::new(1);
    let engine = open(&source.os(), tiny()).unwrap();
    write(&engine, 1);
    let backup = engine.backup().unwrap();
    let (mut whole, mut none) = (0, 0);
    for step in 0..200 {
        let target = SimOs::new(4);
        target.crash_after(step);
        let written = backup.write_to(&target.os(), Path::new("/backup"), &mut |_| Ok(()));
        let os = target.reboot_with(Survival::Random);
        let took = engine::take_received(&os, &at("/backup")).unwrap();
        let is_marked = os.vfs.exists(Path::new("/backup/UNFINISHED-BACKUP")).unwrap();
        let is_there = !is_marked && os.vfs.exists(Path::new("/backup/fern.data")).unwrap();
        assert!(!is_there || !took, "what is not marked is in its place");
        assert!(is_there || written.is_err(), "what is said to be written is there");
        if is_there {
            assert_eq!(round_of(&open(&os, at("/backup")).unwrap()), 1);
            whole += 1;
        } else {
            // Where not even the mark is there, nothing is.
            assert_eq!(open(&os, at("/backup")).is_err(), is_marked);
            none += 1;
        }
        if written.is_ok() {
            break;
        }
    }
    assert!(whole > 0 && none > 10, "{whole} {none}");
}
