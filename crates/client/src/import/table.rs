//! Tables with commas or tabs, whose first line names the fields.
//!
//! Always true: what looks like a number in decimal digits is one, everything else is a string, as `mongoimport` has it;
//! `a.b` names a field within a document.

use super::extended::whole;
use super::input::{Broken, Found, Next};
use super::json::{MAX_TEXT_BYTES, line_feeds};
use bson::{Bson, Document, RawDocumentBuf};
use csv::{ByteRecord, ErrorKind, ReaderBuilder, Terminator};
use std::io::{self, BufRead, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Fields that a table may have.
const MAX_FIELDS: usize = 100_000;

/// The rows of a table.
pub(super) struct TableReader {
    rows: csv::Reader<Bounded>,
    left: Arc<AtomicUsize>,
    /// The names of the fields, each with those of the documents that it is in.
    fields: Option<Vec<Vec<String>>>,
    row: ByteRecord,
}

/// Input of which a row may have so much: one whose quote is never closed would be the rest of the file.
/// Its last line is ended, so that lines can be counted by their ends.
struct Bounded {
    input: Box<dyn BufRead + Send>,
    last: u8,
    left: Arc<AtomicUsize>,
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.left.load(Ordering::Relaxed);
        if left == 0 {
            let text = format!(
                "a row is longer than {} MiB: is a quote not closed?",
                MAX_TEXT_BYTES >> 20
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let most = buffer.len().min(left);
        let mut count = self.input.read(buffer.get_mut(..most).unwrap_or_default())?;
        if count == 0
            && self.last != b'\n'
            && let Some(first) = buffer.first_mut()
        {
            (*first, count) = (b'\n', 1);
        }
        self.last = buffer.get(..count).and_then(<[u8]>::last).copied().unwrap_or(self.last);
        self.left.store(left - count, Ordering::Relaxed);
        Ok(count)
    }
}

impl TableReader {
    pub(super) fn new(input: Box<dyn BufRead + Send>, delimiter: u8) -> Self {
        let left = Arc::new(AtomicUsize::new(MAX_TEXT_BYTES));
        let input = Bounded { input, last: b'\n', left: left.clone() };
        let mut builder = ReaderBuilder::new();
        // Tabs stand in no field, so nothing is quoted where they part fields.
        builder.delimiter(delimiter).quoting(delimiter == b',').has_headers(false).flexible(true);
        // A carriage return before the end of a line is taken off below: lines are counted by line feeds.
        builder.terminator(Terminator::Any(b'\n'));
        Self { rows: builder.from_reader(input), left, fields: None, row: ByteRecord::new() }
    }

    /// The next row that is not empty; its line, or none at the end.
    fn read(&mut self) -> io::Result<Option<u64>> {
        loop {
            self.left.store(MAX_TEXT_BYTES, Ordering::Relaxed);
            match self.rows.read_byte_record(&mut self.row) {
                Ok(true) if self.row.len() == 1 && cells(&self.row).all(<[u8]>::is_empty) => {}
                Ok(true) => return Ok(Some(self.line())),
                Ok(false) => return Ok(None),
                Err(error) => {
                    return Err(match error.into_kind() {
                        ErrorKind::Io(error) => error,
                        other => io::Error::other(format!("{other:?}")),
                    });
                }
            }
        }
    }

    /// The line in which the row begins. The place that the library has of it is before the empty lines above it.
    fn line(&self) -> u64 {
        let within = line_feeds(self.row.as_slice());
        self.rows.position().line().saturating_sub(within + 1)
    }

    pub(super) fn next(&mut self) -> Next {
        if self.fields.is_none() {
            let Some(line) = self.read()? else {
                return Ok(Some(Err(
                    Broken::at_line(1, "there is no line that names the fields").and_the_rest()
                )));
            };
            match names(&self.row) {
                Ok(fields) => self.fields = Some(fields),
                Err(what) => return Ok(Some(Err(Broken::at_line(line, what).and_the_rest()))),
            }
        }
        Ok(self.read()?.map(|line| self.document(line)))
    }

    fn document(&self, line: u64) -> Found {
        let broken = |what: String| Broken::at_line(line, what);
        let fields = self.fields.as_deref().unwrap_or_default();
        if self.row.len() > fields.len() {
            let what = format!(
                "the row has {} fields, and the first line names {}",
                self.row.len(),
                fields.len()
            );
            return Err(broken(what));
        }
        let mut document = Document::new();
        for (path, value) in fields.iter().zip(cells(&self.row)) {
            let text = std::str::from_utf8(value)
                .map_err(|_| broken(format!("the field {} is not UTF-8", path.join("."))))?;
            insert(&mut document, path, value_of(text));
        }
        RawDocumentBuf::try_from(&document)
            .map(|raw| (line, raw))
            .map_err(|error| broken(error.to_string()))
    }
}

/// The values of a row, without the carriage return at its end.
fn cells(row: &ByteRecord) -> impl Iterator<Item = &[u8]> {
    let last = row.len().saturating_sub(1);
    row.iter().enumerate().map(move |(at, cell)| match cell.strip_suffix(b"\r") {
        Some(rest) if at == last => rest,
        _ => cell,
    })
}

/// The names of the first line.
fn names(row: &ByteRecord) -> Result<Vec<Vec<String>>, String> {
    if row.len() > MAX_FIELDS {
        return Err(format!("it names {} fields, and {MAX_FIELDS} are the most", row.len()));
    }
    let mut names = Vec::new();
    for (at, name) in cells(row).enumerate() {
        let name = std::str::from_utf8(name)
            .map_err(|_| format!("the name of field {} is not UTF-8", at + 1))?;
        let name = if at == 0 { name.trim_start_matches('\u{feff}') } else { name }.trim();
        let path: Vec<String> = name.split('.').map(str::to_owned).collect();
        if path.iter().any(|part| part.is_empty() || part.starts_with('$') || part.contains('\0')) {
            return Err(format!("the name of field {} is no name: {name:?}", at + 1));
        }
        if path.len() > 100 {
            return Err(format!("the name of field {} has more than 100 parts", at + 1));
        }
        names.push(path);
    }
    // In order a name stands right before those that it is the beginning of.
    let mut sorted: Vec<&Vec<String>> = names.iter().collect();
    sorted.sort_unstable();
    for pair in sorted.windows(2) {
        if let [one, other] = pair
            && other.starts_with(one)
        {
            return Err(format!("it names {} beside {}", one.join("."), other.join(".")));
        }
    }
    Ok(names)
}

fn insert(document: &mut Document, path: &[String], value: Bson) {
    match path {
        [] => {}
        [name] => drop(document.insert(name, value)),
        [name, rest @ ..] => {
            let inner =
                document.entry(name.clone()).or_insert_with(|| Bson::Document(Document::new()));
            if let Bson::Document(inner) = inner {
                insert(inner, rest, value);
            }
        }
    }
}

/// A number, where it is one in decimal digits; else the text.
fn value_of(text: &str) -> Bson {
    let is_number = text.bytes().any(|byte| byte.is_ascii_digit())
        && text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    if is_number {
        if let Ok(number) = text.parse() {
            return whole(number);
        }
        if let Some(number) = text.parse().ok().filter(|number: &f64| number.is_finite()) {
            return Bson::Double(number);
        }
    }
    Bson::String(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::doc;

    fn read(text: &[u8], delimiter: u8) -> Vec<Result<(u64, Document), String>> {
        let mut reader = TableReader::new(Box::new(io::Cursor::new(text.to_vec())), delimiter);
        let mut all = Vec::new();
        while let Some(found) = reader.next().unwrap() {
            let is_last = found.as_ref().is_err_and(|broken| broken.is_last);
            let read = found.map(|(line, raw)| (line, Document::try_from(&*raw).unwrap()));
            all.push(read.map_err(|broken| format!("{}: {}", broken.place, broken.what)));
            if is_last {
                break;
            }
        }
        all
    }

    #[test]
    fn numbers_are_numbers_and_everything_else_is_a_string() {
        for (text, expected) in [
            ("7", Bson::Int32(7)),
            ("-7", Bson::Int32(-7)),
            ("007", Bson::Int32(7)),
            ("2147483648", Bson::Int64(1 << 31)),
            ("9223372036854775808", Bson::Double(9_223_372_036_854_775_808.0)),
            ("1.50", Bson::Double(1.5)),
            ("1e3", Bson::Double(1000.0)),
            ("", Bson::String(String::new())),
            (" 7", Bson::String(" 7".into())),
            ("nan", Bson::String("nan".into())),
            ("1e999", Bson::String("1e999".into())),
            ("2026-11-28", Bson::String("2026-11-28".into())),
            ("-", Bson::String("-".into())),
        ] {
            assert_eq!(value_of(text), expected, "{text}");
        }
    }

    #[test]
    fn rows_are_documents() {
        let text = b"\xef\xbb\xbfname,size.w,size.h\r\n\"a, \"\"b\"\"\nc\",1,2.5\n\nd\n";
        let expected = [
            Ok((2, doc! { "name": "a, \"b\"\nc", "size": { "w": 1, "h": 2.5 } })),
            Ok((5, doc! { "name": "d" })),
        ];
        assert_eq!(read(text, b','), expected);
        let text = b"a,b\r\n\r\n1,\"x\"\r\n\r\n2,y";
        let expected = [Ok((3, doc! { "a": 1, "b": "x" })), Ok((5, doc! { "a": 2, "b": "y" }))];
        assert_eq!(read(text, b','), expected);
        assert_eq!(read(b"a\tb\n\"x\t\"y\n", b'\t'), [Ok((2, doc! { "a": "\"x", "b": "\"y" }))]);
    }

    #[test]
    fn a_broken_row_is_named_and_the_next_one_is_read() {
        let found = read(b"a,b\n1,2,3\n\xff,1\n4,5\n", b',');
        assert!(
            found[0].as_ref().unwrap_err().starts_with("line 2: the row has 3 fields"),
            "{found:?}"
        );
        assert_eq!(found[1], Err("line 3: the field a is not UTF-8".to_owned()));
        assert_eq!(found[2], Ok((4, doc! { "a": 4, "b": 5 })));
        for text in ["", "a,a\n1,2\n", "a.b,x,a\n1,2,3\n", "a,\n1,2\n", "$a\n1\n", "a..b\n1\n"] {
            let found = read(text.as_bytes(), b',');
            assert!(found.len() == 1 && found[0].is_err(), "{text}: {found:?}");
        }
    }
}
