//! The difference of two documents, as oplog entries have it (`{$v: 2, diff: …}`).
//!
//! A document's diff has, in this order, `d` (fields that go), `u` (fields that change where they
//! stand), `i` (fields that come, at the end) and `sNAME` (the diff of the value of `NAME`); an
//! array's begins with `a: true`, then the length `l` where it gets shorter, then `uN` and `sN`.
//!
//! Always true: a diff applied to the first document gives the second, byte for byte. Where no diff
//! says that (two fields of one name), there is none.

use bson::raw::{RawArray, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::spec::ElementType;
use bsonval::Path;
use bsonval::path::Component;
use bsonval::raw::{self, Element, Writer};
use errors::Result;
use limits::KeyMap;
use smallvec::SmallVec;

/// Deeper values are told whole: a stored document does not nest deeper than this.
const MAX_DEPTH: usize = 180;

/// What makes `after` of `before`; `None` where a diff cannot say it. `touched` are the paths that an
/// update by operators names: what it sets is told whole, what it changes within in parts, as MongoDB
/// does. Where any path may be another, that is said which is shorter.
pub fn diff(
    before: &RawDocument,
    after: &RawDocument,
    touched: Option<&[Path]>,
) -> Result<Option<RawDocumentBuf>> {
    let mut out = Writer::with_capacity(256);
    let open = out.begin();
    if !plain_into(&mut out, before, after)? {
        let named: Vec<&[Component]> =
            touched.unwrap_or_default().iter().map(Path::components).collect();
        if !document_into(&mut out, before, after, &named, 0)? {
            return Ok(None);
        }
    }
    out.end(open);
    out.finish().map(Some)
}

/// A field that stands in both documents.
struct Kept<'a> {
    before: Element<'a>,
    after: Element<'a>,
}

/// How a value that changed is told.
enum Manner<'p> {
    /// Whole.
    Whole,
    /// In parts, by these paths within.
    InParts(Vec<&'p [Component]>),
    /// As is shorter.
    Shorter,
}

/// How the value of a field is told, by the paths that an update names.
fn told<'p>(named: &[&'p [Component]], name: &str, is_array: bool) -> Manner<'p> {
    let mut within = Vec::new();
    let mut is_named = false;
    for path in named {
        match path {
            [first] if first.name() == name => is_named = true,
            [first, rest @ ..] if first.name() == name => within.push(rest),
            _ => {}
        }
    }
    match (within.is_empty(), is_named) {
        (false, _) => Manner::InParts(within),
        // An array may have been set, added to, or changed at a position.
        (true, true) if !is_array => Manner::Whole,
        (true, _) => Manner::Shorter,
    }
}

/// What is another in a document.
#[derive(Default)]
struct Changes<'a> {
    /// Fields that went.
    gone: Vec<&'a str>,
    /// Fields that stayed where they stood, with other values.
    changed: Vec<Kept<'a>>,
    /// Fields that came, at the end.
    added: Vec<Element<'a>>,
}

/// How many changes are looked for one by one; with more of them, tables of names cost less.
const FEW_CHANGES: usize = 8;

/// Writes the diff of a document whose fields stayed in their places, and perhaps got some behind them, none of which
/// changed within: what most updates leave. It takes one walk. False, and nothing is written, of another, and where a name
/// that is told may be there twice.
fn plain_into(out: &mut Writer, before: &RawDocument, after: &RawDocument) -> Result<bool> {
    let start = out.len();
    let (mut old, mut new) = (raw::elements(before), raw::elements(after));
    let mut names: SmallVec<[&[u8]; 32]> = SmallVec::new();
    // Which of the names are told.
    let mut told: SmallVec<[usize; FEW_CHANGES]> = SmallVec::new();
    let (mut changed, mut added) = (Section::new("u"), Section::new("i"));
    loop {
        raw::pass_same(&mut new, &mut old, |name| names.push(name))?;
        let Some(after) = new.next().transpose()? else { break };
        let before = old.next().transpose()?;
        match &before {
            Some(before) if before.bytes() == after.bytes() => {
                names.push(after.name_bytes());
                continue;
            }
            None => {
                changed.close(out);
                added.open(out);
            }
            Some(before)
                if before.name_bytes() == after.name_bytes()
                    && !(before.is_nested() && after.is_nested()) =>
            {
                changed.open(out);
            }
            Some(_) => {
                out.truncate(start);
                return Ok(false);
            }
        }
        told.push(names.len());
        names.push(after.name_bytes());
        out.element(&after);
    }
    let is_unsure = told.len() > FEW_CHANGES || old.next().is_some();
    if is_unsure || !are_single(&names, told.iter().filter_map(|at| names.get(*at).copied()))? {
        out.truncate(start);
        return Ok(false);
    }
    changed.close(out);
    added.close(out);
    Ok(true)
}

