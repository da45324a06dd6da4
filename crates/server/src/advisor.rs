//! What a good operator would tell the owner of this server: at the start, and while it runs.
//!
//! What is always true:
//! 1. Advice is a line of the log marked `startupWarnings`, so that `getLog` and the status page show
//!    it; each piece is given once for each start.
//! 2. It says what was measured, what it costs, and which option changes it.

use crate::config::Settings;
use crate::startup::Bytes;
use history::Number;
use os::{Memory, OpenOptions, Os};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

const GIB: u64 = 1 << 30;

/// An fsync that takes longer than this is told of: a commit that waits for it is slow.
const SLOW_SYNC: Duration = Duration::from_millis(100);

/// Rows between two looks at what happened: a minute.
const LOOK: usize = 60;

/// Fsyncs in a minute below which their time says little.
const FEW_SYNCS: f64 = 5.0;

/// Pages a second from disk below which a small cache is nobody's trouble.
const FEW_MISSES: f64 = 200.0;

/// Where Linux says whether memory comes in huge pages unasked.
const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

fn tell(advice: &str) {
    tracing::warn!(target: "CONTROL", id = 5123304, startupWarning = true, "{advice}");
}

/// Tells of the machine and the options. Writes and syncs one small file in the data directory.
pub(crate) fn at_start(os: &Os, settings: &Settings, cache_size: u64, memory: Memory) {
    let space = os.vfs.space(&settings.dbpath).ok();
    let all = [
        cache(cache_size, memory, settings.direct_io),
        huge_pages(&read(os, Path::new(HUGE_PAGES)).unwrap_or_default()),
        space.and_then(|space| disk(space.total, space.available, settings.fs_redzone)),
        probe(os, &settings.dbpath).and_then(sync),
    ];
    all.iter().flatten().for_each(|advice| tell(advice));
}

fn cache(size: u64, memory: Memory, direct_io: bool) -> Option<String> {
    let usable = memory.usable();
    let (shown, all) = (Bytes(size), Bytes(usable));
    let share = if direct_io { 90 } else { 80 };
    if size > usable / 100 * share {
        return Some(format!(
            "cacheSize of {shown} leaves little of the {all} of memory to everything else: the \
             system may end the server. Half of it is the default, 80 % is much with --directio"
        ));
    }
    (size < GIB && size < usable / 8).then(|| {
        format!(
            "cacheSize of {shown} is a small part of the {all} of memory: data that does not fit is \
             read from disk again. Half of the memory is the default"
        )
    })
}

fn huge_pages(enabled: &str) -> Option<String> {
    enabled.contains("[always]").then(|| {
        format!(
            "Transparent huge pages are on for every process: memory that is given back stays \
             resident, and the server takes more than cacheSize says. Write 'madvise' to {HUGE_PAGES}"
        )
    })
}

fn disk(total: u64, available: u64, redzone_percent: u8) -> Option<String> {
    let zone = total / 100 * u64::from(redzone_percent);
    (total > 0 && available < (zone * 2).max(total / 20)).then(|| {
        format!(
            "The disk of the data directory is nearly full: {} of {} are free. Below {} \
             (--fsRedzone {redzone_percent}) writes are refused",
            Bytes(available),
            Bytes(total),
            Bytes(zone)
        )
    })
}

fn sync(time: Duration) -> Option<String> {
    (time >= SLOW_SYNC).then(|| {
        format!(
            "An fsync in the data directory took {} ms: commits that wait for the disk wait as long",
            time.as_millis()
        )
    })
}

/// How long it takes until 4 KiB are on disk; `None` where they cannot be written.
fn probe(os: &Os, folder: &Path) -> Option<Duration> {
    let path = folder.join(".fernd-sync-test");
    let file = os.vfs.open(&path, OpenOptions::create()).ok()?;
    let written = file.write_all_at(&[0; 4096], 0);
    let start = os.clock.monotonic();
    let synced = written.and_then(|()| file.sync_data());
    let time = os.clock.monotonic().saturating_sub(start);
    os.vfs.remove_file(&path).and(synced).ok().map(|()| time)
}

fn read(os: &Os, path: &Path) -> Option<String> {
    let file = os.vfs.open(path, OpenOptions::read_only()).ok()?;
    let mut bytes = [0; 256];
    let length = file.read_at(&mut bytes, 0).ok()?;
    Some(String::from_utf8_lossy(&bytes[..length]).into_owned())
}

/// Looks at the rows of the history once a minute.
pub(crate) struct Advisor {
    redzone_percent: u8,
    rows: usize,
    before: Option<AdvisorSample>,
    told: BTreeSet<&'static str>,
}

/// What the advice is drawn from.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct AdvisorSample {
    uptime_ms: f64,
    syncs: f64,
    sync_micros: f64,
    hits: f64,
    misses: f64,
    cache: f64,
    cache_limit: f64,
    disk_free: f64,
    disk_size: f64,
}

