//! Writes BSON straight into one growing buffer: replies are built here, batch documents copied in.
//!
//! What is always true: `begin_*` and `end` pair up like brackets; [`Writer::finish`] closes the
//! outermost document, and the bytes are a well-formed document then.

use bson::{Bson, RawBsonRef, RawDocument, RawDocumentBuf};
use limits::Spare;

/// Room of a new document: a small reply is not copied as it grows.
const FIRST_BYTES: usize = 1000;
/// What a thread keeps for its next reply at most.
const KEPT_BYTES: usize = 8 * 1024;

thread_local! {
    /// In what this thread's last reply was written.
    static SENT: Spare = const { Spare::new(KEPT_BYTES) };
}

/// Keeps what a reply was written in, now that it is sent, for this thread's next one.
pub fn keep_room(sent: RawDocumentBuf) {
    SENT.with(|spare| spare.keep(sent.into_bytes()));
}

/// What stands beside a key's name, and a number as its value: room for both is made at once.
const KEY_AND_NUMBER_BYTES: usize = 2 + 8;

/// Room that a finished document may keep.
const MOST_SPARE_BYTES: usize = 64 << 10;

/// Behind a value of this size and more there is room for the end of a reply at once: else the few bytes of that
/// would double the room of all that is written.
const LARGE_BYTES: usize = 64 << 10;

/// Bytes that a reply has behind its last document, and some.
const END_BYTES: usize = 1024;

/// A document being written.
pub struct Writer {
    bytes: Vec<u8>,
}

/// Whether one of these bytes is 0. Looks at eight at once.
fn has_nul(bytes: &[u8]) -> bool {
    const LOW: u64 = 0x0101_0101_0101_0101;
    let (words, rest) = bytes.as_chunks::<8>();
    let zeros = words.iter().fold(0, |found, word| {
        let word = u64::from_le_bytes(*word);
        found | word.wrapping_sub(LOW) & !word & (LOW << 7)
    });
    zeros != 0 || rest.contains(&0)
}

/// Where an inner document or array began; given back to [`Writer::end`].
#[derive(Clone, Copy)]
#[must_use]
pub struct Open(usize);

impl Default for Writer {
    fn default() -> Self {
        Self::new()
    }
}

impl Writer {
    /// An empty document.
    pub fn new() -> Self {
        Self::with_capacity(FIRST_BYTES)
    }

    /// An empty document, in the room of a reply that this thread has sent ([`keep_room`]).
    pub fn of_reply() -> Self {
        let mut bytes = SENT.with(Spare::take);
        bytes.reserve(FIRST_BYTES);
        bytes.extend_from_slice(&[0; 4]);
        Self { bytes }
    }