/// Whether each of some names is there once.
fn are_single<'a>(names: &[&[u8]], mut some: impl Iterator<Item = &'a [u8]>) -> Result<bool> {
    some.try_fold(true, |all, name| {
        limits::poll_work(names.len())?;
        Ok(all && names.iter().filter(|other| **other == name).count() == 1)
    })
}

/// The changes of a document whose fields stayed in their places, and perhaps got some behind them: what most updates
/// leave. `None` of another, and where a name that changed may be there twice.
fn changes_in_place<'a>(
    before: &'a RawDocument,
    after: &'a RawDocument,
) -> Result<Option<Changes<'a>>> {
    let mut changes = Changes::default();
    let mut old = raw::elements(before);
    let mut names: SmallVec<[&[u8]; 32]> = SmallVec::new();
    for field in raw::elements(after) {
        let after = field?;
        names.push(after.name_bytes());
        match old.next().transpose()? {
            None => changes.added.push(after),
            Some(before) if before.bytes() == after.bytes() => {}
            Some(before) if before.name_bytes() == after.name_bytes() => {
                changes.changed.push(Kept { before, after });
            }
            Some(_) => return Ok(None),
        }
    }
    if old.next().is_some() || changes.changed.len() + changes.added.len() > FEW_CHANGES {
        return Ok(None);
    }
    let kept = changes.changed.iter().map(|kept| &kept.after);
    let told = kept.chain(&changes.added).map(Element::name_bytes);
    let is_sure = are_single(&names, told)?;
    Ok(is_sure.then_some(changes))
}

/// The changes of any document; `None` where a name is there twice.
fn changes_by_name<'a>(
    before: &'a RawDocument,
    after: &'a RawDocument,
) -> Result<Option<Changes<'a>>> {
    let mut changes = Changes::default();
    let mut places: KeyMap<&str, (usize, Element<'_>)> = KeyMap::default();
    for (at, field) in raw::elements(before).enumerate() {
        let field = field?;
        if places.insert(field.name(), (at, field)).is_some() {
            return Ok(None);
        }
    }
    // What stays comes first, in the order that it had; at the first field that does not, all that
    // follow are new, and come at the end.
    let mut next = 0;
    let mut names: KeyMap<&str, bool> = KeyMap::default();
    for field in raw::elements(after) {
        let after = field?;
        let place =
            places.get(after.name()).filter(|(at, _)| changes.added.is_empty() && *at >= next);
        if names.insert(after.name(), true).is_some() {
            return Ok(None);
        }
        match place {
            Some((at, before)) => {
                next = at + 1;
                if before.bytes() != after.bytes() {
                    changes.changed.push(Kept { before: before.clone(), after });
                }
            }
            None => changes.added.push(after),
        }
    }
    for field in raw::elements(before) {
        let name = field?.name();
        if !names.contains_key(name) {
            changes.gone.push(name);
        }
    }
    Ok(Some(changes))
}

