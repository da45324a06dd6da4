//! The peers, through the C interface of `peers/peer.h`.

use super::{Conflict, Session, Settings, Store};
use anyhow::{Context, Result, bail};
use std::ffi::{CString, c_char, c_int, c_long, c_void};
use std::path::Path;
use std::sync::Arc;

type Handle = *mut c_void;

#[derive(Clone, Copy)]
struct Functions {
    open: unsafe extern "C" fn(*const c_char, u64, c_int) -> Handle,
    close: unsafe extern "C" fn(Handle),
    flush_log: unsafe extern "C" fn(Handle) -> c_int,
    settle: unsafe extern "C" fn(Handle) -> c_int,
    session: unsafe extern "C" fn(Handle) -> Handle,
    session_close: unsafe extern "C" fn(Handle),
    begin: unsafe extern "C" fn(Handle) -> c_int,
    put: unsafe extern "C" fn(Handle, c_int, *const u8, usize, *const u8, usize) -> c_int,
    commit: unsafe extern "C" fn(Handle) -> c_int,
    abort: unsafe extern "C" fn(Handle),
    get: unsafe extern "C" fn(Handle, c_int, *const u8, usize, *mut u8, usize) -> c_long,
    scan: unsafe extern "C" fn(Handle, c_int, *const u8, usize, c_long, *mut u64) -> c_long,
    fetch: unsafe extern "C" fn(Handle, *const u8, usize, c_long, *mut u8, usize) -> c_long,
}

macro_rules! peer {
    ($module:ident) => {
        mod $module {
            use super::*;
            unsafe extern "C" {
                #[link_name = concat!(stringify!($module), "_open")]
                pub fn open(dir: *const c_char, cache: u64, direct: c_int) -> Handle;
                #[link_name = concat!(stringify!($module), "_close")]
                pub fn close(of: Handle);
                #[link_name = concat!(stringify!($module), "_flush_log")]
                pub fn flush_log(of: Handle) -> c_int;
                #[link_name = concat!(stringify!($module), "_settle")]
                pub fn settle(of: Handle) -> c_int;
                #[link_name = concat!(stringify!($module), "_session")]
                pub fn session(of: Handle) -> Handle;
                #[link_name = concat!(stringify!($module), "_session_close")]
                pub fn session_close(of: Handle);
                #[link_name = concat!(stringify!($module), "_begin")]
                pub fn begin(of: Handle) -> c_int;
                #[link_name = concat!(stringify!($module), "_put")]
                pub fn put(
                    of: Handle,
                    table: c_int,
                    key: *const u8,
                    key_len: usize,
                    value: *const u8,
                    value_len: usize,
                ) -> c_int;
                #[link_name = concat!(stringify!($module), "_commit")]
                pub fn commit(of: Handle) -> c_int;
                #[link_name = concat!(stringify!($module), "_abort")]
                pub fn abort(of: Handle);
                #[link_name = concat!(stringify!($module), "_get")]
                pub fn get(
                    of: Handle,
                    table: c_int,
                    key: *const u8,
                    key_len: usize,
                    into: *mut u8,
                    room: usize,
                ) -> c_long;
                #[link_name = concat!(stringify!($module), "_scan")]
                pub fn scan(
                    of: Handle,
                    table: c_int,
                    from: *const u8,
                    from_len: usize,
                    limit: c_long,
                    bytes: *mut u64,
                ) -> c_long;
                #[link_name = concat!(stringify!($module), "_fetch")]
                pub fn fetch(
                    of: Handle,
                    from: *const u8,
                    from_len: usize,
                    limit: c_long,
                    into: *mut u8,
                    room: usize,
                ) -> c_long;
            }
            pub const FUNCTIONS: Functions = Functions {
                open,
                close,
                flush_log,
                settle,
                session,
                session_close,
                begin,
                put,
                commit,
                abort,
                get,
                scan,
                fetch,
            };
        }
    };
}

peer!(rocks);
#[cfg(feature = "peers")]
peer!(wired);
#[cfg(feature = "peers")]
peer!(lmdb);

unsafe extern "C" {
    fn rocks_add(of: Handle, table: c_int, key: *const u8, key_len: usize, amount: u64) -> c_int;
}

type Add = unsafe extern "C" fn(Handle, c_int, *const u8, usize, u64) -> c_int;

struct Peer {
    handle: Handle,
    functions: Functions,
    /// Where it has a merge operator.
    add: Option<Add>,
}

// SAFETY: the engines behind the handle are made for use from many threads; a session is used by one
// thread at a time (`&mut self`).
unsafe impl Send for Peer {}
// SAFETY: as above.
unsafe impl Sync for Peer {}

struct PeerSession {
    handle: Handle,
    of: Arc<Peer>,
}

// SAFETY: a session moves between threads whole and is used by one at a time.
unsafe impl Send for PeerSession {}

