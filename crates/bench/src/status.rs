//! What a server says of itself: CPU, memory, cache, disk, checkpoints.
//!
//! Always true: a figure that the server does not tell is absent, never a guess.

use mongodb::Database;
use mongodb::bson::{Bson, Document, doc};
use os::USAGE_BLOCK_BYTES;
use serde::Serialize;

/// The figures of a moment; counters since the server's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Status {
    /// Processor time, user and system, in microseconds.
    pub(crate) cpu_us: Option<u64>,
    pub(crate) resident_bytes: Option<u64>,
    pub(crate) cache_bytes: Option<u64>,
    pub(crate) cache_limit_bytes: Option<u64>,
    /// Pages that were not in the cache.
    pub(crate) cache_misses: Option<u64>,
    /// Read from the disk, by the whole process.
    pub(crate) read_bytes: Option<u64>,
    /// Written to the disk, by the whole process.
    pub(crate) written_bytes: Option<u64>,
    pub(crate) checkpoints: Option<u64>,
    /// What the experiments' database takes on disk.
    pub(crate) disk_bytes: Option<u64>,
    /// Threads of the process, where it runs on this machine.
    pub(crate) threads: Option<u64>,
}

/// Where a server's process is looked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Process {
    /// As the user says, for what the server does not tell.
    pub(crate) pid: Option<u32>,
    /// The server's address is of this machine: the process is the one whose number it tells.
    pub(crate) is_here: bool,
}

/// Names of servers' processes. In a container a server tells another number than this machine knows it by, and
/// another program may have that one here.
const PROGRAMS: [&str; 2] = ["fernd", "mongod"];

impl Status {
    /// Asks the server; where it does not tell, its process is looked at.
    pub(crate) async fn read(admin: &Database, process: Process) -> mongodb::error::Result<Self> {
        let status = admin.run_command(doc! { "serverStatus": 1, "metrics": 0 }).await?;
        let told = Self::from_document(&status);
        let told = process.pid.map_or(told, |pid| told.or(Self::from_process(pid)));
        let own = number(&status, &["pid"]).and_then(|pid| u32::try_from(pid).ok());
        Ok(own.filter(|pid| process.is_here && is_server(*pid)).map_or(told, |pid| told.finer(pid)))
    }

    /// Asks for the size of the database.
    pub(crate) async fn with_disk(mut self, data: &Database) -> Self {
        // A server that does not know `dbStats` is asked in vain, and has no size.
        if let Ok(stats) = data.run_command(doc! { "dbStats": 1 }).await {
            let sum = number(&stats, &["storageSize"]).zip(number(&stats, &["indexSize"]));
            self.disk_bytes =
                number(&stats, &["totalSize"]).or(sum.map(|(data, index)| data + index));
        }
        self
    }

    fn from_document(status: &Document) -> Self {
        let first = |places: &[&[&str]]| places.iter().find_map(|place| number(status, place));
        let user = first(&[&["extra_info", "user_time_us"]]);
        let system = first(&[&["extra_info", "system_time_us"]]);
        Self {
            cpu_us: user.zip(system).map(|(user, system)| user + system),
            resident_bytes: first(&[&["mem", "resident"]]).map(|mib| mib << 20),
            cache_bytes: first(&[
                &["ft", "cachetable", "size", "current"],
                &["wiredTiger", "cache", "bytes currently in the cache"],
            ]),
            cache_limit_bytes: first(&[
                &["ft", "cachetable", "size", "limit"],
                &["wiredTiger", "cache", "maximum bytes configured"],
            ]),
            cache_misses: first(&[
                &["ft", "cachetable", "miss", "count"],
                &["wiredTiger", "cache", "pages read into cache"],
            ]),
            read_bytes: first(&[&["extra_info", "input_blocks"]])
                .map(|blocks| blocks * USAGE_BLOCK_BYTES),
            written_bytes: first(&[&["extra_info", "output_blocks"]])
                .map(|blocks| blocks * USAGE_BLOCK_BYTES),
            checkpoints: first(&[
                &["ft", "checkpoint", "count"],
                &["wiredTiger", "transaction", "transaction checkpoints"],
                &["wiredTiger", "checkpoint", "total succeed number of checkpoints"],
            ]),
            disk_bytes: None,
            threads: None,
        }
    }

