//! A crash at every syscall of a workload, and at every syscall of the recovery after it.
//!
//! The workload writes down in its state what was acknowledged. `verify` recovers, asserts that
//! nothing acknowledged is missing, and may go on working (writing down what it did), so that later
//! crashes find it too.

use std::error::Error;

use os::Os;
use os::sim::{SimOs, Survival};

/// What a workload or a recovery returns where it stops early. It must be because of the crash.
pub type Failure = Box<dyn Error>;

/// Which crashes are tried.
#[derive(Clone, Debug)]
pub struct CrashPlan {
    /// One full round per seed.
    pub seeds: std::ops::Range<u64>,
    /// What may survive of unsynced changes; each is tried at each syscall.
    pub survivals: Vec<Survival>,
    /// Try every `step`th syscall only (1 = all); the offset differs from seed to seed.
    pub step: u64,
    /// Also crash at every syscall of the recovery.
    pub crash_recovery: bool,
}

impl Default for CrashPlan {
    fn default() -> Self {
        Self {
            seeds: 0..1,
            survivals: vec![Survival::Nothing, Survival::Random, Survival::Process],
            step: 1,
            crash_recovery: true,
        }
    }
}

/// What was really tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CrashReport {
    /// Syscalls of the workload, summed over seeds.
    pub syscalls: u64,
    /// Crashes in the workload.
    pub crashes: u64,
    /// Crashes in recoveries.
    pub recovery_crashes: u64,
    /// Recoveries that were verified to the end.
    pub recoveries: u64,
}

/// Runs `workload` under the simulator, crashing at every syscall, and `verify` after each crash.
///
/// Both get handles of the simulated machine and the state. Each must return the error it meets
/// when the machine crashes; an error without a crash fails the test, as does an assertion.
pub fn crash_everywhere<S: Default>(
    plan: &CrashPlan,
    workload: impl Fn(&Os, &mut S) -> Result<(), Failure>,
    verify: impl Fn(&Os, &mut S) -> Result<(), Failure>,
) -> CrashReport {
    let mut report = CrashReport::default();
    for seed in plan.seeds.clone() {
        let calls = count_syscalls(seed, &workload, &verify);
        report.syscalls += calls;
        let mut n = 1 + seed % plan.step;
        while n <= calls {
            for survival in &plan.survivals {
                let point = CrashPoint { seed, syscall: n, survival: *survival };
                one_crash(&point, plan.crash_recovery, &workload, &verify, &mut report);
            }
            n += plan.step;
        }
    }
    report
}

/// The undisturbed run, which must succeed and verify.
fn count_syscalls<S: Default>(
    seed: u64,
    workload: impl Fn(&Os, &mut S) -> Result<(), Failure>,
    verify: impl Fn(&Os, &mut S) -> Result<(), Failure>,
) -> u64 {
    let sim = SimOs::new(seed);
    let mut state = S::default();
    workload(&sim.os(), &mut state).expect("the workload succeeds without a crash");
    let calls = sim.syscalls();
    let os = sim.reboot_with(Survival::Nothing);
    verify(&os, &mut state).expect("recovery succeeds after the whole workload");
    calls
}

fn one_crash<S: Default>(
    point: &CrashPoint,
    crash_recovery: bool,
    workload: impl Fn(&Os, &mut S) -> Result<(), Failure>,
    verify: impl Fn(&Os, &mut S) -> Result<(), Failure>,
    report: &mut CrashReport,
) {
    let sim = SimOs::new(point.seed);
    let mut state = S::default();
    sim.crash_at(point.syscall);
    let result = workload(&sim.os(), &mut state);
    point.check(sim.is_crashed(), "the workload reached its crash");
    if result.is_ok() {
        // the crash hit a call whose failure the program may ignore, such as one in a destructor
        point.check(sim.is_crashed(), "only a crash may pass unseen");
    }
    report.crashes += 1;
    let mut os = sim.reboot_with(point.survival);
    for n in 1.. {
        if crash_recovery {
            sim.crash_after(n);
        }
        let result = verify(&os, &mut state);
        if !sim.is_crashed() {
            point.succeeded(result);
            break;
        }
        report.recovery_crashes += 1;
        os = sim.reboot_with(if n % 2 == 0 { point.survival } else { Survival::Random });
    }
    report.recoveries += 1;
    // what recovery left must itself survive losing everything unsynced
    let os = sim.reboot_with(Survival::Nothing);
    point.succeeded(verify(&os, &mut state));
    report.recoveries += 1;
}

/// Where a failure happened; says so when the test panics.
struct CrashPoint {
    seed: u64,
    syscall: u64,
    survival: Survival,
}

impl CrashPoint {
    fn check(&self, holds: bool, what: &str) {
        assert!(holds, "{what}: {self}");
    }

    fn succeeded(&self, result: Result<(), Failure>) {
        if let Err(e) = result {
            panic!("recovery failed without a crash: {e}: {self}");
        }
    }
}

impl std::fmt::Display for CrashPoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { seed, syscall, survival } = self;
        write!(f, "seed {seed}, crash at syscall {syscall}, survival {survival:?}")
    }
}

impl Drop for CrashPoint {
    #[allow(clippy::print_stderr, reason = "a failed assertion deep in verify must name its crash")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("crash_everywhere: {self}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use os::OpenOptions;

    use super::*;

    /// Writes a file's bytes to `/d/tmp` and renames it to `/d/f`.
    fn replace(os: &Os, content: &[u8], careful: bool) -> Result<(), Failure> {
        let (tmp, path) = (Path::new("/d/tmp"), Path::new("/d/f"));
        let options = OpenOptions { truncate: true, ..OpenOptions::create() };
        let file = os.vfs.open(tmp, options)?;
        file.write_all_at(content, 0)?;
        if careful {
            file.sync_all()?;
        }
        os.vfs.rename(tmp, path)?;
        os.vfs.sync_dir(Path::new("/d"))?;
        Ok(())
    }

    fn workload(careful: bool) -> impl Fn(&Os, &mut u8) -> Result<(), Failure> {
        move |os, acknowledged| {
            os.vfs.create_dir_all(Path::new("/d"))?;
            for version in 1..4 {
                replace(os, &[version; 600], careful)?;
                *acknowledged = version;
            }
            Ok(())
        }
    }

    fn verify(os: &Os, acknowledged: &mut u8) -> Result<(), Failure> {
        let path = Path::new("/d/f");
        if !os.vfs.exists(path)? {
            assert_eq!(*acknowledged, 0);
            return Ok(());
        }
        let file = os.vfs.open(path, OpenOptions::read_only())?;
        assert_eq!(file.len()?, 600);
        let mut bytes = [0; 600];
        file.read_exact_at(&mut bytes, 0)?;
        assert!(bytes[0] >= *acknowledged && bytes.iter().all(|b| *b == bytes[0]));
        Ok(())
    }

    #[test]
    fn careful_replacement_survives_every_crash() {
        let plan = CrashPlan { seeds: 0..3, ..CrashPlan::default() };
        let report = crash_everywhere(&plan, workload(true), verify);
        assert_eq!(report.crashes, report.syscalls * 3);
        assert!(report.recoveries >= report.crashes);
    }

    #[test]
    fn forgotten_sync_is_found() {
        let plan = CrashPlan { seeds: 0..3, ..CrashPlan::default() };
        let found = std::panic::catch_unwind(|| crash_everywhere(&plan, workload(false), verify));
        assert!(found.is_err());
    }
}
