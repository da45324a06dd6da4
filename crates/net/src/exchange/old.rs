//! The messages from before OP_MSG, answered.
//!
//! What is always true: a query or a get-more gets one OP_REPLY, whatever happens; a write gets
//! none, and what became of it is with the service.

use super::{Ended, Exchange};
use crate::envelope::{Envelope, Form, SentAs};
use crate::legacy::{self, Answer, Translated};
use crate::service::Service;
use bson::RawDocument;
use dispatch::{OpKind, Reply, Request};
use errors::Error;
use wire::{Compressor, GetMore, Header, Insert, OpQuery, OpReply};

impl Envelope {
    /// Around an OP_REPLY.
    pub(super) fn of_query(response_to: i32, packed: Option<Compressor>) -> Self {
        Self { response_to, checksum: false, packed }
    }
}

impl<S: Service> Exchange<'_, S> {
    pub(super) fn answer_query(
        &mut self,
        header: Header,
        query: &OpQuery<'_>,
        packed: Option<Compressor>,
    ) -> Result<(), Ended> {
        let envelope = Envelope::of_query(header.request_id, packed);
        self.answer_translated(envelope, legacy::query(query), header.request_id)
    }

    pub(super) fn answer_get_more(
        &mut self,
        header: Header,
        more: &GetMore<'_>,
        packed: Option<Compressor>,
    ) -> Result<(), Ended> {
        let envelope = Envelope::of_query(header.request_id, packed);
        self.answer_translated(envelope, legacy::get_more(more), header.request_id)
    }

    /// Inserts part by part: the message may hold more documents than a command.
    pub(super) fn insert(&mut self, insert: &Insert<'_>, request_id: i32) -> Result<(), Ended> {
        let parts = match legacy::insert(insert) {
            Ok(parts) => parts,
            Err(error) => return self.write(Err(error), request_id),
        };
        for (at, part) in parts.iter().enumerate() {
            let via = OpKind::Legacy { goes_on: at > 0 };
            let reply = self.run_translated(part, via, request_id, false)?;
            if legacy::failed(&reply.document) && !legacy::continues(insert) {
                break;
            }
        }
        Ok(())
    }

    /// Runs what gets no reply.
    pub(super) fn write(
        &mut self,
        translated: errors::Result<Translated<'_>>,
        request_id: i32,
    ) -> Result<(), Ended> {
        match translated {
            Ok(translated) => {
                let via = OpKind::Legacy { goes_on: false };
                self.run_translated(&translated, via, request_id, false).map(drop)
            }
            Err(error) => {
                self.serving.service.write_refused(&self.connection.state, &error);
                Ok(())
            }
        }
    }

    fn run_translated(
        &self,
        translated: &Translated<'_>,
        via: OpKind,
        request_id: i32,
        is_answered: bool,
    ) -> Result<Reply, Ended> {
        let reply = self.run(&Request {
            database: translated.database,
            body: &translated.body,
            sequences: &translated.sequences,
            op: via,
            exhaust_allowed: false,
            request_id,
            waited_until: self.waited_until,
            waker: is_answered.then_some(self.serving.waker),
            // What becomes of a write without an answer is asked for by the next message.
            finisher: is_answered.then_some(self.serving.waker),
        });
        if reply.hand_over.is_some() {
            return Err(Ended(Some("a link begins with an OP_MSG".to_owned())));
        }
        if reply.hang_up { Err(Ended(None)) } else { Ok(reply) }
    }

    fn answer_translated(
        &mut self,
        envelope: Envelope,
        translated: errors::Result<Translated<'_>>,
        request_id: i32,
    ) -> Result<(), Ended> {
        let translated = match translated {
            Ok(translated) => translated,
            Err(error) => return self.send_failure(envelope, &error),
        };
        let via = match translated.answer {
            Answer::Command | Answer::Inline => OpKind::Query,
            Answer::Batch | Answer::Plan => OpKind::Legacy { goes_on: false },
        };
        let mut reply = self.run_translated(&translated, via, request_id, true)?;
        if let Some(unfinished) = reply.unfinished.take() {
            let sent_as = SentAs { envelope, form: Form::Reply(translated.answer) };
            self.defer_answer(unfinished, Some(sent_as), reply.wait);
            return Ok(());
        }
        if let Some(until) = reply.wait {
            self.defer(self.frame.to_vec(), envelope.packed, Some(until));
            return Ok(());
        }
        let Reply { document, memory: _until_sent, is_last, .. } = reply;
        self.send_translated(envelope, translated.answer, &document)?;
        if is_last { Err(Ended(None)) } else { Ok(()) }
    }

    /// Sends the answer to a translated request in the form that its sender knows.
    pub(super) fn send_translated(
        &mut self,
        envelope: Envelope,
        answer: Answer,
        document: &RawDocument,
    ) -> Result<(), Ended> {
        match answer {
            Answer::Command => self.send_one(envelope, document),
            Answer::Plan => match legacy::plan(document) {
                Ok(plan) => self.send_one(envelope, &plan),
                Err(error) => self.send_failure(envelope, &error),
            },
            Answer::Inline => {
                let (inline, left) = legacy::inline(document);
                if let Some(kill) = left {
                    self.write(Ok(kill), envelope.response_to)?;
                }
                self.send_one(envelope, &inline)
            }
            Answer::Batch => match legacy::batch(document) {
                Ok(reply) => self.send_reply(envelope, &reply),
                Err(error) => self.send_failure(envelope, &error),
            },
        }
    }

    /// Says `$err` in the way of old servers.
    pub(super) fn send_failure(&mut self, envelope: Envelope, error: &Error) -> Result<(), Ended> {
        let document = legacy::failure(error);
        let flags = legacy::failure_flags();
        self.send_reply(envelope, &OpReply { flags, ..legacy::reply_of(&document) })
    }

    fn send_one(&mut self, envelope: Envelope, document: &RawDocument) -> Result<(), Ended> {
        self.send_reply(envelope, &legacy::reply_of(document))
    }

    fn send_reply(&mut self, envelope: Envelope, reply: &OpReply<'_>) -> Result<(), Ended> {
        let sent = self.send_with(envelope.packed, None, |out, number| {
            wire::encode_reply(out, number, envelope.response_to, reply);
        });
        sent.map(drop)
    }
}
