//! `getParameter` and `setParameter`: the server's knobs.
//!
//! Always true: a parameter listed as settable has an effect, or is one of TokuMX's that nothing goes by, which setting
//! it warns of; a command that fails has changed none.

use super::storage_defaults;
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use auth::scram::Mechanism;
use bson::{Bson, RawBsonRef, doc};
use dispatch::fields::{Field, type_name};
use engine::Adjustable;
use errors::{Code, Error, Result};
use limits::{BeforeLogin, Part};
use serverstate::replication::cluster_time::MAX_DRIFT_SECONDS;
use serverstate::security::{FEWEST_ITERATIONS, MOST_ITERATIONS};
use serverstate::versions::AUTH_SCHEMA_VERSION;
use serverstate::{LogEvent, LogSettings, Origin, ServerState, Severity};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

pub(crate) const GET_PARAMETER: Command = Command::new(
    "getParameter",
    "Reads the server's parameters.",
    Needs::Cluster(&[Action::GetParameter]),
    get,
)
.admin_only();

pub(crate) const SET_PARAMETER: Command = Command::new(
    "setParameter",
    "Changes the server's parameters.",
    Needs::Cluster(&[Action::SetParameter]),
    set,
)
.admin_only();

type Read = fn(&ServerState) -> Bson;
type Write = fn(&ServerState, &Value);

/// What a parameter's values are, and which.
#[derive(Clone, Copy)]
enum Shape {
    /// A whole number, at least and at most.
    Whole(i64, i64),
    /// Bytes a second: none, which is without a bound, or so many at least.
    Rate(i64),
    /// Yes or no.
    Switch,
    /// A text of so many bytes at most.
    Text(usize),
    /// `{verbosity: 0, command: {verbosity: 2}, …}`.
    LogLevels,
    /// Names of mechanisms, between commas.
    Mechanisms,
}

/// A value of the right shape.
enum Value {
    Whole(i64),
    Switch(bool),
    Text(String),
    LogLevels(LogSettings),
    /// Those with a password, and whether by certificates, too.
    Mechanisms(Vec<Mechanism>, bool),
}

impl Value {
    fn whole(&self) -> i64 {
        match self {
            Self::Whole(number) => *number,
            Self::Switch(value) => i64::from(*value),
            Self::Text(_) | Self::LogLevels(_) | Self::Mechanisms(..) => 0,
        }
    }

    fn is_true(&self) -> bool {
        self.whole() != 0
    }

    /// As clients see a value that was set at the start.
    fn shown(&self) -> Bson {
        match self {
            Self::Switch(value) => Bson::Boolean(*value),
            Self::Text(text) => Bson::String(text.clone()),
            _ => i32::try_from(self.whole()).map_or(Bson::Int64(self.whole()), Bson::Int32),
        }
    }
}

/// When a parameter may be set.
#[derive(Clone, Copy, PartialEq)]
enum When {
    Never,
    /// By the server itself, before it listens.
    AtStart,
    Anytime,
}

/// Where a parameter's value is kept.
enum Place {
    /// Where functions of its own reach it.
    Behind(Read, Write),
    /// In a switch of the service.
    Flag(fn(&ServerState) -> &AtomicBool),
    /// In a number of the service, which clients see as an int.
    Int(fn(&ServerState) -> &AtomicU64),
    /// The same, which they see as a long.
    Long(fn(&ServerState) -> &AtomicU64),
    /// With the program, which went by it before it listened; without being set it is this.
    Program(fn() -> Bson),
    /// With the program, for who asks: nothing goes by it, which is told in the log; without being set it is this.
    Unused(fn() -> Bson),
    /// In the engine, which goes by it from then on.
    Engine(fn(&Adjustable) -> i64, fn(&Adjustable, u64)),
}

struct Parameter {
    name: &'static str,
    shape: Shape,
    when: When,
    place: Place,
}

impl Parameter {
    fn read(&self, service: &ServerState) -> Bson {
        match self.place {
            Place::Behind(read, _) => read(service),
            Place::Flag(of) => Bson::Boolean(of(service).load(Ordering::Relaxed)),
            Place::Int(of) => Bson::Int32(of(service).load(Ordering::Relaxed) as i32),
            Place::Long(of) => Bson::Int64(of(service).load(Ordering::Relaxed) as i64),
            Place::Program(otherwise) | Place::Unused(otherwise) => {
                let settings = service.settings.lock();
                settings.of_program.get(self.name).cloned().unwrap_or_else(otherwise)
            }
            Place::Engine(read, _) => Bson::Int64(read(service.catalog.engine().adjustable())),
        }
    }

