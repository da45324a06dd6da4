//! The handle: opening, closing, and everything that is not a transaction.

use crate::adjustable::Adjustable;
use crate::backup::Backup;
use crate::directory_lock::lock_directory;
use crate::directory_lock::{INCREMENTAL_TEXT, UNFINISHED_BACKUP, VERSION_FILE, VERSION_TEXT};
use crate::environment::{Environment, Opened};
use crate::error::Cause;
use crate::handle::{EngineHandle, PerThreadHandles};
use crate::history::History;
use crate::keys::{DirectoryKeys, Encryption, open_keys};
use crate::live::TxnInfo;
use crate::settings::{Background, Options, PlantedBug};
use crate::snapshot::Snapshot;
use crate::snapshots::Pinned;
use crate::stats::Stats;
use crate::txn::EngineTxn;
use crate::{
    Complete, DictionaryId, DictionaryOptions, Error, Result, TxnOptions, Visible, recovery,
};
use blockfile::BlockFile;
use cachetable::CacheTable;
use crypt::{KeyRing, MasterKey};
use ftree::ReadPool;
use locktree::{LockInfo, LockTable, Refusal, Waiting};
use os::{LockGuard, Os};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use telemetry::Registry;
use wal::{Wal, WalOptions};

/// Each of the log's two buffers takes at most one part in so many of the cache's bound, and has so many
/// bytes in any case.
const LOG_BUFFER_SHARE: u64 = 32;
const LEAST_LOG_BUFFER: usize = 1 << 20;

/// Threads that read pages ahead, or several at once; started when there is something to read. A
/// disk answers four requests in about the time of one.
const READERS: usize = 4;

/// The storage engine; a cheap handle. When the last handle goes without [`Engine::close`], the
/// background stops and the log is flushed; the next open recovers.
#[derive(Clone)]
pub struct Engine(Arc<Handle>);

struct Handle {
    environment: Arc<Environment>,
    handles: PerThreadHandles,
}

/// One dictionary in figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DictionaryStats {
    /// Versions stored; about the number of keys where merges have caught up.
    pub entries: u64,
    /// Bytes of the keys and values of these versions, uncompressed.
    pub data_bytes: u64,
    /// Bytes in the data file.
    pub stored_bytes: u64,
    /// Bytes in memory that are not in the data file yet.
    pub memtable_bytes: u64,
    /// The shape of what is written to it.
    pub options: DictionaryOptions,
}

impl Engine {
    /// Opens a data directory, made where missing, and recovers what a crash left. May take as
    /// long as replaying the log does.
    pub fn open(os: Os, registry: Arc<Registry>, options: Options) -> Result<Self> {
        for dir in [&options.dir, &options.log_dir(), &options.tmp_dir()] {
            os.vfs.create_dir_all(dir).map_err(|e| io_error("create", dir, e))?;
        }
        let total = |dir: &Path| os.vfs.space(dir).map_or(u64::MAX, |space| space.total);
        let disks = (total(&options.dir), total(&options.log_dir()));
        let options = options.resolve(disks.0, disks.1)?;
        let guard = lock_directory(&os, &options.dir)?;
        let is_marked = check_version(&os, &options.dir)?;
        check_data_file(&os, &options, is_marked)?;
        let keys = open_keys(&os, &options)?;
        let environment = assemble(os, registry, options, keys, guard)?;
        let handles = PerThreadHandles::new(&environment);
        Ok(Self(Arc::new(Handle { environment, handles })))
    }

    /// Starts a transaction whose snapshot is now.
    pub fn begin(&self, options: TxnOptions) -> EngineTxn {
        EngineTxn::begin(self.0.handles.mine(), options)
    }

    /// Starts a transaction that reads the newest complete state, whether readers see it yet or not: of a
    /// single statement that writes. What it answers may be told once that state is visible
    /// ([`Engine::wait_visible`]).
    pub fn begin_newest(&self, options: TxnOptions) -> EngineTxn {
        EngineTxn::begin_newest(self.0.handles.mine(), options)
    }

    pub(crate) fn handle(&self) -> &Arc<EngineHandle> {
        self.0.handles.mine()
    }

