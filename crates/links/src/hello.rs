//! What a member says before the first frame, and what it is answered: the document `fernLink` of a
//! `hello`, and the two messages around it.
//!
//! ```text
//! fernLink   {version: 1, set: "name", setId: ObjectId, from: long, to: long, lineage: long, start: long, connection: long}
//! ```
//!
//! Beside the document that answers it stands `fernFrames`, the newest version of frames that are read there; where it is
//! not, the oldest one is.
//!
//! Always true: a document that lacks a field, has one more, or has one of another type is refused; one of
//! another version is refused for its version, whatever else it says.
//!
//! On the wire: `docs/formats/link-hello.md`.

use bson::oid::ObjectId;
use bson::raw::cstr;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use quorum::MemberId;
use replica::{FRAME_VERSION, OLDEST_FRAME_VERSION};
use wire::{HEADER_SIZE, Header, Message, MsgFlags};

/// The version this program speaks.
pub const VERSION: i32 = 1;

/// Bytes of a set's name at most.
const MAX_SET_NAME: usize = 256;
/// Bytes of the message that answers a hello, at most.
pub(crate) const MAX_ANSWER: usize = 64 << 10;
/// Where a refusal says what the set is now, to a member that was removed; and bytes of that, at most: a greater one is
/// not told.
pub(crate) const SET_OF_REFUSAL: &str = "fernSet";
pub(crate) const MAX_SET_OF_REFUSAL: usize = MAX_ANSWER / 2;

/// What one side of a link says of itself and of whom it takes the other for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkHello {
    /// The set's name.
    pub set: String,
    /// The set's identity: two sets may have one name.
    pub set_id: ObjectId,
    /// The member that says this.
    pub from: MemberId,
    /// The member that it is said to.
    pub to: MemberId,
    /// The founder, or a random number since the set was forced to go on without its majority.
    pub lineage: u64,
    /// A random number of this start of the process that opens the link.
    pub start: u64,
    /// Which of its connections to that member this is; counts up within a start.
    pub connection: u64,
}

