//! Documents of a file of JSON: one behind the other, each mostly in a line of its own, or an array of them.
//!
//! Always true: a text of a document is read until its brackets close, and never longer than [`MAX_TEXT_BYTES`]; the line
//! that an error names is the one where the text stops being JSON.

use super::extended::Extended;
use super::input::{Broken, Found, Next};
use bson::{Bson, RawDocumentBuf};
use serde::de::DeserializeSeed as _;
use std::cell::Cell;
use std::io::{self, BufRead};

/// The longest text of a document: canonical Extended JSON is a few times as long as what it stands for.
pub(super) const MAX_TEXT_BYTES: usize = 64 << 20;
/// A text that spans lines is looked at once it has doubled, so that one without end is found early and each byte is
/// read only a few times.
const FIRST_LOOK_BYTES: usize = 256;

/// The documents of a file.
pub(super) struct JsonReader<R> {
    input: R,
    /// What is read again before the rest of the input: the lines behind a broken one.
    again: Vec<u8>,
    again_at: usize,
    line: u64,
    is_array: bool,
    began: bool,
    ended: bool,
}

/// How far a text of a document was taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    Whole,
    Line,
    Part,
    Nothing,
}

/// Where the brackets of a text stand.
#[derive(Default)]
struct Brackets {
    depth: u32,
    in_string: bool,
    is_escaped: bool,
}

