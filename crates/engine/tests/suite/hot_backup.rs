//! A backup that is written into a directory while the engine works: what it holds, and what is left of one that was
//! not finished.

use crate::{open, tiny};
use engine::{
    BackupChain, BackupProgress, DictionaryId, Durability, Engine, Error, Options, PlantedBug,
    StoredBackup, TxnOptions,
};
use os::sim::{SimOs, Survival};
use os::{OpenOptions, Os};
use std::path::{Path, PathBuf};

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
    let done = backup.write_to(&target.os(), Path::new("/backup"), None, &mut look).unwrap();
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
    backup.write_to(&target.os(), Path::new("/whole"), None, &mut count).unwrap();
    for stop_at in 1..=pieces {
        let os = SimOs::new(3).os();
        let mut left = stop_at;
        let mut look = |_: &BackupProgress| {
            left -= 1;
            if left == 0 { Err(Error::InvalidOption("ended".to_owned())) } else { Ok(()) }
        };
        let ended = backup.write_to(&os, Path::new("/backup"), None, &mut look);
        assert!(matches!(ended, Err(Error::InvalidOption(_))));
        let opened = open(&os, at("/backup")).map(drop);
        let refusal = opened.unwrap_err().to_string();
        assert!(refusal.contains("not written to its end"), "{refusal}");
        backup.write_to(&os, Path::new("/backup"), None, &mut |_| Ok(())).unwrap();
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
        let written = backup.write_to(&target.os(), Path::new("/backup"), None, &mut |_| Ok(()));
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

/// So many keys that a checkpoint has many segments.
const MANY: u32 = 4000;

fn value(key: u32, round: u32) -> Vec<u8> {
    let mut bytes = testkit::Gen::new(u64::from(key) << 32 | u64::from(round)).bytes(200);
    bytes.extend_from_slice(&round.to_le_bytes());
    bytes
}

/// Writes every `step`-th key and has all of it in segments.
fn write_many(engine: &Engine, step: usize, round: u32) {
    for keys in (0..MANY).step_by(step).collect::<Vec<_>>().chunks(100) {
        let mut txn = engine.begin(TxnOptions::default());
        for key in keys {
            txn.put(ROOT, &key.to_be_bytes(), &value(*key, round)).unwrap();
        }
        txn.commit(Durability::Buffered).unwrap().durable().unwrap();
    }
    for _ in 0..3 {
        engine.checkpoint().unwrap();
        while engine.step().unwrap() {}
    }
    engine.checkpoint().unwrap();
}

fn check_many(engine: &Engine, expected: impl Fn(u32) -> u32) {
    let snapshot = engine.snapshot();
    for key in 0..MANY {
        let found = snapshot.get(ROOT, &key.to_be_bytes()).unwrap().unwrap();
        assert!(found[..] == value(key, expected(key))[..], "key {key}");
    }
    engine.verify_all().unwrap();
}

fn back_up(
    engine: &Engine,
    os: &Os,
    to: &str,
    since: Option<&str>,
) -> engine::Result<BackupProgress> {
    let since = since.map(|earlier| StoredBackup::read(os, Path::new(earlier))).transpose()?;
    engine.backup()?.write_to(os, Path::new(to), since.as_ref(), &mut |_| Ok(()))
}

/// Puts a chain together, as `fern restore` does.
fn put_together(os: &Os, newest: &str, bases: &[&str], to: &str) -> engine::Result<()> {
    let (newest, to) = (Path::new(newest), Path::new(to));
    let bases: Vec<PathBuf> = bases.iter().map(PathBuf::from).collect();
    let chain = BackupChain::find(os, newest, &bases)?;
    let vfs = &os.vfs;
    vfs.create_dir_all(&to.join("journal")).unwrap();
    let open = |path: &Path| vfs.open(path, OpenOptions::create()).unwrap();
    let data = open(&to.join("fern.data"));
    for piece in chain.data_pieces() {
        let mut bytes = vec![0; piece.bytes as usize];
        open(&piece.file).read_exact_at(&mut bytes, piece.from).unwrap();
        data.write_all_at(&bytes, piece.to).unwrap();
    }
    data.set_len(chain.backups()[0].file_bytes()).unwrap();
    for path in vfs.list_dir(&newest.join("journal")).unwrap() {
        if path.extension().is_none() {
            continue;
        }
        let file = open(&path);
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let copy = open(&to.join("journal").join(path.file_name().unwrap()));
        copy.write_all_at(&bytes, 0).unwrap();
    }
    open(&to.join("FERNDB")).write_all_at(b"FernDB data directory, format 1\n", 0).unwrap();
    Ok(())
}

#[test]
fn incremental_backups_hold_what_is_new_and_are_put_together() {
    let (source, target) = (SimOs::new(1), SimOs::new(2));
    let (engine, os) = (open(&source.os(), tiny()).unwrap(), target.os());
    write_many(&engine, 1, 1);
    let whole = back_up(&engine, &os, "/b/0", None).unwrap();
    assert_eq!(whole.bytes_since, 0);
    // Nothing is new, then a little, then much, which moves things too.
    let steps = [usize::MAX, 97, 2, 31];
    for (number, step) in steps.into_iter().enumerate() {
        if step != usize::MAX {
            write_many(&engine, step, number as u32 + 1);
        }
        let (to, since) = (format!("/b/{}", number + 1), format!("/b/{number}"));
        let done = back_up(&engine, &os, &to, Some(&since)).unwrap();
        if number < 2 {
            assert!(done.bytes_since > done.bytes_done, "{done:?}");
        }
        let refusal = open(&os, at(&to)).map(drop).unwrap_err().to_string();
        assert!(refusal.contains("is an incremental backup"), "{refusal}");
    }
    let os = target.reboot_with(Survival::Nothing);
    put_together(&os, "/b/4", &[], "/restored").unwrap();
    let copy = open(&os, at("/restored")).unwrap();
    let round = |key: u32| {
        let written = |step: u32| key.is_multiple_of(step);
        if written(31) {
            4
        } else if written(2) {
            3
        } else if written(97) {
            2
        } else {
            1
        }
    };
    check_many(&copy, round);
    write(&copy, 9);
    put_together(&os, "/b/2", &[], "/earlier").unwrap();
    check_many(
        &open(&os, at("/earlier")).unwrap(),
        |key| if key.is_multiple_of(97) { 2 } else { 1 },
    );
}

/// Planted: places are compared, which are used again. What is put together is not what there was.
#[test]
fn a_backup_that_compares_places_is_found_out() {
    let (source, target) = (SimOs::new(1), SimOs::new(2));
    let mut options = tiny();
    options.sizes.planted = Some(PlantedBug::BackupComparesPlaces);
    let (engine, os) = (open(&source.os(), options).unwrap(), target.os());
    write_many(&engine, 1, 1);
    back_up(&engine, &os, "/b/0", None).unwrap();
    write_many(&engine, 2, 2);
    back_up(&engine, &os, "/b/1", Some("/b/0")).unwrap();
    put_together(&os, "/b/1", &[], "/restored").unwrap();
    let found = open(&os, at("/restored")).and_then(|copy| copy.verify_all());
    assert!(matches!(found, Err(Error::Corruption(_))), "{found:?}");
}

#[test]
fn an_incremental_backup_is_built_on_one_of_this_directory_that_is_as_it_was() {
    let (source, target) = (SimOs::new(1), SimOs::new(2));
    let (engine, os) = (open(&source.os(), tiny()).unwrap(), target.os());
    write_many(&engine, 1, 1);
    back_up(&engine, &os, "/whole", None).unwrap();
    back_up(&engine, &os, "/other", None).unwrap();
    let refused = |engine: &Engine, since: &str, word: &str| {
        let refusal = back_up(engine, &os, "/new", Some(since)).unwrap_err();
        assert!(matches!(&refusal, Error::InvalidOption(text) if text.contains(word)), "{refusal}");
        assert!(!os.vfs.exists(Path::new("/new")).unwrap(), "nothing is written");
    };
    refused(&engine, "/missing", "no backup");
    // One that goes on by itself gives out the same numbers.
    back_up(&engine, &os, "/inc", Some("/whole")).unwrap();
    put_together(&os, "/inc", &[], "/restored").unwrap();
    let restored = open(&os, at("/restored")).unwrap();
    for since in ["/whole", "/inc"] {
        refused(&restored, since, "was not written of this data directory");
    }
    let another = open(&SimOs::new(7).os(), tiny()).unwrap();
    refused(&another, "/whole", "was not written of this data directory");
    // A server was started in it.
    let started = open(&os, at("/other")).unwrap();
    write_many(&started, 5, 2);
    started.close().unwrap();
    refused(&engine, "/other", "was changed");
    // After a start the directory is still the same.
    engine.close().unwrap();
    let engine = open(&source.os(), tiny()).unwrap();
    write_many(&engine, 50, 3);
    back_up(&engine, &os, "/later", Some("/inc")).unwrap();
    put_together(&os, "/later", &[], "/latest").unwrap();
    check_many(
        &open(&os, at("/latest")).unwrap(),
        |key| if key.is_multiple_of(50) { 3 } else { 1 },
    );
}

#[test]
fn a_chain_is_found_elsewhere_and_not_put_together_with_another_backup() {
    let (source, target) = (SimOs::new(1), SimOs::new(2));
    let (engine, os) = (open(&source.os(), tiny()).unwrap(), target.os());
    write_many(&engine, 1, 1);
    back_up(&engine, &os, "/a/0", None).unwrap();
    write_many(&engine, 97, 2);
    back_up(&engine, &os, "/a/1", Some("/a/0")).unwrap();
    back_up(&engine, &os, "/a/2", Some("/a/1")).unwrap();
    back_up(&engine, &os, "/z", None).unwrap();
    let moved = |from: &str, to: &str| {
        os.vfs.create_dir_all(Path::new(to)).unwrap();
        for name in ["BACKUP", "fern.data", "FERNDB"] {
            os.vfs.rename(&Path::new(from).join(name), &Path::new(to).join(name)).unwrap();
        }
    };
    moved("/a/0", "/moved/0");
    moved("/a/1", "/moved/1");
    let refusal = put_together(&os, "/a/2", &[], "/r").unwrap_err().to_string();
    assert!(refusal.contains("which was in /a/1 and is not found"), "{refusal}");
    let refusal = put_together(&os, "/a/2", &["/z", "/moved/1"], "/r").unwrap_err().to_string();
    assert!(refusal.contains("/moved/1 needs the backup"), "{refusal}");
    put_together(&os, "/a/2", &["/z", "/moved/0", "/moved/1"], "/r").unwrap();
    check_many(&open(&os, at("/r")).unwrap(), |key| if key.is_multiple_of(97) { 2 } else { 1 });
    // The right id on another state.
    let file = os.vfs.open(Path::new("/moved/0/fern.data"), OpenOptions::create()).unwrap();
    let mut superblocks = vec![0; 8192];
    file.read_exact_at(&mut superblocks, 0).unwrap();
    superblocks[700] ^= 1;
    file.write_all_at(&superblocks, 0).unwrap();
    let refusal =
        put_together(&os, "/a/2", &["/moved/0", "/moved/1"], "/r2").unwrap_err().to_string();
    assert!(refusal.contains("/moved/0 was changed"), "{refusal}");
}

#[test]
fn a_damaged_page_ends_the_backup_and_is_named() {
    let source = SimOs::new(1);
    let (engine, os) = (open(&source.os(), tiny()).unwrap(), SimOs::new(2).os());
    write_many(&engine, 1, 1);
    let data = engine.backup().unwrap().data_file();
    let file = source.os().vfs.open(&data, OpenOptions::default()).unwrap();
    let length = file.len().unwrap();
    let (mut found, mut unused) = (0, 0);
    // Behind the superblocks, which the engine has in memory.
    for unit in (2..length / 4096).step_by(2) {
        let at = unit * 4096 + 100;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 4], at).unwrap();
        match back_up(&engine, &os, "/new", None) {
            Ok(_) => unused += 1,
            Err(Error::Corruption(cause)) => {
                found += 1;
                let has_place = cause.page().is_some() && cause.dictionary() == Some(ROOT.0);
                assert!(
                    has_place || cause.page().is_some_and(|(segment, _)| segment == 0),
                    "{cause}"
                );
                let is_marked = os.vfs.exists(Path::new("/new/UNFINISHED-BACKUP")).unwrap();
                assert!(is_marked, "it is not taken for one");
            }
            Err(error) => panic!("{error}"),
        }
        // Unless something was written over it meanwhile.
        let mut now = [0];
        file.read_exact_at(&mut now, at).unwrap();
        if now == [byte[0] ^ 4] {
            file.write_all_at(&byte, at).unwrap();
        }
    }
    assert!(found > 20, "{found} of {}", found + unused);
    back_up(&engine, &os, "/new", None).unwrap();
    check_many(&open(&os, at("/new")).unwrap(), |_| 1);
}