    /// Starts a transaction that reads the state of `snapshot`, without the own writes of a view.
    pub fn begin_at(&self, options: TxnOptions, snapshot: &Snapshot) -> EngineTxn {
        EngineTxn::begin_at(options, snapshot.pinned.clone())
    }

    /// Starts a serializable transaction: it reads the newest state and locks what it reads, gaps
    /// between keys included, so that nothing of it changes before it ends. `lock_timeout` is that
    /// of [`TxnOptions`]. Fails with `LockTimeout` where a transaction that has written before does
    /// not end in that time.
    pub fn begin_serializable(&self, lock_timeout: Option<Duration>) -> Result<EngineTxn> {
        EngineTxn::begin_serializable(self.0.handles.mine(), lock_timeout)
    }

    /// A read-only view of everything committed by now; cheap to clone, keeps its versions alive.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.0.handles.mine())
    }

    /// A read-only view of everything committed by `timestamp`; `None` where that state is not
    /// kept ([`Engine::retain_states_since`]), or is yet to come.
    pub fn snapshot_at(&self, timestamp: crate::Timestamp) -> Option<Snapshot> {
        let pinned = Pinned::past(self.0.handles.mine(), timestamp.0)?;
        Some(Snapshot::of(&pinned, None, None))
    }

    /// Retains every state from `since` on, so that [`Engine::snapshot_at`] can read it; with `None` only
    /// those with a live snapshot. A state that was released cannot be read again. Costs the space of
    /// every version since then.
    pub fn retain_states_since(&self, since: Option<crate::Timestamp>) {
        self.environment().snapshots.retain_states_since(since.map(|timestamp| timestamp.0));
    }

    /// The newest commit that readers see.
    pub fn visible(&self) -> Visible {
        self.environment().snapshots.visible()
    }

    /// The newest commit such that it and all before it are in their trees, whether readers see them or
    /// not.
    pub fn complete(&self) -> Complete {
        self.environment().snapshots.complete()
    }

    /// Tells the engine that every commit up to here is on a majority of the set: readers see it from now on,
    /// or as soon as it is complete. Only for [`Showing::Committed`](crate::Showing::Committed).
    ///
    /// # Errors
    /// The engine shows every complete commit.
    pub fn advance_commit_point(&self, timestamp: crate::Timestamp) -> Result<()> {
        self.environment().advance_commit_point(timestamp.0)
    }

    /// As [`Engine::advance_commit_point`], of all commits up to the end of an entry; so checkpoints know that entries
    /// without commits are committed as well.
    ///
    /// # Errors
    /// The entry is not known, or the engine shows every complete commit.
    pub fn commit_entries_up_to(&self, index: u64) -> Result<()> {
        self.environment().commit_entries_up_to(index, None)
    }

    /// The history, where one is kept.
    pub fn history(&self) -> Option<Arc<History>> {
        self.environment().history.clone()
    }

    /// Whether a history is kept. Costs nothing.
    pub fn keeps_history(&self) -> bool {
        self.environment().history.is_some()
    }

    /// Fails where the engine has stopped or was closed: nothing will be written any more.
    pub fn check_running(&self) -> Result<()> {
        self.environment().health.check_running()
    }

    /// Makes every commit so far durable (`j: true`, `fsync`).
    pub fn sync(&self) -> Result<()> {
        let environment = self.environment();
        environment.health.check_running()?;
        environment.sync_log_to(environment.wal().next_lsn())
    }

    /// Writes a checkpoint and returns when it is complete.
    pub fn checkpoint(&self) -> Result<()> {
        self.environment().checkpoints.write()
    }

    /// Stops background work, drains memory, writes a checkpoint and closes the files. Later
    /// calls fail. Where the engine has stopped, only the files are closed.
    pub fn close(&self) -> Result<()> {
        let environment = self.environment();
        environment.stop_threads();
        if environment.health.is_closed() {
            return Ok(());
        }
        let written = if environment.health.stopped().is_some() {
            Ok(())
        } else {
            // Draining may find no room; what was acknowledged is then at least in the log.
            let synced = environment.sync_log_to(environment.wal().next_lsn());
            // A checkpoint that succeeds has synced the log itself.
            let written = environment.schedule.drain_all();
            let written = written.and_then(|()| environment.checkpoints.write());
            written.map_err(|error| synced.err().unwrap_or(error))
        };
        if let Some(archiver) = &environment.archiver {
            archiver.copy();
            archiver.close();
        }
        environment.health.close();
        drop(environment.directory_lock.lock().take());
        written
    }

    /// One unit of background work; false where none is due. For [`Background::Manual`].
    pub fn step(&self) -> Result<bool> {
        self.environment().step()
    }

    /// How the archive of the log is, where there is one.
    pub fn log_archive(&self) -> Option<crate::ArchiveStatus> {
        self.environment().archiver.as_ref().map(|archiver| archiver.status())
    }

    /// Everything at a glance.
    pub fn stats(&self) -> Stats {
        self.environment().stats()
    }

    /// The bound of memory, and what each part of the engine holds. Reads a few counters.
    pub fn memory(&self) -> (u64, cachetable::Parts) {
        let cache = &self.environment().cache;
        (cache.capacity(), cache.parts())
    }

    /// The dictionaries there are now, ids ascending.
    pub fn dictionaries(&self) -> Vec<(DictionaryId, DictionaryOptions)> {
        let all = self.environment().directory.all();
        let live = all.iter().filter(|dictionary| dictionary.dropped().is_none());
        live.map(|dictionary| (DictionaryId(dictionary.id), dictionary.options())).collect()
    }

    /// Sizes of one dictionary. Reads nothing.
    pub fn dictionary_stats(&self, dictionary: DictionaryId) -> Result<DictionaryStats> {
        let found = self.environment().directory.newest(dictionary)?;
        let stats = found.tree.stats();
        Ok(DictionaryStats {
            entries: stats.memory_entries + stats.disk_entries,
            data_bytes: stats.key_bytes + stats.value_bytes + stats.memory_data_bytes,
            stored_bytes: stats.stored_bytes,
            memtable_bytes: stats.memory_bytes,
            options: found.options(),
        })
    }

    /// Checks one dictionary's tree against its own rules. Reads every page of it.
    pub fn verify(&self, dictionary: DictionaryId) -> Result<()> {
        self.environment().directory.newest(dictionary)?;
        self.environment().verify(Some(dictionary))
    }

    /// Checks every dictionary's tree.
    pub fn verify_all(&self) -> Result<()> {
        self.environment().verify(None)
    }

    /// The transactions that are open now.
    pub fn live_transactions(&self) -> Vec<TxnInfo> {
        self.environment().live.list()
    }

    /// Lets a transaction fail at its next step, also where it waits for a lock. False where
    /// there is none of this id.
    pub fn kill_transaction(&self, id: u64) -> bool {
        let environment = self.environment();
        let Some(live) = environment.live.find(id) else { return false };
        environment.locks.interrupt(&live.interrupt);
        true
    }

    /// Lock requests that wait, and up to `held` locks that are held.
    pub fn lock_requests(&self, held: usize) -> Vec<LockInfo> {
        let locks = &self.environment().locks;
        let mut found = locks.waiting();
        found.extend(locks.held(held));
        found
    }

    /// From now on `tell` hears of every lock request that is refused, on the thread that asked.
    /// Only the first call counts.
    pub fn on_lock_refusal(&self, tell: impl Fn(&Refusal) + Send + Sync + 'static) {
        self.environment().locks.on_refusal(tell);
    }

    /// From now on whoever waits for a lock or for room asks `may_wait`, many times a second and on
    /// its own thread, and fails with `Interrupted` soon after the answer is no. Only the first call
    /// counts.
    pub fn ask_while_waiting(&self, may_wait: impl Fn() -> bool + Send + Sync + 'static) {
        let may_wait: Arc<dyn Fn() -> bool + Send + Sync> = Arc::new(may_wait);
        let environment = self.environment();
        environment.may_wait.ask(Arc::clone(&may_wait));
        environment.locks.ask_while_waiting(move || may_wait());
    }

    /// Stops it, as an error of the disk does: nothing is acknowledged any more, and who waits for a commit is
    /// told so. The next start finds out what became of those.
    pub fn stop(&self, cause: &str) {
        let _told = self.environment().health.stop(cause);
    }

    /// What it says of its keys; `None` where what is stored is not encrypted.
    pub fn encryption(&self) -> Option<Encryption> {
        self.environment().keys.as_ref().map(DirectoryKeys::status)
    }

    /// Wraps the data keys with another master key; from the return on, that one alone opens the directory. Waits for
    /// the disk.
    ///
    /// # Errors
    /// It is not encrypted, its files are being copied, and what the disk says, after which the engine is stopped: what
    /// is stored is wrapped by one of the two.
    pub fn rotate_master_key(&self, new: MasterKey) -> Result<Encryption> {
        self.change_keys(|keys, os, dir| keys.rotate_master(os, dir, new))
    }

    /// Adds a data key: segments of the data file and roots of checkpoints that are written from here on are encrypted
    /// with it, and the log from the next start on. Merging and compacting writes what there is already again, by and by. Waits
    /// for the disk.
    ///
    /// # Errors
    /// As [`Engine::rotate_master_key`], and where there are as many data keys as there can be.
    pub fn rotate_data_key(&self) -> Result<Encryption> {
        self.change_keys(DirectoryKeys::rotate_data_key)
    }

    /// A log of the layers above in a directory of that name beside the data file, encrypted with the directory's keys
    /// where it is encrypted: found, and not read yet.
    ///
    /// # Errors
    /// What the disk says.
    pub fn log_beside(&self, name: &str) -> Result<wal::Replay> {
        let environment = self.environment();
        let (directory, options) = (environment.options.dir.join(name), WalOptions::default());
        // Its figures are not those of the redo log.
        let metrics = wal::Metrics::new(&Registry::new());
        let found = Wal::open(&environment.os, &directory, options, metrics);
        let keys = environment.keys.as_ref().map(DirectoryKeys::ring);
        found.and_then(|found| found.with_keys(keys)).map_err(Error::from)
    }

    fn change_keys(
        &self,
        change: impl FnOnce(&DirectoryKeys, &Os, &Path) -> Result<()>,
    ) -> Result<Encryption> {
        let environment = self.environment();
        environment.health.check_running()?;
        let Some(keys) = &environment.keys else {
            return Err(Error::Keys("the data directory is not encrypted".to_owned()));
        };
        let changed = change(keys, &environment.os, &environment.options.dir);
        environment.health.check(changed)?;
        Ok(keys.status())
    }

    /// Begins a hot backup: writes a checkpoint and holds its files.
    pub fn backup(&self) -> Result<Backup> {
        Backup::begin(self.environment())
    }

    /// The settings that may be changed while it runs.
    pub fn adjustable(&self) -> &Adjustable {
        &self.environment().adjustable
    }

    /// Whether pages stay in memory compressed when their frames go.
    pub fn compresses_before_eviction(&self) -> bool {
        self.environment().cache.keeps_compressed()
    }

    /// Changes that, for pages that are read from now on.
    pub fn set_compresses_before_eviction(&self, compressing: bool) {
        self.environment().cache.set_keeps_compressed(compressing);
    }

    /// Lends so many bytes of the cache's bound to somebody else: pages go to make room for them.
    pub fn lend_memory(&self, bytes: u64) {
        self.environment().cache.report_held(cachetable::MemoryKind::Lent, bytes);
    }

    /// Counts so many bytes, which whoever uses the engine keeps about its dictionaries, into the cache's
    /// bound; the cache makes room for them.
    pub fn set_catalog_bytes(&self, bytes: u64) {
        self.environment().cache.report_held(cachetable::MemoryKind::Catalog, bytes);
    }

    /// Cuts free space off the data file; says how many bytes the filesystem got back.
    pub fn shrink(&self) -> Result<u64> {
        let environment = self.environment();
        environment.health.check_running()?;
        environment.check(environment.blocks.shrink(1024))
    }

    /// What the engine was opened with, defaults filled in.
    pub fn options(&self) -> &Options {
        &self.environment().options
    }

    /// Where the engine counts.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.environment().registry
    }

    pub(crate) fn environment(&self) -> &Arc<Environment> {
        &self.0.environment
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Engine({})", self.environment().options.dir.display())
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let environment = &self.environment;
        environment.stop_threads();
        if environment.health.close() {
            if environment.health.stopped().is_none()
                && let Err(error) = environment.sync_log_to(environment.wal().next_lsn())
            {
                tracing::error!(%error, "the log could not be flushed at the end");
            }
            if let Some(archiver) = &environment.archiver {
                archiver.copy();
                archiver.close();
            }
            drop(environment.directory_lock.lock().take());
        }
    }
}