/// Why a document is no hello of a link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// Another version.
    #[error("version {0} of links between members is not spoken here, only {VERSION}")]
    Version(i64),
    /// A field that is not there.
    #[error("fernLink lacks the field {0}")]
    Missing(&'static str),
    /// A field of another type, or with a value that cannot be.
    #[error("the field {0} of fernLink is not what it should be")]
    Wrong(&'static str),
    /// A field that nobody knows.
    #[error("the field {0} of fernLink is unknown")]
    Unknown(String),
    /// Bytes that are no document.
    #[error("fernLink is no document: {0}")]
    Malformed(String),
}

impl LinkHello {
    /// The document.
    pub fn encode(&self) -> RawDocumentBuf {
        let mut document = RawDocumentBuf::new();
        document.append(cstr!("version"), VERSION);
        document.append(cstr!("set"), self.set.as_str());
        document.append(cstr!("setId"), self.set_id);
        document.append(cstr!("from"), self.from.0.cast_signed());
        document.append(cstr!("to"), self.to.0.cast_signed());
        document.append(cstr!("lineage"), self.lineage.cast_signed());
        document.append(cstr!("start"), self.start.cast_signed());
        document.append(cstr!("connection"), self.connection.cast_signed());
        document
    }

    /// Reads the document.
    pub fn decode(document: &RawDocument) -> Result<Self, HelloError> {
        let malformed =
            |error: bson::error::Error| HelloError::Malformed(one_line(&error.to_string(), 400));
        match document.get("version").map_err(malformed)? {
            Some(RawBsonRef::Int32(VERSION)) => {}
            Some(RawBsonRef::Int32(other)) => return Err(HelloError::Version(other.into())),
            Some(RawBsonRef::Int64(other)) => return Err(HelloError::Version(other)),
            Some(_) => return Err(HelloError::Wrong("version")),
            None => return Err(HelloError::Missing("version")),
        }
        let (mut set, mut set_id) = (None, None);
        let mut longs = [
            ("from", None),
            ("to", None),
            ("lineage", None),
            ("start", None),
            ("connection", None),
        ];
        let mut versions = 0;
        for field in document {
            let (name, value) = field.map_err(malformed)?;
            match (name.as_str(), value) {
                ("version", RawBsonRef::Int32(VERSION)) if versions == 0 => versions += 1,
                ("version", _) => return Err(HelloError::Wrong("version")),
                ("set", RawBsonRef::String(name))
                    if !name.is_empty() && name.len() <= MAX_SET_NAME && set.is_none() =>
                {
                    set = Some(name.to_owned());
                }
                ("set", _) => return Err(HelloError::Wrong("set")),
                ("setId", RawBsonRef::ObjectId(id)) if set_id.is_none() => set_id = Some(id),
                ("setId", _) => return Err(HelloError::Wrong("setId")),
                (other, value) => {
                    let Some((name, place)) = longs.iter_mut().find(|(name, _)| *name == other)
                    else {
                        return Err(HelloError::Unknown(one_line(other, 64)));
                    };
                    match value {
                        RawBsonRef::Int64(value) if place.is_none() => {
                            *place = Some(value.cast_unsigned());
                        }
                        _ => return Err(HelloError::Wrong(name)),
                    }
                }
            }
        }
        let [from, to, lineage, start, connection] =
            longs.map(|(name, value)| value.ok_or(HelloError::Missing(name)));
        let member = |name, value: Result<u64, HelloError>| match value? {
            0 => Err(HelloError::Wrong(name)),
            id => Ok(MemberId(id)),
        };
        Ok(Self {
            set: set.ok_or(HelloError::Missing("set"))?,
            set_id: set_id.ok_or(HelloError::Missing("setId"))?,
            from: member("from", from)?,
            to: member("to", to)?,
            lineage: lineage?,
            start: start?,
            connection: connection?,
        })
    }

    /// The message that opens a link.
    pub(crate) fn message(&self) -> Vec<u8> {
        let mut body = RawDocumentBuf::new();
        body.append(cstr!("hello"), 1);
        body.append(cstr!("fernLink"), self.encode());
        body.append(cstr!("$db"), "admin");
        let mut message = Vec::new();
        wire::encode_msg(&mut message, 1, 0, MsgFlags::NONE, &body);
        message
    }
}

/// The length of the answer, once its head is there.
pub(crate) fn answer_length(received: &[u8], most_bytes: usize) -> Result<Option<usize>, String> {
    let Some(head) = received.first_chunk::<HEADER_SIZE>() else { return Ok(None) };
    let length = Header::parse(head).map_err(|error| error.to_string())?.length;
    if length > most_bytes {
        Err(format!("its answer has {length} bytes"))
    } else {
        Ok(Some(length))
    }
}

/// What the message says that answers a hello, and the version of frames that both sides know. An error is the other
/// side's reason, or what is wrong with it.
pub fn read_answer(message: &[u8]) -> Result<(LinkHello, u8), String> {
    let body = body_of(message)?;
    let Ok(Some(RawBsonRef::Document(link))) = body.get("fernLink") else {
        return Err("it knows nothing of links between members".to_owned());
    };
    let hello = LinkHello::decode(link).map_err(|error| error.to_string())?;
    let frames = match body.get("fernFrames") {
        Ok(None) => OLDEST_FRAME_VERSION,
        Ok(Some(RawBsonRef::Int32(newest))) => {
            let newest = newest.clamp(0, i32::from(FRAME_VERSION));
            u8::try_from(newest).unwrap_or(FRAME_VERSION)
        }
        _ => 0,
    };
    if frames < OLDEST_FRAME_VERSION {
        return Err("it reads no frames that are written here".to_owned());
    }
    Ok((hello, frames))
}

/// What the set is now, as a message says that refuses a hello to a member that was removed.
pub(crate) fn set_of_refusal(message: &[u8]) -> Option<&[u8]> {
    match any_body_of(message).ok()?.get(SET_OF_REFUSAL) {
        Ok(Some(RawBsonRef::Binary(set))) => Some(set.bytes),
        _ => None,
    }
}

/// The reply of a command that was done. An error is the other side's reason, or what is wrong with the message.
pub fn body_of(message: &[u8]) -> Result<&RawDocument, String> {
    let body = any_body_of(message)?;
    if !is_done(body)? {
        let said = body.get_str("errmsg").unwrap_or("it gives no reason");
        return Err(format!("it refuses: {}", one_line(said, 400)));
    }
    Ok(body)
}

/// Whether a reply says that the command was done.
pub(crate) fn is_done(reply: &RawDocument) -> Result<bool, String> {
    match reply.get("ok") {
        Ok(Some(RawBsonRef::Double(ok))) => Ok(ok > 0.0),
        Ok(Some(RawBsonRef::Int32(ok))) => Ok(ok > 0),
        _ => Err("its answer has no ok".to_owned()),
    }
}

/// The reply of a command, done or not.
pub(crate) fn any_body_of(message: &[u8]) -> Result<&RawDocument, String> {
    // What is wrong with a message is told with names that are in it.
    let (_, message) = wire::decode(message).map_err(|error| one_line(&error.to_string(), 400))?;
    let Message::Msg(message) = message else {
        return Err("its answer is no OP_MSG".to_owned());
    };
    Ok(message.body)
}

/// What another program said, fit for one line of a log: so many characters of it.
fn one_line(text: &str, most: usize) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{Document, doc, rawdoc};
    use proptest::prelude::*;

    fn hello() -> LinkHello {
        LinkHello {
            set: "rs".to_owned(),
            set_id: ObjectId::from_bytes([7; 12]),
            from: MemberId(u64::MAX - 1),
            to: MemberId(2),
            lineage: 0,
            start: 1 << 63,
            connection: 3,
        }
    }

    #[test]
    fn a_hello_is_read_as_it_was_written_and_its_bytes_are_those_of_before() {
        assert_eq!(LinkHello::decode(&hello().encode()), Ok(hello()));
        testkit::golden(env!("CARGO_MANIFEST_DIR"), "link-hello.v1.bin", &hello().message());
    }

    fn changed(change: impl FnOnce(&mut Document)) -> Result<LinkHello, HelloError> {
        let mut document = Document::try_from(&*hello().encode()).unwrap();
        change(&mut document);
        LinkHello::decode(&RawDocumentBuf::try_from(&document).unwrap())
    }

    #[test]
    fn what_is_no_hello_is_refused() {
        for name in ["set", "setId", "from", "to", "lineage", "start", "connection", "version"] {
            assert_eq!(changed(|d| drop(d.remove(name))), Err(HelloError::Missing(name)));
            assert_eq!(changed(|d| drop(d.insert(name, true))), Err(HelloError::Wrong(name)));
        }
        for name in ["from", "to"] {
            assert_eq!(changed(|d| drop(d.insert(name, 0_i64))), Err(HelloError::Wrong(name)));
        }
        assert_eq!(changed(|d| drop(d.insert("set", ""))), Err(HelloError::Wrong("set")));
        let long = "x".repeat(MAX_SET_NAME + 1);
        assert_eq!(changed(|d| drop(d.insert("set", long))), Err(HelloError::Wrong("set")));
        let unknown = Err(HelloError::Unknown("more".to_owned()));
        assert_eq!(changed(|d| drop(d.insert("more", 1))), unknown);
        let other = |document: &mut Document| {
            document.insert("version", 2);
            document.insert("more", 1);
            document.remove("set");
        };
        assert_eq!(changed(other), Err(HelloError::Version(2)));
        let mut twice = hello().encode();
        twice.append(cstr!("from"), 4_i64);
        assert_eq!(LinkHello::decode(&twice), Err(HelloError::Wrong("from")));
    }

    #[test]
    fn an_answer_is_a_hello_or_a_reason() {
        let read = |body: &RawDocument| {
            let mut message = Vec::new();
            wire::encode_msg(&mut message, 1, 1, MsgFlags::NONE, body);
            assert_eq!(answer_length(&message, MAX_ANSWER), Ok(Some(message.len())));
            assert_eq!(answer_length(&message[..15], MAX_ANSWER), Ok(None));
            read_answer(&message)
        };
        let oldest = read(&rawdoc! { "fernLink": hello().encode(), "ok": 1.0 });
        assert_eq!(oldest, Ok((hello(), OLDEST_FRAME_VERSION)), "it says nothing of frames");
        let error = |body: &RawDocument| read(body).unwrap_err();
        let frames = |newest: i32| {
            read(&rawdoc! { "fernLink": hello().encode(), "fernFrames": newest, "ok": 1.0 })
        };
        for (newest, both) in [(2, 2), (3, 3), (4, FRAME_VERSION), (i32::MAX, FRAME_VERSION)] {
            assert_eq!(frames(newest), Ok((hello(), both)));
        }
        for newest in [1, 0, -1, i32::MIN] {
            assert!(frames(newest).unwrap_err().contains("no frames"));
        }
        let text = rawdoc! { "fernLink": hello().encode(), "fernFrames": "3", "ok": 1.0 };
        assert!(error(&text).contains("no frames"));
        assert!(error(&rawdoc! { "ok": 0.0, "errmsg": "no\nset" }).ends_with("refuses: no set"));
        let refusal = |body: &RawDocument| {
            let mut message = Vec::new();
            wire::encode_msg(&mut message, 1, 1, MsgFlags::NONE, body);
            set_of_refusal(&message).map(<[u8]>::to_vec)
        };
        let set = bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![1, 2] };
        let told = rawdoc! { "ok": 0.0, "errmsg": "removed", "fernSet": set };
        assert_eq!(refusal(&told), Some(vec![1, 2]));
        assert!(error(&told).ends_with("refuses: removed"));
        assert_eq!(refusal(&rawdoc! { "ok": 0.0, "fernSet": "x" }), None);
        assert!(error(&rawdoc! { "ok": 1.0 }).contains("knows nothing"));
        assert!(error(&rawdoc! { "ok": 1.0, "fernLink": {} }).contains("version"));
        let named = error(&rawdoc! { "ok": 1.0, "fernLink": { "version": 1, "a\nb": 1 } });
        assert!(named.contains("a b"), "{named}");
        assert!(error(&rawdoc! { "x": 1.0 }).contains("no ok"));
        let mut large = Vec::new();
        wire::encode_msg(&mut large, 1, 1, MsgFlags::NONE, &rawdoc! { "x": "x".repeat(70_000) });
        assert!(answer_length(&large, MAX_ANSWER).is_err());
        assert!(answer_length(b"HTTP/1.0 200 OK\r\n\r\n", MAX_ANSWER).is_err());
        assert_eq!(doc! {}.len(), 0);
    }

    proptest! {
        #[test]
        fn what_can_be_read_is_written_with_the_same_values(
            (place, byte) in any::<(u16, u8)>(),
        ) {
            let mut bytes = hello().encode().into_bytes();
            let place = usize::from(place) % bytes.len();
            bytes[place] ^= byte;
            if let Ok(document) = RawDocument::from_bytes(&bytes)
                && let Ok(read) = LinkHello::decode(document)
            {
                prop_assert_eq!(LinkHello::decode(&read.encode()), Ok(read));
            }
        }
    }
}
