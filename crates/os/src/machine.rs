//! What the machine has and what this process uses of it.
//!
//! Everything here reads `/proc` and `/sys`; where a file is missing the answer says "unknown"
//! (`None` or 0), never a guess.

use std::fs::read_to_string;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Memory of the machine and the limit of the control group this process is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Bytes the machine has.
    pub machine: u64,
    /// Bytes the control group (v1 or v2, the tightest on the way up) allows, where limited.
    pub cgroup: Option<u64>,
}

impl Memory {
    /// What this process can really have.
    pub fn usable(&self) -> u64 {
        self.cgroup.map_or(self.machine, |limit| limit.min(self.machine))
    }
}

/// Reads the memory limits.
pub fn memory() -> Memory {
    let machine = read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| meminfo_total(&text))
        .unwrap_or_else(|| u64::from(rustix::param::page_size() as u32) * physical_pages());
    Memory { machine, cgroup: cgroup_limit(Path::new("/sys/fs/cgroup")) }
}

fn physical_pages() -> u64 {
    // SAFETY: sysconf takes a constant and touches no memory of ours.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) }).unwrap_or(0)
}

fn meminfo_total(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
    line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The tightest limit from this process's group up to the root, v2 first, then v1.
fn cgroup_limit(root: &Path) -> Option<u64> {
    let groups = read_to_string("/proc/self/cgroup").ok()?;
    let mut tightest: Option<u64> = None;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let (base, file) = if controllers.is_empty() {
            (root.to_path_buf(), "memory.max")
        } else if controllers.split(',').any(|name| name == "memory") {
            (root.join("memory"), "memory.limit_in_bytes")
        } else {
            continue;
        };
        for limit in limits_up_from(&base, path, file) {
            tightest = Some(tightest.map_or(limit, |old| old.min(limit)));
        }
    }
    tightest
}

fn limits_up_from(base: &Path, group: &str, file: &str) -> Vec<u64> {
    let mut path: PathBuf = base.join(group.trim_start_matches('/'));
    let mut found = Vec::new();
    loop {
        if let Some(limit) = read_to_string(path.join(file)).ok().and_then(|t| parse_limit(&t)) {
            found.push(limit);
        }
        if path == base || !path.pop() || !path.starts_with(base) {
            return found;
        }
    }
}

/// "max" and v1's huge "unlimited" figure both mean no limit.
fn parse_limit(text: &str) -> Option<u64> {
    text.trim().parse::<u64>().ok().filter(|limit| *limit < 1 << 60)
}

/// Bytes of this process in memory; 0 where unknown.
pub fn resident_bytes() -> u64 {
    let pages = read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split_ascii_whitespace().nth(1)?.parse::<u64>().ok())
        .unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// What this process used of the machine so far, all threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Processor time in its own code.
    pub user: Duration,
    /// Processor time in the kernel.
    pub system: Duration,
    /// The most bytes it had in memory.
    pub max_resident_bytes: u64,
    /// Page faults that had to read the disk.
    pub page_faults: u64,
    /// Page faults that had not.
    pub page_reclaims: u64,
    /// Blocks of [`USAGE_BLOCK_BYTES`] read from the disk.
    pub input_blocks: u64,
    /// Blocks of [`USAGE_BLOCK_BYTES`] written, or to be written by the kernel.
    pub output_blocks: u64,
    /// Times a thread waited.
    pub voluntary_context_switches: u64,
    /// Times a thread was made to wait.
    pub involuntary_context_switches: u64,
}

/// The kernel's unit of [`Usage::input_blocks`] and [`Usage::output_blocks`].
pub const USAGE_BLOCK_BYTES: u64 = 512;

/// What this process used so far.
pub fn usage() -> Usage {
    let usage = getrusage();
    let count = |number: libc::c_long| u64::try_from(number).unwrap_or(0);
    Usage {
        user: duration(usage.ru_utime),
        system: duration(usage.ru_stime),
        max_resident_bytes: count(usage.ru_maxrss) << 10,
        page_faults: count(usage.ru_majflt),
        page_reclaims: count(usage.ru_minflt),
        input_blocks: count(usage.ru_inblock),
        output_blocks: count(usage.ru_oublock),
        voluntary_context_switches: count(usage.ru_nvcsw),
        involuntary_context_switches: count(usage.ru_nivcsw),
    }
}

fn getrusage() -> libc::rusage {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is valid for one rusage, and all-zero is a valid rusage already.
    unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    }
}

/// What [`crate::ThreadNumber::processor_time`] says.
pub(crate) fn processor_time_of(thread: libc::pid_t) -> Duration {
    // The kernel's number for "processor time of this thread" (CPUCLOCK_PERTHREAD | CPUCLOCK_SCHED).
    let clock: libc::clockid_t = (!thread << 3) | 6;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid for one timespec.
    let told = unsafe { libc::clock_gettime(clock, &raw mut time) };
    if told != 0 {
        return Duration::ZERO;
    }
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn duration(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_usec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}

/// Processor time, of all processors together, that the hypervisor has given to others while
/// somebody here wanted it, since the machine started. Zero where there is no hypervisor.
pub fn stolen() -> Duration {
    let stat = read_to_string("/proc/stat").unwrap_or_default();
    Duration::from_millis(stolen_ticks(&stat) * TICK_MS)
}

/// The kernel counts processor time in hundredths of a second, wherever Rust runs.
const TICK_MS: u64 = 10;

/// The eighth figure of the line that sums up all processors (`man 5 proc_stat`).
fn stolen_ticks(stat: &str) -> u64 {
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu "));
    all.and_then(|all| all.split_whitespace().nth(7)?.parse().ok()).unwrap_or(0)
}

/// Processors this process may run on, at least 1.
pub fn cpu_count() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Raises the soft limit of open files to the hard limit and says what it is now.
///
/// # Errors
/// What the kernel says.
pub fn raise_open_file_limit() -> io::Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum;
    if limit.current != wanted {
        setrlimit(Resource::Nofile, Rlimit { current: wanted, maximum: wanted })?;
    }
    Ok(wanted.unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_line_is_in_kibibytes() {
        assert_eq!(meminfo_total("Foo: 1 kB\nMemTotal:   2048 kB\n"), Some(2048 * 1024));
        assert_eq!(meminfo_total("nothing"), None);
    }

    #[test]
    fn unlimited_groups_are_no_limit() {
        assert_eq!(parse_limit("max\n"), None);
        assert_eq!(parse_limit("9223372036854771712\n"), None);
        assert_eq!(parse_limit("268435456\n"), Some(268435456));
    }

    #[test]
    fn stolen_time_is_the_eighth_figure() {
        let stat = "cpu  30 1 20 900 5 0 2 77 0 0\ncpu0 15 0 10 450 2 0 1 38 0 0\n";
        assert_eq!(stolen_ticks(stat), 77);
        assert_eq!(stolen_ticks("cpu  30 1 20 900\n"), 0);
    }

    #[test]
    fn this_process_has_memory_and_used_time() {
        let memory = memory();
        assert!(memory.machine > 16 << 20);
        assert!(memory.usable() <= memory.machine);
        assert!(resident_bytes() > 100_000 && resident_bytes() < memory.machine);
        assert!(cpu_count() >= 1);
        let before = usage();
        assert!(before.max_resident_bytes > 100_000 && before.page_reclaims > 0);
        assert!(usage().user >= before.user);
        assert!(raise_open_file_limit().unwrap() >= 64);
    }
}
