//! What a command's code holds while it runs.

use crate::command::{Command, Registry};
use crate::gate::{Admitted, refusal};
use crate::judged::Judged;
use crate::permit::RequestPermit;
use auth::{Action, ActionSet, Target};
use bson::raw::RawArrayBuf;
use bson::spec::BinarySubtype;
use bson::{RawBinaryRef, RawBsonRef, RawDocument, RawDocumentBuf, Timestamp, Uuid, doc};
use catalog::{Namespace, Txn};
use dispatch::arguments::Arguments;
use dispatch::fields::Field;
use dispatch::writer::Writer;
use dispatch::{Request, TakeOver};
use engine::LockWait;
use engine::Snapshot;
use errors::{Code, Error, Result};
use os::Waits;
use query::{Interrupt, OpContext, Opening, Permit, StatementLog, Verbosity};
use serverstate::profiler::OpFigures;
use serverstate::security::AuthMode;
use serverstate::{Checked, Connection, RetryableWrite, Running, ServerState};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

/// One request on its way.
#[expect(clippy::struct_excessive_bools, reason = "what became of a request, independently")]
pub(crate) struct Context<'a> {
    pub(crate) service: &'a ServerState,
    /// Every command, for those that run or name others.
    pub(crate) registry: &'a Registry,
    pub(crate) connection: &'a Connection,
    pub(crate) request: &'a Request<'a>,
    /// The command document, out of its `$query` wrapping.
    pub(crate) body: &'a RawDocument,
    pub(crate) command: &'static Command,
    pub(crate) arguments: Arguments<'a>,
    /// Who sends it, as the gate has found: [`Context::admit`].
    pub(crate) admitted: Admitted,
    /// What it may open, where users are asked for.
    permit: Option<RequestPermit<'a>>,
    /// The command as it may be shown.
    pub(crate) shown: Cow<'a, RawDocument>,
    /// Server time at which the request came.
    pub(crate) started: Duration,
    /// The reply without its `ok`.
    pub(crate) reply: Writer,
    /// The request to run after this one, for streaming clients.
    pub(crate) exhaust: Option<RawDocumentBuf>,
    /// The collection it works on, once known.
    pub(crate) collection: Option<Namespace>,
    /// Inside `explain`: how much to tell.
    pub(crate) verbosity: Verbosity,
    /// Inside `explain`: the command that is explained.
    pub(crate) explained: Option<&'a RawDocument>,
    /// The session's state, where the request has a transaction number.
    pub(crate) state: Option<Checked<'a>>,
    /// The connection's transaction, where the request works in it.
    pub(crate) bound: Option<Running>,
    /// The memory of a retryable write.
    pub(crate) retryable: Option<Box<RetryableWrite<'a>>>,
    /// A statement of the batch failed, though the command did not.
    pub(crate) statement_failed: bool,
    /// A retryable write's request has changed something.
    pub(crate) wrote: bool,
    /// It was a statement of a transaction, whose end will do what it did.
    pub(crate) inside: bool,
    /// Something it did is visible to others.
    pub(crate) committed: bool,
    /// A fail point has chosen the error's labels.
    pub(crate) labels_given: bool,
    /// Close the connection instead of answering.
    pub(crate) hang_up: bool,
    /// The connection is another member's link once it is answered.
    pub(crate) hand_over: Option<TakeOver>,
    /// Dropped once it is answered.
    pub(crate) until_answered: Option<Box<dyn Send>>,
    /// Answer nothing yet, but run again at this server time.
    pub(crate) wait: Option<Duration>,
    /// The state a read is to see, and its time, where the client wants to ask for it again.
    pub(crate) read_state: Option<(Timestamp, Snapshot)>,
    /// What it did, for the log and the profiler.
    pub(crate) figures: OpFigures,
    /// Time it spent waiting because the client asked for it; no part of its duration.
    pub(crate) waited: Duration,
    /// What its thread had waited for before it began.
    pub(crate) waits_before: Waits,
    /// Where it is run again: the lock that it has waited for.
    pub(crate) waited_for: Option<LockWait>,
    /// The lock that it waits for, and is run again then: nothing was done.
    pub(crate) waits_for: Option<LockWait>,
}

impl<'a> Context<'a> {
    /// A request that nothing has been done for yet.
    pub(crate) fn new(
        service: &'a ServerState,
        registry: &'a Registry,
        connection: &'a Connection,
        request: &'a Request<'a>,
        body: &'a RawDocument,
        command: &'static Command,
        started: Duration,
    ) -> Self {
        Self {
            service,
            registry,
            connection,
            request,
            body,
            command,
            arguments: Arguments::default(),
            admitted: Admitted::default(),
            permit: None,
            shown: Cow::Borrowed(body),
            started,
            reply: Writer::of_reply(),
            exhaust: None,
            collection: None,
            verbosity: Verbosity::default(),
            explained: None,
            state: None,
            bound: None,
            retryable: None,
            statement_failed: false,
            wrote: false,
            inside: false,
            committed: false,
            labels_given: false,
            hang_up: false,
            hand_over: None,
            until_answered: None,
            wait: None,
            read_state: None,
            figures: OpFigures::default(),
            waited: Duration::ZERO,
            waits_before: Waits::now(),
            waited_for: None,
            waits_for: None,
        }
    }

