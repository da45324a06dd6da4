//! The seam to the server: [`Service::run`] takes a request and gives a reply.
//!
//! What is always true: `run` never fails and never changes what it borrowed; every error becomes
//! a reply. A connection runs one request at a time.

use crate::admin::rotate_certificates;
use crate::aggregation::hand_on::is_handed_on;
use crate::audit;
use crate::command::{Command, Registry, check_database};
use crate::context::Context;
use crate::crud::get_more::{is_of_change_stream, resumable};
use crate::finished::{self, Entry};
use crate::gate::{self, Admitted};
use crate::judged::Judged;
use crate::lock_wait;
use crate::needs::Needs;
use crate::outcome::{
    Outcome, count_run, count_time, drop_own_cursor, forget_session, reply_memory, write_outcome,
};
use crate::redact::redacted;
use crate::registry::COMMANDS;
use crate::replication::acknowledgement::Acknowledgement;
use crate::replication::{cluster_time, read_concern, write_concern};
use crate::transactions::labels::LabelFacts;
use crate::transactions::{self, bound};
use crate::unfinished::Unfinished;
use bson::{Document, RawBsonRef, RawDocument};
use bsonval::raw;
use catalog::QUEUED;
use dispatch::arguments::{Arguments, Fields, not_in_api};
use dispatch::fields::Field;
use dispatch::reply::{Reply, write_labels};
use dispatch::rules::{Class, Counter};
use dispatch::{MakeWaker, OpKind, Request};
use engine::LockWait;
use errors::{Code, Error, Result};
use query::DdlRetries;
use serverstate::fail_point::{Candidate, FailPointHit};
use serverstate::replication::Role;
use serverstate::{Connection, LockWaiting, Origin, Parts, ServerState, last_write};
use session::{CursorId, OperationGuard, OperationStart};
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Runs commands over a server's state.
pub struct Service {
    state: Arc<ServerState>,
    /// Every command.
    pub(crate) registry: Registry,
}

impl Deref for Service {
    type Target = ServerState;

    fn deref(&self) -> &ServerState {
        &self.state
    }
}

impl Service {
    /// Builds the state over its parts, and the service over that.
    pub fn new(parts: Parts) -> Arc<Self> {
        Self::with_commands(parts, COMMANDS)
    }