impl Brackets {
    /// Takes the next byte; whether the text ends with it.
    fn take(&mut self, byte: u8) -> bool {
        if self.in_string {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return false;
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        self.depth == 0
    }
}

impl<R: BufRead> JsonReader<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            input,
            again: Vec::new(),
            again_at: 0,
            line: 1,
            is_array: false,
            began: false,
            ended: false,
        }
    }

    /// What is there to be read; nothing at the end.
    fn available(&mut self) -> io::Result<&[u8]> {
        if self.again_at < self.again.len() {
            return Ok(self.again.get(self.again_at..).unwrap_or_default());
        }
        self.input.fill_buf()
    }

    fn peek(&mut self) -> io::Result<Option<u8>> {
        self.available().map(|bytes| bytes.first().copied())
    }

    fn advance(&mut self, byte: u8) {
        self.consume(1, byte == b'\n');
    }

    /// Takes bytes, of which the last may end a line.
    fn consume(&mut self, bytes: usize, ends_line: bool) {
        self.line += u64::from(ends_line);
        if self.again_at < self.again.len() {
            self.again_at += bytes;
        } else {
            self.input.consume(bytes);
        }
    }

    /// Leaves out what stands between documents; the first byte of what comes then.
    fn skip_between(&mut self) -> io::Result<Option<u8>> {
        while let Some(byte) = self.peek()? {
            let is_between = byte.is_ascii_whitespace() || (byte == b',' && self.is_array);
            if !is_between {
                return Ok(Some(byte));
            }
            self.advance(byte);
        }
        Ok(None)
    }

    /// The byte order mark, which some programs write, and the bracket that opens an array.
    fn begin(&mut self) -> io::Result<()> {
        self.began = true;
        for byte in [0xef, 0xbb, 0xbf] {
            if self.peek()? == Some(byte) {
                self.advance(byte);
            }
        }
        if self.skip_between()? == Some(b'[') {
            self.is_array = true;
            self.advance(b'[');
        }
        Ok(())
    }

    /// The next document, or a broken one, behind which the next call goes on.
    pub(super) fn next(&mut self) -> Next {
        if !self.began {
            self.begin()?;
        }
        if self.ended {
            return Ok(self.behind_the_array()?.map(Err));
        }
        match self.skip_between()? {
            None if self.is_array => Ok(Some(Err(self.cut_off("the array")))),
            None => Ok(None),
            Some(b']') if self.is_array => {
                self.advance(b']');
                self.ended = true;
                Ok(self.behind_the_array()?.map(Err))
            }
            Some(b'{') => self.document().map(Some),
            Some(_) => {
                let broken =
                    Broken::at_line(self.line, "a document is expected, which begins with {");
                self.skip_line()?;
                Ok(Some(Err(self.last_of_array(broken))))
            }
        }
    }

    fn cut_off(&mut self, what: &str) -> Broken {
        let broken = Broken::at_line(self.line, format!("the file ends within {what}"));
        (self.is_array, self.ended) = (false, true);
        broken.and_the_rest()
    }

    /// Nothing may follow an array.
    fn behind_the_array(&mut self) -> io::Result<Option<Broken>> {
        self.is_array = false;
        Ok(self.skip_between()?.map(|_| {
            Broken::at_line(self.line, "something follows the array of documents").and_the_rest()
        }))
    }

    /// Within an array nothing tells where the next document would begin.
    fn last_of_array(&self, broken: Broken) -> Broken {
        if self.is_array { broken.and_the_rest() } else { broken }
    }

    fn document(&mut self) -> io::Result<Found> {
        let (began, mut text, mut brackets) = (self.line, Vec::new(), Brackets::default());
        let mut next_look = FIRST_LOOK_BYTES;
        loop {
            let taken = self.take_text(&mut text, &mut brackets)?;
            if taken == Taken::Whole {
                return match parse(&text) {
                    Ok(document) => Ok(Ok((began, document))),
                    Err(error) => self.broken_whole(began, error),
                };
            }
            if taken == Taken::Nothing || (taken == Taken::Line && text.len() >= next_look) {
                next_look = text.len() * 2;
                match parse(&text) {
                    Err(error) if !error.is_cut_off => return Ok(self.broken(began, &text, error)),
                    _ if taken == Taken::Nothing => {
                        return Ok(self.broken(began, &text, NoDocument::cut_off()));
                    }
                    _ => {}
                }
            }
            if text.len() >= MAX_TEXT_BYTES {
                let told =
                    format!("the text of the document is longer than {} MiB", MAX_TEXT_BYTES >> 20);
                return Ok(Err(Broken::at_line(began, told).and_the_rest()));
            }
        }
    }

    /// Takes more of a document's text: to its end, to that of a line, or what is there.
    fn take_text(&mut self, text: &mut Vec<u8>, brackets: &mut Brackets) -> io::Result<Taken> {
        let there = self.available()?;
        if there.is_empty() {
            return Ok(Taken::Nothing);
        }
        let (mut taken, mut count) = (Taken::Part, there.len());
        for (at, byte) in there.iter().enumerate() {
            let is_whole = brackets.take(*byte);
            if is_whole || *byte == b'\n' {
                (taken, count) = (if is_whole { Taken::Whole } else { Taken::Line }, at + 1);
                break;
            }
        }
        text.extend_from_slice(there.get(..count).unwrap_or_default());
        self.consume(count, taken == Taken::Line);
        Ok(taken)
    }

    /// A text whose brackets close is left out as a whole.
    fn broken_whole(&mut self, began: u64, error: NoDocument) -> io::Result<Found> {
        if !self.is_array {
            self.skip_line()?;
        }
        Ok(Err(Broken::at_line(began + error.line - 1, error.text)))
    }

    /// A text whose brackets do not close: what follows the line where it stopped being JSON is read again, from the next
    /// line on that begins a document.
    fn broken(&mut self, began: u64, text: &[u8], error: NoDocument) -> Found {
        let broken = Broken::at_line(began + error.line - 1, error.text);
        if self.is_array {
            return Err(broken.and_the_rest());
        }
        let mut starts =
            text.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
        let from = starts.find(|start| text.get(*start) == Some(&b'{')).unwrap_or(text.len());
        let skipped = line_feeds(text.get(..from).unwrap_or_default());
        self.line = began + skipped;
        let mut again = text.get(from..).unwrap_or_default().to_vec();
        again.extend_from_slice(self.again.get(self.again_at..).unwrap_or_default());
        (self.again, self.again_at) = (again, 0);
        Err(broken)
    }

    fn skip_line(&mut self) -> io::Result<()> {
        while let Some(byte) = self.peek()? {
            self.advance(byte);
            if byte == b'\n' {
                break;
            }
        }
        Ok(())
    }
}

/// How many lines end in a text.
pub(super) fn line_feeds(text: &[u8]) -> u64 {
    text.split(|byte| *byte == b'\n').skip(1).count() as u64
}

/// Why a text is no document, and in which line of it, from 1.
#[derive(Debug)]
struct NoDocument {
    line: u64,
    text: String,
    /// It may be one with what follows.
    is_cut_off: bool,
}

impl NoDocument {
    fn cut_off() -> Self {
        Self { line: 1, text: "the file ends within the document".to_owned(), is_cut_off: true }
    }
}

