//! The text of `docs/COMPAT.md`: what is here, read from the registries and the error table.
//!
//! Always true: the file equals this text; a test holds it. To renew it:
//! `cargo run -p commands --example compat > docs/COMPAT.md`.

mod operators;

use crate::command::Command;
use crate::diagnostics::hello::MAX_WIRE_VERSION;
use crate::registry::COMMANDS;
use dispatch::labels::labels_of;
use serverstate::versions::MONGODB_VERSION;
use std::fmt::Write;

/// Options that are known and refused, with what the client sees.
const REFUSED: &[(&str, &str)] = &[
    (
        "on a standalone: `readConcern` levels `linearizable`, and `snapshot` outside a transaction",
        "123 NotAReplicaSet",
    ),
    ("on a standalone: `readConcern.afterClusterTime`, `atClusterTime`", "20 IllegalOperation"),
    ("on a standalone: `writeConcern.w` above 1 and named modes", "2 BadValue"),
    (
        "`atClusterTime` further back than `minSnapshotHistoryWindowInSeconds` (5 by default, and \
         then no more than a sixteenth of the cache's bytes are written since; MongoDB's is 300), of a state that no snapshot read got",
        "239 SnapshotTooOld",
    ),
    ("`lsid` with the digest of another user", "13 Unauthorized"),
    (
        "writing to `config.transactions`, `config.clusterParameters` and `local.replset.election`, \
         dropping them",
        "73 InvalidNamespace",
    ),
    (
        "writing to `system.users`, `system.roles`, `system.version` of any database",
        "73 InvalidNamespace: users and roles are changed by their commands",
    ),
    (
        "`$clusterTime` more than a day ahead of this machine (MongoDB: a year)",
        "205 ClusterTimeFailsRateLimiter",
    ),
    (
        "replica sets: a second arbiter, a delayed arbiter; in a set of several other settings than \
         MongoDB's defaults of `heartbeatIntervalMillis`, `heartbeatTimeoutSecs`, `catchUpTimeoutMillis`, \
         `catchUpTakeoverDelayMillis`, `chainingAllowed`",
        "93 InvalidReplicaSetConfig",
    ),
    (
        "`replSetSyncFrom` another member than the primary: entries and copies come from that one",
        "72 InvalidOptions",
    ),
    (
        "`replSetInitiate` of several members, of which another one than this has data",
        "110 CannotInitializeNodeWithData",
    ),
    (
        "`replSetReconfig` with `force` in a set of several members: while this member hears a primary, or with members \
         that the set did not have",
        "103 NewReplicaSetConfigurationIncompatible",
    ),
    (
        "on a member of a set of several: writing to `local`, `profile` with a level, `replSetResizeOplog`, \
         `replSetExpireOplog`",
        "20 IllegalOperation",
    ),
    ("`replSetExpireOplog` with an age of 0", "2 BadValue"),
    (
        "TokuMX's `replAddPartition`, `replTrimOplog`, `recoverToPoint`, `loadPlugin`, `unloadPlugin`; `wgtid` of \
         `getLastError`",
        "238 NotImplemented",
    ),
    (
        "a description of the index on `_id` (`create.idIndex`; `createIndexes`) of another shape than the collection's",
        "197 InvalidIndexSpecificationOption; 85 IndexOptionsConflict",
    ),
    ("a transaction on a secondary", "10107 NotWritablePrimary"),
    (
        "on a secondary: `mapReduce` that writes; `$out` and `$merge` behind `$$USER_ROLES` (else the primary does the \
         whole pipeline)",
        "10107 NotWritablePrimary",
    ),
    ("in a session's transaction: `count`", "263 OperationNotSupportedInTransaction"),
    (
        "in a session's transaction: new indexes of existing collections; in any: views, `$out`, \
         `$merge`",
        "263 OperationNotSupportedInTransaction",
    ),
    (
        "in a transaction of `beginTransaction`: `collMod`, `reIndex`, `compact`, `backupStart`, `checkpoint`, `profile` \
         and their like",
        "16786; `dropDatabase` 16777; writes to a capped collection 17228",
    ),
    (
        "a `txnNumber` on a connection that has begun a transaction with `beginTransaction`",
        "263 OperationNotSupportedInTransaction",
    ),
    (
        "writes to a capped collection, and tailable cursors, in a session's transaction",
        "263 OperationNotSupportedInTransaction",
    ),
    ("TTL indexes of capped collections", "67 CannotCreateIndex"),
    (
        "a document with more than 64 MiB of entries in a wildcard or clustering index, or 100,000 in \
         a geospatial one",
        "201 CannotBuildIndexKeys",
    ),
    ("collations of type `search` and others that the rules compiled in do not have", "2 BadValue"),
    (
        "`system.buckets` of time-series collections: measurements are documents of their own here",
        "238 NotImplemented",
    ),
    (
        "entries of `applyOps` that begin, prepare or end transactions, or come in several parts",
        "2 BadValue",
    ),
    ("`unique` and `clustering` text indexes", "67 CannotCreateIndex"),
    (
        "a `primaryKey` that does not end in `_id: 1`; one with hashed, text or geospatial fields",
        "17203 Location17203; 67 CannotCreateIndex",
    ),
    (
        "an array, a regular expression, an undefined value in a field of a `primaryKey`",
        "17205, 17208, 17210",
    ),
    (
        "`primaryKey` beside `capped`, `timeseries`, `clusteredIndex`, `viewOn`, or in `admin`, \
         `config`, `local`; `convertToCapped` of such a collection; dropping the primary key",
        "72 InvalidOptions",
    ),
    (
        "`partitioned` beside `capped`, `timeseries`, `clusteredIndex`, `viewOn`, or in `admin`, \
         `config`, `local`; `convertToCapped` of such a collection",
        "72 InvalidOptions",
    ),
    (
        "a unique index of a partitioned collection that lacks a field of its primary key before `_id`, \
         and `prepareUnique` there",
        "17351",
    ),
    (
        "writing to `system.profile`, and dropping it while it is written",
        "73 InvalidNamespace; 20 IllegalOperation",
    ),
    (
        "JavaScript, with `--noscripting`: `$where`; `$function`, `$accumulator`, `mapReduce`",
        "6108304; 31264",
    ),
    ("OP_QUERY with the exhaust flag, other `$` modifiers (`$maxScan`)", "an error; never ignored"),
    ("reading `system.namespaces`, `system.indexes` by OP_QUERY", "115 CommandNotSupported"),
    ("`getLastError` with `w` above 1 or a named mode", "2 BadValue with `badGLE`"),
    ("`requestResumeToken`, `resumeAfter` of `find`", "238 NotImplemented"),
];