/// Records are compressed from so many bytes on where everything is tiny.
const TINY_COMPRESS_FROM: usize = 64;

/// Puts the parts together and recovers.
fn assemble(
    os: Os,
    registry: Arc<Registry>,
    options: Options,
    keys: Option<Arc<KeyRing>>,
    guard: LockGuard,
) -> Result<Arc<Environment>> {
    let mut file_options =
        blockfile::Options { direct: options.directio, keys: keys.clone(), ..Default::default() };
    if options.sizes.tiny_trees {
        // Nodes are as large as leaves there.
        file_options.reserve_one_in = 1;
    }
    let (blocks, image) =
        BlockFile::open(&os, &options.dir, file_options, blockfile::Metrics::new(&registry))?;
    mark_version(&os, &options.dir)?;
    let segment_bytes = options.sizes.log_segment_bytes;
    let mut log_options = WalOptions { segment_bytes, ..WalOptions::default() };
    // Between two checkpoints the log grows by its cap, so this many segments are recycled.
    let going_round = options.sizes.log_cap / log_options.segment_bytes + 2;
    log_options.recycle = (going_round as usize).clamp(log_options.recycle, 32);
    let most = options.cache_size / LOG_BUFFER_SHARE;
    let most = usize::try_from(most).unwrap_or(usize::MAX).max(LEAST_LOG_BUFFER);
    log_options.buffer_bytes = log_options.buffer_bytes.min(most);
    if !options.compress_log {
        log_options.compress_from = wal::NEVER_COMPRESS;
    } else if options.sizes.tiny_trees {
        // Records are short there.
        log_options.compress_from = TINY_COMPRESS_FROM;
    }
    let log = Wal::open(&os, &options.log_dir(), log_options, wal::Metrics::new(&registry))?;
    let log = log.with_keys(keys)?;
    let lock_memory = options.locktree_max_memory.unwrap_or(options.cache_size / 10);
    let capacity = match options.sizes.frame_bytes {
        0 => options.cache_size,
        bytes => bytes + options.sizes.write_budget / 2,
    };
    let cache = Arc::new(CacheTable::new(capacity));
    cache.set_keeps_compressed(options.compress_before_eviction.unwrap_or(options.directio));
    let readers = match options.background {
        Background::Threads => ReadPool::with_threads(Arc::clone(&os.spawner), READERS),
        _ => ReadPool::none(),
    };
    let planted = match options.sizes.planted {
        Some(PlantedBug::Tombstones(bug)) => Some(bug),
        _ => None,
    };
    let trees = ftree::Context::with_readers(
        blocks.clone(),
        Arc::clone(&cache),
        readers,
        ftree::KeyHasher::new(&*os.entropy),
        options.updates.clone(),
        (options.record_part.unwrap_or(ftree::no_parts), planted),
    );
    trees.merge_limiter.allow((options.sizes.flushers / 2).max(1) as u32);
    let locks = LockTable::new(
        Arc::clone(&os.clock),
        locktree::Options {
            max_bytes: lock_memory,
            seed: os.entropy.next_u64(),
            waiting: match options.background {
                Background::Manual => Waiting::Alone,
                _ => Waiting::Threads,
            },
            ..Default::default()
        },
    );
    let segment_bytes = log_options.segment_bytes;
    let opened = Opened { blocks, cache, trees, locks, segment_bytes, guard };
    let environment = Environment::new(os, registry, options, opened);
    environment.free_space.measure();
    match recover(&environment, image.as_ref(), log) {
        Ok(recovered) => *environment.counters.recovered.lock() = recovered,
        Err(error) => {
            environment.stop_threads();
            return Err(error);
        }
    }
    Ok(environment)
}