/// The document that a text is.
fn parse(text: &[u8]) -> Result<RawDocumentBuf, NoDocument> {
    let whole = |text: String| NoDocument { line: 1, text, is_cut_off: false };
    let mut json = serde_json::Deserializer::from_slice(text);
    let read = Extended(&Cell::new(0)).deserialize(&mut json);
    let read = read.and_then(|read| json.end().map(|()| read)).map_err(|error| {
        let told = error.to_string();
        let place = format!(" at line {} column {}", error.line(), error.column());
        let told = told.strip_suffix(&place).unwrap_or(&told);
        let is_cut_off = error.is_eof();
        // A line feed where none may be belongs to the line that it ends.
        match error.column() {
            0 => NoDocument {
                line: error.line().max(2) as u64 - 1,
                text: told.to_owned(),
                is_cut_off,
            },
            column => {
                let text = format!("{told} (column {column})");
                NoDocument { line: error.line() as u64, text, is_cut_off }
            }
        }
    })?;
    match read {
        Bson::Document(document) => {
            RawDocumentBuf::try_from(&document).map_err(|error| whole(error.to_string()))
        }
        _ => Err(whole("a document is expected, and this is a single value".to_owned())),
    }
}

/// A document on the command line, of an index or a key.
pub(super) fn argument(text: &str) -> anyhow::Result<bson::Document> {
    let read = parse(text.as_bytes()).map_err(|error| anyhow::anyhow!("{text}: {}", error.text))?;
    Ok(bson::Document::try_from(&*read)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The `a` of each document, or the line of a broken one; `!` behind one that ends the file.
    fn read(text: &str) -> Vec<String> {
        let mut reader = JsonReader::new(io::Cursor::new(text.as_bytes().to_vec()));
        let mut all = Vec::new();
        while let Some(found) = reader.next().unwrap() {
            assert!(all.len() < 100, "{all:?}");
            match found {
                Ok((line, document)) => {
                    all.push(format!("{line}:{}", document.get_i32("a").unwrap_or(-1)));
                }
                Err(broken) => {
                    all.push(format!("{}!", broken.place));
                    if broken.is_last {
                        break;
                    }
                }
            }
        }
        all
    }

    #[test]
    fn documents_stand_in_lines_or_span_them_or_are_an_array() {
        for (text, expected) in [
            ("", &[][..]),
            ("{\"a\":1}\n{\"a\":2}", &["1:1", "2:2"]),
            ("\u{feff}{\"a\":1} {\"a\":2}\r\n\n{\"a\":\n3\n}\n", &["1:1", "1:2", "3:3"]),
            ("[]", &[]),
            ("[\n{\"a\":1},\n {\"a\":2, \"b\":[{\"c\":\"]}\\\"\"}]}\n]\n", &["2:1", "3:2"]),
            ("[{\"a\":1},{\"a\":2}]", &["1:1", "1:2"]),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn a_broken_line_is_named_and_the_next_document_is_found() {
        for (text, expected) in [
            ("{\"a\":1}\n{\"a\":2,}\n{\"a\":3}\n", &["1:1", "line 2!", "3:3"][..]),
            ("{\"a\":1}\nx\n{\"a\":3}\n", &["1:1", "line 2!", "3:3"]),
            ("{\"a\":1}}\n{\"a\":3}\n", &["1:1", "line 1!", "2:3"]),
            // Without its bracket: the text stops being JSON in the next line.
            ("{\"a\":1\n{\"a\":2}\n{\"a\":3}\n", &["line 2!", "2:2", "3:3"]),
            ("{\"a\":\"1}\n{\"a\":2}\n{\"a\":3}\n", &["line 1!", "2:2", "3:3"]),
            ("{\"a\":1}\n{\"a\":", &["1:1", "line 2!"]),
            ("{\n \"a\":1,\n x\n}\n{\"a\":2}\n", &["line 3!", "5:2"]),
            // Nothing tells where the next one of an array begins; a whole one that is wrong is left out alone.
            ("[{\"a\":1},\n5,{\"a\":2}]", &["1:1", "line 2!"]),
            ("[{\"a\":1},{\"a\":{\"$oid\":\"\"}},{\"a\":2}]", &["1:1", "line 1!", "1:2"]),
            ("[{\"a\":1}", &["1:1", "line 1!"]),
            ("[{\"a\":1}] {\"a\":2}", &["1:1", "line 1!"]),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn a_document_without_end_is_found_before_much_is_read() {
        let mut text = "{\"a\": 1\n".to_owned();
        text.extend((0..5000).map(|n| format!("{{\"a\": {n}}}\n")));
        let mut reader = JsonReader::new(io::Cursor::new(text.into_bytes()));
        assert_eq!(reader.next().unwrap().unwrap().unwrap_err().place, "line 2");
        assert!(reader.again.len() < 1024, "{}", reader.again.len());
        for n in 0..5000 {
            let (line, document) = reader.next().unwrap().unwrap().unwrap();
            assert_eq!((line, document.get_i32("a").unwrap()), (n + 2, i32::try_from(n).unwrap()));
        }
    }
}