/// The page.
pub fn page() -> String {
    let mut text = String::new();
    text.push_str("# What clients can ask\n\n");
    text.push_str(
        "This page is generated from the registries of the code (commands, stages, \
         operators) and the error table; a test fails when it is stale.\nRenew it with `cargo run -p commands --example compat > docs/COMPAT.md`.\n\n",
    );
    line(
        &mut text,
        &format!(
            "FernDB speaks as MongoDB {MONGODB_VERSION} does (wire versions 0 to \
             {MAX_WIRE_VERSION}), as a standalone server or a member of a replica set.\nA command that is not in the table \
             answers `CommandNotFound` (59), a field that a command does not know answers \
             40415, and what is known but not built yet is refused, never ignored.\n"
        ),
    );
    commands(&mut text);
    text.push_str(TRANSACTIONS);
    text.push_str(PARAMETERS);
    text.push_str(LEGACY);
    text.push_str(STORAGE);
    operators::tables(&mut text);
    refused(&mut text);
    codes(&mut text);
    text
}

fn line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

fn commands(text: &mut String) {
    line(text, "## Commands\n");
    line(text, "| Command | Also | Database | API v1 | explain | What it does |");
    line(text, "|---|---|---|---|---|---|");
    let mut sorted: Vec<&Command> = COMMANDS.to_vec();
    sorted.sort_unstable_by_key(|command| command.name.to_ascii_lowercase());
    for command in sorted {
        let yes = |set: bool| if set { "yes" } else { "" };
        let row = writeln!(
            text,
            "| `{}` | {} | {} | {} | {} | {} |",
            command.name,
            command.aliases.iter().map(|alias| format!("`{alias}`")).collect::<Vec<_>>().join(" "),
            if command.admin_only { "admin" } else { "any" },
            yes(command.api_v1),
            yes(command.explain.is_some()),
            command.about,
        );
        debug_assert!(row.is_ok(), "writing to a string cannot fail");
    }
    text.push('\n');
}

/// TokuMX's transactions.
const TRANSACTIONS: &str = "## Transactions of a connection

TokuMX's `beginTransaction` takes `isolation`: `mvcc` (the default), `serializable`, or \
`readUncommitted`, which is served as read committed: each statement sees the newest committed \
state, and never what is not committed. `commitTransaction` and `rollbackTransaction` without a \
`txnNumber` end it, on any database, as does the connection's end; nothing else does. So do those with the last \
`txnNumber` of their session, or 0, where that has no transaction open, for Node's driver and mongosh number each of \
them. `count` without a filter reads no documents inside either, but under `serializable`, which locks them. `serializable` takes the right to write (action `beginSerializableTransaction`). A lock that \
is not granted within `lockTimeout`, or what `setClientLockTimeout` has said for the connection (0: no wait), \
is 16759 (outside of transactions 24 LockTimeout, where MongoDB \
waits for the transaction's end), a deadlock 16760; the transaction stays live. \
Under `mvcc` a collection that was made after the start is 16768, for reads and writes. \
`create`, `createIndexes`, `drop`, `dropIndexes` and `renameCollection` are part of it and undone \
with it; until it ends it alone writes to collections that it changed so. Under `mvcc` an index of \
a collection that somebody has written to since the start is 16759.

