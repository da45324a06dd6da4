//! Bytes that rot: every mutation of a file is detected or harmless, never believed.

use crate::{open, tiny};
use engine::{DictionaryId, Direction, Durability, Engine, Error, KeyRange, TxnOptions};
use os::sim::SimOs;
use std::collections::BTreeMap;
use std::path::PathBuf;
use testkit::Gen;

const ROOT: DictionaryId = DictionaryId::ROOT;

pub(crate) type Files = BTreeMap<PathBuf, Vec<u8>>;

fn value(n: u64) -> Vec<u8> {
    n.to_le_bytes().repeat(12)
}

/// 200 commits; each writes one key with its number. Most before a checkpoint, some behind it.
fn files(clean: bool) -> Files {
    let sim = SimOs::new(5);
    let engine = open(&sim.os(), tiny()).unwrap();
    for n in 1..=200_u64 {
        let mut txn = engine.begin(TxnOptions::default());
        txn.put(ROOT, &(n % 60).to_be_bytes(), &value(n)).unwrap();
        txn.put(ROOT, b"~clock", &n.to_le_bytes()).unwrap();
        txn.commit(Durability::Synced).unwrap().durable().unwrap();
        let _ = engine.step().unwrap();
        if n == 160 {
            engine.checkpoint().unwrap();
        }
    }
    if clean {
        engine.close().unwrap();
    }
    let mut files = sim.files();
    files.retain(|path, _| !path.ends_with("fernd.lock"));
    files
}

pub(crate) fn disk(files: &Files) -> SimOs {
    let sim = SimOs::new(6);
    let os = sim.os();
    for (path, bytes) in files {
        os.vfs.create_dir_all(path.parent().unwrap()).unwrap();
        let file = os.vfs.open(path, os::OpenOptions::create()).unwrap();
        file.write_all_at(bytes, 0).unwrap();
        file.sync_all().unwrap();
        os.vfs.sync_dir(path.parent().unwrap()).unwrap();
    }
    sim
}

fn contents(engine: &Engine) -> engine::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut cursor = engine.snapshot().cursor(ROOT, KeyRange::all(), Direction::Forward)?;
    while let Some((key, value)) = cursor.next()? {
        found.insert(key.to_vec(), value.to_vec());
    }
    Ok(found)
}

fn expected(n: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut found = BTreeMap::new();
    for n in 1..=n {
        found.insert((n % 60).to_be_bytes().to_vec(), value(n));
        found.insert(b"~clock".to_vec(), n.to_le_bytes().to_vec());
    }
    found
}

/// What a damaged directory answers: all is well, a typed error, or an older prefix.
fn judge(files: &Files) -> Option<Error> {
    let read = open(&disk(files).os(), tiny()).and_then(|engine| {
        let found = contents(&engine)?;
        engine.verify_all()?;
        Ok(found)
    });
    match read {
        Ok(found) => {
            let clock = found
                .get(&b"~clock"[..])
                .map_or(0, |value| u64::from_le_bytes(value[..].try_into().expect("eight bytes")));
            assert_eq!(found, expected(clock), "what is returned is a state that was");
            None
        }
        Err(error) => {
            let known = matches!(
                error,
                Error::Corruption(_) | Error::InvalidOption(_) | Error::Io(_) | Error::Stopped(_)
            );
            assert!(known, "{error:?}");
            Some(error)
        }
    }
}

fn mutate(clean: bool) {
    let files = files(clean);
    assert!(judge(&files).is_none());
    let mut random = Gen::new(u64::from(clean));
    let mut errors = 0;
    for (path, bytes) in &files {
        // Log segments are mostly preallocated zeros; look where something is.
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1);
        for _ in 0..25 * crate::scale() {
            if used == 0 {
                break;
            }
            let mut damaged = files.clone();
            let target = damaged.get_mut(path).unwrap();
            let at = random.below(used) as usize;
            match random.below(3) {
                0 => target[at] ^= 1 << random.below(8),
                1 => target[at] = random.below(256) as u8,
                _ => {
                    let end = (at + random.below(600) as usize).min(target.len());
                    target[at..end].fill(0);
                }
            }
            if let Some(error) = judge(&damaged) {
                errors += 1;
                assert!(!error.to_string().is_empty());
            }
        }
    }
    assert!(errors > 10, "some damage must have been seen, not only {errors}");
}

#[test]
fn damage_after_a_crash_is_detected_or_harmless() {
    mutate(false);
}

#[test]
fn damage_after_a_clean_close_is_detected_or_harmless() {
    mutate(true);
}

#[test]
fn missing_log_is_corruption_not_an_older_state() {
    let mut files = files(false);
    files.retain(|path, _| path.extension().is_none_or(|extension| extension != "fernlog"));
    assert!(matches!(judge(&files), Some(Error::Corruption(_))));
}

#[test]
fn missing_data_file_is_corruption_not_an_empty_database() {
    let mut files = files(false);
    files.retain(|path, _| path.file_name().is_none_or(|name| name != "fern.data"));
    assert!(matches!(judge(&files), Some(Error::Corruption(_))), "the log starts behind");
}
