//! Threads that append, sync and trim at once, in every order shuttle finds.
//!
//! Run by `cargo xtask test --only interleavings`.

use std::path::Path;
use std::sync::Arc;

use os::Call;
use os::Os;
use os::sim::{SimOs, Survival};
use os::sync::{Condvar, Mutex};
use shuttle::thread;
use telemetry::Registry;

use crate::{GroupDue, Lsn, Metrics, PlantedSyncBug, Replay, Wal, WalOptions};

const TINY: WalOptions =
    WalOptions { segment_bytes: 2048, recycle: 1, buffer_bytes: 700, compress_from: 100 };
const SCHEDULES: usize = 400;

fn open(os: &Os) -> Replay {
    let metrics = Metrics::new(&Registry::new());
    Wal::open(os, Path::new("/log"), TINY, metrics).expect("no fault is planned")
}

/// (position behind it, first byte of the payload) of each record.
fn records(mut replay: Replay) -> Vec<(Lsn, u8)> {
    let mut all = Vec::new();
    while let Some(record) = replay.next_record().expect("nothing is damaged") {
        all.push((record.end, record.payload[0]));
    }
    all
}

/// Appends a record and waits for the disk; says where it ends, if it was acknowledged.
fn append_and_sync(wal: &Wal, name: u8) -> Option<Lsn> {
    let end = wal.append(&[&[name; 300]]).ok()?;
    wal.sync_to(end).ok()?;
    assert!(wal.synced_lsn() >= end, "what was acknowledged is synced");
    Some(end)
}

#[test]
fn group_commit_keeps_what_it_acknowledged_when_the_power_goes() {
    shuttle::check_random(
        || {
            let sim = SimOs::new(1);
            let wal = Arc::new(open(&sim.os()).start_writing().expect("no fault is planned"));
            let told: Arc<Mutex<Vec<(Lsn, u8)>>> = Arc::default();
            let threads: Vec<_> = (0..3_u8)
                .map(|thread| {
                    let (wal, told) = (Arc::clone(&wal), Arc::clone(&told));
                    thread::spawn(move || {
                        for n in 0..2 {
                            let name = thread * 10 + n;
                            let Some(end) = append_and_sync(&wal, name) else { return };
                            told.lock().push((end, name));
                        }
                    })
                })
                .collect();
            let power = {
                let sim = sim.clone();
                thread::spawn(move || {
                    // The schedule decides how far the others are.
                    for _ in 0..20 {
                        thread::sleep(std::time::Duration::ZERO);
                    }
                    sim.crash();
                })
            };
            for thread in threads.into_iter().chain([power]) {
                thread.join().expect("no thread panics");
            }
            let found = records(open(&sim.reboot_with(Survival::Nothing)));
            for record in told.lock().iter() {
                assert!(found.contains(record), "{record:?} was acknowledged; found {found:?}");
            }
            assert!(found.is_sorted(), "{found:?}");
        },
        SCHEDULES,
    );
}

#[test]
fn full_buffer_rotation_and_trim_lose_nothing() {
    shuttle::check_random(
        || {
            let sim = SimOs::new(1);
            let wal = Arc::new(open(&sim.os()).start_writing().expect("no fault is planned"));
            let writers: Vec<_> = (0..2_u8)
                .map(|thread| {
                    let wal = Arc::clone(&wal);
                    thread::spawn(move || {
                        for n in 0..4 {
                            let _end = wal.append(&[&[thread * 10 + n; 400]]).expect("room");
                        }
                    })
                })
                .collect();
            let trimmer = {
                let wal = Arc::clone(&wal);
                thread::spawn(move || {
                    let _made = wal.prepare().expect("room");
                    wal.sync().expect("no fault is planned");
                    wal.trim(wal.first_lsn()).expect("no fault is planned");
                })
            };
            for thread in writers.into_iter().chain([trimmer]) {
                thread.join().expect("no thread panics");
            }
            wal.sync().expect("no fault is planned");
            assert_eq!(wal.synced_lsn(), wal.next_lsn());
            let found = records(open(&sim.reboot_with(Survival::Nothing)));
            assert!(found.is_sorted());
            for thread in 0..2_u8 {
                let own = found.iter().filter(|(_, name)| name / 10 == thread);
                assert!(own.map(|(_, name)| name % 10).eq(0..4), "in its order, nothing missing");
            }
        },
        SCHEDULES,
    );
}