    fn write(&self, service: &ServerState, value: &Value) {
        match self.place {
            Place::Behind(_, write) => write(service, value),
            Place::Flag(of) => of(service).store(value.is_true(), Ordering::Relaxed),
            Place::Int(of) | Place::Long(of) => {
                of(service).store(value.whole() as u64, Ordering::Relaxed);
            }
            Place::Program(_) => {
                service.settings.lock().of_program.insert(self.name, value.shown());
            }
            Place::Unused(_) => {
                warn_of_unused(service, self.name);
                service.settings.lock().of_program.insert(self.name, value.shown());
            }
            Place::Engine(_, write) => {
                write(service.catalog.engine().adjustable(), value.whole() as u64);
            }
        }
    }
}

const fn fixed(name: &'static str, read: Read) -> Parameter {
    let place = Place::Behind(read, |_, _| {});
    Parameter { name, shape: Shape::Switch, when: When::Never, place }
}

/// One that may be set at any time.
const fn kept(name: &'static str, shape: Shape, place: Place) -> Parameter {
    Parameter { name, shape, when: When::Anytime, place }
}

const fn whole(name: &'static str, least: i64, most: i64, read: Read, write: Write) -> Parameter {
    kept(name, Shape::Whole(least, most), Place::Behind(read, write))
}

const fn switch(name: &'static str, read: Read, write: Write) -> Parameter {
    kept(name, Shape::Switch, Place::Behind(read, write))
}

const fn flag(name: &'static str, of: fn(&ServerState) -> &AtomicBool) -> Parameter {
    kept(name, Shape::Switch, Place::Flag(of))
}

const fn int(name: &'static str, least: i64, of: fn(&ServerState) -> &AtomicU64) -> Parameter {
    kept(name, Shape::Whole(least, INT_MAX), Place::Int(of))
}

const fn int_up_to(
    name: &'static str,
    least: i64,
    most: i64,
    of: fn(&ServerState) -> &AtomicU64,
) -> Parameter {
    kept(name, Shape::Whole(least, most), Place::Int(of))
}

/// One of the engine's, which clients see as a number.
const fn of_engine(
    name: &'static str,
    most: i64,
    read: fn(&Adjustable) -> i64,
    write: fn(&Adjustable, u64),
) -> Parameter {
    kept(name, Shape::Whole(0, most), Place::Engine(read, write))
}

const fn at_start(mut parameter: Parameter) -> Parameter {
    parameter.when = When::AtStart;
    parameter
}

/// One that the program has gone by before it is set here: here it is kept for who asks what holds.
const fn of_program(name: &'static str, shape: Shape, otherwise: fn() -> Bson) -> Parameter {
    at_start(kept(name, shape, Place::Program(otherwise)))
}

/// One of TokuMX's that nothing goes by: it is kept, and setting it is warned of.
const fn unused(name: &'static str, shape: Shape, otherwise: fn() -> Bson) -> Parameter {
    kept(name, shape, Place::Unused(otherwise))
}

fn warn_of_unused(service: &ServerState, name: &str) {
    let text = "A parameter of TokuMX was set that nothing goes by here; it is kept, and shown to who asks";
    service.host.log(&LogEvent {
        severity: Severity::Warning,
        component: "CONTROL",
        id: 9_016_798,
        context: "setParameter",
        message: text,
        attributes: doc! { "parameter": name },
    });
}

/// Bytes, as a number.
fn bytes(bytes: u64) -> Bson {
    Bson::Int64(i64::try_from(bytes).unwrap_or(i64::MAX))
}

fn seconds(period: Duration) -> i64 {
    i64::try_from(period.as_secs()).unwrap_or(i64::MAX)
}

fn millis(period: Duration) -> i64 {
    i64::try_from(period.as_millis()).unwrap_or(i64::MAX)
}

const INT_MAX: i64 = i32::MAX as i64;

/// A slower copy would leave its source alone for so long that it is let go of there.
const LEAST_COPY_RATE: i64 = 64 << 10;

