//! Commands from the outside: documents in, documents out, over an engine in memory.
#![expect(clippy::needless_pass_by_value, reason = "a command reads best written in place")]

mod admin;
mod administration;
mod aggregation;
mod apply_ops;
mod arguments;
mod bound;
mod bound_ddl;
mod bulk_write;
mod capped;
mod change_streams;
mod changes;
mod collation;
mod crud;
mod diagnostics;
mod durability;
mod eyes;
mod fail_points;
mod generic;
mod geo;
mod housekeeping;
mod javascript;
mod language;
mod layouts;
mod links;
mod lock_waits;
mod mutations;
mod oplog;
mod point;
mod prepare_unique;
mod profiler;
mod replica_set;
mod security;
mod sessions;
mod snapshots;
mod storage;
mod text;
mod transactions;
mod validation;

use crate::Service;
use bson::{Document, RawDocumentBuf, doc};
use catalog::{Catalog, CatalogOptions};
use dispatch::{ConnectionInfo, MakeWaker, OpKind, Reply, Request, Wake};
use engine::Engine;
use os::Os;
use serverstate::{Connection, Parts, ServerInfo, SessionRecords, SilentHost};
use std::sync::Arc;
use std::time::Duration;

/// A client with one connection to a server of its own.
struct Client {
    service: Arc<Service>,
    connection: Arc<Connection>,
}

fn parts_of(catalog: Arc<Catalog>, session_records: SessionRecords, info: ServerInfo) -> Parts {
    Parts {
        session_records,
        catalog,
        os: Os::real(),
        info,
        host: Arc::new(SilentHost),
        memory: limits::Account::new(1 << 30),
        follows: false,
    }
}

impl Client {
    fn new() -> Self {
        Self::with_host(Arc::new(SilentHost))
    }

    /// A client of a replica set member.
    fn member(options: serverstate::replication::ReplicaSetOptions) -> Self {
        let kept = engine::HistoryOptions { bytes: u64::MAX, min_age: Duration::ZERO };
        let engine = Engine::temporary_with(|options| options.history = Some(kept));
        Self::over(Arc::new(SilentHost), engine, Some(options))
    }

    /// Another server over the same data, as if it had been started again.
    fn restarted(&self, id: u64) -> Self {
        let replica_set = self.service.info.replica_set.clone();
        let engine = self.service.catalog.engine().clone();
        let client = Self::over(Arc::new(SilentHost), engine, replica_set);
        Self::on(client.service, id)
    }

    /// A client of a server that asks for users.
    fn asking() -> Self {
        Self::asking_over(Engine::temporary(), None)
    }

    /// The same, and this is what the program does for it.
    fn asking_with_host(host: Arc<dyn serverstate::Host>) -> Self {
        let options = CatalogOptions::new(Os::real(), std::env::temp_dir());
        let catalog = Catalog::open(Engine::temporary(), options).unwrap();
        let session_records = SessionRecords::open(&catalog).unwrap();
        let info = ServerInfo {
            host: "here".into(),
            port: 1,
            auth: serverstate::security::AuthMode::On,
            ..ServerInfo::default()
        };
        let parts = Parts { host, ..parts_of(catalog, session_records, info) };
        Self::on(Service::new(parts), 1)
    }

    /// The same of one that has more commands.
    fn asking_with(commands: &[&'static crate::command::Command]) -> Self {
        let all = [crate::registry::COMMANDS, commands].concat();
        Self::asking_by(Engine::temporary(), None, all.leak())
    }

    /// The same of a replica set of one.
    fn asking_member() -> Self {
        let kept = engine::HistoryOptions { bytes: u64::MAX, min_age: Duration::ZERO };
        let engine = Engine::temporary_with(|options| options.history = Some(kept));
        let options = serverstate::replication::ReplicaSetOptions {
            name: "rs".into(),
            address: "localhost:1".into(),
            initiate: true,
        };
        let client = Self::asking_over(engine, Some(options));
        client.service.start_replication().unwrap();
        client
    }

    /// Another server that asks for users over the same data, as if it had been started again.
    fn asking_again(&self, id: u64) -> Self {
        let replica_set = self.service.info.replica_set.clone();
        let client = Self::asking_over(self.service.catalog.engine().clone(), replica_set);
        client.service.start_replication().unwrap();
        Self::on(client.service, id)
    }

    fn asking_over(
        engine: Engine,
        replica_set: Option<serverstate::replication::ReplicaSetOptions>,
    ) -> Self {
        Self::asking_by(engine, replica_set, crate::registry::COMMANDS)
    }

    fn asking_by(
        engine: Engine,
        replica_set: Option<serverstate::replication::ReplicaSetOptions>,
        commands: &'static [&'static crate::command::Command],
    ) -> Self {
        let options = CatalogOptions::new(Os::real(), std::env::temp_dir());
        let catalog = Catalog::open(engine, options).unwrap();
        let session_records = SessionRecords::open(&catalog).unwrap();
        let info = ServerInfo {
            host: "here".into(),
            port: 1,
            auth: serverstate::security::AuthMode::On,
            replica_set,
            ..ServerInfo::default()
        };
        Self::on(Service::with_commands(parts_of(catalog, session_records, info), commands), 1)
    }