impl AdvisorSample {
    fn of(row: &[(String, Number)]) -> Self {
        let mut all = Self::default();
        for (name, number) in row {
            let place = match name.as_str() {
                "uptimeMillis" => &mut all.uptime_ms,
                "engine.FS_FSYNC_COUNT" => &mut all.syncs,
                "engine.FS_FSYNC_TIME" => &mut all.sync_micros,
                "engine.FERN_CACHE_HITS" => &mut all.hits,
                "engine.FERN_MISS_FULL" => &mut all.misses,
                "engine.CT_SIZE_CURRENT" => &mut all.cache,
                "engine.CT_SIZE_LIMIT" => &mut all.cache_limit,
                "engine.FERN_DISK_FREE" => &mut all.disk_free,
                "engine.FERN_DISK_SIZE" => &mut all.disk_size,
                _ => continue,
            };
            *place = match *number {
                Number::Whole(n) => n as f64,
                Number::Real(n) => n,
            };
        }
        all
    }
}

impl Advisor {
    pub(crate) fn new(settings: &Settings) -> Self {
        let redzone_percent = settings.fs_redzone;
        Self { redzone_percent, rows: 0, before: None, told: BTreeSet::new() }
    }

    /// Takes the row of a second; tells what the last minute teaches.
    pub(crate) fn look(&mut self, row: &[(String, Number)], service: &commands::Service) {
        self.rows += 1;
        if self.rows % LOOK == 1 {
            let now = AdvisorSample::of(row);
            for advice in self.learn(now).into_iter().chain(service.index_advice()) {
                tell(&advice);
            }
        }
    }

    fn learn(&mut self, now: AdvisorSample) -> Vec<String> {
        let before = self.before.replace(now);
        let mut all = Vec::new();
        let mut once = |kind, advice: Option<String>| {
            if let Some(advice) = advice
                && self.told.insert(kind)
            {
                all.push(advice);
            }
        };
        once("disk", disk(now.disk_size as u64, now.disk_free as u64, self.redzone_percent));
        if let Some(before) = before {
            once("sync", slow_syncs(&before, &now));
            once("cache", small_cache(&before, &now));
        }
        all
    }
}

fn slow_syncs(before: &AdvisorSample, now: &AdvisorSample) -> Option<String> {
    let (syncs, micros) = (now.syncs - before.syncs, now.sync_micros - before.sync_micros);
    (syncs >= FEW_SYNCS && micros / syncs >= SLOW_SYNC.as_micros() as f64).then(|| {
        format!(
            "The disk is slow to sync: {syncs} fsyncs of the last minute took {:.0} ms each. Commits \
             that wait for the disk wait as long",
            micros / syncs / 1000.0
        )
    })
}

fn small_cache(before: &AdvisorSample, now: &AdvisorSample) -> Option<String> {
    let seconds = (now.uptime_ms - before.uptime_ms) / 1000.0;
    let (hits, misses) = (now.hits - before.hits, now.misses - before.misses);
    let busy = seconds > 0.0 && misses / seconds >= FEW_MISSES && misses >= (hits + misses) / 5.0;
    (busy && now.cache >= now.cache_limit * 0.9).then(|| {
        format!(
            "The cache is too small for what is asked: {:.0} pages a second were read from disk in \
             the last minute, {:.0} % of those that were looked for. A greater --cacheSize, or an \
             index, helps",
            misses / seconds,
            misses * 100.0 / (hits + misses)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(gib: u64) -> Memory {
        Memory { machine: gib * GIB, cgroup: None }
    }

    #[test]
    fn caches_too_large_and_too_small_are_told() {
        assert_eq!(cache(8 * GIB, memory(16), false), None);
        assert!(cache(14 * GIB, memory(16), false).unwrap().contains("14.0 GB"));
        assert_eq!(cache(14 * GIB, memory(16), true), None);
        assert!(cache(GIB / 16, memory(16), false).unwrap().contains("64.0 MB"));
        assert_eq!(cache(GIB / 4, memory(1), false), None);
    }

    #[test]
    fn huge_pages_matter_only_when_nobody_asked_for_them() {
        assert!(huge_pages("[always] madvise never\n").is_some());
        assert_eq!(huge_pages("always [madvise] never\n"), None);
        assert_eq!(huge_pages(""), None);
    }

    #[test]
    fn a_disk_is_nearly_full_before_writes_are_refused() {
        assert_eq!(disk(100 * GIB, 30 * GIB, 5), None);
        assert!(disk(100 * GIB, 9 * GIB, 5).unwrap().contains("9.0 GB of 100.0 GB"));
        assert!(disk(100 * GIB, 4 * GIB, 0).is_some());
        assert_eq!(disk(0, 0, 5), None);
    }

    #[test]
    fn slow_disks_and_small_caches_are_told_once() {
        let mut advisor =
            Advisor { redzone_percent: 5, rows: 0, before: None, told: BTreeSet::new() };
        let mut figures =
            AdvisorSample { cache: 95.0, cache_limit: 100.0, ..AdvisorSample::default() };
        assert!(advisor.learn(figures).is_empty());
        figures.uptime_ms += 60_000.0;
        figures.syncs += 10.0;
        figures.sync_micros += 50_000.0;
        figures.hits += 100_000.0;
        figures.misses += 100.0;
        assert!(advisor.learn(figures).is_empty(), "fast enough");
        for (round, expected) in [(1, 2), (2, 0)] {
            figures.uptime_ms += 60_000.0;
            figures.syncs += 10.0;
            figures.sync_micros += 3_000_000.0;
            figures.hits += 20_000.0;
            figures.misses += 30_000.0;
            assert_eq!(advisor.learn(figures).len(), expected, "round {round}");
        }
    }
}
