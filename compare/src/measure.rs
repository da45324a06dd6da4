//! What a slice of work cost: operations, time, CPU, bytes read and written, latencies, and the
//! operations of each second.

use hdrhistogram::Histogram;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Counters of this process, as the kernel keeps them.
#[derive(Clone, Copy, Default)]
pub struct Usage {
    pub cpu_us: u64,
    pub read_bytes: u64,
    pub write_bytes: u64,
}

impl Usage {
    pub fn now() -> Self {
        let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
        let field = |name: &str| {
            io.lines()
                .find_map(|line| line.strip_prefix(name))
                .and_then(|rest| rest.trim().parse().ok())
                .unwrap_or(0)
        };
        let schedstat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let words: Vec<&str> =
            schedstat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |at: usize| words.get(at).and_then(|w| w.parse::<u64>().ok()).unwrap_or(0);
        Self {
            cpu_us: (ticks(11) + ticks(12)) * 10_000,
            read_bytes: field("read_bytes:"),
            write_bytes: field("write_bytes:"),
        }
    }
}

/// Resident memory: (now, peak), in bytes.
pub fn resident() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
            .unwrap_or(0)
            * 1024
    };
    (field("VmRSS:"), field("VmHWM:"))
}

/// Slows the disk of this process to so many seeks and bytes a second (`peers/throttle.c`); no seeks:
/// as fast as it is.
pub fn throttle(seeks: u64, bytes: u64) {
    unsafe extern "C" {
        fn throttle(seeks_per_second: u64, bytes_per_second: u64);
    }
    // SAFETY: takes two numbers, and a lock of its own.
    unsafe { throttle(seeks, bytes) }
}

/// What one thread measured.
pub struct Tally {
    pub operations: u64,
    pub seconds: Vec<u64>,
    pub latency: Histogram<u64>,
    /// What the hypervisor had taken when each second began.
    stolen: Vec<u64>,
    started: Instant,
}

/// Ticks that the hypervisor has taken from all cores since the machine started.
fn stolen_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let all = stat.lines().next().unwrap_or_default();
    all.split_whitespace().nth(8).and_then(|ticks| ticks.parse().ok()).unwrap_or(0)
}

impl Tally {
    pub fn new(started: Instant) -> Self {
        let latency = Histogram::new_with_bounds(1, 600_000_000_000, 3).expect("sane bounds");
        Self { operations: 0, seconds: Vec::new(), latency, stolen: Vec::new(), started }
    }

    /// Notes `operations` that took since `from`; returns now.
    pub fn note(&mut self, operations: u64, from: Instant) -> Instant {
        let now = Instant::now();
        let second = (now - self.started).as_secs() as usize;
        if self.seconds.len() <= second {
            self.seconds.resize(second + 1, 0);
            self.stolen.resize(second + 1, stolen_ticks());
        }
        self.seconds[second] += operations;
        self.operations += operations;
        self.latency.saturating_record((now - from).as_nanos() as u64);
        now
    }

    pub fn merge(&mut self, other: &Self) {
        self.operations += other.operations;
        if self.seconds.len() < other.seconds.len() {
            self.seconds.resize(other.seconds.len(), 0);
        }
        if self.stolen.len() < other.stolen.len() {
            self.stolen.clone_from(&other.stolen);
        }
        for (mine, theirs) in self.seconds.iter_mut().zip(&other.seconds) {
            *mine += theirs;
        }
        let _ = self.latency.add(&other.latency);
    }

    /// The share of all cores that the hypervisor took in each second.
    fn stolen_shares(&self) -> Vec<f64> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let ticks = 100.0 * cores as f64;
        let next = self.stolen.iter().skip(1).copied().chain([stolen_ticks()]);
        self.stolen.iter().zip(next).map(|(from, to)| (to - from) as f64 / ticks).collect()
    }

    /// The slice as one JSON object.
    pub fn report(&self, elapsed: Duration, before: Usage) -> Value {
        let (after, operations) = (Usage::now(), self.operations.max(1) as f64);
        let each = |a: u64, b: u64| (a - b) as f64 / operations;
        let us = |quantile: f64| self.latency.value_at_quantile(quantile) as f64 / 1000.0;
        json!({
            "operations": self.operations,
            "seconds": elapsed.as_secs_f64(),
            "per_second": operations / elapsed.as_secs_f64(),
            "cpu_us": each(after.cpu_us, before.cpu_us),
            "read_bytes": each(after.read_bytes, before.read_bytes),
            "write_bytes": each(after.write_bytes, before.write_bytes),
            "p50_us": us(0.5), "p99_us": us(0.99), "p999_us": us(0.999), "max_us": us(1.0),
            "each_second": self.seconds,
            "stolen_each_second": self.stolen_shares(),
            "resident": resident().0, "peak_resident": resident().1,
        })
    }
}