/// The least that TokuMX's `loaderMaxMemory` may be.
const LEAST_LOADER: i64 = 32 << 20;

/// The mechanism that goes without a password.
const X509: &str = "MONGODB-X509";

static PARAMETERS: &[Parameter] = &[
    fixed("authSchemaVersion", |_| Bson::Int32(AUTH_SCHEMA_VERSION)),
    at_start(flag("allowRolesFromX509Certificates", |service| {
        &service.security.takes_certificate_roles
    })),
    of_program("allowCoreDumps", Shape::Switch, || Bson::Boolean(false)),
    // What is asked for was done, or the server did not start.
    at_start(switch(
        "codeInHugePages",
        |service| Bson::Boolean(service.info.code_in_huge_pages),
        |_, _| {},
    )),
    at_start(kept(
        "authenticationMechanisms",
        Shape::Mechanisms,
        Place::Behind(
            |service| {
                let mechanisms = service.security.mechanisms.lock();
                let x509 = service.security.is_x509_enabled().then_some(X509);
                let names = mechanisms.iter().map(|one| one.name()).chain(x509);
                Bson::Array(names.map(Bson::from).collect())
            },
            |service, value| {
                if let Value::Mechanisms(mechanisms, x509) = value {
                    service.security.mechanisms.lock().clone_from(mechanisms);
                    service.security.enable_x509(*x509);
                }
            },
        ),
    )),
    kept(
        "automationServiceDescriptor",
        Shape::Text(64),
        Place::Behind(
            |service| Bson::String(service.settings.lock().automation.clone()),
            |service, value| {
                if let Value::Text(text) = value {
                    service.settings.lock().automation.clone_from(text);
                }
            },
        ),
    ),
    of_engine(
        "checkpointPeriod",
        1 << 30,
        |engine| seconds(engine.checkpoint_period()),
        |e, n| {
            e.set_checkpoint_period(Duration::from_secs(n));
        },
    ),
    of_engine(
        "cleanerIterations",
        1 << 30,
        |engine| engine.cleaner_iterations().into(),
        |e, n| {
            e.set_cleaner_iterations(n as u32);
        },
    ),
    of_engine(
        "cleanerPeriod",
        1 << 30,
        |engine| seconds(engine.cleaner_period()),
        |e, n| {
            e.set_cleaner_period(Duration::from_secs(n));
        },
    ),
    switch(
        "compressBuffersBeforeEviction",
        |service| Bson::Boolean(service.catalog.engine().compresses_before_eviction()),
        |service, value| {
            service.catalog.engine().set_compresses_before_eviction(value.is_true());
        },
    ),
    fixed("cacheSize", |service| bytes(service.catalog.engine().options().cache_size)),
    fixed("directio", |service| Bson::Boolean(service.catalog.engine().options().directio)),
    fixed("locktreeMaxMemory", |service| {
        bytes(service.catalog.engine().options().locktree_max_memory.unwrap_or(0))
    }),
    flag("fastUpdates", |service| &service.fast_updates.enabled),
    flag("fastUpdatesIgnoreErrors", |_| &serverstate::fast_update_rules().ignores_errors),
    switch(
        "pkUniqueChecks",
        |service| {
            let skips = &service.fast_updates.skips_unique_checks;
            Bson::Boolean(!skips.load(Ordering::Relaxed))
        },
        |service, value| {
            let skips = &service.fast_updates.skips_unique_checks;
            skips.store(!value.is_true(), Ordering::Relaxed);
        },
    ),
    unused("electionBackoffMillis", Shape::Whole(0, INT_MAX), || Bson::Int32(1000)),
    unused("forceWriteLocks", Shape::Switch, || Bson::Boolean(false)),
    switch(
        "loaderCompressTmp",
        |service| Bson::Boolean(service.catalog.engine().adjustable().loader_compresses()),
        |service, value| {
            service.catalog.engine().adjustable().set_loader_compresses(value.is_true());
        },
    ),
    kept(
        "loaderMaxMemory",
        Shape::Whole(LEAST_LOADER, i64::MAX),
        Place::Engine(
            |engine| i64::try_from(engine.loader_max_memory()).unwrap_or(i64::MAX),
            Adjustable::set_loader_max_memory,
        ),
    ),
    unused("migrateStartCloneLockTimeout", Shape::Whole(0, INT_MAX), || Bson::Int32(60_000)),
    unused("migrateUniqueChecks", Shape::Switch, || Bson::Boolean(true)),
    at_start(unused("numCachetableBucketMutexes", Shape::Whole(0, INT_MAX), || Bson::Int32(0))),
    unused("soTimeoutForReplLargeTxn", Shape::Whole(0, INT_MAX), || Bson::Int32(600)),
    at_start(unused("txnMemLimit", Shape::Whole(0, i64::MAX), || Bson::Int32(1 << 20))),
    kept(
        "cursorTimeoutMillis",
        Shape::Whole(1, INT_MAX),
        Place::Long(|service| &service.cursor_timeout_ms),
    ),
    kept(
        "initialSyncThrottle",
        Shape::Rate(LEAST_COPY_RATE),
        Place::Long(|service| service.copies.rate.bytes_per_second()),
    ),
    flag("diagnosticDataCollectionEnabled", |service| &service.keeps_history),
    kept(
        "preAuthMaximumMessageSizeBytes",
        Shape::Whole(BeforeLogin::LEAST_MESSAGE as i64, 48_000_000),
        Place::Int(|service| &service.security.before_login.message_bytes),
    ),
    int_up_to("preAuthTimeoutMS", 1000, 3_600_000, |service| {
        &service.security.before_login.message_ms
    }),
    int("maxPreAuthConnections", 1, |service| &service.security.before_login.connections),
    int("maxPreAuthConnectionsPerIP", 1, |service| {
        &service.security.before_login.connections_per_address
    }),
    int("maxConnectionsPerIP", 0, |service| &service.arrivals.connections_per_address),
    flag("ingressConnectionEstablishmentRateLimiterEnabled", |service| {
        &service.arrivals.is_rate_limited
    }),
    int("ingressConnectionEstablishmentRatePerSec", 1, |service| &service.arrivals.per_second),
    int("ingressConnectionEstablishmentBurstCapacitySecs", 1, |service| {
        &service.arrivals.burst_seconds
    }),
    int("ingressConnectionEstablishmentMaxQueueDepth", 0, |service| &service.arrivals.queue_depth),
    int_up_to("authFailedDelayMs", 0, 5000, |service| &service.security.failed_delay_ms),
    at_start(flag("enforceUserClusterSeparation", |service| &service.security.separates_members)),
    at_start(flag("enableLocalhostAuthBypass", |service| &service.security.localhost_bypass)),
    switch(
        "redactClientLogData",
        |service| Bson::Boolean(service.settings.lock().log.redacts),
        |service, value| service.change_log(|log| log.redacts = value.is_true()),
    ),
    at_start(flag("auditFailureIsFatal", |service| &service.audit_failure_is_fatal)),
    flag("auditAuthorizationSuccess", |service| &service.audit_successes),
    at_start(flag("enableTestCommands", |service| &service.test_commands)),
    of_engine(
        "fsRedzone",
        90,
        |engine| engine.fs_redzone_percent().into(),
        |e, n| {
            e.set_fs_redzone_percent(n as u8);
        },
    ),
    fixed("featureCompatibilityVersion", |service| {
        Bson::Document(doc! { "version": service.feature_version() })
    }),
    // The older name of `logFlushPeriod`.
    of_engine(
        "journalCommitInterval",
        500,
        |engine| millis(engine.log_flush_period()),
        |e, n| {
            e.set_log_flush_period(Duration::from_millis(n));
        },
    ),
    of_program("ingressBufferBytes", Shape::Whole(0, i64::MAX), || Bson::Int32(0)),
    whole(
        "jsHeapLimitMB",
        1,
        1 << 20,
        |service| {
            let most = service.memory.most_of(Part::Scripts);
            Bson::Int32((most.unwrap_or(service.memory.capacity()) >> 20) as i32)
        },
        |service, value| service.memory.bound(Part::Scripts, value.whole().unsigned_abs() << 20),
    ),
    int("internalQueryJavaScriptFnTimeoutMillis", 1, |service| &service.scripting.call_limit_ms),
    at_start(flag("javascriptEnabled", |service| &service.scripting.enabled)),
    fixed("localLogicalSessionTimeoutMinutes", |_| Bson::Int32(30)),
    of_engine(
        "lockTimeout",
        1 << 40,
        |engine| millis(engine.lock_timeout()),
        |e, n| {
            e.set_lock_timeout(Duration::from_millis(n));
        },
    ),
    of_engine(
        "logFlushPeriod",
        500,
        |engine| millis(engine.log_flush_period()),
        |e, n| {
            e.set_log_flush_period(Duration::from_millis(n));
        },
    ),
    kept(
        "logComponentVerbosity",
        Shape::LogLevels,
        Place::Behind(
            |service| Bson::Document(service.settings.lock().log.shown()),
            |service, value| {
                if let Value::LogLevels(levels) = value {
                    service.change_log(|log| log.take_levels(levels));
                }
            },
        ),
    ),
    whole(
        "logLevel",
        0,
        5,
        |service| Bson::Int32(i32::from(service.settings.lock().log.level)),
        |service, value| service.change_log(|log| log.level = value.whole() as u8),
    ),
    fixed("maxAcceptableLogicalClockDriftSecs", |_| Bson::Int64(MAX_DRIFT_SECONDS as i64)),
    fixed("maxBSONDepth", |_| Bson::Int32(200)),
    fixed("maxSessions", |service| Bson::Int32(service.sessions.most() as i32)),
    int("maxTransactionLockRequestTimeoutMillis", 0, |service| &service.lock_timeout_ms),
    whole(
        "minSnapshotHistoryWindowInSeconds",
        0,
        INT_MAX,
        |service| Bson::Int32(service.replication.clock.window().as_secs() as i32),
        |service, value| {
            service.replication.clock.set_window(Duration::from_secs(value.whole() as u64));
        },
    ),
    fixed("notablescan", |_| Bson::Boolean(false)),
    switch(
        "quiet",
        |service| Bson::Boolean(service.settings.lock().log.quiet),
        |service, value| service.change_log(|log| log.quiet = value.is_true()),
    ),
    // Judged by the program before it listens; kept here for who asks what holds.
    at_start(flag("refuseOpenBind", |service| &service.refuse_open_bind)),
    flag("requireApiVersion", |service| &service.require_api_version),
    int_up_to("scramIterationCount", FEWEST_ITERATIONS, MOST_ITERATIONS, |service| {
        &service.security.sha1_iterations
    }),
    int_up_to("scramSHA256IterationCount", FEWEST_ITERATIONS, MOST_ITERATIONS, |service| {
        &service.security.sha256_iterations
    }),
    whole(
        "slowOpThresholdMs",
        0,
        i64::MAX,
        |service| Bson::Int64(service.profiler.slow_ms() as i64),
        |service, value| service.profiler.set_slow_ms(value.whole() as u64),
    ),
    of_program("opensslCipherConfig", Shape::Text(4096), || Bson::String(String::new())),
    of_program("opensslCipherSuiteConfig", Shape::Text(4096), || Bson::String(String::new())),
    of_program("testLinkAddresses", Shape::Text(4096), || Bson::String(String::new())),
    of_program("tlsUseSystemCA", Shape::Switch, || Bson::Boolean(false)),
    of_program("tlsX509ClusterAuthDNOverride", Shape::Text(4096), || Bson::String(String::new())),
    of_program("tlsX509ExpirationWarningThresholdDays", Shape::Whole(0, INT_MAX), || {
        Bson::Int32(30)
    }),
    int("transactionLifetimeLimitSeconds", 1, |service| &service.transaction_lifetime_secs),
    flag("ttlMonitorEnabled", |service| &service.expiry.is_enabled),
    whole(
        "ttlMonitorSleepSecs",
        1,
        INT_MAX,
        |service| Bson::Int32(service.ttl_sleep_secs.load(Ordering::Relaxed) as i32),
        |service, value| service.set_ttl_sleep(value.whole() as u64),
    ),
];