    /// The same with these commands.
    pub(crate) fn with_commands(parts: Parts, commands: &'static [&'static Command]) -> Arc<Self> {
        let names: Vec<_> =
            commands.iter().map(|command| (command.name, command.writes_data())).collect();
        let state = ServerState::new(parts, &names);
        Arc::new(Self { state, registry: Registry::new(commands) })
    }

    /// Runs one request. May wait for locks and the disk; an awaitable `hello`, and a getMore at the end of a tail,
    /// wait by their reply.
    pub fn run(&self, connection: &Connection, request: &Request<'_>) -> Reply {
        let started = self.os.clock.monotonic();
        let body = unwrap_query(request);
        let (position, command) = match find_command(&self.registry, connection, body) {
            Ok(found) => found,
            Err(error) => {
                self.metrics.unknown_commands.fetch_add(1, Ordering::Relaxed);
                self.metrics.user_asserts.fetch_add(1, Ordering::Relaxed);
                return Reply::error(&error);
            }
        };
        // Before anything of the request is shown, counted or done.
        match self.admit(connection, request, (position, command), body) {
            Ok(admitted) => self.run_admitted(
                connection,
                (request, body),
                (position, command),
                admitted,
                started,
            ),
            Err(refusal) => *refusal,
        }
    }

    /// Whether the sender may do this; who it is, or the reply that refuses.
    fn admit<'a>(
        &self,
        connection: &Connection,
        request: &'a Request<'_>,
        (position, command): (usize, &'static Command),
        body: &'a RawDocument,
    ) -> std::result::Result<(Admitted, Option<Judged<'a>>), Box<Reply>> {
        if self.audits {
            audit::check(self).map_err(|error| Box::new(Reply::error(&error)))?;
        }
        let admitted = if self.security.is_enforced() {
            gate::admit(self, &self.registry, connection, request, command, body).map_err(
                |error| Box::new(self.refuse(connection, request, (position, command), &error)),
            )?
        } else {
            (Admitted::default(), None)
        };
        if self.audits {
            if admitted.0.by_localhost_exception && request.waited_until.is_none() {
                audit::by_localhost_exception(self, connection, request.database, command)
                    .map_err(|error| Box::new(Reply::error(&error)))?;
            }
            self.tell_checked(connection, request, (command, body), Code(0))
                .map_err(|error| Box::new(Reply::error(&error)))?;
        }
        Ok(admitted)
    }

    /// Runs a request whose sender may.
    fn run_admitted(
        &self,
        connection: &Connection,
        (request, body): (&Request<'_>, &RawDocument),
        (position, command): (usize, &'static Command),
        (admitted, judged): (Admitted, Option<Judged<'_>>),
        started: Duration,
    ) -> Reply {
        let shown = redacted(command, request.database, body);
        let start = OperationStart {
            name: command.name,
            user: admitted.digest(),
            database: request.database,
            command: shown.as_bytes(),
            now: started,
        };
        let (running, started, waited_for) = self.begin_or_go_on(connection, request, &start);
        catalog::forget_statements();
        catalog::set_lock_timeout(bound::own_lock_timeout(connection));
        catalog::limit_waits(None);
        if self.audits {
            catalog::keep_made_names();
        }
        let mut context =
            Context::new(self, &self.registry, connection, request, body, command, started);
        context.admit(admitted, judged);
        context.shown = shown;
        context.waited_for = waited_for;
        let limited = limits::enter_as(Arc::clone(&connection.limits));
        let hosted = script::hosted_by(Arc::clone(&connection.script_host));
        let executed = self.execute_and_wait(&mut context, body);
        drop(hosted);
        let admitted = limited.end();
        if context.wait.is_some()
            && matches!(&executed, Executed::Ended(ended) if ended.result.is_ok())
        {
            drop(running);
            // Told when it is answered.
            let _so_far = query::take_examined();
            return Reply { wait: context.wait, ..Reply::default() };
        }
        if let (Some(wait), Some(waker)) = (context.waits_for.take(), request.waker) {
            // Told when it was run again.
            let _so_far = query::take_examined();
            let operation = running.park(&connection.operation);
            return lock_wait::park(connection, LockWaiting { wait, operation, started }, waker);
        }
        let outcome = match executed {
            Executed::Ended(outcome) => outcome,
            Executed::Waits { result, acknowledgement, waker } => {
                let operation = running.park(&connection.operation);
                let waits = (*acknowledgement, result);
                return Unfinished::park(context, position, waits, operation, admitted, waker);
            }
        };
        if let Err(error) = &outcome.result {
            let session = context.arguments.session;
            let session = session.filter(|_| context.arguments.numbered.is_some());
            forget_session(self, session, error.code());
        }
        let outcome = Outcome {
            result: if self.audits {
                audit::ended(&context, outcome.result)
            } else {
                outcome.result
            },
            ..outcome
        };
        let outcome = outcome.labelled(|error| LabelFacts::of(&context).label(error));
        count_run(self, position, outcome.result.is_err());
        self.end_reply(&mut context, &outcome);
        let time = self.os.clock.monotonic().saturating_sub(started + context.waited);
        self.account(&context, time, outcome.result.as_ref().err());
        drop(running);
        let result = outcome.result;
        let Context { reply, exhaust, hang_up, hand_over, until_answered, figures, .. } = context;
        let streamed = if exhaust.is_some() { figures.cursor } else { 0 };
        let own = connection.own_cursor.load(Ordering::Relaxed);
        if own != streamed {
            connection.own_cursor.store(streamed, Ordering::Relaxed);
            // A request that has waited for that, and failed before it took it again, leaves it to nobody.
            self.cursors.drop_awaited(CursorId(own), connection.id());
        }
        let document = reply.finish();
        let memory = reply_memory(self, admitted, document.as_bytes().len());
        let is_last = matches!(&result, Err(error) if error.code() == Code::AUTHENTICATION_FAILED)
            && connection.fails_login();
        last_write::note(&connection.last_write, command, request.op, &document);
        Reply {
            document,
            exhaust,
            hang_up,
            is_last,
            wait: None,
            unfinished: None,
            memory,
            hand_over,
            until_sent: until_answered,
        }
    }

    /// The operation of a request, since when it is there, and the lock that it has waited for where it is run again.
    fn begin_or_go_on<'a>(
        &self,
        connection: &'a Connection,
        request: &Request<'_>,
        start: &OperationStart<'_>,
    ) -> (OperationGuard<'a>, Duration, Option<LockWait>) {
        let waiting = request.waited_until.and_then(|_| connection.lock_waiting.lock().take());
        match waiting.map(|waiting| *waiting) {
            Some(LockWaiting { wait, operation, started }) => {
                (operation.resume(&connection.operation), started, Some(wait))
            }
            None => (self.operations.start(&connection.operation, start), start.now, None),
        }
    }

    /// Does what the command does, and waits until it may be answered; or says that the answer can wait without this
    /// thread.
    fn execute_and_wait<'r>(&self, context: &mut Context<'r>, body: &RawDocument) -> Executed<'r> {
        let (connection, request) = (context.connection, context.request);
        let rules = &context.command.rules;
        let candidate = Candidate { rules, connection, database: request.database, body };
        // One that has waited met them when it came.
        let has_waited = request.waited_until.is_some();
        let met = if has_waited { None } else { self.fail_points.meet(&candidate) };
        let result = match met {
            None => execute(context),
            Some(hit) => self.fail(hit, context),
        };
        let Some(mut acknowledgement) = Acknowledgement::of(context, &result) else {
            return Executed::Ended(Outcome { result, not_durable: None });
        };
        let operation = &connection.operation;
        let acknowledged = match (acknowledgement.look(self, operation), may_answer_later(context))
        {
            (Some(acknowledged), _) => acknowledged,
            (None, Some(waker)) => {
                let acknowledgement = Box::new(acknowledgement);
                return Executed::Waits { result, acknowledgement, waker };
            }
            (None, None) => acknowledgement.wait_here(self, operation),
        };
        Executed::Ended(Outcome::of(context.command, result, acknowledged))
    }

    /// Ends the reply with what came of the command, and of the wait behind it.
    fn end_reply(&self, context: &mut Context<'_>, outcome: &Outcome) {
        if outcome.result.is_err() {
            context.exhaust = None;
            context.hand_over = None;
        }
        let labels = outcome.not_durable.as_ref().map(|_| LabelFacts::of(context));
        let concern = (context.command, &context.arguments.write_concern);
        write_outcome(self, &mut context.reply, concern, outcome, labels);
    }

    /// Tells the audit log that the server starts or ends.
    ///
    /// # Errors
    /// The audit log cannot be written.
    pub fn tell_audit(&self, kind: &str, param: Document) -> Result<()> {
        audit::of_server(self, kind, param)
    }

    /// Loads the files of TLS again, as the command of that name does, because of a signal.
    pub fn rotate_certificates(&self) {
        rotate_certificates::on_signal(self);
    }

    /// Answers a request that may not be run.
    fn refuse(
        &self,
        connection: &Connection,
        request: &Request<'_>,
        (position, command): (usize, &Command),
        error: &Error,
    ) -> Reply {
        let runs = &self.metrics.runs[position];
        runs.total.fetch_add(1, Ordering::Relaxed);
        runs.failed.fetch_add(1, Ordering::Relaxed);
        self.metrics.user_asserts.fetch_add(1, Ordering::Relaxed);
        let told = match error.code() {
            Code::UNAUTHORIZED if self.audits => self.tell_checked(
                connection,
                request,
                (command, unwrap_query(request)),
                error.code(),
            ),
            _ => Ok(()),
        };
        drop_own_cursor(self, connection);
        let reply = Reply::error(told.as_ref().err().unwrap_or(error));
        last_write::note(&connection.last_write, command, request.op, &reply.document);
        reply
    }

    fn tell_checked(
        &self,
        connection: &Connection,
        request: &Request<'_>,
        (command, body): (&Command, &RawDocument),
        result: Code,
    ) -> Result<()> {
        // Nobody is asked, or was when the request came first.
        let is_free = matches!(command.needs, Needs::NoLogin) || request.waited_until.is_some();
        if result == Code(0) && is_free {
            return Ok(());
        }
        audit::checked(self, connection, request.database, (command, body), result)
    }

    /// A write of the old kind was refused before it became a command; `getLastError` tells.
    pub fn refuse_write(&self, connection: &Connection, error: &Error) {
        self.metrics.user_asserts.fetch_add(1, Ordering::Relaxed);
        last_write::refused(&connection.last_write, error);
    }

    /// Runs a command as a fail point wants it.
    fn fail(&self, hit: FailPointHit, context: &mut Context<'_>) -> Result<()> {
        if let Some(time) = hit.block {
            self.block(context, time)?;
        }
        context.hang_up = hit.hang_up;
        if let Some(error) = hit.error {
            context.labels_given = hit.labels.is_some();
            // The labels that the code has by itself depend on the request's number.
            let mut own = Fields::new();
            if let Ok(arguments) =
                Arguments::parse(context.command, context.body, context.admitted.digest(), &mut own)
            {
                context.arguments = arguments;
            }
            if !context.labels_given && hit.knows_cursor && is_of_change_stream(context) {
                return Err(resumable(error));
            }
            return Err(error);
        }
        let result = execute(context);
        if let (Ok(()), Some(error)) = (&result, &hit.write_concern_error) {
            context.reply.bson("writeConcernError", &bson::Bson::Document(error.clone()));
            let own = || {
                let code = Code(error.get_i32("code").unwrap_or(0));
                let label = LabelFacts::of(context).label_of_concern(code);
                label.map(str::to_owned).into_iter().collect()
            };
            let labels: Vec<String> = hit.labels.unwrap_or_else(own);
            write_labels(&mut context.reply, &labels);
        }
        result
    }

    /// Waits for `time`, for the server's end, or until the operation is told to stop.
    fn block(&self, context: &Context<'_>, time: Duration) -> Result<()> {
        const LOOK: Duration = Duration::from_millis(20);
        let until = context.now().saturating_add(time);
        while !self.is_stopping() {
            context.check_interrupt()?;
            let left = until.saturating_sub(context.now());
            if left.is_zero() {
                break;
            }
            self.wait(left.min(LOOK));
        }
        Ok(())
    }

    /// The client hung up while its request runs: a read is told to stop, a write goes on, for
    /// it may have been sent without waiting for an answer.
    pub fn client_left(&self, connection: &Connection) {
        let number = connection.operation.number();
        let running = self.operations.list();
        let is_read = running.iter().filter(|running| running.number == number).any(|running| {
            self.registry
                .find(running.name)
                .is_some_and(|(_, command)| command.class == Class::Read)
        });
        if is_read {
            connection.operation.kill(number, Code::INTERRUPTED);
        }
    }

    fn account(&self, context: &Context<'_>, time: Duration, error: Option<&Error>) {
        count_time(self, context.command, context.collection.as_ref(), time);
        let entry = Entry {
            service: self,
            connection: context.connection,
            command: context.command,
            op: context.request.op,
            database: context.request.database,
            collection: context.collection.as_ref(),
            identity: context.admitted.identity.as_deref(),
            shown: finished::Shown::Of(context),
            figures: &context.figures,
            is_explained: context.explained.is_some(),
            waits: finished::Waited::Since(context.waits_before),
            reply_bytes: context.reply.len(),
            time,
            examined: query::take_examined(),
            error,
        };
        entry.tell();
    }
}