";

/// TokuMX's parameters and the oplog's age.
const PARAMETERS: &str = "## Parameters of TokuMX

`compressBuffersBeforeEviction`, `ttlMonitorEnabled` and those of the engine are obeyed while the server runs; \
`cacheSize`, `directio` and `locktreeMaxMemory` are shown. Nothing goes by `electionBackoffMillis`, `forceWriteLocks`, \
`migrateStartCloneLockTimeout`, `migrateUniqueChecks`, \
`numCachetableBucketMutexes`, `soTimeoutForReplLargeTxn`, `txnMemLimit`: they are kept until the server ends, and \
setting one is warned of in the log.

`replGetExpireOplog` and `replSetExpireOplog` (`expireOplogDays`, `expireOplogHours` at the start) read and set the \
age after which the oplog goes: what is younger stays, what is older goes by whole files of the log. An oplog without \
an age goes by its length (`oplogSize`), which the reply's `note` says.

";

/// The messages from before OP_MSG.
const LEGACY: &str = "## Old clients

The messages from before OP_MSG are served too: OP_QUERY (with `$query`, `$orderby`, `$hint`, \
`$min`, `$max`, `$maxTimeMS`, `$returnKey`, `$showDiskLoc`, `$snapshot`, `$explain`), OP_GET_MORE, \
OP_KILL_CURSORS, OP_INSERT (into `system.indexes` too), OP_UPDATE and OP_DELETE.
`getLastError` and `resetError` are there for a connection once it wrote in this way.
`aggregate` without `cursor`, sent by OP_QUERY, answers `result` in one document.

";

/// How what is stored is laid out.
const STORAGE: &str = "## Storage options

TokuMX's options are taken by `create`, in index specifications, and by `collMod` for what is \
written from then on:

| Option | Values |
|---|---|
| `compression` | `zstd` (default), `zlib`, `lz4`, `none`, or with a level: `zstd:19`, `zlib:9`; \
`quicklz` and `fastlz` are carried out by lz4, `lzma` by zstd at level 19, and the reply's \
`note` says so |
| `pageSize` | 4 KiB to 16 MiB, as a number or as `\"64k\"`, `\"4MB\"`; 1 MiB by default |
| `readPageSize` | 4 KiB to 256 KiB, no more than `pageSize`; 16 KiB by default; with a compression \
dictionary, which `zstd` has from 16 `pageSize` of data on, half of it (its levels up to 3, the default, \
then work at level 1, which is as small) |
| `fanout` | 4 to 64; 64 by default |
| `clustering: true` of an index | each entry holds its document, so that a scan fetches nothing \
|
| `primaryKey: {…, _id: 1}` of `create` | the documents lie in the order of these fields; it is \
shown as the clustering index `primaryKey`, and `_id` gets a unique index beside it |

An index takes what it does not say from the collection's `indexOptionDefaults`, then from the \
collection, then from the parameters `defaultCompression`, `defaultPageSize`, \
`defaultReadPageSize`, `defaultFanout`.
MongoDB's `storageEngine: {wiredTiger: {configString: …}}` is honoured for `block_compressor` \
(snappy by lz4), `leaf_page_max` and `prefix_compression=true`; other settings are refused.
`collStats.indexDetails` shows what is in force; its `count` is exact for indexes with one entry of each document, \
and for others what lies in their trees. A description of `_id_` may repeat the collection's options and say \
`unique: true`, `clustering: true`, as dumps of TokuMX do, and so may that of `primaryKey`. `dropDups` drops none, which \
the reply's `note` says.

";

fn refused(text: &mut String) {
    line(text, "## Known and refused\n");
    line(text, "| Asked for | Answer |");
    line(text, "|---|---|");
    for (what, answer) in REFUSED {
        line(text, &format!("| {what} | {answer} |"));
    }
    text.push('\n');
}

fn codes(text: &mut String) {
    line(text, "## Error codes with a name\n");
    line(text, "Others have a number only and the name `Location<number>`.\n");
    line(
        text,
        "A label stands where the code carries one: `TransientTransactionError` in a session's \
         transaction, `RetryableWriteError` on a retryable write or the end of a transaction \
         (with `NoWritesPerformed` where nothing was written).\n",
    );
    line(text, "| Code | Name | Labels |");
    line(text, "|---|---|---|");
    for (code, name) in errors::TABLE {
        let labels = labels_of(*code).join(", ");
        line(text, &format!("| {} | {name} | {labels} |", code.0));
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn compatibility_page_is_fresh() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/COMPAT.md");
        if std::env::var("FERN_GOLDEN").is_ok_and(|mode| mode == "write") {
            std::fs::write(path, super::page()).unwrap();
        }
        let stored = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            stored == super::page(),
            "docs/COMPAT.md is stale: cargo run -p commands --example compat > docs/COMPAT.md"
        );
    }
}
