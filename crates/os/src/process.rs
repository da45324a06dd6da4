//! The process itself: going to the background, and signals as ordinary calls on a thread.

use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::clock::Clock;
use crate::spawn::{JoinHandle, Spawner};

/// From here on what the process makes is for its user alone, whatever the shell's umask was, unless
/// permissions are given by name.
pub fn keep_new_files_private() {
    let _before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
}

/// From here on a crash leaves no core file of this process, and no other process of its user reads its memory, for
/// both would show the keys that it holds.
///
/// # Errors
/// Where the system does not let it.
pub fn keep_memory_private() -> io::Result<()> {
    use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// What a program writes to its standard output until it ends well, at most so many bytes and within a time. No shell
/// is between: the words are the program and its arguments. What it writes to standard error is seen by whoever sees
/// this process's.
///
/// # Errors
/// It cannot be started, ends with a failure, writes more, or takes longer, for which it is killed.
pub fn output_of(
    clock: &dyn Clock,
    words: &[String],
    most_bytes: usize,
    time: Duration,
) -> io::Result<Vec<u8>> {
    let (program, arguments) =
        words.split_first().ok_or_else(|| io::Error::other("there is no program to run"))?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let outcome = read_all(&mut child, most_bytes, clock, clock.monotonic() + time);
    if outcome.is_err() {
        // One that has ended by itself is past killing.
        let _may_have_ended = child.kill();
        // Nobody looks at how it ended.
        let _reaped = child.wait();
    }
    outcome
}

fn read_all(
    child: &mut Child,
    most_bytes: usize,
    clock: &dyn Clock,
    until: Duration,
) -> io::Result<Vec<u8>> {
    let late = || io::Error::new(io::ErrorKind::TimedOut, "the program took too long");
    let left =
        || until.checked_sub(clock.monotonic()).filter(|left| !left.is_zero()).ok_or_else(late);
    let mut output = child.stdout.take().ok_or_else(|| io::Error::other("it has no output"))?;
    // Never made longer, so that what was read stands nowhere else in memory.
    let mut bytes = vec![0; most_bytes + 1];
    let mut length = 0;
    loop {
        let left = left()?;
        let wait = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut watched = [PollFd::new(&output, PollFlags::IN)];
        match rustix::event::poll(&mut watched, Some(&wait)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        match output.read(&mut bytes[length..])? {
            0 => break,
            count => length += count,
        }
        if length > most_bytes {
            bytes.fill(0);
            return Err(io::Error::other(format!("it wrote more than {most_bytes} bytes")));
        }
    }
    loop {
        if let Some(status) = child.try_wait()? {
            if !status.success() {
                return Err(io::Error::other(format!("it ended with {status}")));
            }
            bytes.truncate(length);
            return Ok(bytes);
        }
        clock.sleep(left()?.min(Duration::from_millis(5)));
    }
}

/// The environment variable by which a program knows that it has executed itself again.
const STARTED_AGAIN: &str = "FERND_STARTED_AGAIN";

/// Replaces this process by a new run of its program, with the same arguments (`execve`). All
/// threads end at once and no destructor runs, so the caller must have flushed everything. Returns
/// only where that fails, and says why.
pub fn re_exec() -> io::Error {
    use std::os::unix::process::CommandExt;
    let own = std::env::current_exe().ok().filter(|path| path.exists());
    // Where its file was replaced or removed meanwhile, the program is there still.
    let program = own.unwrap_or_else(|| "/proc/self/exe".into());
    let mut words = std::env::args_os();
    let mut command = Command::new(program);
    if let Some(name) = words.next() {
        command.arg0(name);
    }
    command.args(words).env(STARTED_AGAIN, "1").exec()
}

/// Whether this run of the program was started by [`re_exec`].
pub fn was_re_executed() -> bool {
    std::env::var_os(STARTED_AGAIN).is_some()
}

/// A signal the server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: shut down cleanly.
    Terminate,
    /// SIGINT: Ctrl-C.
    Interrupt,
    /// SIGHUP: the terminal is gone.
    HangUp,
    /// SIGUSR1: rotate the log.
    User1,
    /// SIGUSR2: load the files of TLS again.
    User2,
}

const SIGNALS: [(libc::c_int, Signal); 5] = [
    (libc::SIGTERM, Signal::Terminate),
    (libc::SIGINT, Signal::Interrupt),
    (libc::SIGHUP, Signal::HangUp),
    (libc::SIGUSR1, Signal::User1),
    (libc::SIGUSR2, Signal::User2),
];

/// Delivers SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGUSR2 as calls of `handler` on a thread of its own.
///
/// Call it before any other thread starts: the signals are blocked in the calling thread, and
/// threads inherit that. The thread runs as long as the process.
///
/// # Errors
/// Where the mask cannot be set or the thread not started.
pub fn on_signals(
    spawner: &dyn Spawner,
    handler: impl Fn(Signal) + Send + 'static,
) -> io::Result<JoinHandle> {
    let set = block_signals()?;
    spawner.spawn("signals", Box::new(move || wait_for_signals(&set, handler)))
}

fn block_signals() -> io::Result<libc::sigset_t> {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: `set` is valid memory for a sigset_t and sigemptyset initialises it before use.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for (number, _) in SIGNALS {
            libc::sigaddset(set.as_mut_ptr(), number);
        }
        let set = set.assume_init();
        match libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) {
            0 => Ok(set),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

fn wait_for_signals(set: &libc::sigset_t, handler: impl Fn(Signal)) {
    loop {
        let mut number = 0;
        // SAFETY: both pointers are valid for the call.
        if unsafe { libc::sigwait(set, &raw mut number) } != 0 {
            continue;
        }
        if let Some((_, signal)) = SIGNALS.iter().find(|(n, _)| *n == number) {
            handler(*signal);
        }
    }
}

/// The background process's side of [`daemonize`].
#[derive(Debug)]
pub struct Daemon {
    to_parent: OwnedFd,
}

/// Splits the process: the caller's shell gets its prompt back when the background process calls
/// [`Daemon::ready`] (exit code 0) or dies before (exit code 1). Returns only in the background
/// process, which is the leader of a new session. Call it before any thread starts.
///
/// # Errors
/// Where the kernel gives no pipe or process.
pub fn daemonize() -> io::Result<Daemon> {
    let (from_child, to_parent) = pipe()?;
    // SAFETY: the process has one thread here (the contract above), so the child may go on.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(from_child);
            // SAFETY: setsid has no arguments; a fresh child is never a group leader.
            if unsafe { libc::setsid() } == -1 {
                return Err(io::Error::last_os_error());
            }
            Ok(Daemon { to_parent })
        }
        _ => {
            drop(to_parent);
            let mut byte = 0_u8;
            // SAFETY: one byte of valid memory; the descriptor is open.
            let got = unsafe {
                libc::read(from_child.as_raw_fd(), (&raw mut byte).cast::<libc::c_void>(), 1)
            };
            std::process::exit(i32::from(got != 1));
        }
    }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for the two descriptors, which we own when the call succeeds.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) == -1 {
            return Err(io::Error::last_os_error());
        }
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

impl Daemon {
    /// Lets the waiting parent go and points standard input, output and errors at `/dev/null`.
    ///
    /// # Errors
    /// Where `/dev/null` cannot be opened.
    pub fn ready(self) -> io::Result<()> {
        let null = rustix::fs::open(
            "/dev/null",
            rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        )?;
        for standard in 0..=2 {
            // SAFETY: dup2 onto a standard descriptor; `null` is open.
            if unsafe { libc::dup2(null.as_raw_fd(), standard) } == -1 {
                return Err(io::Error::last_os_error());
            }
        }
        let byte = 1_u8;
        // SAFETY: one byte of valid memory; the descriptor is open. A parent that is gone already
        // is no error, so the result is not looked at.
        let _sent = unsafe {
            libc::write(self.to_parent.as_raw_fd(), (&raw const byte).cast::<libc::c_void>(), 1)
        };
        Ok(())
    }
}
