//! Writers, readers, cursors, two workers and a checkpointer on one tree at once.
#![allow(clippy::unwrap_used, reason = "a test that meets an error fails")]

use blockfile::{BlockFile, Metrics, Options};
use cachetable::CacheTable;
use ftree::{
    Context, Direction, Effort, KeyRange, Message, Progress, Tree, TreeOptions, Visibility,
};
use os::sim::SimOs;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const ACCOUNTS: u64 = 200;
const TOTAL: i64 = 0;

/// What the engine above keeps: the watermark and the snapshots in use.
#[derive(Default)]
struct Snapshots {
    watermark: u64,
    live: BTreeMap<u64, u64>,
}

struct Bank {
    tree: Arc<Tree>,
    file: BlockFile,
    snapshots: Mutex<Snapshots>,
    commit: Mutex<Vec<i64>>,
    stop: AtomicBool,
    scans: AtomicU64,
    units: AtomicU64,
}

fn key(account: u64) -> Vec<u8> {
    format!("account {account:04}").into_bytes()
}

impl Bank {
    /// Moves an amount between two accounts in one commit.
    fn transfer(&self, from: u64, to: u64, amount: i64) {
        let mut balances = self.commit.lock().unwrap();
        balances[from as usize] -= amount;
        balances[to as usize] += amount;
        let ts = self.snapshots.lock().unwrap().watermark + 1;
        for account in [from, to] {
            let balance = balances[account as usize].to_le_bytes();
            let value = [&balance[..], &[7; 40]].concat();
            self.tree.insert(&key(account), ts, Message::Put(&value));
        }
        self.snapshots.lock().unwrap().watermark = ts;
    }

    fn begin(&self) -> u64 {
        let mut snapshots = self.snapshots.lock().unwrap();
        let ts = snapshots.watermark;
        *snapshots.live.entry(ts).or_default() += 1;
        ts
    }

    fn end(&self, ts: u64) {
        let mut snapshots = self.snapshots.lock().unwrap();
        *snapshots.live.get_mut(&ts).unwrap() -= 1;
        snapshots.live.retain(|_, count| *count > 0);
    }

    fn visibility(&self) -> Visibility {
        let snapshots = self.snapshots.lock().unwrap();
        let live: Vec<u64> = snapshots.live.keys().copied().collect();
        Visibility::new(snapshots.watermark, &live)
    }

    fn read(&self, round: u64) {
        let ts = self.begin();
        let direction =
            if round.is_multiple_of(2) { Direction::Forward } else { Direction::Backward };
        let mut cursor = self.tree.cursor(KeyRange::all(), ts, direction);
        let mut sum = 0;
        let mut seen = BTreeMap::new();
        while let Some((key, value)) = cursor.next().unwrap() {
            let balance = i64::from_le_bytes(value[..8].try_into().unwrap());
            sum += balance;
            seen.insert(key.to_vec(), balance);
            if seen.len() % 50 == 49 {
                std::thread::yield_now();
            }
        }
        assert_eq!(sum, TOTAL, "a scan at {ts} sees half a transfer");
        // Point reads agree with the scan, however late they come.
        for account in (round % 7..ACCOUNTS).step_by(7) {
            let value = self.tree.get(&key(account), ts).unwrap();
            let balance = value.map(|value| i64::from_le_bytes(value[..8].try_into().unwrap()));
            assert_eq!(balance, seen.get(&key(account)).copied());
        }
        self.end(ts);
        self.scans.fetch_add(1, Ordering::Relaxed);
    }

    fn work(&self) {
        if self.tree.debt().active_bytes > 60_000 && self.tree.debt().sealed < 2 {
            self.tree.seal(self.snapshots.lock().unwrap().watermark);
        }
        if let Progress::Done(_) = self.tree.work(&self.visibility(), Effort::Idle).unwrap() {
            self.units.fetch_add(1, Ordering::Relaxed);
        }
        std::thread::yield_now();
    }

    fn checkpoint(&self) {
        let image = self.tree.image().unwrap();
        let mark = self.file.begin_checkpoint();
        self.file.finish_checkpoint(mark, image.bytes(), image.flushed_ts()).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn snapshots_stay_whole_while_everything_moves() {
    let sim = SimOs::new(9);
    let os = sim.os();
    os.vfs.create_dir_all(Path::new("/data")).unwrap();
    let metrics = Metrics::new(&telemetry::Registry::new());
    let (file, _) = BlockFile::open(&os, Path::new("/data"), Options::default(), metrics).unwrap();
    let context = Context::new(file.clone(), Arc::new(CacheTable::new(40_000)));
    let bank = Bank {
        tree: Tree::create(&context, 1, TreeOptions::tiny()),
        file,
        snapshots: Mutex::default(),
        commit: Mutex::new(vec![0; ACCOUNTS as usize]),
        stop: AtomicBool::new(false),
        scans: AtomicU64::new(0),
        units: AtomicU64::new(0),
    };
    let until_stopped = |step: &dyn Fn(u64)| {
        let mut round = 0;
        while !bank.stop.load(Ordering::Relaxed) {
            step(round);
            round += 1;
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| until_stopped(&|round| bank.read(round)));
            scope.spawn(|| until_stopped(&|_| bank.work()));
        }
        scope.spawn(|| until_stopped(&|_| bank.checkpoint()));
        let writers: Vec<_> = (0..2u64)
            .map(|writer| {
                let bank = &bank;
                scope.spawn(move || {
                    let enough = || {
                        bank.scans.load(Ordering::Relaxed) > 10
                            && bank.units.load(Ordering::Relaxed) > 10
                    };
                    for i in (0..1_000_000u64).take_while(|i| *i < 4000 || !enough()) {
                        let from = (i * 7 + writer * 3) % ACCOUNTS;
                        let to = (i * 13 + 1 + writer) % ACCOUNTS;
                        if from != to {
                            bank.transfer(from, to, (i % 100) as i64);
                        }
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        bank.stop.store(true, Ordering::Relaxed);
    });
    bank.read(0);
    bank.read(1);
    let report = bank.tree.verify().unwrap();
    assert!(report.entries > 0);
    let (scans, units) = (bank.scans.load(Ordering::Relaxed), bank.units.load(Ordering::Relaxed));
    assert!(scans > 10 && units > 10, "{scans} scans, {units} units of work");
    let stats = bank.tree.stats();
    assert!(stats.dropped_versions > 100, "{stats:?}");
}