/// Writes the parts of a diff; false where it cannot say what changed.
fn document_into(
    out: &mut Writer,
    before: &RawDocument,
    after: &RawDocument,
    named: &[&[Component]],
    depth: usize,
) -> Result<bool> {
    limits::poll()?;
    let changes = match changes_in_place(before, after)? {
        None => changes_by_name(before, after)?,
        in_place => in_place,
    };
    let Some(changes) = changes else { return Ok(false) };
    let mut part = Section::new("d");
    for name in &changes.gone {
        part.open(out);
        out.value(name, RawBsonRef::Boolean(false));
    }
    part.close(out);
    let mut inner = Vec::new();
    let mut part = Section::new("u");
    for field in &changes.changed {
        match both_nest(&field.before, &field.after)? {
            Some(_) if depth < MAX_DEPTH => inner.push(field),
            _ => {
                part.open(out);
                out.element(&field.after);
            }
        }
    }
    // What has no diff of its own is told whole, which belongs before `i`: so they are tried now.
    let mut made = Vec::new();
    for field in inner {
        if let Some(diff) = nested(field, field.after.name(), named, depth)? {
            made.push((field.after.name(), diff));
        } else {
            part.open(out);
            out.element(&field.after);
        }
    }
    part.close(out);
    let mut part = Section::new("i");
    for field in &changes.added {
        part.open(out);
        out.element(field);
    }
    part.close(out);
    for (name, diff) in &made {
        out.value(&format!("s{name}"), RawBsonRef::Document(diff));
    }
    Ok(true)
}

/// A part of a diff, which is there where it has a field.
struct Section {
    name: &'static str,
    open: Option<raw::Open>,
}

impl Section {
    fn new(name: &'static str) -> Self {
        Self { name, open: None }
    }

    fn open(&mut self, out: &mut Writer) {
        if self.open.is_none() {
            self.open = Some(out.begin_document(self.name));
        }
    }

    fn close(&mut self, out: &mut Writer) {
        if let Some(open) = self.open.take() {
            out.end(open);
        }
    }
}

/// Two values that a diff of their own may tell apart.
enum Nest<'a> {
    Documents(&'a RawDocument, &'a RawDocument),
    Arrays(&'a RawArray, &'a RawArray),
}

fn both_nest<'a>(before: &Element<'a>, after: &Element<'a>) -> Result<Option<Nest<'a>>> {
    // A text is checked when it is read.
    if !(before.is_nested() && after.is_nested()) {
        return Ok(None);
    }
    Ok(match (before.value()?, after.value()?) {
        (RawBsonRef::Document(a), RawBsonRef::Document(b)) => Some(Nest::Documents(a, b)),
        (RawBsonRef::Array(a), RawBsonRef::Array(b)) => Some(Nest::Arrays(a, b)),
        _ => None,
    })
}

/// The diff of a value, where it is told by one.
fn nested(
    field: &Kept<'_>,
    name: &str,
    named: &[&[Component]],
    depth: usize,
) -> Result<Option<RawDocumentBuf>> {
    let is_array = field.after.element_type() == ElementType::Array;
    let told = told(named, name, is_array);
    let within: &[&[Component]] = match &told {
        Manner::Whole => return Ok(None),
        Manner::InParts(within) => within,
        Manner::Shorter => &[],
    };
    let Some(nest) = both_nest(&field.before, &field.after)? else { return Ok(None) };
    let mut out = Writer::with_capacity(64);
    let open = out.begin();
    let made = match nest {
        Nest::Documents(before, after) => {
            document_into(&mut out, before, after, within, depth + 1)?
        }
        Nest::Arrays(before, after) => {
            array_into(&mut out, before, after, within, depth + 1)?;
            true
        }
    };
    out.end(open);
    let is_wanted = matches!(told, Manner::InParts(_)) || out.len() < field.after.body().len();
    if made && is_wanted { out.finish().map(Some) } else { Ok(None) }
}

