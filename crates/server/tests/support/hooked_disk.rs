//! A server in the test's own process over the machine's disk and clock, which ask the test first.

use crate::sockets::{self, Client, Commands};
use catalog::{Catalog, CatalogOptions};
use engine::Engine;
use limits::Account;
use net::{NetOptions, NetStats, Server};
use os::{Clock, File, FilePermissions, LockGuard, OpenOptions, Os, Space, Vfs};
use serverstate::{Parts, ServerInfo, SessionRecords, SilentHost};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What a test has to say before its disk does something, and of its time.
pub(crate) trait DiskHooks: Send + Sync + 'static {
    /// A file of this name is read from this place on.
    fn before_read(&self, _name: &str, _offset: u64) {}

    /// What a file of this name has is synced; an error is the sync's.
    fn before_sync(&self, _name: &str) -> io::Result<()> {
        Ok(())
    }

    /// What the server's clock says where the machine's says this; it must not go back.
    fn monotonic(&self, machine: Duration) -> Duration {
        machine
    }
}

struct HookedClock<A> {
    inner: Arc<dyn Clock>,
    hooks: Arc<A>,
}

impl<A: DiskHooks> Clock for HookedClock<A> {
    fn monotonic(&self) -> Duration {
        self.hooks.monotonic(self.inner.monotonic())
    }

    fn wall_ms(&self) -> i64 {
        self.inner.wall_ms()
    }

    fn sleep(&self, time: Duration) {
        self.inner.sleep(time);
    }
}

struct HookedDisk<A> {
    inner: Arc<dyn Vfs>,
    hooks: Arc<A>,
}

struct HookedFile<A> {
    inner: Arc<dyn File>,
    hooks: Arc<A>,
    name: String,
}

impl<A: DiskHooks> Vfs for HookedDisk<A> {
    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        let inner = self.inner.open(path, options)?;
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        Ok(Arc::new(HookedFile { inner, hooks: Arc::clone(&self.hooks), name }))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir_all(path)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        self.inner.list_dir(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.inner.exists(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.sync_dir(path)
    }

    fn lock(&self, path: &Path) -> io::Result<LockGuard> {
        self.inner.lock(path)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        self.inner.space(path)
    }
}

impl<A: DiskHooks> File for HookedFile<A> {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.hooks.before_read(&self.name, offset);
        self.inner.read_at(buf, offset)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.inner.write_all_at(buf, offset)
    }

    fn begin_writeback(&self, offset: u64, len: u64) {
        self.inner.begin_writeback(offset, len);
    }

    fn permissions(&self) -> io::Result<FilePermissions> {
        self.inner.permissions()
    }

    fn sync_data(&self) -> io::Result<()> {
        self.hooks.before_sync(&self.name)?;
        self.inner.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.inner.sync_all()
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.allocate(offset, len)
    }

    fn punch_hole(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.punch_hole(offset, len)
    }
}

/// The server.
pub(crate) struct Served {
    pub(crate) engine: Engine,
    pub(crate) stats: Arc<NetStats>,
    server: Server<Commands>,
    port: u16,
    longest_wait: Duration,
}

impl Served {
    /// Starts one over a directory. An answer that takes longer than `longest_wait` fails the test.
    pub(crate) fn start(
        directory: &Path,
        hooks: &Arc<impl DiskHooks>,
        permits: usize,
        longest_wait: Duration,
    ) -> Self {
        let real = Os::real();
        let vfs = Arc::new(HookedDisk { inner: Arc::clone(&real.vfs), hooks: Arc::clone(hooks) });
        let clock =
            Arc::new(HookedClock { inner: Arc::clone(&real.clock), hooks: Arc::clone(hooks) });
        let os = Os { vfs, clock, ..real };
        let registry = Arc::new(telemetry::Registry::new());
        let engine = Engine::open(os.clone(), registry, engine::Options::new(directory)).unwrap();
        let options = CatalogOptions::new(os.clone(), directory.join("tmp"));
        let catalog = Catalog::open(engine.clone(), options).unwrap();
        let service = commands::Service::new(Parts {
            os: os.clone(),
            session_records: SessionRecords::open(&catalog).unwrap(),
            catalog,
            info: ServerInfo::default(),
            host: Arc::new(SilentHost),
            memory: Account::new(1 << 30),
            follows: false,
        });
        let stats = Arc::new(NetStats::default());
        let options = NetOptions { permits, ..NetOptions::default() };
        let (server, port) = sockets::serve(&os, &service, options, &stats);
        Self { engine, stats, server, port, longest_wait }
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.port, self.longest_wait)
    }

    /// Stops it, and waits for requests that run; the engine is the caller's to close.
    pub(crate) fn stop_serving(self, wait: Duration) -> Engine {
        self.server.stop(wait);
        self.engine
    }

    pub(crate) fn stop(self) {
        let wait = self.longest_wait;
        self.stop_serving(wait).close().unwrap();
    }
}