fn recover(
    environment: &Arc<Environment>,
    image: Option<&blockfile::CheckpointImage>,
    log: wal::Replay,
) -> Result<recovery::Recovered> {
    let threads = environment.options.background == Background::Threads;
    if threads {
        environment.start_flushers()?;
    }
    let recovered = recovery::recover(environment, image, log)?;
    if let Some(archiver) = &environment.archiver {
        archiver.open(environment.blocks.file_id())?;
    }
    // On a full disk nothing is written before that is known.
    environment.free_space.measure();
    if threads {
        environment.start_threads()?;
    }
    if recovered.is_new_member {
        // From now on tails may be overwritten: each start is to look for that first.
        environment.checkpoints.write()?;
    }
    Ok(recovered)
}

/// Refuses a directory of another format; says whether it has one.
fn check_version(os: &Os, dir: &Path) -> Result<bool> {
    let unfinished = dir.join(UNFINISHED_BACKUP);
    if os.vfs.exists(&unfinished).map_err(|e| io_error("look for", &unfinished, e))? {
        return Err(Error::InvalidOption(format!(
            "{} is a backup that was not written to its end ({UNFINISHED_BACKUP} is in it): it holds nothing, write \
             another one",
            dir.display()
        )));
    }
    let path = dir.join(VERSION_FILE);
    let failed = |what, e| io_error(what, &path, e);
    if os.vfs.exists(&path).map_err(|e| failed("look for", e))? {
        let file =
            os.vfs.open(&path, os::OpenOptions::read_only()).map_err(|e| failed("open", e))?;
        let mut text = [0; 64];
        let len = file.read_at(&mut text, 0).map_err(|e| failed("read", e))?;
        if &text[..len] == INCREMENTAL_TEXT.as_bytes() {
            return Err(Error::InvalidOption(format!(
                "{} is an incremental backup: `fern restore` puts a data directory together of it and the backups that \
                 it was built on",
                dir.display()
            )));
        }
        if &text[..len] != VERSION_TEXT.as_bytes() {
            let found = String::from_utf8_lossy(&text[..len]).trim().to_owned();
            let text = format!("{} is of a format not known here: {found:?}", path.display());
            return Err(Error::InvalidOption(text));
        }
        return Ok(true);
    }
    Ok(false)
}