/// Parameters of MongoDB that are about users, TLS and keys: refused by their name, for a server that
/// took them without a word would be thought to be safer than it is.
const OF_SECURITY: [&str; 13] = [
    "clusterAuthMode",
    "KeysRotationIntervalSec",
    "ingressConnectionEstablishmentRateLimiterBypass",
    "opensslDiffieHellmanParameters",
    "saslHostName",
    "saslServiceName",
    "sslMode",
    "sslWithholdClientCertificate",
    "tlsCATrusts",
    "tlsClusterAuthX509Override",
    "tlsMode",
    "tlsOCSPEnabled",
    "tlsWithholdClientCertificate",
];

/// How the names of those begin that are about users, certificates and keys which others keep: LDAP, Kerberos,
/// `OpenID` Connect, OCSP, key servers.
const OF_OTHER_SERVERS: [&str; 8] =
    ["ldap", "saslauthd", "oidc", "jwks", "ocsp", "tlsocsp", "kmip", "vault"];

fn is_of_security(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    OF_SECURITY.contains(&name) || OF_OTHER_SERVERS.iter().any(|begin| lower.starts_with(begin))
}

/// What `getParameter` was asked for.
#[derive(Default)]
struct ParameterSelection {
    all: bool,
    details: bool,
    /// Only those that may be set then.
    set_at: Option<When>,
}

