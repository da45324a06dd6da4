//! The test command: its steps in order, each with the time it took.

use crate::drivers::{self, Build};
use crate::lanes::{List, Step, Stopwatch, beside_each_other};
use crate::run::{cargo, root, run, target};
use crate::{bench, curves, dependencies, instructions, manual, tidy, tools};
use anyhow::{Result, bail};
use std::process::Command;

/// Steps one after the other, cheapest complaint first: what all others use is built.
const FIRST: &[Step] = &[
    ("fmt", || run(&mut cargo(&["fmt", "--all", "--check"]))),
    ("tidy", tidy::tidy),
    // One second: over `cargo metadata`, nothing is built.
    ("dependencies", dependencies::dependencies),
    ("build", || drivers::programs(Build::WithTests, &[]).map(drop)),
];

/// Steps that compile or compute and have no deadlines: they take the processors where the lists below wait. No two
/// of them at a time, for cargo lets one compile in a folder; and the first does not ask cargo, so that `unit` has
/// asked it before the second holds it up.
const BACKGROUND: &[Step] = &[
    ("sim", || sim(Build::WithTests, &words("--seeds 200 --known"))),
    ("clippy", clippy),
    ("clippy-compare", clippy_compare),
    ("interleavings", interleavings),
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

/// Steps of one server and its clients.
const BUSY: &[Step] = &[
    ("unit", unit),
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
    // Under callgrind; of some operations it counts what the engine does while it waits.
    ("instructions", instructions::test),
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

/// What goes on beside each other: for each list a lane.
const LISTS: &[List] = &[
    List { steps: WAITING, is_background: false },
    List { steps: BUSY, is_background: false },
    List { steps: BACKGROUND, is_background: true },
];

/// Of each of these one goes on at a time: what they install or build lies in one folder.
const GROUPS: &[&[&str]] = &[
    // Maven's, and the driver of TokuMX's day
    &[
        "legacy-java",
        "legacy-java-secured",
        "oplog-tail",
        "ycsb",
        "ycsb-secured",
        "debezium",
        "odm-failover",
        "mongo-tools",
    ],
    &["mongo-tools", "mongo-tools-secured"],
    &["node", "node-secured"],
    &["pymongo", "pymongo-replica-set", "pymongo-secured"],
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
    let all = || [FIRST, BACKGROUND, WAITING, BUSY, LAST].into_iter().flatten();
    let started = Stopwatch::start();
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
    beside_each_other(LISTS, GROUPS)?;
    LAST.iter().try_for_each(take)?;
    println!("\nsteps: {} passed, 0 failed; all took {}", all().count(), started.told());
    Ok(())
}

fn take((name, step): &Step) -> Result<()> {
    eprintln!("\n=== {name}");
    let started = Stopwatch::start();
    step().map_err(|error| error.context(format!("step `{name}` failed")))?;
    eprintln!("=== {name} took {}", started.told());
    Ok(())
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
    ]))
}

/// The program of the gates, which nothing else compiles. Without its peers' libraries; with the tests' profile and
/// folder, for the same reason.
fn clippy_compare() -> Result<()> {
    let mut compare = cargo(&["clippy", "--quiet", "--profile", "fast", "--no-default-features"]);
    compare.arg("--manifest-path").arg(root().join("compare/Cargo.toml"));
    compare.args(["--", "--deny", "warnings"]);
    run(compare.env("CARGO_TARGET_DIR", target()))
}

/// Unit, property, model and crash tests, optimised with assertions on.
fn unit() -> Result<()> {
    run(&mut cargo(&["test", "--profile", "fast", "--workspace", "--quiet"]))
}

/// The whole engine from seeds, with crashes and faults.
pub(crate) fn sim(build: Build, arguments: &[String]) -> Result<()> {
    run(Command::new(drivers::programs(build, &["sim"])?.join("sim")).args(arguments))
}

/// Shuttle's schedules of the pieces that threads meet in. The workspace's crates are compiled anew, for their locks are
/// not ours; what they use of others is the tests'.
fn interleavings() -> Result<()> {
    let mut command = cargo(&["test", "--quiet", "--profile", "fast", "--lib"]);
    command.env("RUSTC_WORKSPACE_WRAPPER", root().join("crates/xtask/shuttle-rustc"));
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
    use super::{BACKGROUND, BUSY, FIRST, GROUPS, LAST, WAITING};
    use std::collections::BTreeSet;

    #[test]
    fn each_step_has_one_name_and_groups_name_steps_of_lanes() {
        let names = |lists: &[&[super::Step]]| -> Vec<&str> {
            lists.iter().copied().flatten().map(|(name, _)| *name).collect()
        };
        let all = names(&[FIRST, BACKGROUND, WAITING, BUSY, LAST]);
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "two of one name");
        let in_lanes = names(&[BACKGROUND, WAITING, BUSY]);
        for name in GROUPS.iter().copied().flatten() {
            assert!(in_lanes.contains(name), "no step `{name}`");
        }
    }
}