/// How far a request has come on the thread that executes it.
enum Executed<'r> {
    /// It is to be answered.
    Ended(Outcome),
    /// It is done, and its answer waits without a thread.
    Waits { result: Result<()>, acknowledgement: Box<Acknowledgement>, waker: MakeWaker<'r> },
}

/// What wakes the answer of a command that is done and waits for the disk or other members, where it may wait without a
/// thread.
fn may_answer_later<'r>(context: &Context<'r>) -> Option<MakeWaker<'r>> {
    let is_told_of = context.service.audits && audit::tells_of_end(context);
    let goes_on = context.exhaust.is_some()
        || context.hand_over.is_some()
        || context.until_answered.is_some();
    context.request.finisher.filter(|_| !is_told_of && !goes_on && context.wait.is_none())
}

/// Clients that send `OP_QUERY` wrap a command in `$query` to add a read preference. Nobody else may:
/// what looks at the first field of an `OP_MSG` to know the command must see the one that runs.
fn unwrap_query<'a>(request: &Request<'a>) -> &'a RawDocument {
    if request.op != OpKind::Query {
        return request.body;
    }
    match request.body.iter().next() {
        Some(Ok((key, RawBsonRef::Document(inner))))
            if matches!(key.as_str(), "$query" | "query") =>
        {
            inner
        }
        _ => request.body,
    }
}

