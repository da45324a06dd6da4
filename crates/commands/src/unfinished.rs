//! The answer to a command that is done, kept while it waits for the disk or for other members on no thread.
//!
//! From → to: [`Unfinished::park`] takes out of a request's [`Context`] what its answer needs; whoever goes on with it
//! ends as [`Service`](crate::Service) ends a request that did not wait.
//!
//! Always true: the operation stays in its connection's slot until the answer is given or given up, so `currentOp`
//! lists it and `killOp` ends its wait; nothing of the request itself is kept but the command as entries of the log
//! show it.

use crate::command::Command;
use crate::context::Context;
use crate::finished::{self, Entry};
use crate::outcome::{self, Outcome};
use crate::replication::acknowledgement::{Acknowledged, Acknowledgement, Watch};
use crate::transactions::labels::LabelFacts;
use bson::RawDocumentBuf;
use catalog::Namespace;
use dispatch::writer::Writer;
use dispatch::{MakeWaker, OpKind, Reply};
use errors::Result;
use limits::Charge;
use os::Waits;
use query::Examined;
use serverstate::profiler::OpFigures;
use serverstate::security::Identity;
use serverstate::{Connection, ServerState, last_write};
use session::{ParkedOperation, SessionId};
use std::sync::Arc;
use std::time::Duration;

/// See above.
pub(crate) struct Unfinished {
    /// Given up first: it calls whoever goes on with this.
    watch: Option<Watch>,
    operation: ParkedOperation,
    acknowledgement: Acknowledgement,
    state: Arc<ServerState>,
    connection: Arc<Connection>,
    /// The command, and its place among all.
    command: (usize, &'static Command),
    database: Box<str>,
    collection: Option<Namespace>,
    identity: Option<Arc<Identity>>,
    op: OpKind,
    session: Option<SessionId>,
    labels: LabelFacts,
    /// What came of the command, and its reply so far.
    result: Result<()>,
    reply: Writer,
    hang_up: bool,
    /// For the reply.
    memory: Option<Charge>,
    /// When it began, and what of the time since does not count.
    started: Duration,
    waited: Duration,
    /// For the log and the profiler.
    shown: RawDocumentBuf,
    figures: OpFigures,
    examined: Examined,
    waits: Waits,
}

impl Unfinished {
    /// Takes out of a request what its answer needs, which waits; the answer itself where that may be given after
    /// all.
    pub(crate) fn park(
        context: Context<'_>,
        position: usize,
        (acknowledgement, result): (Acknowledgement, Result<()>),
        operation: ParkedOperation,
        mut memory: Option<Charge>,
        waker: MakeWaker<'_>,
    ) -> Reply {
        if let Some(memory) = &mut memory {
            memory.set(context.reply.capacity() as u64);
        }
        let (shown, labels) = (finished::kept_command(&context), LabelFacts::of(&context));
        operation.slot().set_awaits_members();
        let this = Self {
            watch: None,
            operation,
            acknowledgement,
            state: context.service.this(),
            connection: context.connection.this(),
            command: (position, context.command),
            database: context.request.database.into(),
            identity: context.admitted.identity,
            op: context.request.op,
            session: context.arguments.session,
            labels,
            result,
            reply: context.reply,
            hang_up: context.hang_up,
            memory,
            started: context.started,
            waited: context.waited,
            shown,
            collection: context.collection,
            figures: context.figures,
            examined: query::take_examined(),
            waits: Waits::now().since(context.waits_before),
        };
        Box::new(this).wait(waker)
    }

    /// Waits on, unless it may be answered by now.
    fn wait(mut self: Box<Self>, waker: MakeWaker<'_>) -> Reply {
        let call = (waker.0)();
        self.operation.slot().when_killed(Arc::clone(&call));
        let acknowledged = loop {
            let met = self.acknowledgement.met();
            self.watch = self.acknowledgement.watch(&self.state, &call);
            // What came before somebody was to call is found now.
            let acknowledged = self.look();
            if acknowledged.is_some() || self.acknowledgement.met() == met {
                break acknowledged;
            }
        };
        if let Some(acknowledged) = acknowledged {
            return self.answer(acknowledged);
        }
        let until = self.acknowledgement.next_look(&self.state, self.operation.slot());
        Reply { wait: Some(until), unfinished: Some(self), ..Reply::default() }
    }

    fn look(&mut self) -> Option<Acknowledged> {
        let before = Waits::now();
        let acknowledged = self.acknowledgement.look(&self.state, self.operation.slot());
        self.waits = self.waits.plus(Waits::now().since(before));
        acknowledged
    }

    /// The answer, and the end of the operation.
    fn answer(mut self: Box<Self>, acknowledged: Acknowledged) -> Reply {
        let result = std::mem::replace(&mut self.result, Ok(()));
        let examined = std::mem::take(&mut self.examined);
        let outcome = Outcome::of(self.command.1, result, acknowledged);
        let (state, labels) = (&*self.state, self.labels);
        if let Err(error) = &outcome.result {
            let session = self.session.filter(|_| labels.is_numbered());
            outcome::forget_session(state, session, error.code());
        }
        let outcome = outcome.labelled(|error| labels.label(error));
        outcome::count_run(state, self.command.0, outcome.result.is_err());
        outcome::write_outcome(
            state,
            &mut self.reply,
            (self.command.1, &self.acknowledgement.concern()),
            &outcome,
            Some(labels),
        );
        let now = state.os.clock.monotonic();
        self.tell(now.saturating_sub(self.started + self.waited), examined, &outcome);
        outcome::drop_own_cursor(state, &self.connection);
        let Self { state, connection, operation, command, op, reply, memory, hang_up, .. } = *self;
        drop(operation);
        let document = reply.finish();
        let memory = outcome::reply_memory(&state, memory, document.as_bytes().len());
        last_write::note(&connection.last_write, command.1, op, &document);
        Reply { document, hang_up, memory, ..Reply::default() }
    }

    fn tell(&self, time: Duration, examined: Examined, outcome: &Outcome) {
        let (state, command) = (&*self.state, self.command.1);
        outcome::count_time(state, command, self.collection.as_ref(), time);
        let entry = Entry {
            service: state,
            connection: &self.connection,
            command,
            op: self.op,
            database: &self.database,
            collection: self.collection.as_ref(),
            identity: self.identity.as_deref(),
            shown: finished::Shown::Kept(&self.shown),
            figures: &self.figures,
            is_explained: false,
            waits: finished::Waited::Kept(self.waits),
            reply_bytes: self.reply.len(),
            time,
            examined,
            error: outcome.result.as_ref().err(),
        };
        entry.tell();
    }
}

impl dispatch::Unfinished for Unfinished {
    fn go_on(mut self: Box<Self>, waker: MakeWaker<'_>) -> Reply {
        match self.look() {
            Some(acknowledged) => self.answer(acknowledged),
            None => self.wait(waker),
        }
    }

    fn bytes(&self) -> usize {
        let shown = self.shown.as_bytes().len();
        size_of::<Self>() + shown + self.reply.capacity() + self.database.len()
    }
}
