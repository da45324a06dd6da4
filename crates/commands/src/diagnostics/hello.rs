//! `hello` and `isMaster`: the first words of every client, and the stream by which it watches us.
//!
//! Always true: an awaitable hello waits its whole time out, unless the topology changes (a
//! standalone's never does) or the server ends. It holds no thread meanwhile: it asks to be run again.

use crate::audit;
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use crate::replication::reply::{topology_counter, write_topology};
use crate::replication::status::write_hello;
use crate::security::{authenticate, sasl};
use auth::{Action, ActionSet, Privilege, Resource};
use bson::{Document, RawBsonRef, RawDocument, RawDocumentBuf};
use dispatch::OpKind;
use dispatch::fields::{Field, inner};
use errors::{Code, Error, Result};
use limits::MAX_DOCUMENT_BYTES;
use serverstate::replication::Role;
use serverstate::{LogEvent, Severity};
use session::Sessions;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The largest message.
pub(crate) const MAX_MESSAGE_BYTES: i32 = 48_000_000;
/// The most writes in one command.
pub(crate) const MAX_WRITE_BATCH: i32 = 100_000;
/// MongoDB 8.0's protocol.
pub(crate) const MAX_WIRE_VERSION: i32 = 25;
/// The compressors of `wire` with their numbers there.
const COMPRESSORS: [(&str, u8); 3] = [("snappy", 1), ("zstd", 3), ("zlib", 2)];
/// The longest that a hello waits, whatever the client says.
const MAX_AWAIT: Duration = Duration::from_mins(10);
/// The most a client may say about itself.
const MAX_METADATA_BYTES: usize = 512;

pub(crate) const HELLO: Command =
    Command::new("hello", "What this server is; awaitable and streaming.", Needs::NoLogin, run)
        .api_v1()
        .secret(&["speculativeAuthenticate"]);

pub(crate) const IS_MASTER: Command =
    Command::new("isMaster", "hello under its old name.", Needs::NoLogin, run)
        .aliases(&["ismaster"])
        .secret(&["speculativeAuthenticate"]);

#[derive(Default)]
struct Hello<'a> {
    topology: Option<Topology>,
    max_await: Option<u64>,
    compression: Vec<&'a str>,
    asks_compression: bool,
    mechanisms_for: Option<&'a str>,
    speculates: Option<&'a RawDocument>,
    link: Option<&'a RawDocument>,
}

struct Topology {
    process_id: bson::oid::ObjectId,
    counter: i64,
}

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let hello = parse(context, fields)?;
    if let Some(link) = hello.link {
        return begin_link(context, &hello, link);
    }
    context.wait = wait_for_change(context, &hello)?;
    if context.wait.is_some() {
        return Ok(());
    }
    let shown = write(context, &hello)?;
    let streams = context.request.exhaust_allowed && hello.max_await.is_some();
    if streams && !context.service.is_stopping() {
        context.exhaust = Some(next_question(context, shown)?);
    }
    Ok(())
}

/// The same question, about the topology that the answer has shown: what has changed since is answered at once.
fn next_question(context: &Context<'_>, counter: i64) -> Result<RawDocumentBuf> {
    let mut question = Document::try_from(context.body)?;
    if let Ok(topology) = question.get_document_mut("topologyVersion") {
        topology.insert("processId", context.service.process_id);
        topology.insert("counter", counter);
    }
    Ok(RawDocumentBuf::try_from(&question)?)
}