/// What clients of old servers may ask for in place of a command that is no more.
fn dropped(name: &str) -> Option<&'static str> {
    Some(match name {
        "group" => "use aggregate with $group",
        "eval" | "$eval" => "run the code in the client, or use aggregate with $function",
        "geoNear" => "use aggregate with $geoNear",
        "geoSearch" => "use find with $geoWithin",
        "parallelCollectionScan" => "use find",
        "copydb" | "clone" | "cloneCollection" => "use mongodump and mongorestore",
        "repairDatabase" => "use validate, and fern check on the data directory",
        _ => return None,
    })
}

fn find_command(
    registry: &Registry,
    connection: &Connection,
    body: &RawDocument,
) -> Result<(usize, &'static Command)> {
    let find = |name: &[u8]| {
        registry.find_by_bytes(name).filter(|(_, command)| {
            !command.is_legacy_protocol_only || connection.last_write.get().is_some()
        })
    };
    if let Some(found) = raw::plain_first_name(body).and_then(find) {
        return Ok(found);
    }
    let first = raw::first(body).transpose()?;
    find(first.as_ref().map_or(b"", |first| first.name_bytes()))
        .ok_or_else(|| unknown_command(body, first.as_ref().map_or("", |first| first.name())))
}

fn unknown_command(body: &RawDocument, name: &str) -> Error {
    match body.get("apiStrict") {
        Ok(Some(RawBsonRef::Boolean(true))) => not_in_api(name),
        _ => match dropped(name) {
            Some(instead) => Error::new(
                Code::COMMAND_NOT_FOUND,
                format!("no such command: '{name}'. MongoDB has dropped it: {instead}"),
            ),
            None => Error::new(Code::COMMAND_NOT_FOUND, format!("no such command: '{name}'")),
        },
    }
}

