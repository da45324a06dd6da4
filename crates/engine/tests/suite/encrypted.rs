//! An encrypted engine: nothing of what is stored is seen on disk, through crashes and copies; what does not
//! have the key opens nothing and changes nothing.

use crate::{open, tiny};
use crypt::{MasterKey, NonceLog};
use engine::{DictionaryId, Durability, Engine, Error, HistoryOptions, Options, TxnOptions};
use os::Os;
use os::sim::{SimOs, Survival};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const MARKER: &[u8] = b"a name of somebody";

fn master(letter: &str) -> Arc<MasterKey> {
    Arc::new(MasterKey::parse(format!("{}=", letter.repeat(43)).as_bytes()).unwrap())
}

fn with(master: Option<Arc<MasterKey>>) -> Options {
    Options { master, ..tiny() }
}

fn is_marked(sim: &SimOs) -> bool {
    let has = |bytes: &Vec<u8>| bytes.windows(MARKER.len()).any(|part| part == MARKER);
    sim.files().values().any(has)
}

/// Keys and values that are marked: many transactions, a large one that moves to the disk, a large value.
fn write(engine: &Engine, round: u32) {
    let key = |at: u32| [MARKER, &round.to_be_bytes(), &at.to_be_bytes()].concat();
    for at in 0..60 {
        let mut txn = engine.begin(TxnOptions::default());
        txn.put(DictionaryId::ROOT, &key(at), MARKER).unwrap();
        txn.commit(Durability::Synced).unwrap().durable().unwrap();
        while engine.step().unwrap() {}
    }
    let mut txn = engine.begin(TxnOptions::default());
    for at in 60..200 {
        txn.put(DictionaryId::ROOT, &key(at), &MARKER.repeat(20)).unwrap();
    }
    txn.put(DictionaryId::ROOT, &key(200), &MARKER.repeat(5000)).unwrap();
    txn.commit(Durability::Synced).unwrap().durable().unwrap();
}

fn check(engine: &Engine, rounds: u32) {
    let snapshot = engine.snapshot();
    for round in 0..rounds {
        for (at, repeats) in [(0, 1), (59, 1), (60, 20), (199, 20), (200, 5000)] {
            let key = [MARKER, &round.to_be_bytes(), &u32::to_be_bytes(at)].concat();
            let found = snapshot.get(DictionaryId::ROOT, &key).unwrap();
            assert_eq!(found.as_deref(), Some(&MARKER.repeat(repeats)[..]), "{round} {at}");
        }
    }
    engine.verify_all().unwrap();
}

#[test]
fn nothing_is_seen_on_disk_through_crashes_and_no_nonce_is_used_twice() {
    let nonces = NonceLog::default();
    let history = Some(HistoryOptions { bytes: 1 << 30, min_age: Duration::ZERO });
    let options = || Options { nonces: Some(nonces.clone()), history, ..with(Some(master("A"))) };
    let sim = SimOs::new(1);
    let mut os = sim.os();
    for round in 0..4 {
        let engine = open(&os, options()).unwrap();
        check(&engine, round);
        write(&engine, round);
        if round % 2 == 0 {
            engine.checkpoint().unwrap();
        }
        let keys = engine.encryption().unwrap();
        assert_eq!((keys.master, keys.newest_key), (master("A").fingerprint(), round as u16 + 1));
        assert_eq!(engine.rotate_data_key().unwrap().newest_key, round as u16 + 2);
        write(&engine, 10 + round);
        assert!(!is_marked(&sim), "round {round}");
        sim.crash();
        drop(engine);
        os = sim.reboot_with(Survival::Random);
    }
    check(&open(&os, options()).unwrap(), 4);
    assert!(!is_marked(&sim));
    assert!(nonces.len() > 500, "{nonces:?}");
}

#[test]
fn a_plain_engine_shows_what_an_encrypted_one_hides() {
    let sim = SimOs::new(1);
    let engine = open(&sim.os(), with(None)).unwrap();
    write(&engine, 0);
    assert!(is_marked(&sim) && engine.encryption().is_none());
}

fn refused(sim: &SimOs, options: Options) -> Error {
    let before = sim.files();
    let error = open(&sim.os(), options).unwrap_err();
    assert_eq!(sim.files(), before, "nothing is written");
    assert!(!error.to_string().contains('\n'), "{error}");
    error
}

