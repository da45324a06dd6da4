//! The machine itself behind the traits: Linux files, clocks, randomness, threads.
//!
//! The only file of the workspace that may ask the standard library for the time.

mod files;
mod ring;

pub use files::RealVfs;

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::clock::Clock;
use crate::entropy::Entropy;
use crate::spawn::{Job, JoinHandle, Spawner};

/// The machine's clocks.
#[derive(Debug)]
pub struct RealClock {
    start: Timespec,
}

impl RealClock {
    /// A clock whose monotonic time starts now.
    pub fn start() -> Self {
        Self { start: clock_gettime(ClockId::Monotonic) }
    }
}

impl Clock for RealClock {
    fn monotonic(&self) -> Duration {
        // Asked twice by each request: the standard library's way takes twice the instructions.
        let now = clock_gettime(ClockId::Monotonic);
        let seconds = now.tv_sec - self.start.tv_sec;
        let nanos = now.tv_nsec - self.start.tv_nsec;
        let (seconds, nanos) =
            if nanos < 0 { (seconds - 1, nanos + 1_000_000_000) } else { (seconds, nanos) };
        Duration::new(seconds as u64, nanos as u32)
    }

    #[allow(clippy::disallowed_methods, reason = "the one place that asks")]
    fn wall_ms(&self) -> i64 {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_millis()).unwrap_or(i64::MAX),
            Err(before) => -i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX),
        }
    }

    fn sleep(&self, time: Duration) {
        crate::about_to_wait();
        std::thread::sleep(time);
    }
}

/// The kernel's random numbers.
#[derive(Debug)]
pub struct RealEntropy;

impl Entropy for RealEntropy {
    fn fill(&self, mut buf: &mut [u8]) {
        while !buf.is_empty() {
            // SAFETY: the pointer and length describe `buf`, which is ours to write.
            let got = unsafe { libc::getrandom(buf.as_mut_ptr().cast(), buf.len(), 0) };
            // A negative result is an interrupted call: the kernel knows no other error for valid
            // memory and no flags, once the system has booted.
            if let Ok(got) = usize::try_from(got) {
                buf = &mut buf[got..];
            }
        }
    }
}

/// The machine's threads.
#[derive(Debug)]
pub struct RealSpawner;

impl Spawner for RealSpawner {
    fn spawn_with_stack(
        &self,
        name: &str,
        stack_bytes: Option<usize>,
        job: Job,
    ) -> io::Result<JoinHandle> {
        let mut builder = std::thread::Builder::new().name(name.to_owned());
        if let Some(bytes) = stack_bytes {
            builder = builder.stack_size(bytes);
        }
        builder.spawn(job).map(JoinHandle::new)
    }
}