fn parse<'a>(context: &Context<'a>, fields: &[Field<'a>]) -> Result<Hello<'a>> {
    let mut hello = Hello::default();
    for field in &fields[1..] {
        match field.name {
            "helloOk" => {
                field.bool()?;
            }
            "client" => keep_client(context, field.document()?)?,
            "compression" => {
                hello.asks_compression = true;
                for name in field.array()? {
                    if let RawBsonRef::String(name) = name? {
                        hello.compression.push(name);
                    }
                }
            }
            "topologyVersion" => hello.topology = Some(parse_topology(field)?),
            "maxAwaitTimeMS" => hello.max_await = Some(field.non_negative()?),
            "saslSupportedMechs" => hello.mechanisms_for = Some(field.str()?),
            "speculativeAuthenticate" => hello.speculates = Some(field.document()?),
            "fernLink" => hello.link = Some(field.document()?),
            "loadBalanced" => refuse_load_balancing(field)?,
            // Not strict, unlike every other command: newer clients say more about themselves
            // (`backpressure`) and older servers are to ignore it.
            _ => {}
        }
    }
    match (&hello.topology, hello.max_await) {
        (Some(_), None) => Err(Error::location(
            31368,
            "A request with a 'topologyVersion' must include 'maxAwaitTimeMS'",
        )),
        (None, Some(_)) => Err(Error::location(
            51759,
            "A request with 'maxAwaitTimeMS' must include a 'topologyVersion'",
        )),
        _ => Ok(hello),
    }
}

/// Another member opens a link: the connection is the link's once this is answered.
fn begin_link(context: &mut Context<'_>, hello: &Hello<'_>, link: &RawDocument) -> Result<()> {
    let invalid = |what: &str| Err(Error::new(Code::INVALID_OPTIONS, format!("fernLink {what}")));
    if context.command.name != HELLO.name || context.request.op != OpKind::Msg {
        return invalid("is a field of hello, sent as OP_MSG");
    }
    if context.database() != "admin" {
        return invalid("is sent to the database admin");
    }
    if hello.topology.is_some() || hello.asks_compression || hello.mechanisms_for.is_some() {
        return invalid("goes with no topologyVersion, compression or saslSupportedMechs");
    }
    let service = context.service;
    let internal = ActionSet::of(&[Action::Internal]);
    if !context.admitted.may(&Privilege { resource: Resource::Any, actions: internal }) {
        return Err(Error::new(
            Code::UNAUTHORIZED,
            "this server is spoken to by members that have its key, or a certificate of its organization: start the other \
             one with the same --keyFile, or the same --clusterAuthMode",
        ));
    }
    let peer = context.connection.info();
    if peer.remote.parse::<SocketAddr>().is_err() {
        return invalid("comes by TCP");
    }
    let Some(acceptor) = service.links.acceptor() else {
        let error = no_links(service.replication.role(&service.os));
        if service.links.is_first_refusal() {
            log_refused_link(context, &error);
        }
        return Err(error);
    };
    let accepted = acceptor.accept(link, peer)?;
    write(context, hello)?;
    context.reply.document("fernLink", &accepted.answer);
    context.reply.i32("fernFrames", accepted.frames);
    context.hand_over = Some(accepted.take);
    Ok(())
}

/// Why a server that lets no links in does not.
fn no_links(role: Role) -> Error {
    let (code, why) = match role {
        Role::Standalone => {
            (Code::NO_REPLICATION_ENABLED, "it is in no replica set: it runs without --replSet")
        }
        Role::Uninitiated => {
            (Code::NOT_YET_INITIALIZED, "it is in no replica set yet: it waits for replSetInitiate")
        }
        Role::Primary | Role::Secondary | Role::Recovering | Role::Arbiter => {
            (Code::INVALID_REPLICA_SET_CONFIG, "its replica set has no other members")
        }
    };
    Error::new(code, format!("this server takes no links from members of a replica set: {why}"))
}

fn log_refused_link(context: &Context<'_>, error: &Error) {
    let connection = context.connection;
    let mut attributes = Document::new();
    attributes.insert("remote", &connection.info().remote);
    attributes.insert("reason", error.message());
    context.service.host.log(&LogEvent {
        severity: Severity::Warning,
        component: "REPL",
        id: 9_016_760,
        context: &format!("conn{}", connection.id()),
        message: "A link was refused",
        attributes,
    });
}

fn refuse_load_balancing(field: &Field<'_>) -> Result<()> {
    if !field.bool()? {
        return Ok(());
    }
    Err(Error::new(Code::INVALID_OPTIONS, "this server does not support load balanced connections"))
}

fn parse_topology(field: &Field<'_>) -> Result<Topology> {
    let mut topology =
        Topology { process_id: bson::oid::ObjectId::from_bytes([0; 12]), counter: 0 };
    for part in inner(field.document()?, "hello.topologyVersion") {
        let part = part?;
        match (part.name, part.value) {
            ("processId", RawBsonRef::ObjectId(id)) => topology.process_id = id,
            ("processId", _) => return Err(part.wrong_type("objectId")),
            ("counter", _) => {
                topology.counter = part.long()?;
                if topology.counter < 0 {
                    return Err(Error::location(
                        31372,
                        format!(
                            "topologyVersion must have a non-negative counter, got {}",
                            topology.counter
                        ),
                    ));
                }
            }
            _ => return Err(part.unknown()),
        }
    }
    Ok(topology)
}

/// Keeps what the client says about itself in its first hello; later ones must be silent.
fn keep_client(context: &Context<'_>, client: &RawDocument) -> Result<()> {
    if client.as_bytes().len() > MAX_METADATA_BYTES {
        return Err(Error::new(
            Code::CLIENT_METADATA_DOCUMENT_TOO_LARGE,
            format!(
                "The client metadata document must be less then or equal to \
                 {MAX_METADATA_BYTES}bytes"
            ),
        ));
    }
    for (part, field) in [("driver", "name"), ("os", "type")] {
        let Some(inner) = client.get(part)? else {
            return Err(Error::new(
                Code::CLIENT_METADATA_MISSING_FIELD,
                format!("Missing required sub-document '{part}' in the client metadata document"),
            ));
        };
        let present = match inner {
            RawBsonRef::Document(inner) => {
                matches!(inner.get(field)?, Some(RawBsonRef::String(_)))
            }
            _ => false,
        };
        if !present {
            return Err(Error::new(
                Code::CLIENT_METADATA_MISSING_FIELD,
                format!("Missing required field '{field}' in the client metadata document"),
            ));
        }
    }
    if context.connection.client.set(client.to_owned()).is_err() {
        return Err(Error::new(
            Code::CLIENT_METADATA_CANNOT_BE_MUTATED,
            "The client metadata document may only be sent in the first hello",
        ));
    }
    let connection = &context.connection;
    let mut attributes = Document::new();
    attributes.insert("remote", &connection.info().remote);
    attributes.insert("client", format!("conn{}", connection.id()));
    if let Ok(client) = Document::try_from(client) {
        attributes.insert("doc", client);
    }
    context.service.host.log(&LogEvent {
        severity: Severity::Info,
        component: "NETWORK",
        id: 51800,
        context: &format!("conn{}", connection.id()),
        message: "client metadata",
        attributes,
    });
    if context.service.audits { audit::client_metadata(context, client) } else { Ok(()) }
}

/// Until when to wait where the client already knows our topology; `None` for an answer now.
fn wait_for_change(context: &Context<'_>, hello: &Hello<'_>) -> Result<Option<Duration>> {
    let (Some(topology), Some(max_await)) = (&hello.topology, hello.max_await) else {
        return Ok(None);
    };
    if topology.process_id != context.service.process_id {
        return Ok(None);
    }
    let counter = topology_counter(&context.service.replication);
    if topology.counter > counter {
        return Err(Error::location(
            31382,
            format!(
                "Received a topology version with counter: {} which is greater than the server \
                 topology version counter: {counter}",
                topology.counter
            ),
        ));
    }
    context.check_interrupt()?;
    let now = context.now();
    let until = context
        .request
        .waited_until
        .unwrap_or_else(|| now.saturating_add(Duration::from_millis(max_await).min(MAX_AWAIT)));
    let replication = &context.service.replication;
    // A node that stepped down elects itself again, and nobody else will tell its clients.
    let until = match replication.role(&context.service.os) {
        Role::Secondary if !replication.is_of_several() => {
            replication.elects_itself_at().min(until)
        }
        _ => until,
    };
    let waits = topology.counter == counter && now < until && !context.service.is_stopping();
    Ok(waits.then_some(until))
}

/// Writes the answer; says which topology it shows.
fn write(context: &mut Context<'_>, hello: &Hello<'_>) -> Result<i64> {
    let service = context.service;
    let legacy = context.command.name == "isMaster";
    let reply = &mut context.reply;
    reply.bool("helloOk", true);
    // The counter first: what changes while the rest is written is told by the next one.
    let counter = topology_counter(&service.replication);
    write_hello(service, reply, if legacy { "ismaster" } else { "isWritablePrimary" });
    write_topology(service, reply, counter);
    reply.i32("maxBsonObjectSize", MAX_DOCUMENT_BYTES as i32);
    reply.i32("maxMessageSizeBytes", MAX_MESSAGE_BYTES);
    reply.i32("maxWriteBatchSize", MAX_WRITE_BATCH);
    reply.date("localTime", service.os.clock.wall_ms());
    reply.i32("logicalSessionTimeoutMinutes", (Sessions::TIMEOUT.as_secs() / 60) as i32);
    reply.i32("connectionId", context.connection.id() as i32);
    reply.i32("minWireVersion", 0);
    reply.i32("maxWireVersion", MAX_WIRE_VERSION);
    reply.bool("readOnly", false);
    let common: Vec<_> =
        COMPRESSORS.iter().filter(|(name, _)| hello.compression.contains(name)).collect();
    if hello.asks_compression {
        let agreed = common.iter().fold(0, |agreed, (_, number)| agreed | 1 << number);
        context.connection.compressors.store(agreed, Ordering::Relaxed);
    }
    if hello.asks_compression && !common.is_empty() {
        // The client's order is its preference; it takes the first that both know.
        let list = reply.begin_array("compression");
        let mut at = 0;
        for name in &hello.compression {
            if common.iter().any(|(other, _)| other == name) {
                reply.element_str(at, name);
                at += 1;
            }
        }
        reply.end(list);
    }
    if let Some(user) = hello.mechanisms_for {
        let mechanisms = sasl::mechanisms_of(context, user)?;
        let list = context.reply.begin_array("saslSupportedMechs");
        for (at, name) in mechanisms.iter().enumerate() {
            context.reply.element_str(at, name);
        }
        context.reply.end(list);
    }
    // A step that cannot be made is left out, and the client begins of its own.
    if let Some(begun) =
        hello.speculates.and_then(|wanted| authenticate::speculate(context, wanted))
    {
        context.reply.bson("speculativeAuthenticate", &bson::Bson::Document(begun));
    }
    Ok(counter)
}