impl ParameterSelection {
    fn parse(field: &Field<'_>) -> Result<Self> {
        let RawBsonRef::Document(options) = field.value else {
            return Ok(Self {
                all: matches!(field.value, RawBsonRef::String("*")),
                ..Self::default()
            });
        };
        let mut wanted = Self::default();
        for option in dispatch::fields::inner(options, "getParameter") {
            let option = option?;
            match option.name {
                "allParameters" => wanted.all = option.bool()?,
                "showDetails" => wanted.details = option.bool()?,
                "setAt" => {
                    wanted.set_at = Some(match option.str()? {
                        "startup" => When::AtStart,
                        "runtime" => When::Anytime,
                        other => {
                            return Err(Error::bad_value(format!(
                                "Enumeration value '{other}' for field 'getParameter.setAt' is not a \
                                 valid value."
                            )));
                        }
                    });
                }
                _ => return Err(option.unknown()),
            }
        }
        Ok(wanted)
    }

    fn takes(&self, name: &str, when: When, fields: &[Field<'_>]) -> bool {
        let then = match self.set_at {
            None => true,
            Some(When::AtStart) => when != When::Never,
            Some(_) => when == When::Anytime,
        };
        then && (self.all || fields[1..].iter().any(|field| field.name == name))
    }
}

fn get(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let wanted = ParameterSelection::parse(&fields[0])?;
    let service = context.service;
    let mut found = Vec::new();
    for name in storage_defaults::NAMES {
        if wanted.takes(name, When::Anytime, fields) {
            found.push((name, storage_defaults::read(service, name), When::Anytime));
        }
    }
    for parameter in PARAMETERS {
        if wanted.takes(parameter.name, parameter.when, fields) {
            found.push((parameter.name, parameter.read(service), parameter.when));
        }
    }
    if found.is_empty() {
        return Err(Error::new(Code::INVALID_OPTIONS, "no option found to get"));
    }
    found.sort_unstable_by_key(|(name, ..)| *name);
    for (name, value, when) in found {
        if !wanted.details {
            context.reply.bson(name, &value);
            continue;
        }
        let one = context.reply.begin_document(name);
        context.reply.bson("value", &value);
        context.reply.bool("settableAtRuntime", when == When::Anytime);
        context.reply.bool("settableAtStartup", when != When::Never);
        context.reply.end(one);
    }
    Ok(())
}

/// All of the values are looked at before one is set: a command that fails has changed nothing.
fn set(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let service = context.service;
    let Some(first) = fields.get(1) else {
        return Err(Error::new(
            Code::INVALID_OPTIONS,
            "no option found to set, use help:true to see options ",
        ));
    };
    let mut values = Vec::new();
    for field in &fields[1..] {
        if storage_defaults::NAMES.contains(&field.name) {
            storage_defaults::check(service, field)?;
            continue;
        }
        let parameter = settable(context, field)?;
        values.push((parameter, parse(parameter, field)?));
    }
    let was = match PARAMETERS.iter().find(|parameter| parameter.name == first.name) {
        Some(parameter) => parameter.read(service),
        None => storage_defaults::read(service, first.name),
    };
    for field in fields[1..].iter().filter(|f| storage_defaults::NAMES.contains(&f.name)) {
        storage_defaults::set(service, field)?;
    }
    for (parameter, value) in values {
        parameter.write(service, &value);
    }
    context.reply.bson("was", &was);
    Ok(())
}

/// The parameter of a field, where it may be set now.
fn settable(context: &Context<'_>, field: &Field<'_>) -> Result<&'static Parameter> {
    if is_of_security(field.name) {
        return Err(Error::new(
            Code::NOT_IMPLEMENTED,
            format!(
                "parameter {} is not supported by this version of FernDB, and is not ignored",
                field.name
            ),
        ));
    }
    let Some(parameter) = PARAMETERS.iter().find(|parameter| parameter.name == field.name) else {
        return Err(Error::new(
            Code::INVALID_OPTIONS,
            format!(
                "attempted to set unrecognized parameter [{}], use help:true to see options ",
                field.name
            ),
        ));
    };
    let starting = context.connection.origin == Origin::Startup;
    match parameter.when {
        When::Anytime => Ok(parameter),
        When::AtStart if starting => Ok(parameter),
        _ => Err(Error::new(
            Code::ILLEGAL_OPERATION,
            format!("not allowed to change [{}] at runtime", field.name),
        )),
    }
}

