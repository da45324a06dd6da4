//! `$changeStreamSplitLargeEvent`: an event that is too large for one document comes in parts.
//!
//! Always true: each part has the event's token with its own number, and whole fields of the event; a
//! stream that begins behind a part gives the parts that follow it.

use super::source::{Progress, is_too_large, too_large};
use bson::raw::{RawBsonRef, RawDocumentBuf};
use bsonval::raw::{self, Writer};
use errors::Result;
use oplog::token::Token;
use parking_lot::Mutex;
use pipeline::DocumentSource;
use std::collections::VecDeque;
use std::sync::Arc;

/// A part holds so much, or one field.
const PART_BYTES: usize = 15 << 20;

/// Events, the large ones in parts.
pub(super) struct SplitSource {
    events: Box<dyn DocumentSource>,
    /// The token that the stream began at: it may be that of a part.
    start: Token,
    progress: Arc<Mutex<Progress>>,
    parts: VecDeque<(Token, RawDocumentBuf)>,
}

impl SplitSource {
    pub(super) fn new(
        events: Box<dyn DocumentSource>,
        start: Token,
        progress: Arc<Mutex<Progress>>,
    ) -> Self {
        Self { events, start, progress, parts: VecDeque::new() }
    }
}

impl DocumentSource for SplitSource {
    fn next(&mut self) -> Result<Option<RawDocumentBuf>> {
        loop {
            if let Some((token, part)) = self.parts.pop_front() {
                self.progress.lock().event = token;
                return Ok(Some(part));
            }
            let Some(event) = self.events.next()? else { return Ok(None) };
            if !is_too_large(&event) {
                return Ok(Some(event));
            }
            let token = self.progress.lock().event.clone();
            let given = self.start.fragment_of(&token).unwrap_or(-1);
            self.parts = split(&event, &token)?
                .into_iter()
                .filter(|(number, ..)| *number > given)
                .map(|(_, token, part)| (token, part))
                .collect();
        }
    }

    fn park(&mut self) {
        if !self.parts.is_empty() {
            // They are large: the event is made again, from the part on that was given last.
            self.parts.clear();
            let mut progress = self.progress.lock();
            self.start = progress.event.clone();
            progress.rewind = Some(self.start.clone());
        }
        self.events.park();
    }
}

/// The parts of an event, with their numbers and tokens.
fn split(event: &RawDocumentBuf, token: &Token) -> Result<Vec<(i32, Token, RawDocumentBuf)>> {
    let mut groups: Vec<Vec<raw::Element<'_>>> = vec![Vec::new()];
    let mut bytes = 0;
    for field in raw::elements(event) {
        let field = field?;
        if field.name() == "_id" {
            continue;
        }
        let size = field.bytes().len();
        if size > PART_BYTES + (2 << 20) {
            return Err(too_large(event));
        }
        if bytes > 0 && bytes + size > PART_BYTES {
            groups.push(Vec::new());
            bytes = 0;
        }
        bytes += size;
        if let Some(last) = groups.last_mut() {
            last.push(field);
        }
    }
    let of = i32::try_from(groups.len()).unwrap_or(i32::MAX);
    let mut parts = Vec::new();
    for (number, fields) in (0..).zip(&groups) {
        let token = token.fragment(number)?;
        let mut out = Writer::with_capacity(1024);
        let open = out.begin();
        out.value("_id", RawBsonRef::Document(&token.to_document()));
        let part = out.begin_document("splitEvent");
        out.value("fragment", RawBsonRef::Int32(number + 1));
        out.value("of", RawBsonRef::Int32(of));
        out.end(part);
        for field in fields {
            out.element(field);
        }
        out.end(open);
        parts.push((number, token, out.finish()?));
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{Document, doc};
    use oplog::Time;

    #[test]
    fn a_large_event_comes_in_parts_with_all_its_fields() {
        let text = "x".repeat(9 << 20);
        let event = doc! {"_id": 1, "a": &text, "b": &text, "c": 1};
        let event = RawDocumentBuf::try_from(&event).unwrap();
        let token = Token::event(Time(5), 0, None, None).unwrap();
        let parts = split(&event, &token).unwrap();
        assert_eq!(parts.len(), 2);
        let mut fields = Vec::new();
        for (number, token, part) in &parts {
            let part = Document::try_from(part).unwrap();
            let shown = part.get_document("splitEvent").unwrap();
            assert_eq!(shown, &doc! {"fragment": number + 1, "of": 2});
            let id = part.get_document("_id").unwrap();
            assert_eq!(id.get_str("_data").unwrap(), token.to_text());
            fields.extend(part.keys().filter(|name| name.len() == 1).cloned());
        }
        assert_eq!(fields, ["a", "b", "c"]);
    }
}