/// Settles what depends on this node's role: times, concerns, whether it may be asked at all.
fn settle(context: &mut Context<'_>) -> Result<()> {
    let (service, command) = (context.service, context.command);
    let replication = &service.replication;
    if let (true, Some(seen)) = (replication.keeps_time(), &context.arguments.cluster_time) {
        cluster_time::follow(context, seen)?;
    }
    let arguments = &mut context.arguments;
    if arguments.read_concern.given {
        let starts = arguments.numbered.is_some_and(|numbered| numbered.starts);
        read_concern::check(&arguments.read_concern, command, starts, replication)?;
    }
    if command.writes_data() {
        // Nobody is told that nothing happened (no such transaction, not found) by a server that
        // cannot know what its next start will find in the log.
        service.catalog.check_running()?;
        if replication.keeps_time() {
            replication.clock.reach_wall_clock();
        }
    }
    if command.takes_write_concern {
        write_concern::settle(&mut arguments.write_concern, replication)?;
    }
    check_role(context, replication.role(&service.os))
}

/// What shows metadata, which a secondary does for those who want it from one.
const OF_METADATA: [&str; 5] =
    ["collStats", "dbStats", "listCollections", "listDatabases", "listIndexes"];

/// Of the commands whose writes are durable: what a member that waits for its set answers by itself.
const BEFORE_THE_SET: [&str; 5] =
    ["profile", "replSetExpireOplog", "replSetInitiate", "replSetReconfig", "replSetResizeOplog"];