/// Something that others may wait for.
#[derive(Default)]
struct Event {
    happened: Mutex<bool>,
    changed: Condvar,
}

impl Event {
    fn tell(&self) {
        *self.happened.lock() = true;
        self.changed.notify_all();
    }

    fn wait(&self) {
        let mut happened = self.happened.lock();
        while !*happened {
            self.changed.wait(&mut happened);
        }
        *happened = false;
    }
}

/// As [`append_and_sync`], waiting to be called where others write.
fn append_and_join(wal: &Wal, name: u8) -> Option<Lsn> {
    let end = wal.append(&[&[name; 300]]).ok()?;
    let event = Arc::new(Event::default());
    let telling = Arc::clone(&event);
    let call: Call = Arc::new(move || telling.tell());
    loop {
        if wal.sync_or_join(end).ok()? {
            return Some(end);
        }
        let watch = wal.watch_sync(end, &call);
        if wal.sync_or_join(end).ok()? {
            return Some(end);
        }
        event.wait();
        drop(watch);
    }
}

/// The log's thread: syncs when that is due, where time is over at once, until it is told to end.
fn serve(wal: &Wal, wake: &Event, is_over: &Mutex<bool>) {
    while !*is_over.lock() {
        match wal.group_due(wal.os.clock.monotonic()) {
            GroupDue::Never => wake.wait(),
            GroupDue::At(_) => wal.os.clock.sleep(std::time::Duration::from_millis(1)),
            GroupDue::Now => drop(wal.sync_for_waiters()),
        }
    }
    wal.end_serving();
}

/// Threads that wait without blocking a sync beside the log's thread, until the power goes or the log's thread ends:
/// each of them comes to an end, and finds what it has acknowledged.
fn run_joining(planted: Option<PlantedSyncBug>, crashes: bool) {
    let sim = SimOs::new(1);
    let wal = open(&sim.os()).start_writing().expect("no fault is planned");
    let wal = Arc::new(wal.planted(planted));
    let told: Arc<Mutex<Vec<(Lsn, u8)>>> = Arc::default();
    let (wake, is_over) = (Arc::new(Event::default()), Arc::new(Mutex::new(false)));
    let waking = Arc::clone(&wake);
    wal.begin_serving(Arc::new(move || waking.tell()));
    let serving = {
        let (wal, wake, is_over) = (Arc::clone(&wal), Arc::clone(&wake), Arc::clone(&is_over));
        thread::spawn(move || serve(&wal, &wake, &is_over))
    };
    let writers: Vec<_> = (0..3_u8)
        .map(|thread| {
            let (wal, told) = (Arc::clone(&wal), Arc::clone(&told));
            thread::spawn(move || {
                for n in 0..2 {
                    let name = thread * 10 + n;
                    let Some(end) = append_and_join(&wal, name) else { return };
                    told.lock().push((end, name));
                }
            })
        })
        .collect();
    let ending = {
        let sim = sim.clone();
        thread::spawn(move || {
            // The schedule decides how far the others are.
            for _ in 0..20 {
                thread::sleep(std::time::Duration::ZERO);
            }
            if crashes {
                sim.crash();
            }
            *is_over.lock() = true;
            wake.tell();
        })
    };
    for thread in writers.into_iter().chain([serving, ending]) {
        thread.join().expect("no thread panics");
    }
    if !crashes {
        assert_eq!(told.lock().len(), 6, "everybody is acknowledged");
        sim.crash();
    }
    let found = records(open(&sim.reboot_with(Survival::Nothing)));
    for record in told.lock().iter() {
        assert!(found.contains(record), "{record:?} was acknowledged; found {found:?}");
    }
}

#[test]
fn who_waits_without_a_thread_is_called_and_keeps_what_it_acknowledged() {
    shuttle::check_random(|| run_joining(None, true), SCHEDULES);
    shuttle::check_random(|| run_joining(None, false), SCHEDULES);
}

#[test]
#[should_panic(expected = "was acknowledged")]
fn an_acknowledgement_before_the_sync_is_found() {
    let bug = Some(PlantedSyncBug::CountsWhatIsWritten);
    shuttle::check_random(move || run_joining(bug, true), SCHEDULES * 10);
}