    /// A client of a server inside another program.
    fn with_host(host: Arc<dyn serverstate::Host>) -> Self {
        Self::over(host, Engine::temporary(), None)
    }

    fn over(
        host: Arc<dyn serverstate::Host>,
        engine: Engine,
        replica_set: Option<serverstate::replication::ReplicaSetOptions>,
    ) -> Self {
        let options = CatalogOptions::new(Os::real(), std::env::temp_dir());
        let catalog = Catalog::open(engine, options).unwrap();
        let records = SessionRecords::open(&catalog).unwrap();
        Self::beside(host, (catalog, records), replica_set, false)
    }

    /// A client of a replica set member whose directory is this one, and empty.
    fn following(
        options: serverstate::replication::ReplicaSetOptions,
        directory: &std::path::Path,
    ) -> Self {
        let kept = engine::HistoryOptions { bytes: u64::MAX, min_age: Duration::ZERO };
        let settings = engine::Options { history: Some(kept), ..engine::Options::new(directory) };
        let registry = Arc::new(telemetry::Registry::new());
        let engine = Engine::open(Os::real(), registry, settings).unwrap();
        let here = CatalogOptions::new(Os::real(), std::env::temp_dir());
        let catalog = Catalog::following(engine, here).unwrap();
        let records = SessionRecords::following(&catalog);
        Self::beside(Arc::new(SilentHost), (catalog, records), Some(options), true)
    }

    fn beside(
        host: Arc<dyn serverstate::Host>,
        (catalog, session_records): (Arc<Catalog>, SessionRecords),
        replica_set: Option<serverstate::replication::ReplicaSetOptions>,
        follows: bool,
    ) -> Self {
        let os = Os::real();
        let info = ServerInfo {
            argv: vec!["fernd".into(), "--port".into(), "1".into()],
            parsed_options: doc! { "net": { "port": 1 } },
            version: "0.1.0".into(),
            host: "here".into(),
            port: 1,
            pid: 7,
            replica_set,
            ..ServerInfo::default()
        };
        let service = Service::new(Parts {
            session_records,
            catalog,
            os,
            info,
            host,
            memory: limits::Account::new(1 << 30),
            follows,
        });
        Self::on(service, 1)
    }

    /// Another connection to the same server.
    fn another(&self, id: u64) -> Self {
        Self::on(Arc::clone(&self.service), id)
    }

    fn on(service: Arc<Service>, id: u64) -> Self {
        let info =
            ConnectionInfo { remote: format!("127.0.0.1:{id}"), local: "127.0.0.1:1".into() };
        let connection = service.open_connection(info);
        Self { service, connection }
    }

    fn reply(&self, database: &str, command: &Document, exhaust_allowed: bool) -> Reply {
        let body = RawDocumentBuf::try_from(command).unwrap();
        let request = Request {
            database,
            body: &body,
            sequences: &[],
            op: OpKind::Msg,
            exhaust_allowed,
            request_id: 1,
            waited_until: None,
            waker: None,
            finisher: None,
        };
        let reply = self.service.run(&self.connection, &request);
        let Some(until) = reply.wait else { return reply };
        let clock = &self.service.os.clock;
        clock.sleep(until.saturating_sub(clock.monotonic()));
        self.service.run(&self.connection, &Request { waited_until: Some(until), ..request })
    }

    /// Runs a request that may wait without a thread, for the first time or again.
    fn arrive(&self, command: &Document, waited_until: Option<Duration>, wake: &Wake) -> Reply {
        let body = RawDocumentBuf::try_from(command).unwrap();
        let make = || Arc::clone(wake);
        let request = Request {
            database: "db",
            body: &body,
            sequences: &[],
            op: OpKind::Msg,
            exhaust_allowed: false,
            request_id: 1,
            waited_until,
            waker: Some(MakeWaker(&make)),
            finisher: None,
        };
        self.service.run(&self.connection, &request)
    }

    /// Runs a command and gives its reply back, whatever it is.
    fn run(&self, database: &str, command: Document) -> Document {
        Document::try_from(&self.reply(database, &command, false).document).unwrap()
    }

    /// Runs a command that must succeed.
    fn ok(&self, database: &str, command: Document) -> Document {
        let reply = self.run(database, command.clone());
        assert_eq!(reply.get_f64("ok").ok(), Some(1.0), "{command} gave {reply}");
        reply
    }

    /// Runs a command that must fail so.
    fn fails(&self, database: &str, command: Document, code: i32, message: &str) {
        let reply = self.run(database, command.clone());
        let got =
            (reply.get_f64("ok").ok(), reply.get_i32("code").ok(), reply.get_str("errmsg").ok());
        assert_eq!(got, (Some(0.0), Some(code), Some(message)), "{command}");
        assert_eq!(reply.get_str("codeName").unwrap(), errors::Code(code).name());
    }
}