#[test]
fn who_has_not_the_right_key_is_told_so_and_nothing_is_written() {
    let sim = SimOs::new(1);
    let engine = open(&sim.os(), with(Some(master("A")))).unwrap();
    write(&engine, 0);
    engine.close().unwrap();
    drop(engine);
    let error = refused(&sim, with(None));
    assert!(matches!(&error, Error::Keys(line) if line.contains("--encryptionKeyFile")), "{error}");
    let error = refused(&sim, with(Some(master("Q"))));
    let both = [master("A"), master("Q")].map(|master| master.fingerprint().to_string());
    assert!(both.iter().all(|fingerprint| error.to_string().contains(fingerprint)), "{error}");
    sim.os().vfs.remove_file(Path::new("/data/fern.keys")).unwrap();
    for options in [with(None), with(Some(master("A")))] {
        let error = refused(&sim, options);
        assert!(error.to_string().contains("fern.keys is missing"), "{error}");
    }
}

#[test]
fn a_key_for_a_plain_directory_is_refused() {
    let sim = SimOs::new(1);
    let engine = open(&sim.os(), with(None)).unwrap();
    engine.close().unwrap();
    drop(engine);
    let error = refused(&sim, with(Some(master("A"))));
    assert!(
        matches!(&error, Error::InvalidOption(line) if line.contains("not encrypted")),
        "{error}"
    );
}

#[test]
fn a_backup_opens_with_the_key_alone() {
    let sim = SimOs::new(1);
    let os: Os = sim.os();
    let engine = open(&os, with(Some(master("A")))).unwrap();
    write(&engine, 0);
    let backup = engine.backup().unwrap();
    write(&engine, 1);
    backup.write_to(&os, Path::new("/backup"), None, &mut |_| Ok(())).unwrap();
    drop(backup);
    assert!(!is_marked(&sim));
    let at = |master| Options { dir: "/backup".into(), ..with(master) };
    assert!(matches!(open(&os, at(None)), Err(Error::Keys(_))));
    check(&open(&os, at(Some(master("A")))).unwrap(), 1);
}

fn key(letter: &str) -> MasterKey {
    Arc::into_inner(master(letter)).unwrap()
}

#[test]
fn another_master_key_takes_the_place_of_the_old_one_while_the_engine_is_open() {
    let sim = SimOs::new(1);
    let engine = open(&sim.os(), with(Some(master("A")))).unwrap();
    write(&engine, 0);
    let rotated = engine.rotate_master_key(key("Q")).unwrap();
    assert_eq!((rotated.master, rotated.newest_key), (master("Q").fingerprint(), 1));
    assert_eq!(engine.encryption(), Some(rotated));
    // The new one wraps what is added.
    assert_eq!(engine.rotate_data_key().unwrap().keys, 2);
    write(&engine, 1);
    engine.checkpoint().unwrap();
    check(&engine, 2);
    sim.crash();
    drop(engine);
    let os = sim.reboot_with(Survival::Nothing);
    assert!(matches!(open(&os, with(Some(master("A")))), Err(Error::Keys(_))));
    check(&open(&os, with(Some(master("Q")))).unwrap(), 2);
}

#[test]
fn keys_stay_as_they_are_while_files_are_copied() {
    let sim = SimOs::new(1);
    let os: Os = sim.os();
    let engine = open(&os, with(Some(master("A")))).unwrap();
    write(&engine, 0);
    let backup = engine.backup().unwrap();
    let refused = |error: Error| matches!(error, Error::Keys(line) if line.contains("copy"));
    assert!(refused(engine.rotate_data_key().unwrap_err()));
    assert!(refused(engine.rotate_master_key(key("Q")).unwrap_err()));
    drop(backup);
    assert_eq!(engine.rotate_data_key().unwrap().newest_key, 2);
    write(&engine, 1);
    let backup = engine.backup().unwrap();
    backup.write_to(&os, Path::new("/backup"), None, &mut |_| Ok(())).unwrap();
    let at = Options { dir: "/backup".into(), ..with(Some(master("A"))) };
    check(&open(&os, at).unwrap(), 2);
    let plain = open(&SimOs::new(2).os(), with(None)).unwrap();
    assert!(matches!(plain.rotate_data_key(), Err(Error::Keys(_))));
}

#[test]
fn a_disk_that_fails_while_keys_are_changed_stops_the_engine_and_one_of_the_two_opens_it() {
    for call in 1.. {
        let sim = SimOs::new(call);
        let engine = open(&sim.os(), with(Some(master("A")))).unwrap();
        write(&engine, 0);
        sim.fault_at(sim.syscalls() + call, os::sim::Fault::Io);
        let Err(error) = engine.rotate_master_key(key("Q")) else {
            assert_eq!(call, 5, "both slots are written and synced");
            break;
        };
        assert!(matches!(error, Error::Stopped(_)), "{call}: {error}");
        sim.crash();
        drop(engine);
        let os = sim.reboot_with(Survival::Random);
        let opened =
            ["A", "Q"].iter().find_map(|letter| open(&os, with(Some(master(letter)))).ok());
        check(&opened.expect("one of the two opens it"), 1);
    }
}