/// A directory that was used has a data file: without it the rest is no database, and a new one beside
/// it would hide what was lost.
fn check_data_file(os: &Os, options: &Options, is_marked: bool) -> Result<()> {
    let path = options.dir.join(&blockfile::Options::default().name);
    if os.vfs.exists(&path).map_err(|e| io_error("look for", &path, e))? {
        return Ok(());
    }
    let log_dir = options.log_dir();
    let names = os.vfs.list_dir(&log_dir).map_err(|e| io_error("list", &log_dir, e))?;
    let is_segment = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.and_then(wal::format::segment_number).is_some()
    };
    let there = match names.into_iter().find(is_segment) {
        Some(segment) => segment,
        None if is_marked => options.dir.join(VERSION_FILE),
        None => return Ok(()),
    };
    let text = format!(
        "the data file {} is missing, and {} is there: bring it back from a backup, or begin again in \
         an empty directory",
        path.display(),
        there.display()
    );
    Err(Error::Corruption(text.into()))
}

/// Marks a new directory. The data file is there by now, so that a marked directory without it has
/// lost it.
fn mark_version(os: &Os, dir: &Path) -> Result<()> {
    let path = dir.join(VERSION_FILE);
    let failed = |what, e| io_error(what, &path, e);
    if os.vfs.exists(&path).map_err(|e| failed("look for", e))? {
        return Ok(());
    }
    let draft = dir.join(format!("{VERSION_FILE}.new"));
    let options = os::OpenOptions { truncate: true, ..os::OpenOptions::create() };
    let file = os.vfs.open(&draft, options).map_err(|e| failed("create", e))?;
    file.write_all_at(VERSION_TEXT.as_bytes(), 0).map_err(|e| failed("write", e))?;
    file.sync_all().map_err(|e| failed("sync", e))?;
    os.vfs.rename(&draft, &path).map_err(|e| failed("rename to", e))?;
    os.vfs.sync_dir(dir).map_err(|e| failed("sync the directory of", e))
}

fn io_error(operation: &'static str, path: &Path, source: std::io::Error) -> Error {
    let is_full = source.kind() == std::io::ErrorKind::StorageFull;
    let cause = Cause::File { operation, file: path.to_path_buf(), source };
    if is_full { Error::NoSpace(cause) } else { Error::Io(cause) }
}