fn parse_switch(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Boolean(value) => value,
        // The texts are what `--setParameter` of the command line gives.
        RawBsonRef::Null
        | RawBsonRef::Undefined
        | RawBsonRef::String("false" | "off" | "0" | "no" | "n" | "disabled") => false,
        RawBsonRef::Double(number) => number != 0.0,
        other => dispatch::fields::as_i64(other) != Some(0),
    }
}

fn whole_number(name: &str, field: &Field<'_>, least: i64, most: i64) -> Result<i64> {
    let number = match field.value {
        RawBsonRef::Boolean(set) => Some(i64::from(set)),
        RawBsonRef::Double(number) if number.is_nan() => None,
        value => dispatch::fields::as_i64(value),
    };
    let number = number.ok_or_else(|| {
        Error::bad_value(format!(
            "Invalid value for parameter {name}: {} is no whole number",
            type_name(field.value)
        ))
    })?;
    if !(least..=most).contains(&number) {
        let relation = if number < least { "greater" } else { "less" };
        let bound = if number < least { least } else { most };
        return Err(Error::bad_value(format!(
            "Invalid value for parameter {name}: {number} is not {relation} than or equal to {bound}"
        )));
    }
    Ok(number)
}

/// A value as the parameter takes it. MongoDB reads a yes out of whatever is not 0, null or absent,
/// and a whole number out of any number that fits.
fn parse(parameter: &Parameter, field: &Field<'_>) -> Result<Value> {
    let name = parameter.name;
    match parameter.shape {
        Shape::Switch => Ok(Value::Switch(parse_switch(field.value))),
        Shape::Whole(least, most) => whole_number(name, field, least, most).map(Value::Whole),
        Shape::Rate(least) => {
            let number = whole_number(name, field, 0, i64::MAX)?;
            let least = if number == 0 { 0 } else { least };
            whole_number(name, field, least, i64::MAX).map(Value::Whole)
        }
        Shape::Text(most) => {
            let RawBsonRef::String(text) = field.value else {
                return Err(Error::type_mismatch(format!(
                    "Failed to set parameter {name}: it must be a string"
                )));
            };
            if text.len() > most {
                return Err(Error::new(
                    Code::OVERFLOW,
                    format!("Value for parameter {name} must be no more than {most} bytes"),
                ));
            }
            Ok(Value::Text(text.to_owned()))
        }
        Shape::LogLevels => {
            let RawBsonRef::Document(levels) = field.value else {
                return Err(Error::type_mismatch(format!(
                    "{name} is not a BSON object: {}",
                    type_name(field.value)
                )));
            };
            LogSettings::parse(levels).map(Value::LogLevels)
        }
        Shape::Mechanisms => {
            let RawBsonRef::String(text) = field.value else {
                return Err(Error::type_mismatch(format!(
                    "Failed to set parameter {name}: it must be a string"
                )));
            };
            let known = |name: &str| {
                Mechanism::parse(name).ok_or_else(|| {
                    Error::bad_value(format!(
                        "{name} is no mechanism that this server has; it has SCRAM-SHA-1, SCRAM-SHA-256 and {X509}"
                    ))
                })
            };
            let names = text.split(',').map(str::trim);
            let (x509, by_password): (Vec<_>, Vec<_>) = names.partition(|name| *name == X509);
            let mechanisms = by_password.into_iter().map(known).collect::<Result<Vec<_>>>()?;
            Ok(Value::Mechanisms(mechanisms, !x509.is_empty()))
        }
    }
}
