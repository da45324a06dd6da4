//! Actions: what a privilege lets its holder do, by MongoDB's names and those of TokuMX's commands.
//!
//! Always true: an action is known by exactly one name, and its place among all is its bit in a set.

use std::fmt;

macro_rules! actions {
    ($($variant:ident $name:literal)*) => {
        /// Something a privilege allows.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        #[repr(u8)]
        pub enum Action {
            $(#[doc = concat!("`", $name, "`")] $variant,)*
        }

        impl Action {
            /// Every action, in the order of their names.
            pub const ALL: &[Self] = &[$(Self::$variant),*];
            const NAMES: &[&str] = &[$($name),*];
        }
    };
}

actions! {
    AddPartition "addPartition"
    AddShard "addShard"
    AdvanceClusterTime "advanceClusterTime"
    AllCollectionStats "allCollectionStats"
    Analyze "analyze"
    AnalyzeShardKey "analyzeShardKey"
    AnyAction "anyAction"
    AppendOplogNote "appendOplogNote"
    ApplicationMessage "applicationMessage"
    ApplyOps "applyOps"
    AuditConfigure "auditConfigure"
    AuthSchemaUpgrade "authSchemaUpgrade"
    Backup "backup"
    BeginLoad "beginLoad"
    BeginSerializableTransaction "beginSerializableTransaction"
    BypassDefaultMaxTimeMS "bypassDefaultMaxTimeMS"
    BypassDocumentValidation "bypassDocumentValidation"
    BypassWriteBlockingMode "bypassWriteBlockingMode"
    ChangeCustomData "changeCustomData"
    ChangeOwnCustomData "changeOwnCustomData"
    ChangeOwnPassword "changeOwnPassword"
    ChangePassword "changePassword"
    ChangeStream "changeStream"
    CheckFreeMonitoringStatus "checkFreeMonitoringStatus"
    CheckMetadataConsistency "checkMetadataConsistency"
    Checkpoint "checkpoint"
    CleanupOrphaned "cleanupOrphaned"
    CleanupStructuredEncryptionData "cleanupStructuredEncryptionData"
    ClearJumboFlag "clearJumboFlag"
    CloseAllDatabases "closeAllDatabases"
    CollMod "collMod"
    CollStats "collStats"
    Compact "compact"
    CompactStructuredEncryptionData "compactStructuredEncryptionData"
    ConfigureQueryAnalyzer "configureQueryAnalyzer"
    ConnPoolStats "connPoolStats"
    ConnPoolSync "connPoolSync"
    ConvertToCapped "convertToCapped"
    CpuProfiler "cpuProfiler"
    CreateCollection "createCollection"
    CreateDatabase "createDatabase"
    CreateIndex "createIndex"
    CreateRole "createRole"
    CreateSearchIndexes "createSearchIndexes"
    CreateUser "createUser"
    DbCheck "dbCheck"
    DbHash "dbHash"
    DbStats "dbStats"
    DropCollection "dropCollection"
    DropConnections "dropConnections"
    DropDatabase "dropDatabase"
    DropIndex "dropIndex"
    DropPartition "dropPartition"
    DropRole "dropRole"
    DropSearchIndex "dropSearchIndex"
    DropUser "dropUser"
    Emptycapped "emptycapped"
    EnableProfiler "enableProfiler"
    EnableSharding "enableSharding"
    ExportCollection "exportCollection"
    Find "find"
    FlushRouterConfig "flushRouterConfig"
    ForceUUID "forceUUID"
    Fsync "fsync"
    GetChangeStreamState "getChangeStreamState"
    GetClusterParameter "getClusterParameter"
    GetCmdLineOpts "getCmdLineOpts"
    GetDatabaseVersion "getDatabaseVersion"
    GetDefaultRWConcern "getDefaultRWConcern"
    GetLog "getLog"
    GetParameter "getParameter"
    GetPartitionInfo "getPartitionInfo"
    GetShardMap "getShardMap"
    GetShardVersion "getShardVersion"
    GrantRole "grantRole"
    HostInfo "hostInfo"
    Impersonate "impersonate"
    ImportCollection "importCollection"
    IndexStats "indexStats"
    Inprog "inprog"
    Insert "insert"
    Internal "internal"
    InvalidateUserCache "invalidateUserCache"
    IssueDirectShardOperations "issueDirectShardOperations"
    KillAnyCursor "killAnyCursor"
    KillAnySession "killAnySession"
    KillCursors "killCursors"
    Killop "killop"
    ListCachedAndActiveUsers "listCachedAndActiveUsers"
    ListClusterCatalog "listClusterCatalog"
    ListCollections "listCollections"
    ListCursors "listCursors"
    ListDatabases "listDatabases"
    ListIndexes "listIndexes"
    ListSampledQueries "listSampledQueries"
    ListSearchIndexes "listSearchIndexes"
    ListSessions "listSessions"
    ListShards "listShards"
    LogRotate "logRotate"
    MoveChunk "moveChunk"
    MoveCollection "moveCollection"
    Netstat "netstat"
    OidReset "oidReset"
    OidcListKeys "oidcListKeys"
    OidcRefreshKeys "oidcRefreshKeys"
    OperationMetrics "operationMetrics"
    PlanCacheIndexFilter "planCacheIndexFilter"
    PlanCacheRead "planCacheRead"
    PlanCacheWrite "planCacheWrite"
    QuerySettings "querySettings"
    QueryStatsRead "queryStatsRead"
    QueryStatsReadTransformed "queryStatsReadTransformed"
    ReIndex "reIndex"
    RecoverToPoint "recoverToPoint"
    RefineCollectionShardKey "refineCollectionShardKey"
    Remove "remove"
    RemoveShard "removeShard"
    RenameCollection "renameCollection"
    RenameCollectionSameDB "renameCollectionSameDB"
    RepairDatabase "repairDatabase"
    ReplSetConfigure "replSetConfigure"
    ReplSetGetConfig "replSetGetConfig"
    ReplSetGetStatus "replSetGetStatus"
    ReplSetHeartbeat "replSetHeartbeat"
    ReplSetReconfig "replSetReconfig"
    ReplSetResizeOplog "replSetResizeOplog"
    ReplSetStateChange "replSetStateChange"
    ReshardCollection "reshardCollection"
    Resync "resync"
    RevokePrivilegesFromRole "revokePrivilegesFromRole"
    RevokeRole "revokeRole"
    RotateCertificates "rotateCertificates"
    ServerStatus "serverStatus"
    SetAuthenticationRestriction "setAuthenticationRestriction"
    SetChangeStreamState "setChangeStreamState"
    SetClusterParameter "setClusterParameter"
    SetDefaultRWConcern "setDefaultRWConcern"
    SetFeatureCompatibilityVersion "setFeatureCompatibilityVersion"
    SetFreeMonitoring "setFreeMonitoring"
    SetParameter "setParameter"
    SetUserWriteBlockMode "setUserWriteBlockMode"
    ShardedDataDistribution "shardedDataDistribution"
    ShardingState "shardingState"
    Shutdown "shutdown"
    SplitChunk "splitChunk"
    SplitVector "splitVector"
    StorageDetails "storageDetails"
    Top "top"
    Touch "touch"
    TrafficRecord "trafficRecord"
    TransitionFromDedicatedConfigServer "transitionFromDedicatedConfigServer"
    TransitionToDedicatedConfigServer "transitionToDedicatedConfigServer"
    Unlock "unlock"
    UnshardCollection "unshardCollection"
    UntrackUnshardedCollection "untrackUnshardedCollection"
    Update "update"
    UpdateRole "updateRole"
    UpdateSearchIndex "updateSearchIndex"
    UpdateUser "updateUser"
    UseTenant "useTenant"
    UseUUID "useUUID"
    Validate "validate"
    ViewRole "viewRole"
    ViewUser "viewUser"
}

impl Action {
    /// The name that a privilege says.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// The action of a name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::NAMES.binary_search(&name).ok().map(|at| Self::ALL[at])
    }
}