/// Refuses what this node's role does not allow.
fn check_role(context: &Context<'_>, role: Role) -> Result<()> {
    let (service, command, arguments) = (context.service, context.command, &context.arguments);
    let local = context.request.database == "local";
    let writes = match command.class {
        Class::Write => true,
        // What stores settings would make a directory that is to be empty hold something.
        _ if service.follows() && command.is_always_durable => {
            !BEFORE_THE_SET.contains(&command.name)
        }
        // A connection's transaction that has written nothing is committed by every member.
        _ if transactions::is_end(command) && arguments.numbered.is_none() => {
            bound::has_written(context.connection)
        }
        _ => command.takes_write_concern && writes(command, context.body),
    };
    if writes && local && service.replication.is_of_several() {
        return Err(Error::new(
            Code::ILLEGAL_OPERATION,
            "a member of a replica set of several keeps nothing of its own in the database local yet",
        ));
    }
    if matches!(role, Role::Standalone | Role::Primary) {
        return Ok(());
    }
    let keeps_its_own = local && !service.follows();
    if writes && !keeps_its_own {
        return if is_handed_on(context, arguments, role, context.body) {
            Ok(())
        } else {
            Err(Error::new(Code::NOT_WRITABLE_PRIMARY, "not primary"))
        };
    }
    if arguments.numbered.is_some() && service.replication.is_of_several() {
        // Transactions read the newest state, and write.
        return Err(Error::new(Code::NOT_WRITABLE_PRIMARY, "not primary"));
    }
    let shows_data = command.class == Class::Read || OF_METADATA.contains(&command.name);
    if !shows_data || local || command.name == "getMore" {
        return Ok(());
    }
    if matches!(role, Role::Uninitiated | Role::Recovering | Role::Arbiter) {
        let text = "node is not in primary or recovering state";
        return Err(Error::new(Code::NOT_PRIMARY_OR_SECONDARY, text));
    }
    if arguments.secondary_ok || context.request.op != OpKind::Msg {
        return Ok(());
    }
    Err(Error::new(Code::NOT_PRIMARY_NO_SECONDARY_OK, "not primary and secondaryOk=false"))
}

/// What a client says before it can be told that it lacks a version: a driver whose `hello` is refused tells its user
/// nothing but that no server was found.
const WITHOUT_VERSION: [&str; 6] =
    ["authenticate", "hello", "isMaster", "logout", "saslContinue", "saslStart"];

/// Refuses a command of a client that declares no version of the API, where `requireApiVersion` asks for one. Members
/// and the server itself declare none.
fn check_needs_no_version(context: &Context<'_>) -> Result<()> {
    let identity = context.admitted.identity.as_ref();
    if context.connection.origin == Origin::Startup
        || WITHOUT_VERSION.contains(&context.command.name)
        || identity.is_some_and(|identity| identity.name.is_member())
    {
        return Ok(());
    }
    Err(Error::location(
        498_870,
        "The apiVersion parameter is required, please configure your MongoClient's API version",
    ))
}

/// Whether the limit of the cluster parameter `defaultMaxTimeMS` holds for a command that names none.
fn takes_default_limit(command: &Command) -> bool {
    command.class == Class::Read && !matches!(command.name, "getMore" | "explain")
}

/// Whether a command may change what is stored.
fn writes(command: &Command, body: &RawDocument) -> bool {
    match command.name {
        // It only undoes what nobody has seen.
        "abortTransaction" | "getLastError" => false,
        "aggregate" => {
            let last = body.get_array("pipeline").ok().and_then(|p| p.into_iter().last());
            let stage = match last {
                Some(Ok(RawBsonRef::Document(stage))) => stage.iter().next().and_then(Result::ok),
                _ => None,
            };
            stage.is_some_and(|(name, _)| matches!(name.as_str(), "$out" | "$merge"))
        }
        "mapReduce" => {
            !matches!(body.get_document("out"), Ok(out) if out.get("inline").is_ok_and(|i| i.is_some()))
        }
        "compact" => true,
        _ => command.writes_data(),
    }
}

/// Whether a command that waits for the gate is to go on waiting.
fn wait_is_over(context: &Context<'_>) -> Result<()> {
    if context.service.is_stopping() {
        return Err(Error::new(Code::INTERRUPTED_AT_SHUTDOWN, "the server is shutting down"));
    }
    context.check_interrupt()
}