    /// An empty document with room for `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> Self {
        let mut bytes = Vec::with_capacity(capacity);
        bytes.extend_from_slice(&[0; 4]);
        Self { bytes }
    }

    /// Bytes written so far.
    #[expect(clippy::len_without_is_empty, reason = "a document has its length and its end")]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes for which it has room.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// `ok: 1`, of a command that went well.
    pub fn ok(&mut self) {
        self.bytes.extend_from_slice(b"\x01ok\0\0\0\0\0\0\0\xf0\x3f");
    }

    /// Begins `cursor: {firstBatch: [`; gives both, to be ended.
    pub fn begin_first_batch(&mut self) -> (Open, Open) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(b"\x03cursor\0\0\0\0\0\x04firstBatch\0\0\0\0\0");
        // Behind the type, the name and the NUL of each.
        let cursor = start + 8;
        (Open(cursor), Open(cursor + 4 + 12))
    }

    /// `$clusterTime: {clusterTime, signature: {hash, keyId}}, operationTime`, which end each reply of a member of a set: in
    /// one piece.
    pub fn cluster_time(&mut self, time: bson::Timestamp, hash: [u8; 20], key_id: i64) {
        let mut bytes = *b"\x03$clusterTime\0\x58\0\0\0\x11clusterTime\0\0\0\0\0\0\0\0\0\x03signature\0\x33\0\0\0\
            \x05hash\0\x14\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x12keyId\0\0\0\0\0\0\0\0\0\0\0\
            \x11operationTime\0\0\0\0\0\0\0\0\0";
        let time = u64::from(time.time) << 32 | u64::from(time.increment);
        bytes[31..39].copy_from_slice(&time.to_le_bytes());
        bytes[65..85].copy_from_slice(&hash);
        bytes[92..100].copy_from_slice(&key_id.to_le_bytes());
        bytes[117..].copy_from_slice(&time.to_le_bytes());
        self.bytes.extend_from_slice(&bytes);
    }

    fn key(&mut self, kind: u8, key: &str) {
        let mut key = key.as_bytes();
        // A NUL would end the key early and shift all that follows; no real key has one.
        if has_nul(key) {
            let end = key.iter().position(|byte| *byte == 0);
            key = &key[..end.unwrap_or(key.len())];
        }
        self.bytes.reserve(key.len() + KEY_AND_NUMBER_BYTES);
        self.bytes.push(kind);
        self.bytes.extend_from_slice(key);
        self.bytes.push(0);
    }

    /// An int.
    pub fn i32(&mut self, key: &str, value: i32) {
        self.key(0x10, key);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// A long.
    pub fn i64(&mut self, key: &str, value: i64) {
        self.key(0x12, key);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// A figure that may pass 2^31: int where it fits, long above, as MongoDB's own counters.
    pub fn number(&mut self, key: &str, value: u64) {
        match i32::try_from(value) {
            Ok(small) => self.i32(key, small),
            Err(_) => self.i64(key, i64::try_from(value).unwrap_or(i64::MAX)),
        }
    }

    /// A counter: always a long.
    pub fn long(&mut self, key: &str, value: u64) {
        self.i64(key, i64::try_from(value).unwrap_or(i64::MAX));
    }

    /// A double.
    pub fn f64(&mut self, key: &str, value: f64) {
        self.key(0x01, key);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// A boolean.
    pub fn bool(&mut self, key: &str, value: bool) {
        self.key(0x08, key);
        self.bytes.push(u8::from(value));
    }

    /// A string.
    pub fn str(&mut self, key: &str, value: &str) {
        self.key(0x02, key);
        self.bytes.extend_from_slice(&(value.len() as u32 + 1).to_le_bytes());
        self.bytes.extend_from_slice(value.as_bytes());
        self.bytes.push(0);
    }

    /// Milliseconds since 1970.
    pub fn date(&mut self, key: &str, value: i64) {
        self.key(0x09, key);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// A timestamp.
    pub fn timestamp(&mut self, key: &str, value: bson::Timestamp) {
        self.key(0x11, key);
        self.bytes.extend_from_slice(&value.increment.to_le_bytes());
        self.bytes.extend_from_slice(&value.time.to_le_bytes());
    }

    /// Bytes of no particular kind.
    pub fn binary(&mut self, key: &str, value: &[u8]) {
        self.key(0x05, key);
        self.bytes.extend_from_slice(&(value.len() as i32).to_le_bytes());
        self.bytes.push(0);
        self.copy(value);
    }

    /// So many bytes of no particular kind, which `fill` puts where they belong. Where it gives nothing or fails, nothing
    /// is written, the key neither.
    ///
    /// # Errors
    /// Those of `fill`.
    pub fn binary_by<T, E>(
        &mut self,
        key: &str,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<Option<T>, E>,
    ) -> Result<Option<T>, E> {
        let before = self.bytes.len();
        self.bytes.reserve(key.len() + KEY_AND_NUMBER_BYTES + length + END_BYTES);
        self.key(0x05, key);
        self.bytes.extend_from_slice(&(length as i32).to_le_bytes());
        self.bytes.push(0);
        let at = self.bytes.len();
        self.bytes.resize(at + length, 0);
        let filled = fill(&mut self.bytes[at..]);
        if !matches!(filled, Ok(Some(_))) {
            self.bytes.truncate(before);
        }
        filled
    }

    /// A UUID.
    pub fn uuid(&mut self, key: &str, value: &[u8; 16]) {
        self.key(0x05, key);
        self.bytes.extend_from_slice(&16_u32.to_le_bytes());
        self.bytes.push(4);
        self.bytes.extend_from_slice(value);
    }

    /// An object id.
    pub fn object_id(&mut self, key: &str, value: bson::oid::ObjectId) {
        self.key(0x07, key);
        self.bytes.extend_from_slice(&value.bytes());
    }

    /// A whole document.
    pub fn document(&mut self, key: &str, value: &RawDocument) {
        self.key(0x03, key);
        self.copy(value.as_bytes());
    }

    /// A whole array.
    pub fn array(&mut self, key: &str, value: &bson::RawArray) {
        self.key(0x04, key);
        self.copy(value.as_bytes());
    }

    /// The next element of a batch, under its number.
    pub fn element_document(&mut self, at: usize, value: &RawDocument) {
        let mut digits = Digits::default();
        self.bytes.extend_from_slice(digits.element(0x03, at));
        self.copy(value.as_bytes());
    }

    fn copy(&mut self, value: &[u8]) {
        if value.len() >= LARGE_BYTES {
            self.bytes.reserve(value.len() + END_BYTES);
        }
        self.bytes.extend_from_slice(value);
    }

    /// A string as an array's element.
    pub fn element_str(&mut self, at: usize, value: &str) {
        let mut digits = Digits::default();
        let key = digits.of(at);
        self.str(key, value);
    }

    /// A number in an array.
    pub fn element_i32(&mut self, at: usize, value: i32) {
        let mut digits = Digits::default();
        self.i32(digits.of(at), value);
    }

    /// A long as an array's element.
    pub fn element_i64(&mut self, at: usize, value: i64) {
        let mut digits = Digits::default();
        let key = digits.of(at);
        self.i64(key, value);
    }

    /// Begins a document as an array's element.
    pub fn begin_element(&mut self, at: usize) -> Open {
        let mut digits = Digits::default();
        let key = digits.of(at);
        self.begin_document(key)
    }

    /// Any value.
    pub fn value(&mut self, key: &str, value: RawBsonRef<'_>) {
        match value {
            RawBsonRef::Document(document) => self.document(key, document),
            RawBsonRef::Array(array) => self.array(key, array),
            RawBsonRef::String(text) => self.str(key, text),
            RawBsonRef::Int32(number) => self.i32(key, number),
            RawBsonRef::Int64(number) => self.i64(key, number),
            other => {
                let Ok(name) = <&bson::raw::CStr>::try_from(key) else { return };
                let mut one = RawDocumentBuf::new();
                one.append(name, other);
                self.fields(&one);
            }
        }
    }

    /// Any owned value.
    pub fn bson(&mut self, key: &str, value: &Bson) {
        if let Ok(raw) = bson::RawBson::try_from(value.clone()) {
            self.value(key, raw.as_raw_bson_ref());
        }
    }

    /// All fields of another document, in their order.
    pub fn fields(&mut self, document: &RawDocument) {
        let bytes = document.as_bytes();
        self.bytes.extend_from_slice(&bytes[4..bytes.len() - 1]);
    }

    /// All fields of an owned document.
    pub fn fields_of(&mut self, document: &bson::Document) {
        if let Ok(raw) = RawDocumentBuf::try_from(document) {
            self.fields(&raw);
        }
    }

    /// Begins a document.
    pub fn begin_document(&mut self, key: &str) -> Open {
        self.begin(0x03, key)
    }

    /// Begins an array.
    pub fn begin_array(&mut self, key: &str) -> Open {
        self.begin(0x04, key)
    }

    fn begin(&mut self, kind: u8, key: &str) -> Open {
        self.key(kind, key);
        self.bytes.extend_from_slice(&[0; 4]);
        Open(self.bytes.len() - 4)
    }

    /// Closes what `begin_*` opened.
    pub fn end(&mut self, open: Open) {
        self.bytes.push(0);
        let size = (self.bytes.len() - open.0) as u32;
        self.bytes[open.0..open.0 + 4].copy_from_slice(&size.to_le_bytes());
    }

    /// Makes room for so many bytes more, so that growing does not copy what is written.
    pub fn reserve(&mut self, bytes: usize) {
        self.bytes.reserve(bytes);
    }

    /// The same, and not a byte more.
    pub fn reserve_exact(&mut self, bytes: usize) {
        self.bytes.reserve_exact(bytes);
    }

    /// Forgets everything written.
    pub fn clear(&mut self) {
        self.bytes.truncate(4);
    }

    /// The finished document, without room for much more: it is charged by its length.
    pub fn finish(mut self) -> RawDocumentBuf {
        self.end(Open(0));
        if self.bytes.capacity() - self.bytes.len() > MOST_SPARE_BYTES {
            self.bytes.shrink_to_fit();
        }
        RawDocumentBuf::from_bytes(self.bytes)
            .expect("`end` wrote the length and the terminator just now")
    }
}

/// An array position as text, without allocating: room for a type in front of it, and a NUL behind it.
#[derive(Default)]
struct Digits([u8; 22]);

impl Digits {
    fn of(&mut self, number: usize) -> &str {
        let at = self.write(number);
        std::str::from_utf8(&self.0[at..self.0.len() - 1]).expect("ASCII digits are UTF-8")
    }

    /// All that comes before the value of an array's element.
    fn element(&mut self, kind: u8, number: usize) -> &[u8] {
        let at = self.write(number) - 1;
        self.0[at] = kind;
        &self.0[at..]
    }

    /// Writes the digits before the NUL; says where they begin.
    fn write(&mut self, mut number: usize) -> usize {
        let mut at = self.0.len() - 1;
        loop {
            at -= 1;
            self.0[at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return at;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::doc;

    #[test]
    fn elements_of_a_batch_stand_under_their_numbers() {
        let numbers = [0, 9, 10, 4_294_967_296, usize::MAX];
        let mut writer = Writer::new();
        let open = writer.begin_array("firstBatch");
        let document = bson::rawdoc! { "a": 1 };
        for number in numbers {
            writer.element_document(number, &document);
        }
        writer.end(open);
        let reply = writer.finish();
        // Not as an array, whose numbers nobody looks at.
        let batch = reply.get_array("firstBatch").unwrap().as_bytes();
        let batch = RawDocument::from_bytes(batch).unwrap();
        let elements: Vec<_> = batch.iter().map(Result::unwrap).collect();
        let keys: Vec<_> = elements.iter().map(|(key, _)| key.to_string()).collect();
        assert_eq!(keys, numbers.map(|number| number.to_string()));
        for (_, value) in &elements {
            assert_eq!(value.as_document(), Some(&*document));
        }
    }

    #[test]
    fn written_document_reads_back() {
        let mut writer = Writer::new();
        writer.i32("a", -1);
        writer.i64("b", 1 << 40);
        writer.f64("c", 0.5);
        writer.bool("d", true);
        writer.str("e", "text");
        let open = writer.begin_array("f");
        writer.element_str(0, "x");
        for at in [10_usize, 123_456] {
            let inner = writer.begin_element(at);
            writer.end(inner);
        }
        writer.end(open);
        writer.bson("g", &Bson::Null);
        writer.number("h", 7);
        writer.number("i", 1 << 33);
        let read: bson::Document = writer.finish().try_into().unwrap();
        let wanted = doc! {
            "a": -1, "b": 1_i64 << 40, "c": 0.5, "d": true, "e": "text", "f": ["x", {}, {}],
            "g": null, "h": 7, "i": 1_i64 << 33,
        };
        assert_eq!(read, wanted);
    }

    #[test]
    fn usual_fields_are_written_as_any_others() {
        let (mut usual, mut any) = (Writer::new(), Writer::new());
        let (cursor, batch) = usual.begin_first_batch();
        let others = (any.begin_document("cursor"), any.begin_array("firstBatch"));
        for (writer, cursor, batch) in [(&mut usual, cursor, batch), (&mut any, others.0, others.1)]
        {
            writer.element_i32(0, 7);
            writer.end(batch);
            writer.i64("id", 0);
            writer.end(cursor);
        }
        usual.ok();
        any.f64("ok", 1.0);
        assert_eq!(usual.finish(), any.finish());
    }

    #[test]
    fn what_follows_a_large_document_does_not_double_its_room() {
        let large = bson::rawdoc! { "filler": "x".repeat(1_000_000) };
        for replies in 1..4 {
            let mut writer = Writer::new();
            let (cursor, batch) = writer.begin_first_batch();
            for at in 0..replies {
                writer.element_document(at, &large);
            }
            let room = writer.capacity();
            writer.end(batch);
            writer.i64("id", 0);
            writer.str("ns", &"n".repeat(255));
            writer.end(cursor);
            writer.document("$clusterTime", &bson::rawdoc! { "signature": "s".repeat(200) });
            writer.ok();
            assert_eq!(writer.capacity(), room, "{replies} documents");
            assert!(replies > 1 || room < large.as_bytes().len() + 2 * END_BYTES, "{room}");
        }
    }

    #[test]
    fn bytes_that_are_filled_in_their_place_are_as_those_that_are_copied() {
        let value: Vec<u8> = (0..200_000_u32).map(|at| (at % 251) as u8).collect();
        let (mut copied, mut filled) = (Writer::new(), Writer::new());
        copied.binary("bytes", &value);
        copied.binary("sum", &[7; 16]);
        let nothing: Result<Option<()>, ()> = filled.binary_by("none", 9, |_| Ok(None));
        assert_eq!(nothing, Ok(None));
        let failed: Result<Option<()>, ()> = filled.binary_by("failed", 9, |_| Err(()));
        assert_eq!(failed, Err(()));
        let told: Result<Option<u8>, ()> = filled.binary_by("bytes", value.len(), |into| {
            into.copy_from_slice(&value);
            Ok(Some(7))
        });
        assert_eq!(told, Ok(Some(7)));
        for writer in [&copied, &filled] {
            assert!(writer.capacity() < value.len() + 4 * END_BYTES, "{}", writer.capacity());
        }
        filled.binary("sum", &[7; 16]);
        assert_eq!(copied.finish(), filled.finish());
    }

    #[test]
    fn cluster_time_is_what_its_fields_are() {
        let time = bson::Timestamp { time: 0x0102_0304, increment: 0x0506_0708 };
        let hash: [u8; 20] = std::array::from_fn(|at| at as u8 + 1);
        let (mut at_once, mut by_fields) = (Writer::new(), Writer::new());
        at_once.cluster_time(time, hash, -9);
        let outer = by_fields.begin_document("$clusterTime");
        by_fields.timestamp("clusterTime", time);
        let signature = by_fields.begin_document("signature");
        by_fields.binary("hash", &hash);
        by_fields.i64("keyId", -9);
        by_fields.end(signature);
        by_fields.end(outer);
        by_fields.timestamp("operationTime", time);
        assert_eq!(at_once.finish(), by_fields.finish());
    }

    #[test]
    fn nul_is_found_wherever_it_is() {
        for length in 0..20 {
            let mut bytes = vec![1; length];
            assert!(!has_nul(&bytes));
            bytes.fill(0x80);
            assert!(!has_nul(&bytes));
            for at in 0..length {
                bytes[at] = 0;
                assert!(has_nul(&bytes), "{at} of {length}");
                bytes[at] = 0xff;
            }
        }
    }

    #[test]
    fn key_with_nul_keeps_the_document_whole() {
        let mut writer = Writer::new();
        writer.i32("a\0b", 1);
        writer.i32("c", 2);
        let read: bson::Document = writer.finish().try_into().unwrap();
        assert_eq!(read, doc! { "a": 1, "c": 2 });
    }
}
