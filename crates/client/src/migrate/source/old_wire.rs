//! The messages of servers before OP_MSG, from the client's side: OP_QUERY, OP_GET_MORE and OP_REPLY.
//!
//! Always true: a reply's lengths are checked before anything is read by them; nothing longer than a server may send is
//! taken into memory.

use anyhow::{Context, Result, anyhow, bail, ensure};
use bson::{Document, RawDocument, RawDocumentBuf, doc};
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

const OP_REPLY: i32 = 1;
const OP_QUERY: i32 = 2004;
const OP_GET_MORE: i32 = 2005;
const HEADER_BYTES: usize = 16;
/// The most that a server sends at once.
const MAX_MESSAGE_BYTES: usize = 48 << 20;
/// A secondary may answer.
pub(super) const SECONDARY_OK: i32 = 1 << 2;
const CURSOR_NOT_FOUND: i32 = 1;
const QUERY_FAILURE: i32 = 1 << 1;
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// A server that builds its answer for longer than this is taken for gone.
const REPLY_TIME: Duration = Duration::from_mins(10);

/// A reply: the cursor to go on with, 0 for none, and documents.
pub(super) struct Reply {
    pub(super) cursor: i64,
    pub(super) documents: Vec<RawDocumentBuf>,
}

/// A connection to an old server.
pub(super) struct Connection {
    stream: TcpStream,
    next_id: i32,
}

impl Connection {
    pub(super) fn open(address: &str) -> Result<Self> {
        let mut last = None;
        for address in address.to_socket_addrs().with_context(|| address.to_owned())? {
            match TcpStream::connect_timeout(&address, CONNECT_TIME) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(REPLY_TIME))?;
                    stream.set_nodelay(true)?;
                    return Ok(Self { stream, next_id: 1 });
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.map_or_else(|| anyhow!("{address}: no such host"), anyhow::Error::from))
    }

    /// Sends a query.
    pub(super) fn query(
        &mut self,
        namespace: &str,
        flags: i32,
        count: i32,
        query: &RawDocument,
    ) -> Result<Reply> {
        let mut body = flags.to_le_bytes().to_vec();
        put_name(&mut body, namespace)?;
        body.extend_from_slice(&0_i32.to_le_bytes());
        body.extend_from_slice(&count.to_le_bytes());
        body.extend_from_slice(query.as_bytes());
        self.exchange(OP_QUERY, &body)
    }

    /// Asks for more of a cursor.
    pub(super) fn get_more(&mut self, namespace: &str, cursor: i64) -> Result<Reply> {
        let mut body = 0_i32.to_le_bytes().to_vec();
        put_name(&mut body, namespace)?;
        body.extend_from_slice(&0_i32.to_le_bytes());
        body.extend_from_slice(&cursor.to_le_bytes());
        self.exchange(OP_GET_MORE, &body)
    }

    /// Runs a command, as a query of `$cmd`. `Ok(Err(…))` is what the server refuses.
    pub(super) fn command(
        &mut self,
        database: &str,
        command: &Document,
    ) -> Result<std::result::Result<Document, String>> {
        let command = RawDocumentBuf::try_from(command)?;
        let reply = self.query(&format!("{database}.$cmd"), SECONDARY_OK, -1, &command)?;
        let reply = reply.documents.first().context("the server answered without a document")?;
        let reply = Document::try_from(&**reply)?;
        if crate::migrate::facts::is_true(reply.get("ok")) {
            return Ok(Ok(reply));
        }
        let told =
            reply.get_str("errmsg").or(reply.get_str("$err")).unwrap_or("it does not say why");
        Ok(Err(told.to_owned()))
    }

    fn exchange(&mut self, opcode: i32, body: &[u8]) -> Result<Reply> {
        let length = i32::try_from(HEADER_BYTES + body.len())?;
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        let mut message = Vec::with_capacity(HEADER_BYTES + body.len());
        for number in [length, id, 0, opcode] {
            message.extend_from_slice(&number.to_le_bytes());
        }
        message.extend_from_slice(body);
        self.stream.write_all(&message)?;
        let mut header = [0; HEADER_BYTES];
        self.stream.read_exact(&mut header)?;
        let number = |at: usize| {
            i32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let length = usize::try_from(number(0)).unwrap_or(0);
        ensure!((HEADER_BYTES..=MAX_MESSAGE_BYTES).contains(&length), "a reply of {length} bytes");
        ensure!(
            number(12) == OP_REPLY,
            "a reply of opcode {}, which no old server sends",
            number(12)
        );
        ensure!(number(8) == id, "a reply to another message");
        let mut body = vec![0; length - HEADER_BYTES];
        self.stream.read_exact(&mut body)?;
        reply(&body)
    }
}