    /// It was let through as this sender's, after it was judged where anybody is asked for.
    pub(crate) fn admit(&mut self, admitted: Admitted, judged: Option<Judged<'a>>) {
        self.permit = judged.map(|judged| RequestPermit::new(self.service, self.command, judged));
        self.arguments.user = admitted.digest();
        self.admitted = admitted;
    }

    /// The database the command was sent to.
    pub(crate) fn database(&self) -> &'a str {
        self.request.database
    }

    /// Server time.
    pub(crate) fn now(&self) -> Duration {
        self.service.os.clock.monotonic()
    }

    /// Forgets what the command's code has made of the reply so far.
    pub(crate) fn start_over(&mut self) {
        self.reply.clear();
        self.exhaust = None;
        self.figures = OpFigures::default();
        self.statement_failed = false;
        if let Some(write) = &mut self.retryable {
            write.retried.clear();
        }
    }

    /// Fails where the operation was killed or ran out of time.
    pub(crate) fn check_interrupt(&self) -> Result<()> {
        self.connection.operation.check(|| self.now())
    }

    /// As [`Self::check_interrupt`], before a wait: the server's end ends waits first.
    pub(crate) fn check_wait(&self) -> Result<()> {
        self.connection.operation.check_wait(|| self.now())
    }

    /// What running queries ask now and then whether to go on.
    pub(crate) fn interrupt(&self) -> Arc<dyn Interrupt> {
        Arc::clone(&self.connection.interrupt)
    }

    /// The sender's roles as `$$USER_ROLES` tells them. Who logs in is known on the way to access control, too.
    fn shown_roles(&self) -> Arc<RawArrayBuf> {
        if self.service.security.mode() == AuthMode::Transition
            && let Ok(Some(identity)) = self.service.identity(self.connection)
        {
            return Arc::clone(&identity.rights.shown_roles);
        }
        self.admitted.shown_roles()
    }

    /// What `query` runs a part of a command in, apart from every transaction.
    pub(crate) fn internal_op(&self) -> OpContext<'_> {
        let mut op = OpContext::new(&self.service.catalog, self.interrupt());
        op.bypass_validation = self.arguments.bypass_validation;
        op.user_roles = Some(self.shown_roles());
        op.permit = self.permit.as_ref().map(|permit| permit as &dyn Permit);
        op
    }

    /// What `query` runs an operation in.
    pub(crate) fn op(&mut self) -> OpContext<'_> {
        let mut op = OpContext::new(&self.service.catalog, self.interrupt());
        // Commands that do not know the fields have refused them.
        op.bypass_validation = self.arguments.bypass_validation;
        op.keep_empty_timestamps = self.arguments.keep_empty_timestamps;
        op.comment = self.arguments.comment.map(Into::into);
        let replication = &self.service.replication;
        op.cluster_time = replication.keeps_time().then(|| replication.clock.now());
        op.user_roles = Some(self.shown_roles());
        op.snapshot = self.read_state.as_ref().map(|(_, snapshot)| snapshot.clone());
        if let Some(open) = self.state.as_mut().and_then(|state| state.open()) {
            op.txn = Some(&mut open.txn);
        } else if let Some(running) = &mut self.bound {
            op.txn = Some(&mut running.bound.txn);
        }
        if let Some(txn) = &op.txn {
            self.connection.operation.set_txn(txn.id());
        }
        op.permit = self.permit.as_ref().map(|permit| permit as &dyn Permit);
        op.fast_updates = Some(&self.service.fast_updates);
        op.statements = self.retryable.as_deref_mut().map(|write| write as &mut dyn StatementLog);
        op
    }

    /// The number of the session's transaction it runs in.
    pub(crate) fn transaction(&self) -> Option<i64> {
        self.arguments.numbered.filter(|numbered| numbered.in_transaction).map(|n| n.number)
    }

    /// The connection whose transaction it runs in.
    pub(crate) fn bound_to(&self) -> Option<u64> {
        self.bound.as_ref().map(|_| self.connection.id())
    }

    /// The transaction it runs in.
    pub(crate) fn txn(&mut self) -> Option<&mut Txn> {
        if let Some(running) = &mut self.bound {
            return Some(&mut running.bound.txn);
        }
        self.state.as_mut().and_then(|state| state.open()).map(|open| &mut open.txn)
    }

    /// The collection a field names, in the command's database.
    pub(crate) fn namespace(&self, field: &Field<'_>) -> Result<Namespace> {
        let namespace =
            self.connection.last_namespace.make(self.request.database, field.collection()?)?;
        self.opened(namespace)
    }

    /// A namespace that the command was given in another way: it must be one that it was judged by.
    pub(crate) fn opened(&self, namespace: Namespace) -> Result<Namespace> {
        if let Some(permit) = &self.permit {
            permit.check(&namespace, Opening::Metadata)?;
        }
        Ok(namespace)
    }

    /// The same for commands that read, which may name a collection of the database by its UUID. Who sends it must be
    /// allowed the action on what that stands for.
    pub(crate) fn namespace_or_uuid(
        &mut self,
        field: &Field<'_>,
        action: Action,
    ) -> Result<Namespace> {
        let by_name = matches!(field.value, RawBsonRef::String(_));
        let namespace = self.find_namespace(field)?;
        if by_name || !self.admitted.is_access_control_on {
            return Ok(namespace);
        }
        let target = Target::Collection(namespace.database(), namespace.collection());
        if !self.admitted.may_do(target, action) {
            return Err(refusal(self.database(), self.command, self.body));
        }
        if let Some(permit) = &mut self.permit {
            permit.resolve(namespace.clone(), ActionSet::of(&[action]));
        }
        Ok(namespace)
    }

    /// What stood for a UUID in place of a name, and which actions on it were asked for.
    pub(crate) fn resolved(&self) -> Option<&(Namespace, ActionSet)> {
        self.permit.as_ref().and_then(RequestPermit::resolved)
    }

    fn find_namespace(&self, field: &Field<'_>) -> Result<Namespace> {
        let is_uuid = |binary: RawBinaryRef<'_>| binary.subtype == BinarySubtype::Uuid;
        if !matches!(field.value, RawBsonRef::Binary(binary) if is_uuid(binary)) {
            return self.namespace(field);
        }
        let uuid = field.uuid()?;
        // Nobody knows the UUID of what a transaction has made and not committed.
        let collections = self.service.catalog.collections(self.request.database);
        let named = collections.iter().find(|c| !c.is_view() && c.uuid().bytes() == uuid);
        named.map(|collection| collection.namespace().clone()).ok_or_else(|| {
            let uuid = Uuid::from_bytes(uuid);
            Error::new(Code::NAMESPACE_NOT_FOUND, format!("Unable to resolve {uuid}"))
        })
    }

    /// Refuses another collection than the one whose UUID the client sent along. Between this look
    /// and the work itself the name may pass to another collection, as it may right after the work.
    pub(crate) fn check_uuid(&mut self, namespace: &Namespace) -> Result<()> {
        match self.arguments.collection_uuid {
            Some(expected) => self.compare_uuid(namespace, expected),
            None => Ok(()),
        }
    }

    /// Refuses a namespace whose collection has another UUID, or none.
    pub(crate) fn compare_uuid(&mut self, namespace: &Namespace, expected: [u8; 16]) -> Result<()> {
        let collections = match self.txn() {
            Some(txn) => txn.collections(namespace.database()),
            None => self.service.catalog.collections(namespace.database()),
        };
        let actual = collections
            .iter()
            .find(|collection| !collection.is_view() && collection.uuid().bytes() == expected);
        if actual.is_some_and(|collection| collection.namespace() == namespace) {
            return Ok(());
        }
        let found = actual.map(|collection| collection.namespace().collection().to_owned());
        Err(Error::new(
            Code::COLLECTION_UUID_MISMATCH,
            "Collection UUID does not match that specified",
        )
        .with_extra(doc! {
            "db": namespace.database(),
            "collectionUUID": Uuid::from_bytes(expected),
            "expectedCollection": namespace.collection(),
            "actualCollection": found,
        }))
    }

    /// Notes the collection the command works on, for `currentOp`, `top` and the log.
    pub(crate) fn at_collection(&mut self, namespace: &Namespace) {
        self.connection.operation.set_namespace(namespace.shared());
        self.collection = Some(namespace.clone());
    }

    /// The documents of a kind 1 section called `name`, where there is one.
    pub(crate) fn sequence(&self, name: &str) -> Option<&'a [&'a RawDocument]> {
        let found = self.request.sequences.iter().find(|(section, _)| *section == name);
        found.map(|(_, documents)| &documents[..])
    }

    /// Refuses kind 1 sections beyond `known`.
    pub(crate) fn check_sequences(&self, known: &[&str]) -> Result<()> {
        for (at, (name, _)) in self.request.sequences.iter().enumerate() {
            if !known.contains(name) {
                return Err(Error::location(
                    40415,
                    format!("BSON field '{}.{name}' is an unknown field.", self.command.name),
                ));
            }
            if self.request.sequences[..at].iter().any(|(other, _)| other == name) {
                return Err(Error::location(
                    40413,
                    format!("BSON field '{}.{name}' is a duplicate field", self.command.name),
                ));
            }
        }
        Ok(())
    }
}