/// A set of actions.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct ActionSet([u64; 4]);

const _: () = assert!(Action::ALL.len() <= 256, "each action has a bit");

impl ActionSet {
    /// None.
    pub const EMPTY: Self = Self([0; 4]);

    /// These.
    pub const fn of(actions: &[Action]) -> Self {
        let mut set = Self::EMPTY;
        let mut at = 0;
        while at < actions.len() {
            let bit = actions[at] as usize;
            set.0[bit / 64] |= 1 << (bit % 64);
            at += 1;
        }
        set
    }

    /// All there are.
    pub const fn all() -> Self {
        Self::of(Action::ALL)
    }

    /// What is in either.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] | other.0[at]))
    }

    /// What is in this and not in the other.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] & !other.0[at]))
    }

    /// Whether all of `other` are in it.
    pub fn contains_all(self, other: Self) -> bool {
        other.without(self).is_empty()
    }

    /// Whether `action` is in it.
    pub fn contains(self, action: Action) -> bool {
        self.contains_all(Self::of(&[action]))
    }

    /// Whether it holds none.
    pub fn is_empty(self) -> bool {
        self == Self::EMPTY
    }

    /// Its actions, in the order of their names.
    pub fn iter(self) -> impl Iterator<Item = Action> {
        Action::ALL.iter().copied().filter(move |action| self.contains(*action))
    }
}

impl FromIterator<Action> for ActionSet {
    fn from_iter<I: IntoIterator<Item = Action>>(actions: I) -> Self {
        actions.into_iter().fold(Self::EMPTY, |set, action| set.union(Self::of(&[action])))
    }
}

impl fmt::Debug for ActionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(Action::name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::{Action, ActionSet};

    #[test]
    fn every_action_is_found_by_its_name_and_has_a_bit_of_its_own() {
        let mut seen = ActionSet::EMPTY;
        for action in Action::ALL {
            assert_eq!(Action::parse(action.name()), Some(*action));
            assert!(!seen.contains(*action), "{}", action.name());
            seen = seen.union(ActionSet::of(&[*action]));
        }
        assert_eq!(seen, ActionSet::all());
        assert!(Action::NAMES.is_sorted());
        assert_eq!(Action::parse("Find"), None);
        assert_eq!(Action::parse(""), None);
    }

    #[test]
    fn sets_hold_what_was_put_in() {
        let set = ActionSet::of(&[Action::Find, Action::ViewUser]);
        assert_eq!(set.iter().collect::<Vec<_>>(), [Action::Find, Action::ViewUser]);
        assert!(set.contains_all(ActionSet::EMPTY) && !ActionSet::EMPTY.contains_all(set));
        assert!(set.without(ActionSet::of(&[Action::Find])).contains(Action::ViewUser));
        assert_eq!(format!("{set:?}"), r#"{"find", "viewUser"}"#);
    }
}