fn put_name(body: &mut Vec<u8>, name: &str) -> Result<()> {
    ensure!(!name.contains('\0'), "a name with a zero byte");
    body.extend_from_slice(name.as_bytes());
    body.push(0);
    Ok(())
}

/// Takes an OP_REPLY apart: flags, cursor, the first document's position, how many there are, the documents.
fn reply(body: &[u8]) -> Result<Reply> {
    let (head, mut rest) = body.split_at_checked(20).context("a reply that is too short")?;
    let flags = i32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    let mut cursor = [0; 8];
    cursor.copy_from_slice(&head[4..12]);
    let mut documents = Vec::new();
    while !rest.is_empty() {
        let length = rest.first_chunk::<4>().map_or(0, |bytes| i32::from_le_bytes(*bytes));
        let length = usize::try_from(length).unwrap_or(0);
        let (document, more) = rest.split_at_checked(length.max(5)).context("a torn document")?;
        documents.push(RawDocumentBuf::from_bytes(document.to_vec())?);
        rest = more;
    }
    if flags & CURSOR_NOT_FOUND != 0 {
        // It may have been away for too long: reading begins again behind the last document.
        return Err(std::io::Error::other("the server has lost the cursor").into());
    }
    if flags & QUERY_FAILURE != 0 {
        let told = documents.first().and_then(|one| one.get_str("$err").ok()).unwrap_or("?");
        bail!("the server refuses a query: {told}");
    }
    Ok(Reply { cursor: i64::from_le_bytes(cursor), documents })
}

/// What a server says of itself.
pub(super) fn hello(connection: &mut Connection) -> Result<Document> {
    let reply = connection.command("admin", &doc! { "isMaster": 1 })?;
    reply.map_err(|error| anyhow!("isMaster: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::rawdoc;

    fn body(flags: i32, documents: &[RawDocumentBuf]) -> Vec<u8> {
        let mut body = flags.to_le_bytes().to_vec();
        body.extend_from_slice(&7_i64.to_le_bytes());
        body.extend_from_slice(&[0; 8]);
        for document in documents {
            body.extend_from_slice(document.as_bytes());
        }
        body
    }

    #[test]
    fn replies_are_taken_apart() {
        let found = reply(&body(8, &[rawdoc! { "a": 1 }, rawdoc! {}])).unwrap();
        assert_eq!((found.cursor, found.documents.len()), (7, 2));
        let error = |flags, document| reply(&body(flags, &[document])).err().unwrap();
        assert!(error(2, rawdoc! { "$err": "no" }).to_string().ends_with("refuses a query: no"));
        assert!(crate::failures::is_passing(&error(1, rawdoc! {})));
    }

    #[test]
    fn torn_replies_are_errors() {
        let whole = body(0, &[rawdoc! { "a": "some text" }]);
        for length in 0..whole.len() {
            assert!(length == 20 || reply(&whole[..length]).is_err(), "{length}");
        }
        for bad in [0_i32, -1, 4, i32::MAX] {
            let mut torn = whole.clone();
            torn[20..24].copy_from_slice(&bad.to_le_bytes());
            assert!(reply(&torn).is_err(), "{bad}");
        }
    }
}
