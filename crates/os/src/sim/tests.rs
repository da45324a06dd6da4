//! The simulator against its own promises.

use std::path::Path;

use super::*;
use crate::OpenOptions;

const DIR: &str = "/data";
const FILE: &str = "/data/f";

fn machine(seed: u64) -> (SimOs, Os) {
    let sim = SimOs::new(seed);
    let os = sim.os();
    os.vfs.create_dir_all(Path::new(DIR)).unwrap();
    (sim, os)
}

fn content(os: &Os) -> Option<Vec<u8>> {
    let file = os.vfs.open(Path::new(FILE), OpenOptions::read_only()).ok()?;
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    Some(bytes)
}

#[test]
fn synced_bytes_under_a_synced_name_survive_every_crash() {
    for survival in [Survival::Nothing, Survival::Random, Survival::Everything] {
        let (sim, os) = machine(1);
        let file = os.vfs.open(Path::new(FILE), OpenOptions::create_new()).unwrap();
        file.write_all_at(b"safe", 0).unwrap();
        file.sync_data().unwrap();
        os.vfs.sync_dir(Path::new(DIR)).unwrap();
        let os = sim.reboot_with(survival);
        assert_eq!(content(&os).unwrap(), b"safe");
    }
}

#[test]
fn unsynced_name_is_lost_even_with_synced_bytes() {
    let (sim, os) = machine(1);
    let file = os.vfs.open(Path::new(FILE), OpenOptions::create_new()).unwrap();
    file.write_all_at(b"safe", 0).unwrap();
    file.sync_all().unwrap();
    assert_eq!(content(&sim.reboot_with(Survival::Nothing)), None);
}

#[test]
fn unsynced_sectors_survive_as_any_subset() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..64 {
        let (sim, os) = machine(seed);
        let file = os.vfs.open(Path::new(FILE), OpenOptions::create_new()).unwrap();
        file.write_all_at(&[0; 1024], 0).unwrap();
        file.sync_all().unwrap();
        os.vfs.sync_dir(Path::new(DIR)).unwrap();
        file.write_all_at(&[1; 1024], 0).unwrap();
        let bytes = content(&sim.reboot()).unwrap();
        assert!(bytes[..512].iter().all(|b| *b == bytes[0]));
        assert!(bytes[512..].iter().all(|b| *b == bytes[512]));
        seen.insert((bytes[0], bytes[512]));
    }
    assert_eq!(seen.len(), 4);
}

#[test]
fn calls_after_the_crash_fail_and_old_handles_stay_dead() {
    let (sim, os) = machine(3);
    sim.crash_after(2);
    let file = os.vfs.open(Path::new(FILE), OpenOptions::create_new()).unwrap();
    assert!(is_crash(&file.write_all_at(b"x", 0).unwrap_err()));
    assert!(is_crash(&file.sync_all().unwrap_err()));
    let new = sim.reboot();
    assert!(is_crash(&file.len().unwrap_err()));
    assert!(is_crash(&os.vfs.exists(Path::new(FILE)).unwrap_err()));
    new.vfs.exists(Path::new(FILE)).unwrap();
}

#[test]
fn same_seed_same_disk() {
    let run = |seed| {
        let (sim, os) = machine(seed);
        for i in 0..20_u64 {
            let path = format!("/data/{}", i % 5);
            let file = os.vfs.open(Path::new(&path), OpenOptions::create()).unwrap();
            file.write_all_at(&vec![i as u8; 3000], i * 700).unwrap();
            if i % 3 == 0 {
                file.sync_all().unwrap();
                os.vfs.sync_dir(Path::new(DIR)).unwrap();
            }
        }
        sim.reboot();
        sim.files()
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}

#[test]
fn full_disk_says_so_and_holes_give_space_back() {
    let (sim, os) = machine(1);
    sim.set_faults(Faults { capacity_bytes: 8192, ..Faults::default() });
    let file = os.vfs.open(Path::new(FILE), OpenOptions::create_new()).unwrap();
    file.write_all_at(&[1; 8192], 0).unwrap();
    let full = file.write_all_at(&[1; 1], 8192).unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    file.punch_hole(0, 4096).unwrap();
    file.write_all_at(&[1; 1], 8192).unwrap();
    assert_eq!(os.vfs.space(Path::new(DIR)).unwrap().available, 0);
}

#[test]
fn failed_sync_is_not_healed_by_the_next_one() {
    let mut lost = false;
    for seed in 0..16 {
        let (sim, os) = machine(seed);
        let file = os.vfs.open(Path::new(FILE), OpenOptions::create_new()).unwrap();
        os.vfs.sync_dir(Path::new(DIR)).unwrap();
        file.write_all_at(&[1; 512], 0).unwrap();
        sim.fault_at(sim.syscalls() + 1, Fault::Io);
        assert!(file.sync_data().is_err());
        file.sync_data().unwrap();
        lost |= content(&sim.reboot_with(Survival::Everything)).unwrap().is_empty();
    }
    assert!(lost);
}

#[test]
fn planned_faults_hit_their_call() {
    let (sim, os) = machine(1);
    let file = os.vfs.open(Path::new(FILE), OpenOptions::create_new()).unwrap();
    sim.fault_at(sim.syscalls() + 1, Fault::Misdirected);
    file.write_all_at(b"x", 0).unwrap();
    assert_eq!(file.len().unwrap(), 4097);
    sim.fault_at(sim.syscalls() + 1, Fault::NoSpace);
    assert_eq!(file.set_len(0).unwrap_err().kind(), io::ErrorKind::StorageFull);
    sim.fault_at(sim.syscalls() + 1, Fault::WriteFlip);
    file.write_all_at(&[0; 8], 0).unwrap();
    let ones: u32 = content(&os).unwrap()[..8].iter().map(|b| b.count_ones()).sum();
    assert_eq!(ones, 1);
}

#[test]
fn time_moves_only_when_told() {
    let (sim, os) = machine(1);
    let (start, wall) = (os.clock.monotonic(), os.clock.wall_ms());
    os.clock.sleep(Duration::from_millis(5));
    sim.advance(Duration::from_millis(7));
    assert_eq!(os.clock.monotonic(), start + Duration::from_millis(12));
    assert_eq!(os.clock.wall_ms() - wall, 12);
    let refused = os.spawner.spawn("t", Box::new(|| ())).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
}

#[test]
fn lock_is_exclusive_and_a_reboot_frees_it() {
    let (sim, os) = machine(1);
    let path = Path::new("/data/lock");
    let held = os.vfs.lock(path).unwrap();
    assert_eq!(os.vfs.lock(path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    let os = sim.reboot();
    let again = os.vfs.lock(path).unwrap();
    drop(held);
    assert_eq!(os.vfs.lock(path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    drop(again);
    os.vfs.lock(path).unwrap();
}