    /// With what only the process tells: its threads, and its memory in less than megabytes.
    fn finer(self, pid: u32) -> Self {
        let seen = Self::from_process(pid);
        Self {
            threads: seen.threads,
            resident_bytes: seen.resident_bytes.or(self.resident_bytes),
            ..self
        }
    }

    fn or(self, other: Self) -> Self {
        Self {
            cpu_us: self.cpu_us.or(other.cpu_us),
            resident_bytes: self.resident_bytes.or(other.resident_bytes),
            read_bytes: self.read_bytes.or(other.read_bytes),
            written_bytes: self.written_bytes.or(other.written_bytes),
            threads: self.threads.or(other.threads),
            ..self
        }
    }

    /// What Linux knows of a process of this machine.
    fn from_process(pid: u32) -> Self {
        let file =
            |name| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let (stat, status, io) = (file("stat"), file("status"), file("io"));
        // the name, in parentheses, may hold spaces
        let fields: Vec<&str> =
            stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
        let line = |text: &str, key: &str| {
            let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
            rest.split_whitespace().next()?.parse::<u64>().ok()
        };
        Self {
            cpu_us: ticks(11).zip(ticks(12)).map(|(user, system)| (user + system) * 10_000),
            resident_bytes: line(&status, "VmRSS:").map(|kib| kib << 10),
            read_bytes: line(&io, "read_bytes:"),
            written_bytes: line(&io, "write_bytes:"),
            threads: line(&status, "Threads:"),
            ..Self::default()
        }
    }
}

/// Whether a process of this machine is a server.
fn is_server(pid: u32) -> bool {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    PROGRAMS.contains(&name.trim())
}

/// The number at a place, whichever of BSON's kinds it is.
pub(crate) fn number(document: &Document, place: &[&str]) -> Option<u64> {
    let (last, way) = place.split_last()?;
    let inner = way.iter().try_fold(document, |at, name| at.get_document(name).ok())?;
    match inner.get(last)? {
        Bson::Int32(number) => u64::try_from(*number).ok(),
        Bson::Int64(number) => u64::try_from(*number).ok(),
        Bson::Double(number) if *number >= 0.0 => Some(*number as u64),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_either_server() {
        let ours = doc! {
            "extra_info": { "user_time_us": 5_i64, "system_time_us": 6_i64, "output_blocks": 2 },
            "mem": { "resident": 3 },
            "ft": { "cachetable": { "size": { "current": 7.0 } }, "checkpoint": { "count": 1_i64 } },
        };
        let status = Status::from_document(&ours);
        assert_eq!((status.cpu_us, status.written_bytes), (Some(11), Some(1024)));
        assert_eq!((status.resident_bytes, status.cache_bytes), (Some(3 << 20), Some(7)));
        assert_eq!((status.checkpoints, status.read_bytes), (Some(1), None));
        let mongod = doc! { "wiredTiger": { "cache": { "bytes currently in the cache": 8_i64 } } };
        assert_eq!(Status::from_document(&mongod).cache_bytes, Some(8));
    }

    #[test]
    fn a_process_of_this_machine_has_figures() {
        let us = Status::from_process(std::process::id());
        assert!(us.cpu_us.is_some() && us.resident_bytes.is_some_and(|bytes| bytes > 100_000));
        assert!(us.threads.is_some_and(|threads| threads > 0));
        assert!(!is_server(std::process::id()), "these tests are no server");
        assert_eq!(Status::from_process(u32::MAX), Status::default());
    }
}