fn array_into(
    out: &mut Writer,
    before: &RawArray,
    after: &RawArray,
    named: &[&[Component]],
    depth: usize,
) -> Result<()> {
    limits::poll()?;
    out.value("a", RawBsonRef::Boolean(true));
    let length = raw::array_elements(after).count();
    if length < raw::array_elements(before).count() {
        out.value("l", RawBsonRef::Int32(i32::try_from(length).unwrap_or(i32::MAX)));
    }
    let mut old = raw::array_elements(before);
    for (at, field) in raw::array_elements(after).enumerate() {
        let field = field?;
        let Some(before) = old.next().transpose()? else {
            out.element_as(&format!("u{at}"), &field);
            continue;
        };
        if before.element_type() == field.element_type() && before.body() == field.body() {
            continue;
        }
        let kept = Kept { before, after: field };
        let name = at.to_string();
        let diff = if depth < MAX_DEPTH { nested(&kept, &name, named, depth)? } else { None };
        match diff {
            Some(diff) => out.value(&format!("s{at}"), RawBsonRef::Document(&diff)),
            None => out.element_as(&format!("u{at}"), &kept.after),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{Bson, Document, doc};
    use proptest::prelude::*;
    use update::{Update, UpdateContext};

    fn raw_of(document: &Document) -> RawDocumentBuf {
        RawDocumentBuf::try_from(document).unwrap()
    }

    fn applied(before: &RawDocument, diff: &RawDocument) -> RawDocumentBuf {
        let ctx = UpdateContext {
            details: matcher_details(),
            now: bson::DateTime::from_millis(0),
            timestamp: bson::Timestamp { time: 0, increment: 0 },
            keep_empty_timestamps: true,
        };
        Update::from_delta(diff).unwrap().apply(before, &ctx).unwrap().document
    }

    fn matcher_details() -> matcher::MatchDetails {
        matcher::MatchDetails::default()
    }

    #[test]
    fn what_a_diff_says() {
        for (before, after, expected) in [
            (doc! {"a": 1}, doc! {"a": 2}, doc! {"u": {"a": 2}}),
            (doc! {"a": 1, "b": 1}, doc! {"b": 1}, doc! {"d": {"a": false}}),
            (doc! {"a": 1}, doc! {"a": 1, "b": 2}, doc! {"i": {"b": 2}}),
            (doc! {"a": 1, "b": 2}, doc! {"b": 2, "a": 1}, doc! {"i": {"a": 1}}),
            (
                doc! {"x": {"y": "a long text that is worth it", "z": 1}},
                doc! {"x": {"y": "a long text that is worth it", "z": 2}},
                doc! {"sx": {"u": {"z": 2}}},
            ),
            (
                doc! {"r": ["a long text that stays", 2, 3]},
                doc! {"r": ["a long text that stays", 9]},
                doc! {"sr": {"a": true, "l": 2, "u1": 9}},
            ),
            (
                doc! {"r": ["a long text that stays", 2]},
                doc! {"r": ["a long text that stays", 2, 3]},
                doc! {"sr": {"a": true, "u2": 3}},
            ),
            (doc! {"a": {"b": 1}}, doc! {"a": [1]}, doc! {"u": {"a": [1]}}),
            (doc! {"a": 1}, doc! {"a": 1_i64}, doc! {"u": {"a": 1_i64}}),
            (doc! {"a": 1}, doc! {"a": 1}, doc! {}),
        ] {
            let made = diff(&raw_of(&before), &raw_of(&after), None).unwrap().unwrap();
            assert_eq!(Document::try_from(&made).unwrap(), expected, "{before} {after}");
        }
    }

    #[test]
    fn what_an_update_names_decides_what_is_told() {
        for (before, after, path, expected) in [
            (doc! {"a": {"1": 1}}, doc! {"a": {"1": 2}}, "a.1", doc! {"sa": {"u": {"1": 2}}}),
            (doc! {"a": {"x": 1}}, doc! {"a": {"x": 2}}, "a", doc! {"u": {"a": {"x": 2}}}),
            (
                doc! {"a": [{"b": 1}]},
                doc! {"a": [{"b": 2}]},
                "a.0.b",
                doc! {"sa": {"a": true, "s0": {"u": {"b": 2}}}},
            ),
        ] {
            let touched = [Path::new(path)];
            let made = diff(&raw_of(&before), &raw_of(&after), Some(&touched)).unwrap().unwrap();
            assert_eq!(Document::try_from(&made).unwrap(), expected, "{path}");
            assert_eq!(applied(&raw_of(&before), &made), raw_of(&after));
        }
    }

    #[test]
    fn two_fields_of_a_name_have_no_diff() {
        let mut twice = Writer::with_capacity(32);
        let open = twice.begin();
        twice.value("a", RawBsonRef::Int32(1));
        twice.value("a", RawBsonRef::Int32(2));
        twice.end(open);
        let twice = twice.finish().unwrap();
        let once = raw_of(&doc! {"a": 1});
        assert!(diff(&twice, &once, None).unwrap().is_none());
        assert!(diff(&once, &twice, None).unwrap().is_none());
    }

    fn value() -> impl Strategy<Value = Bson> {
        let leaf = prop_oneof![
            (0..3_i32).prop_map(Bson::Int32),
            (0..2_i64).prop_map(Bson::Int64),
            "[ab]{0,12}".prop_map(Bson::String),
            Just(Bson::Null),
        ];
        leaf.prop_recursive(3, 24, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Bson::Array),
                fields(inner).prop_map(Bson::Document),
            ]
        })
    }

    fn fields(value: impl Strategy<Value = Bson>) -> impl Strategy<Value = Document> {
        let name = prop_oneof!["[abcd]", Just("0".to_owned()), Just(String::new())];
        prop::collection::vec((name, value), 0..6).prop_map(|all| all.into_iter().collect())
    }

    /// A document with these fields, in this order, names that are there twice too.
    fn fields_of(list: &[(&str, i32)]) -> RawDocumentBuf {
        let mut out = Writer::with_capacity(64);
        let open = out.begin();
        for (name, value) in list {
            out.value(name, RawBsonRef::Int32(*value));
        }
        out.end(open);
        out.finish().unwrap()
    }

    #[test]
    fn a_name_that_is_there_twice_is_never_told_as_one() {
        let before = fields_of(&[("_id", 1), ("a", 1), ("a", 2), ("b", 3)]);
        for (after, is_told) in [
            (fields_of(&[("_id", 1), ("a", 1), ("a", 2), ("b", 4)]), true),
            (fields_of(&[("_id", 1), ("a", 1), ("a", 2), ("b", 3), ("c", 4)]), true),
            (fields_of(&[("_id", 1), ("a", 9), ("a", 2), ("b", 3)]), false),
            (fields_of(&[("_id", 1), ("a", 1), ("a", 9), ("b", 3)]), false),
            (fields_of(&[("_id", 1), ("a", 1), ("a", 2), ("b", 3), ("a", 4)]), false),
            (fields_of(&[("_id", 1), ("a", 1), ("b", 3)]), false),
        ] {
            let made = diff(&before, &after, None).unwrap();
            assert_eq!(made.is_some(), is_told, "{after:?}");
            if let Some(made) = made {
                assert_eq!(applied(&before, &made), after);
            }
        }
    }

    #[test]
    fn many_changes_in_place_are_told_as_few_are() {
        let list = |count: usize, by: i32| -> Vec<(String, i32)> {
            (0..20)
                .map(|at| (format!("f{at}"), if at < count { at as i32 + by } else { 0 }))
                .collect()
        };
        for count in [0, 1, FEW_CHANGES, FEW_CHANGES + 1, 20] {
            let (before, after) = (list(count, 100), list(count, 200));
            let of = |list: &[(String, i32)]| {
                let list: Vec<(&str, i32)> = list.iter().map(|(name, at)| (&**name, *at)).collect();
                fields_of(&list)
            };
            let made = diff(&of(&before), &of(&after), None).unwrap().unwrap();
            let told = Document::try_from(&made).unwrap();
            let changed = told.get_document("u").map_or(0, Document::len);
            assert_eq!((changed, told.len()), (count, usize::from(count > 0)), "{told}");
            assert_eq!(applied(&of(&before), &made), of(&after));
        }
    }

    proptest! {
        #[test]
        fn a_diff_applied_gives_the_second(before in fields(value()), after in fields(value())) {
            let (mut before, mut after) = (before, after);
            before.insert("_id", 1);
            after.insert("_id", 1);
            // `_id` stands first in what is stored.
            let first = |document: Document| {
                let mut whole = doc! {"_id": 1};
                whole.extend(document.into_iter().filter(|(name, _)| name != "_id"));
                raw_of(&whole)
            };
            let (before, after) = (first(before), first(after));
            let diff = diff(&before, &after, None).unwrap().unwrap();
            let result = applied(&before, &diff);
            prop_assert_eq!(Document::try_from(&result).unwrap(), Document::try_from(&after).unwrap());
            prop_assert_eq!(result.as_bytes(), after.as_bytes());
        }
    }
}