fn execute(context: &mut Context<'_>) -> Result<()> {
    let mut fields = Fields::new();
    if let Err(error) = read_arguments(context, &mut fields) {
        // A refusal carries the labels of what was asked for only where that is known as a whole.
        context.arguments = Arguments::of(context.admitted.digest());
        return Err(error);
    }
    settle(context)?;
    let service = context.service;
    catalog::limit_waits(write_concern::limit_of_waits(context));
    // Writes count per document, which only they know.
    let is_counted = context.request.waited_until.is_some()
        || matches!(context.command.counter, Counter::Insert | Counter::Update | Counter::Delete);
    if !is_counted {
        service.metrics.count(context.command.counter, 1);
    }
    let _writing = if writes(context.command, context.body) {
        Some(service.write_gate.enter(|| wait_is_over(context))?)
    } else {
        None
    };
    if context.arguments.numbered.is_some() {
        bound::refuse_numbered(context)?;
        transactions::enter(context)?;
        context.inside = context.transaction().is_some() && !transactions::is_end(context.command);
        // A statement that ends by a bug must not stay half done in its transaction.
        let ended = catch_unwind(AssertUnwindSafe(|| run(context, &fields)));
        let failed = !matches!(ended, Ok(Ok(()))) || context.statement_failed;
        transactions::leave(context, failed);
        return ended.unwrap_or_else(|bug| resume_unwind(bug)).map_err(bound::outside);
    }
    context.read_state =
        read_concern::state(&context.arguments.read_concern, &service.replication)?;
    bound::enter(context)?;
    if context.bound.is_some() {
        context.inside = true;
        let result = run(context, &fields).map_err(bound::inside);
        bound::leave(context, result.is_err());
        return result;
    }
    run(context, &fields).map_err(bound::outside)
}

/// Reads the command's arguments, and does what goes by them alone; `fields` are the command's own.
fn read_arguments<'a>(context: &mut Context<'a>, fields: &mut Fields<'a>) -> Result<()> {
    let command = context.command;
    context.arguments.read(command, context.body, fields)?;
    if transactions::is_end(command) && bound::is_meant(context, &context.arguments)? {
        context.arguments.numbered = None;
    }
    let arguments = &mut context.arguments;
    if context.admitted.is_access_control_on && context.admitted.identity.is_none() {
        // Who has not logged in has no session, and moves no clock.
        (arguments.session, arguments.cluster_time) = (None, None);
    }
    if context.service.require_api_version.load(Ordering::Relaxed) && !arguments.names_api_version()
    {
        check_needs_no_version(context)?;
    }
    let anywhere = transactions::is_end(command) && context.arguments.numbered.is_none();
    if !anywhere {
        check_database(command, context.request.database)?;
    }
    if !context.request.sequences.is_empty() {
        context.check_sequences(command.sequences)?;
    }
    let (service, arguments) = (context.service, &mut context.arguments);
    if let Some(session) = arguments.session {
        service.touch_session(session, context.started)?;
        service.operations.set_session(&context.connection.operation, session);
    }
    let default_limit = service.default_max_time_ms.load(Ordering::Relaxed);
    if default_limit > 0
        && arguments.max_time_ms.is_none()
        && takes_default_limit(command)
        && !context.admitted.bypasses_default_limit()
    {
        arguments.max_time_ms = Some(default_limit);
    }
    if let Some(millis) = arguments.max_time_ms
        && service.fail_points.time_limits_count()
    {
        let deadline = context.started + Duration::from_millis(millis);
        context.connection.operation.set_deadline(Some(deadline));
    }
    transactions::check(command, arguments, context.request.database)
}

/// Runs the command's code; again, where a change of the metadata beside it made it fail before it
/// had done anything. Only where the service waits for the disk afterwards may it have
/// written something.
fn run<'a>(context: &mut Context<'a>, fields: &[Field<'a>]) -> Result<()> {
    let before = engine::thread_commits();
    let mut retries = DdlRetries::default();
    let may_queue = lock_wait::may_wait_without_thread(context);
    let deferring = engine::Deferring::begin(may_queue, context.waited_for.take());
    let result = loop {
        let result = (context.command.run)(context, fields);
        context.committed = engine::thread_commits() != before;
        // A cursor that failed has lost its place.
        let repeatable = !context.committed
            && !context.inside
            && context.read_state.is_none()
            && context.command.counter != Counter::GetMore;
        match &result {
            Err(error)
                if repeatable
                    && retries.again(
                        error,
                        &context.service.catalog,
                        &*context.connection.interrupt,
                    )? =>
            {
                context.start_over();
            }
            _ => break result,
        }
    };
    let is_queued = matches!(&result, Err(error) if error.code() == QUEUED);
    context.waits_for = deferring.end().filter(|_| is_queued);
    debug_assert!(
        context.waits_for.is_none() || (result.is_err() && !context.committed),
        "{} waits for a lock, and has done something",
        context.command.name
    );
    debug_assert!(
        context.command.writes_data() || !context.committed,
        "{} has written, and its registration says nothing of a write concern",
        context.command.name
    );
    result
}
