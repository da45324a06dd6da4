//! The built-in roles, as one table: MongoDB's, with TokuMX's actions in the sets they belong to.
//!
//! Always true: nothing else knows what a built-in role allows; `rolesInfo`, the gate and `docs/AUTHORIZATION.md` ask
//! here. `system.buckets` stand in it because MongoDB's roles name them, though measurements are plain documents here.

#![allow(clippy::enum_glob_use, reason = "the table is read by its names")]

use crate::action::Action::{self, *};
use crate::action::ActionSet;
use crate::resource::{Privilege, Resource};
use crate::role_name::RoleName;

/// What a row of a role is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum On {
    /// The role's database.
    Own,
    /// A collection of the role's database.
    OwnCollection(&'static str),
    /// Every buckets of the role's database.
    OwnBuckets,
    /// Every ordinary collection of every ordinary database.
    AnyNormal,
    /// Every buckets.
    AnyBuckets,
    /// A collection of this name anywhere.
    Named(&'static str),
    /// A database of this name.
    Database(&'static str),
    /// One collection.
    Collection(&'static str, &'static str),
    /// Everything.
    Any,
    /// The server or cluster.
    Cluster,
}

/// A built-in role.
#[derive(Debug)]
pub struct BuiltIn {
    /// Its name.
    pub name: &'static str,
    /// It exists in `admin` only, not in each database.
    pub admin_only: bool,
    /// What it allows.
    pub rows: &'static [(On, &'static [&'static [Action]])],
    /// The built-in roles of the same database whose rows it has besides.
    pub includes: &'static [&'static str],
}

const READ: &[Action] = &[
    ChangeStream,
    CollStats,
    DbHash,
    DbStats,
    Find,
    KillCursors,
    ListCollections,
    ListIndexes,
    ListSearchIndexes,
    PlanCacheRead,
    GetPartitionInfo,
];
const WRITE: &[Action] = &[
    Insert,
    Update,
    Remove,
    CreateCollection,
    DropCollection,
    CreateIndex,
    DropIndex,
    ConvertToCapped,
    RenameCollectionSameDB,
    CreateSearchIndexes,
    UpdateSearchIndex,
    DropSearchIndex,
    CompactStructuredEncryptionData,
    CleanupStructuredEncryptionData,
    AddPartition,
    DropPartition,
    BeginLoad,
    BeginSerializableTransaction,
];
const USERS: &[Action] = &[
    ChangeCustomData,
    ChangePassword,
    CreateUser,
    CreateRole,
    DropUser,
    DropRole,
    GrantRole,
    RevokeRole,
    SetAuthenticationRestriction,
    ViewUser,
    ViewRole,
];
const ADMINISTER: &[Action] = &[
    Analyze,
    BypassDocumentValidation,
    CollMod,
    CollStats,
    Compact,
    ConvertToCapped,
    CreateCollection,
    DbStats,
    DropCollection,
    DropDatabase,
    CreateIndex,
    DropIndex,
    CreateSearchIndexes,
    UpdateSearchIndex,
    DropSearchIndex,
    ListSearchIndexes,
    EnableProfiler,
    ListCollections,
    ListIndexes,
    PlanCacheIndexFilter,
    PlanCacheRead,
    PlanCacheWrite,
    ReIndex,
    RenameCollectionSameDB,
    StorageDetails,
    Validate,
    ConfigureQueryAnalyzer,
    AddPartition,
    DropPartition,
    GetPartitionInfo,
];
const PROFILE: &[Action] = &[ConvertToCapped, CreateCollection, DropCollection];
const USER_INDEXES: &[Action] = &[CreateIndex, DropIndex];
const FIND: &[Action] = &[Find];
const LIST_DATABASES: &[Action] = &[ListDatabases];
const STATISTICS: &[Action] =
    &[CollStats, DbStats, IndexStats, GetDatabaseVersion, GetShardVersion];
const SHARDING: &[Action] = &[
    MoveChunk,
    SplitChunk,
    SplitVector,
    EnableSharding,
    ClearJumboFlag,
    AnalyzeShardKey,
    ConfigureQueryAnalyzer,
    RefineCollectionShardKey,
    ReshardCollection,
    MoveCollection,
    UnshardCollection,
];
const RESTORE: &[Action] = &[
    BypassDocumentValidation,
    CollMod,
    ConvertToCapped,
    CreateCollection,
    CreateIndex,
    CreateSearchIndexes,
    UpdateSearchIndex,
    DropCollection,
    Insert,
];

const fn role(
    name: &'static str,
    admin_only: bool,
    includes: &'static [&'static str],
    rows: &'static [(On, &'static [&'static [Action]])],
) -> BuiltIn {
    BuiltIn { name, admin_only, rows, includes }
}

/// Every built-in role.
pub static BUILT_IN: &[BuiltIn] = &[
    role("read", false, &[], &[(On::Own, &[READ]), (On::OwnCollection("system.js"), &[READ])]),
    role(
        "readWrite",
        false,
        &[],
        &[(On::Own, &[READ, WRITE]), (On::OwnCollection("system.js"), &[READ, WRITE])],
    ),
    role(
        "dbAdmin",
        false,
        &[],
        &[
            (On::Own, &[ADMINISTER]),
            (On::OwnBuckets, &[ADMINISTER]),
            (On::OwnCollection("system.profile"), &[READ, PROFILE]),
        ],
    ),
    role("userAdmin", false, &[], &[(On::Own, &[USERS])]),
    role("dbOwner", false, &["readWrite", "dbAdmin", "userAdmin"], &[]),
    role(
        "enableSharding",
        false,
        &[],
        &[(
            On::AnyNormal,
            &[&[
                EnableSharding,
                AnalyzeShardKey,
                MoveCollection,
                RefineCollectionShardKey,
                ReshardCollection,
            ]],
        )],
    ),
    role(
        "readAnyDatabase",
        true,
        &[],
        &[
            (On::AnyNormal, &[READ]),
            (On::Named("system.js"), &[READ]),
            (On::AnyBuckets, &[READ]),
            (On::Cluster, &[LIST_DATABASES]),
        ],
    ),
    role(
        "readWriteAnyDatabase",
        true,
        &[],
        &[
            (On::AnyNormal, &[READ, WRITE]),
            (On::Named("system.js"), &[READ, WRITE]),
            (On::AnyBuckets, &[READ, WRITE]),
            (On::Cluster, &[LIST_DATABASES]),
        ],
    ),
    role(
        "dbAdminAnyDatabase",
        true,
        &[],
        &[
            (On::AnyNormal, &[ADMINISTER]),
            (On::AnyBuckets, &[ADMINISTER]),
            (On::Named("system.profile"), &[READ, PROFILE]),
            (On::Cluster, &[LIST_DATABASES, &[ApplyOps]]),
        ],
    ),
    role(
        "userAdminAnyDatabase",
        true,
        &[],
        &[
            (On::AnyNormal, &[USERS, &[ListCachedAndActiveUsers]]),
            (On::Database("local"), &[USERS, &[ListCachedAndActiveUsers]]),
            (On::Database("config"), &[USERS, &[ListCachedAndActiveUsers]]),
            (On::Collection("admin", "system.users"), &[READ, USER_INDEXES]),
            (On::Collection("admin", "system.roles"), &[READ, USER_INDEXES]),
            (On::Named("system.users"), &[READ]),
            (On::Collection("admin", "system.version"), &[READ]),
            (On::Collection("admin", "system.backup_users"), &[READ]),
            (On::Cluster, &[LIST_DATABASES, &[AuthSchemaUpgrade, InvalidateUserCache, ViewUser]]),
        ],
    ),
    role(
        "clusterMonitor",
        true,
        &[],
        &[
            (On::Database("config"), &[READ, STATISTICS]),
            (On::Collection("config", "system.js"), &[READ]),
            (On::Database("local"), &[READ, STATISTICS]),
            (On::Collection("local", "system.js"), &[READ]),
            (On::AnyNormal, &[STATISTICS]),
            (On::Collection("config", "system.sessions"), &[STATISTICS]),
            (On::Named("system.profile"), &[FIND]),
            (On::Collection("local", "system.replset"), &[FIND]),
            (
                On::Cluster,
                &[
                    LIST_DATABASES,
                    &[
                        ConnPoolStats,
                        GetCmdLineOpts,
                        GetDefaultRWConcern,
                        GetLog,
                        GetParameter,
                        GetShardMap,
                        HostInfo,
                        Inprog,
                        ListSampledQueries,
                        ListSessions,
                        ListShards,
                        Netstat,
                        OperationMetrics,
                        ReplSetGetConfig,
                        ReplSetGetStatus,
                        ServerStatus,
                        ShardingState,
                        Top,
                        UseUUID,
                        AllCollectionStats,
                        ShardedDataDistribution,
                        GetClusterParameter,
                    ],
                ],
            ),
        ],
    ),
    role(
        "hostManager",
        true,
        &[],
        &[
            (On::AnyNormal, &[&[KillCursors]]),
            (
                On::Cluster,
                &[&[
                    ApplicationMessage,
                    AuditConfigure,
                    ConnPoolSync,
                    DropConnections,
                    FlushRouterConfig,
                    Fsync,
                    InvalidateUserCache,
                    KillAnyCursor,
                    KillAnySession,
                    Killop,
                    LogRotate,
                    OidReset,
                    OidcListKeys,
                    OidcRefreshKeys,
                    ReplSetResizeOplog,
                    Resync,
                    RotateCertificates,
                    SetParameter,
                    Shutdown,
                    Touch,
                    TrafficRecord,
                    Unlock,
                    Checkpoint,
                    CpuProfiler,
                    CloseAllDatabases,
                    RepairDatabase,
                ]],
            ),
        ],
    ),
    role(
        "clusterManager",
        true,
        &[],
        &[
            (On::Database("config"), &[READ, SHARDING, &[Insert, Update, Remove]]),
            (On::Collection("config", "system.js"), &[READ]),
            (On::Database("local"), &[SHARDING, &[Insert, Update, Remove]]),
            (On::Collection("local", "system.replset"), &[READ]),
            (On::Named("system.healthlog"), &[READ]),
            (On::Any, &[&[DbCheck]]),
            (On::AnyNormal, &[SHARDING]),
            (On::AnyBuckets, &[SHARDING]),
            (
                On::Cluster,
                &[&[
                    AppendOplogNote,
                    ApplicationMessage,
                    ReplSetConfigure,
                    ReplSetGetConfig,
                    ReplSetGetStatus,
                    ReplSetStateChange,
                    Resync,
                    AddShard,
                    RemoveShard,
                    ListSessions,
                    ListShards,
                    FlushRouterConfig,
                    CleanupOrphaned,
                    GetDefaultRWConcern,
                    SetDefaultRWConcern,
                    SetFeatureCompatibilityVersion,
                    GetClusterParameter,
                    SetClusterParameter,
                    GetChangeStreamState,
                    SetChangeStreamState,
                    QuerySettings,
                    QueryStatsRead,
                    QueryStatsReadTransformed,
                    CheckMetadataConsistency,
                    TransitionFromDedicatedConfigServer,
                    TransitionToDedicatedConfigServer,
                    RecoverToPoint,
                ]],
            ),
        ],
    ),
    role(
        "clusterAdmin",
        true,
        &["clusterMonitor", "hostManager", "clusterManager"],
        &[(On::AnyNormal, &[&[DropDatabase]]), (On::Any, &[&[ImportCollection, ExportCollection]])],
    ),
    role(
        "backup",
        true,
        &[],
        &[
            (On::Any, &[&[CollStats, ListCollections, ListIndexes, ListSearchIndexes]]),
            (On::AnyNormal, &[FIND]),
            (On::AnyBuckets, &[FIND]),
            (On::Database("config"), &[FIND]),
            (On::Database("local"), &[FIND]),
            (On::Named("system.js"), &[FIND]),
            (On::Named("system.users"), &[FIND]),
            (On::Named("system.profile"), &[FIND]),
            (On::Collection("admin", "system.roles"), &[FIND]),
            (On::Collection("admin", "system.version"), &[FIND]),
            (On::Collection("admin", "system.backup_users"), &[FIND]),
            (On::Collection("config", "settings"), &[&[Find, Insert, Update]]),
            (
                On::Cluster,
                &[
                    LIST_DATABASES,
                    &[
                        GetParameter,
                        UseUUID,
                        AppendOplogNote,
                        ServerStatus,
                        SetUserWriteBlockMode,
                        Backup,
                    ],
                ],
            ),
        ],
    ),
    role(
        "restore",
        true,
        &[],
        &[
            (On::AnyNormal, &[RESTORE, USERS]),
            (On::AnyBuckets, &[RESTORE]),
            (On::Database("config"), &[RESTORE]),
            (On::Database("local"), &[RESTORE]),
            (On::Named("system.js"), &[RESTORE]),
            (On::Any, &[&[ListCollections]]),
            (On::Named("system.users"), &[RESTORE, &[Find, Update, Remove]]),
            (On::Collection("admin", "system.roles"), &[RESTORE, FIND]),
            (On::Collection("admin", "system.version"), &[RESTORE, FIND]),
            (On::Collection("admin", "tempusers"), &[FIND]),
            (On::Collection("admin", "temproles"), &[FIND]),
            (
                On::Cluster,
                &[&[
                    GetParameter,
                    ForceUUID,
                    UseUUID,
                    BypassWriteBlockingMode,
                    SetUserWriteBlockMode,
                    ApplyOps,
                ]],
            ),
        ],
    ),
    role("directShardOperations", true, &[], &[(On::Cluster, &[&[IssueDirectShardOperations]])]),
    role("searchCoordinator", true, &["readAnyDatabase"], &[(On::Named("system.js"), &[READ])]),
    role(
        "root",
        true,
        &[
            "clusterAdmin",
            "userAdminAnyDatabase",
            "dbAdminAnyDatabase",
            "readWriteAnyDatabase",
            "backup",
            "restore",
            "directShardOperations",
        ],
        &[(On::Any, &[&[Validate]]), (On::Cluster, &[&[BypassDefaultMaxTimeMS]])],
    ),
    role("__system", true, &[], &[(On::Any, &[Action::ALL])]),
];

/// The built-in role of a name, where it is one in that database.
pub fn built_in(name: &RoleName) -> Option<&'static BuiltIn> {
    BUILT_IN.iter().find(|role| {
        role.name == name.role && (!role.admin_only || name.db == "admin") && name.db != "$external"
    })
}

/// What a built-in role of a database allows.
pub fn privileges_of(role: &BuiltIn, db: &str) -> Vec<Privilege> {
    let mut privileges: Vec<Privilege> = Vec::new();
    let included =
        role.includes.iter().filter_map(|name| BUILT_IN.iter().find(|role| role.name == *name));
    for part in included {
        for privilege in privileges_of(part, db) {
            add(&mut privileges, privilege);
        }
    }
    for (on, sets) in role.rows {
        let resource = match *on {
            On::Own => Resource::Database(db.into()),
            On::OwnCollection(name) => Resource::Collection(db.into(), name.into()),
            On::OwnBuckets => Resource::Buckets(db.into(), String::new()),
            On::AnyNormal => Resource::AnyNormal,
            On::AnyBuckets => Resource::Buckets(String::new(), String::new()),
            On::Named(name) => Resource::Named(name.into()),
            On::Database(name) => Resource::Database(name.into()),
            On::Collection(db, name) => Resource::Collection(db.into(), name.into()),
            On::Any => Resource::Any,
            On::Cluster => Resource::Cluster,
        };
        let actions = sets.iter().fold(ActionSet::EMPTY, |sum, set| sum.union(ActionSet::of(set)));
        add(&mut privileges, Privilege { resource, actions });
    }
    privileges
}

/// Puts a privilege to those there are; those over one resource become one.
fn add(privileges: &mut Vec<Privilege>, more: Privilege) {
    match privileges.iter_mut().find(|privilege| privilege.resource == more.resource) {
        Some(privilege) => privilege.actions = privilege.actions.union(more.actions),
        None => privileges.push(more),
    }
}

#[cfg(test)]
mod tests {
    use super::{BUILT_IN, built_in, privileges_of};
    use crate::action::{Action, ActionSet};
    use crate::grants::Grants;
    use crate::resource::Target;
    use crate::role_name::RoleName;
    use std::collections::BTreeSet;

    fn grants(role: &str, db: &str) -> Grants {
        let name = RoleName::new(role, db);
        Grants::new(&privileges_of(built_in(&name).expect(role), db))
    }

    #[test]
    fn names_are_unique_and_each_inclusion_exists() {
        let names: BTreeSet<_> = BUILT_IN.iter().map(|role| role.name).collect();
        assert_eq!(names.len(), BUILT_IN.len());
        for role in BUILT_IN {
            assert!(role.includes.iter().all(|name| names.contains(name)), "{}", role.name);
            assert!(!privileges_of(role, "admin").is_empty());
        }
    }

    #[test]
    fn what_some_roles_may_and_may_not() {
        let of = |role: &str, db: &str, target: Target<'_>, action: Action| {
            grants(role, db).allow(target, ActionSet::of(&[action]))
        };
        let (c, users) =
            (Target::Collection("d", "c"), Target::Collection("admin", "system.users"));
        for (role, db, target, action, allowed) in [
            ("read", "d", c, Action::Find, true),
            ("read", "d", c, Action::Insert, false),
            ("read", "e", c, Action::Find, false),
            ("read", "d", Target::Collection("d", "system.js"), Action::Find, true),
            ("read", "d", Target::Collection("d", "system.profile"), Action::Find, false),
            ("read", "admin", users, Action::Find, false),
            ("readWrite", "d", c, Action::Insert, true),
            ("readWrite", "d", c, Action::CollMod, false),
            ("dbAdmin", "d", c, Action::Find, false),
            ("dbAdmin", "d", Target::Collection("d", "system.profile"), Action::Find, true),
            ("userAdmin", "d", Target::Database("d"), Action::CreateUser, true),
            ("userAdmin", "d", c, Action::Find, false),
            ("readAnyDatabase", "admin", c, Action::Find, true),
            (
                "readAnyDatabase",
                "admin",
                Target::Collection("local", "oplog.rs"),
                Action::Find,
                false,
            ),
            ("readAnyDatabase", "admin", users, Action::Find, false),
            ("userAdminAnyDatabase", "admin", users, Action::Find, true),
            ("userAdminAnyDatabase", "admin", users, Action::Insert, false),
            ("clusterMonitor", "admin", Target::Cluster, Action::ServerStatus, true),
            ("clusterMonitor", "admin", Target::Cluster, Action::Shutdown, false),
            ("clusterMonitor", "admin", c, Action::Find, false),
            ("hostManager", "admin", Target::Cluster, Action::Shutdown, true),
            ("backup", "admin", users, Action::Find, true),
            ("root", "admin", users, Action::Insert, true),
            ("root", "admin", Target::Any, Action::Find, false),
            ("__system", "admin", Target::Any, Action::Internal, true),
        ] {
            assert_eq!(of(role, db, target, action), allowed, "{role}@{db} {target:?} {action:?}");
        }
    }

    #[test]
    fn roles_of_admin_are_none_elsewhere() {
        assert!(built_in(&RoleName::new("root", "d")).is_none());
        assert!(built_in(&RoleName::new("read", "d")).is_some());
        assert!(built_in(&RoleName::new("read", "$external")).is_none());
        assert!(built_in(&RoleName::new("other", "admin")).is_none());
    }
}