pub fn open(name: &str, directory: &Path, settings: &Settings) -> Result<Arc<dyn Store>> {
    let functions = match name {
        "rocksdb" => rocks::FUNCTIONS,
        #[cfg(feature = "peers")]
        "wiredtiger" => wired::FUNCTIONS,
        #[cfg(feature = "peers")]
        "lmdb" => lmdb::FUNCTIONS,
        _ => bail!("no engine `{name}`"),
    };
    let add = (name == "rocksdb").then_some(rocks_add as Add);
    let path = CString::new(directory.to_str().context("a path in UTF-8")?)?;
    // SAFETY: the path is a C string that outlives the call.
    let handle = unsafe {
        (functions.open)(path.as_ptr(), settings.cache_bytes, c_int::from(settings.direct))
    };
    if handle.is_null() {
        bail!("{name} did not open");
    }
    Ok(Arc::new(Peer { handle, functions, add }))
}

/// `PEER_CONFLICT` of `peer.h`.
const CONFLICT: c_int = 1000;

fn check(code: c_int, what: &str) -> Result<()> {
    if code == CONFLICT {
        return Err(Conflict.into());
    }
    if code != 0 {
        bail!("{what} failed with {code}");
    }
    Ok(())
}

impl Store for Peer {
    fn session(self: Arc<Self>) -> Result<Box<dyn Session>> {
        // SAFETY: the handle is open until `close`, which the worker calls last.
        let handle = unsafe { (self.functions.session)(self.handle) };
        if handle.is_null() {
            bail!("no session");
        }
        Ok(Box::new(PeerSession { handle, of: self }))
    }

    fn flush_log(&self) -> Result<()> {
        // SAFETY: as in `session`.
        check(unsafe { (self.functions.flush_log)(self.handle) }, "flush_log")
    }

    fn settle(&self) -> Result<()> {
        // SAFETY: as in `session`.
        check(unsafe { (self.functions.settle)(self.handle) }, "settle")
    }

    fn close(&self) -> Result<()> {
        // SAFETY: the worker has dropped every session.
        unsafe { (self.functions.close)(self.handle) };
        Ok(())
    }
}

impl Drop for PeerSession {
    fn drop(&mut self) {
        // SAFETY: the session is open, and closed only here.
        unsafe { (self.of.functions.session_close)(self.handle) }
    }
}

impl Session for PeerSession {
    fn begin(&mut self) -> Result<()> {
        // SAFETY: the session is open.
        check(unsafe { (self.of.functions.begin)(self.handle) }, "begin")
    }

    fn put(&mut self, table: usize, key: &[u8], value: &[u8]) -> Result<()> {
        // SAFETY: the slices outlive the call; the session is open.
        let code = unsafe {
            (self.of.functions.put)(
                self.handle,
                table as c_int,
                key.as_ptr(),
                key.len(),
                value.as_ptr(),
                value.len(),
            )
        };
        check(code, "put")
    }

    fn add(&mut self, table: usize, key: &[u8], amount: u64) -> Result<()> {
        let add = self.of.add.context("this engine has no merge operator")?;
        // SAFETY: the slice outlives the call; the session is open.
        let code = unsafe { add(self.handle, table as c_int, key.as_ptr(), key.len(), amount) };
        check(code, "add")
    }

    fn commit(&mut self) -> Result<()> {
        // SAFETY: the session is open.
        check(unsafe { (self.of.functions.commit)(self.handle) }, "commit")
    }

    fn abort(&mut self) {
        // SAFETY: the session is open and has begun a transaction.
        unsafe { (self.of.functions.abort)(self.handle) }
    }

    fn get(&mut self, table: usize, key: &[u8], into: &mut Vec<u8>) -> Result<bool> {
        into.resize(4096, 0);
        // SAFETY: the engine writes at most `into.len()` bytes.
        let found = unsafe {
            (self.of.functions.get)(
                self.handle,
                table as c_int,
                key.as_ptr(),
                key.len(),
                into.as_mut_ptr(),
                into.len(),
            )
        };
        into.truncate(found.max(0) as usize);
        Ok(found >= 0)
    }

    fn scan(&mut self, table: usize, from: &[u8], limit: u64) -> Result<(u64, u64)> {
        let (limit, mut bytes) = (c_long::try_from(limit).unwrap_or(c_long::MAX), 0u64);
        // SAFETY: the slice outlives the call; the session is open.
        let entries = unsafe {
            (self.of.functions.scan)(
                self.handle,
                table as c_int,
                from.as_ptr(),
                from.len(),
                limit,
                &raw mut bytes,
            )
        };
        if entries < 0 {
            bail!("scan failed");
        }
        Ok((entries as u64, bytes))
    }

    fn fetch(&mut self, from: &[u8], limit: u64, into: &mut Vec<u8>) -> Result<u64> {
        into.resize(4096, 0);
        // SAFETY: the engine writes at most `into.len()` bytes.
        let rows = unsafe {
            (self.of.functions.fetch)(
                self.handle,
                from.as_ptr(),
                from.len(),
                limit as c_long,
                into.as_mut_ptr(),
                into.len(),
            )
        };
        if rows < 0 {
            bail!("an index entry without row");
        }
        Ok(rows as u64)
    }
}
