//! The test command: its steps in order, each with the time it took.

use crate::drivers::{self, Build};
use crate::run::{cargo, root, run, target};
use crate::{bench, curves, dependencies, instructions, manual, tidy, tools};
use anyhow::{Result, bail};
use std::fs::File;
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

type Step = (&'static str, fn() -> Result<()>);

/// Steps one after the other, cheapest complaint first: what builds, and what uses all processors.
const FIRST: &[Step] = &[
    ("fmt", || run(&mut cargo(&["fmt", "--all", "--check"]))),
    ("tidy", tidy::tidy),
    // One second: over `cargo metadata`, nothing is built.
    ("dependencies", dependencies::dependencies),
    ("clippy", clippy),
    ("unit", unit),
    ("sim", || sim(&words("--seeds 200 --known"))),
    ("interleavings", interleavings),
    // Under callgrind, so whatever else the machine does.
    ("instructions", instructions::test),
];

/// Steps that mostly wait, for elections, timers, starts and clients: they go on beside [`BUSY`].
const WAITING: &[Step] = &[
    ("replica-set-auth", || drivers::script(Build::WithTests, "replica_set_auth_test.py", &[])),
    // A minute and a half: each kind of trouble by itself, then all kinds in turns.
    ("replica-set-faults", || drivers::script(Build::WithTests, "replica_set_faults_test.py", &[])),
    ("replica-set", || drivers::script(Build::WithTests, "replica_set_test.py", &[])),
    ("replica-set-tls", || with_certificates("replica_set_tls_test.py")),
    ("member-kinds", || drivers::script(Build::WithTests, "member_kinds_test.py", &[])),
    // Less than a minute each: ten failovers under streams, restarts of all members, transactions larger than the cache.
    ("replica-set-streams", || {
        drivers::script(Build::WithTests, "replica_set_streams_test.py", &[])
    }),
    ("replica-set-restarts", || {
        drivers::script(Build::WithTests, "replica_set_restarts_test.py", &[])
    }),
    ("large-transactions", || drivers::script(Build::WithTests, "large_transactions_test.py", &[])),
    ("replica-set-waits", || drivers::script(Build::WithTests, "replica_set_waits_test.py", &[])),
    // Half a minute: step-downs at moments at which they are awkward.
    ("replica-set-hand-over", || {
        drivers::script(Build::WithTests, "replica_set_hand_over_test.py", &[])
    }),
    ("write-concern-time", || drivers::script(Build::WithTests, "write_concern_time_test.py", &[])),
    // Mongoose and Spring Data while the primary of three is killed.
    ("odm-failover", || with_npm("odm_failover_test.py", drivers::MODULES, &[])),
    ("change-streams", || drivers::script(Build::WithTests, "change_streams_test.py", &[])),
    // Half a minute: each operation twice, with waits.
    ("interrupts", || drivers::script(Build::WithTests, "interrupt_test.py", &[])),
    ("primary-keys", || drivers::script(Build::WithTests, "primary_key_test.py", &[])),
    ("range-deletes", || drivers::script(Build::WithTests, "range_deletes_test.py", &[])),
    ("migrate", || drivers::script(Build::WithTests, "migrate_test.py", &[])),
    // Half a minute: writes whose moments are restored.
    ("restore", || drivers::script(Build::WithTests, "restore_test.py", &[])),
    // Servers that are started again and again.
    ("full-disk", || drivers::script(Build::WithTests, "full_disk.py", &words("--short"))),
    ("kill9", || drivers::script(Build::WithTests, "kill9.py", &words("--rounds 5"))),
    ("kill9-ddl", || {
        drivers::script(Build::WithTests, "kill9_ddl.py", &words("--rounds 1 --mix 5"))
    }),
    ("auth", || drivers::script(Build::WithTests, "auth_test.py", &[])),
    ("tls", || with_certificates("tls_test.py")),
];

/// Steps of one server and its clients. Those that share a folder or a port stand behind each other at the beginning:
/// the lanes that help take from the end.
const BUSY: &[Step] = &[
    ("mongosh", || drivers::mongosh(Build::WithTests)),
    // Its helpers for replica sets.
    ("mongosh-set", || with_npm("mongosh_set_test.py", drivers::MONGOSH, &[])),
    ("mongosh-secured", || with_npm("mongosh_session.py", drivers::MONGOSH, SECURED)),
    // What a new operator does wrong, in mongosh's words.
    ("operator", || with_npm("operator_test.py", drivers::MONGOSH, &[])),
    ("node", || with_npm("node_test.py", drivers::MODULES, &[])),
    ("node-secured", || with_npm("node_test.py", drivers::MODULES, SECURED)),
    ("legacy-java", || drivers::script(Build::WithTests, "legacy_java_test.py", &[])),
    ("legacy-java-secured", || {
        drivers::script(Build::WithTests, "legacy_java_test.py", &words("--auth --tls"))
    }),
    // The oplog, as programs of TokuMX's time read it, and as Debezium reads changes.
    ("oplog-tail", || drivers::script(Build::WithTests, "oplog_tail_test.py", &[])),
    ("debezium", || drivers::script(Build::WithTests, "debezium_test.py", &[])),
    ("ycsb", || drivers::script(Build::WithTests, "ycsb.py", &words("--short"))),
    ("ycsb-secured", || {
        drivers::script(Build::WithTests, "ycsb.py", &words("--short --workloads ac --auth --tls"))
    }),
    ("mongo-tools", || drivers::script(Build::WithTests, "mongo_tools_test.py", &[])),
    ("mongo-tools-secured", || {
        let arguments = words("--auth --tls --only a_dump_with_users_restores");
        drivers::script(Build::WithTests, "mongo_tools_test.py", &arguments)
    }),
    ("pymongo-replica-set", || {
        let arguments = words("--replica-set --percent 95");
        drivers::script(Build::WithTests, "pymongo_suite.py", &arguments)
    }),
    ("pymongo", || drivers::script(Build::WithTests, "pymongo_suite.py", &words("--at-least 440"))),
    // By name: logins, TLS, client-side timeouts, sessions, monitoring.
    ("pymongo-secured", || {
        let arguments = words("--files security --auth --tls --at-most-failed 0 --at-least 140");
        drivers::script(Build::WithTests, "pymongo_suite.py", &arguments)
    }),
    ("server", || drivers::script(Build::WithTests, "server_test.py", &[])),
    ("status", || drivers::script(Build::WithTests, "status_test.py", &[])),
    ("others-unmoved", || drivers::script(Build::WithTests, "others_unmoved_test.py", &[])),
    ("secrets", || with_certificates("secrets_test.py")),
    ("client-encryption", || with_certificates("client_encryption_test.py")),
    ("backup", || drivers::script(Build::WithTests, "backup_test.py", &[])),
    ("audit", || drivers::script(Build::WithTests, "audit_test.py", &[])),
    ("tokumx", || drivers::script(Build::WithTests, "tokumx_test.py", &[])),
    ("tokumx-shell", || with_npm("tokumx_shell_test.py", drivers::MONGOSH, &[])),
    ("partitions", || drivers::script(Build::WithTests, "partitions_test.py", &[])),
    ("loader", || drivers::script(Build::WithTests, "loader_test.py", &[])),
    // Half a minute: each kind of file, what is broken in them, kills.
    ("import", || drivers::script(Build::WithTests, "import_test.py", &[])),
    ("fast-updates", || drivers::script(Build::WithTests, "fast_updates_test.py", &[])),
    ("encryption", || drivers::script(Build::WithTests, "encryption_test.py", &[])),
    ("exposure", || drivers::script(Build::WithTests, "exposure_test.py", &[])),
    ("dashboard", || drivers::dashboard(Build::WithTests)),
    ("manual", || manual::examples(Build::WithTests)),
];

/// Steps that have the machine for themselves again: load, as many connections as there may be.
const LAST: &[Step] = &[
    ("hostile-load", || {
        drivers::script(Build::WithTests, "hostile_load.py", &words("--seconds 15 --silent 8000"))
    }),
    ("histories", || {
        drivers::isolation(&words("histories --transactions 100000 --kill-every 5"))?;
        drivers::isolation(&words("histories --transactions 2000 --way none"))
    }),
    ("bank", || drivers::isolation(&words("bank --seconds 15 --kill-every 4"))),
    ("contention", || drivers::isolation(&words("contention --seconds 5 --replica-set"))),
    ("bench", bench::short),
    ("curves", curves::short),
    ("iibench", || {
        drivers::script(Build::WithTests, "iibench.py", &words("--docs 300000 --cache-size 64M"))
    }),
    ("connections", || {
        drivers::script(Build::WithTests, "connections.py", &words("--open 10000 --active 1000"))
    }),
    ("connections-tls", || {
        let arguments = words("--tls --open 3000 --active 300 --seconds 2");
        drivers::script(Build::WithTests, "connections.py", &arguments)
    }),
];

/// Users and TLS, as the scripts take it.
const SECURED: &[&str] = &["--auth", "--tls"];

/// A script for something that npm installs.
fn with_npm(name: &str, what: &str, more: &[&str]) -> Result<()> {
    drivers::with_npm(Build::WithTests, name, what, more)
}

/// A script that makes certificates.
fn with_certificates(name: &str) -> Result<()> {
    tools::require(&[("openssl", "to make certificates")])?;
    drivers::script(Build::WithTests, name, &[])
}

/// Runs all steps, or the one named.
pub(crate) fn test(only: Option<&str>) -> Result<()> {
    let all = || [FIRST, WAITING, BUSY, LAST].into_iter().flatten();
    let named = only.map(|only| (only, all().find(|(name, _)| *name == only)));
    if let Some((name, None)) = named {
        let names: Vec<_> = all().map(|(step, _)| *step).collect();
        bail!("no step `{name}`; there are: {}", names.join(", "));
    }
    tools::require(&[
        ("cc", "to build zstd, jemalloc and PCRE2 (a C compiler)"),
        ("python3", "for the driver tests"),
        ("node", "for the mongosh tests"),
        ("npm", "for the mongosh tests"),
        ("valgrind", "to count instructions"),
    ])?;
    if let Some((_, Some(step))) = named {
        take(step)?;
        println!("\nsteps: 1 passed, 0 failed");
        return Ok(());
    }
    FIRST.iter().try_for_each(take)?;
    // What steps install they install once.
    tools::python()?;
    tools::npm()?;
    beside_each_other([WAITING, BUSY])?;
    LAST.iter().try_for_each(take)?;
    println!("\nsteps: {} passed, 0 failed", all().count());
    Ok(())
}

fn take((name, step): &Step) -> Result<()> {
    eprintln!("\n=== {name}");
    let started = now();
    step().map_err(|error| error.context(format!("step `{name}` failed")))?;
    eprintln!("=== {name} took {} s", started.elapsed().as_secs());
    Ok(())
}

/// The steps of each list in order, the lists at a time; whose list is done helps with the others. Each step is a
/// process of its own, whose output is told when it ends. After one that fails no other begins.
fn beside_each_other<const LISTS: usize>(lists: [&'static [Step]; LISTS]) -> Result<()> {
    let (failed, left, started) = (OnceLock::new(), Mutex::new(lists), now());
    let next = |lane| {
        let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
        next_of(&mut *left, lane)
    };
    let walk = &|lane| {
        while failed.get().is_none()
            && let Some((name, _)) = next(lane)
        {
            match take_apart(name) {
                Ok(output) => eprint!("{output}"),
                Err(error) => drop(failed.set(error)),
            }
        }
    };
    std::thread::scope(|scope| {
        for lane in 0..LISTS {
            scope.spawn(move || walk(lane));
        }
    });
    eprintln!("\n=== beside each other these took {} s", started.elapsed().as_secs());
    failed.into_inner().map_or(Ok(()), Err)
}

/// The next of a lane: the first of its own list, else the last of the list that has most left.
fn next_of<T>(left: &mut [&'static [T]], lane: usize) -> Option<&'static T> {
    if let Some((first, rest)) = left[lane].split_first() {
        left[lane] = rest;
        return Some(first);
    }
    let longest = left.iter_mut().max_by_key(|list| list.len())?;
    let (last, rest) = longest.split_last()?;
    *longest = rest;
    Some(last)
}

/// What a step that succeeds has told.
fn take_apart(name: &str) -> Result<String> {
    let path = target().join(format!("step-{name}.log"));
    let log = File::create(&path)?;
    let status = Command::new(std::env::current_exe()?)
        .args(["test", "--only", name])
        .current_dir(root())
        .stdout(log.try_clone()?)
        .stderr(log)
        .status()?;
    let output = String::from_utf8_lossy(&std::fs::read(&path)?).into_owned();
    if !status.success() {
        bail!("step `{name}` failed ({status}):\n{output}");
    }
    Ok(output)
}

#[expect(clippy::disallowed_methods, reason = "a tool for people, never simulated")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}

/// With the profile of the tests: what build scripts make, C libraries among it, is made once for both.
fn clippy() -> Result<()> {
    run(&mut cargo(&[
        "clippy",
        "--quiet",
        "--profile",
        "fast",
        "--workspace",
        "--all-targets",
        "--",
        "--deny",
        "warnings",
    ]))?;
    // The program of the gates, which nothing else compiles. Without its peers' libraries.
    let mut compare = cargo(&["clippy", "--quiet", "--no-default-features", "--manifest-path"]);
    compare.arg(root().join("compare/Cargo.toml")).args(["--", "--deny", "warnings"]);
    run(compare.env("CARGO_TARGET_DIR", target().join("compare-check")))
}

/// Unit, property, model and crash tests, optimised with assertions on.
fn unit() -> Result<()> {
    run(&mut cargo(&["test", "--profile", "fast", "--workspace", "--quiet"]))
}

/// The whole engine from seeds, with crashes and faults.
pub(crate) fn sim(arguments: &[String]) -> Result<()> {
    let mut command = cargo(&["run", "--quiet", "--profile", "fast", "--package", "sim", "--"]);
    run(command.args(arguments))
}

/// Shuttle's schedules of the pieces that threads meet in. Built apart: its locks are not ours.
fn interleavings() -> Result<()> {
    let mut command = cargo(&["test", "--quiet", "--profile", "fast", "--lib", "--target-dir"]);
    command.arg(target().join("shuttle")).env("RUSTFLAGS", "--cfg shuttle");
    for package in ["os", "wal", "locktree", "ftree", "engine", "net"] {
        command.args(["--package", package]);
    }
    run(command.arg("interleavings"))
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::next_of;

    #[test]
    fn a_lane_takes_its_own_steps_in_order_and_then_the_last_of_others() {
        let mut left: [&'static [u32]; 3] = [&[1, 2], &[10, 11, 12, 13], &[]];
        let taken: Vec<_> =
            [0, 2, 1, 0, 0, 2, 0].map(|lane| next_of(&mut left, lane).copied()).into();
        assert_eq!(taken, [Some(1), Some(13), Some(10), Some(2), Some(12), Some(11), None]);
    }
}
