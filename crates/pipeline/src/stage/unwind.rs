//! `$unwind`: one document per element of an array.

use crate::source::DocumentSource;
use crate::stage::{Output, Part, PipelineStage, StageInput, StageSpec, all_apart};
use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bsonval::raw::{self, Writer};
use errors::{Error, Result};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A parsed unwind.
#[derive(Clone, Debug)]
pub struct Unwind {
    /// The array's path.
    pub path: Vec<String>,
    /// Where the element's index goes.
    pub index: Option<Vec<String>>,
    /// Keep documents whose array is empty, null or missing.
    pub preserve: bool,
}

impl Unwind {
    /// The options, as explain shows them.
    pub(crate) fn to_document(&self) -> RawDocumentBuf {
        let mut out = Writer::default();
        let open = out.begin();
        out.value("path", RawBsonRef::String(&format!("${}", self.dotted())));
        if self.preserve {
            out.value("preserveNullAndEmptyArrays", RawBsonRef::Boolean(true));
        }
        if let Some(index) = &self.index {
            out.value("includeArrayIndex", RawBsonRef::String(&index.join(".")));
        }
        out.end(open);
        out.finish().expect("names of a parsed stage hold no NUL")
    }

    /// The path, dotted.
    pub fn dotted(&self) -> String {
        self.path.join(".")
    }
}

pub(crate) fn parse(value: RawBsonRef<'_>) -> Result<PipelineStage> {
    let (mut path, mut index, mut preserve) = (None, None, false);
    match value {
        RawBsonRef::String(text) => path = Some(text.to_owned()),
        RawBsonRef::Document(spec) => {
            for element in spec.iter_elements() {
                let element = element?;
                let value = element.value()?;
                match element.key().as_str() {
                    "path" => path = Some(read_path(value)?),
                    "includeArrayIndex" => index = Some(read_index(value)?),
                    "preserveNullAndEmptyArrays" => {
                        let RawBsonRef::Boolean(keep) = value else {
                            return Err(Error::location(
                                28809,
                                format!(
                                    "expected a boolean for the preserveNullAndEmptyArrays option \
                                     to $unwind stage, got {}",
                                    bsonval::types::name_of(value)
                                ),
                            ));
                        };
                        preserve = keep;
                    }
                    other => {
                        return Err(Error::location(
                            28811,
                            format!("unrecognized option to $unwind stage: {other}"),
                        ));
                    }
                }
            }
        }
        other => {
            return Err(Error::location(
                15981,
                format!(
                    "expected either a string or an object as specification for $unwind stage, \
                     got {}",
                    bsonval::types::name_of(other)
                ),
            ));
        }
    }
    let path = path
        .filter(|path| !path.is_empty())
        .ok_or_else(|| Error::location(28812, "no path specified to $unwind stage"))?;
    let Some(path) = path.strip_prefix('$') else {
        return Err(Error::location(
            28818,
            format!("path option to $unwind stage should be prefixed with a '$': {path}"),
        ));
    };
    Ok(PipelineStage::Unwind(Arc::new(Unwind {
        path: expr::agg::split_path(path)?,
        index: index.map(|name| expr::agg::split_path(&name)).transpose()?,
        preserve,
    })))
}

impl StageSpec for Unwind {
    fn name(&self) -> &'static str {
        "$unwind"
    }

    fn argument(&self) -> RawBson {
        RawBson::Document(self.to_document())
    }

    fn parts(&self) -> Vec<Part<'_>> {
        vec![Part::Field(self.dotted())]
    }

    fn execute(self: Arc<Self>, run: StageInput) -> Result<Box<dyn DocumentSource>> {
        Ok(Box::new(UnwindSource::new(run, self)))
    }

    fn output(&self) -> Output {
        Output::Passing
    }

    fn lets_match_pass(&self, paths: &BTreeSet<String>) -> bool {
        let index = self.index.as_ref().map(|path| path.join("."));
        all_apart(paths, &self.dotted()) && index.is_none_or(|index| all_apart(paths, &index))
    }
}

fn read_path(value: RawBsonRef<'_>) -> Result<String> {
    value.as_str().map(str::to_owned).ok_or_else(|| {
        Error::location(
            28808,
            format!(
                "expected a string as the path for $unwind stage, got {}",
                bsonval::types::name_of(value)
            ),
        )
    })
}

fn read_index(value: RawBsonRef<'_>) -> Result<String> {
    let name = value.as_str().filter(|name| !name.is_empty()).ok_or_else(|| {
        Error::location(
            28810,
            format!(
                "expected a non-empty string for the includeArrayIndex  option to $unwind stage, \
                 got {}",
                bsonval::types::name_of(value)
            ),
        )
    })?;
    if name.starts_with('$') {
        return Err(Error::location(
            28822,
            format!(
                "includeArrayIndex option to $unwind stage should not be prefixed with a '$': \
                 {name}"
            ),
        ));
    }
    Ok(name.to_owned())
}

pub(crate) struct UnwindSource {
    run: StageInput,
    unwind: Arc<Unwind>,
    /// The document being unwound.
    current: Option<Open>,
}

/// A document whose array is being walked; in the document itself null stands for the array.
struct Open {
    document: RawDocumentBuf,
    elements: std::vec::IntoIter<RawBson>,
    index: i64,
}

/// What stands at the path.
enum Found {
    Array(RawArrayBuf),
    EmptyOrMissing { remove: bool },
    Scalar,
}

impl UnwindSource {
    pub(crate) fn new(run: StageInput, unwind: Arc<Unwind>) -> Self {
        Self { run, unwind, current: None }
    }

    fn look(&self, document: &RawDocument) -> Result<Found> {
        let Some((last, parents)) = self.unwind.path.split_last() else {
            return Ok(Found::Scalar);
        };
        let mut at = document;
        for name in parents {
            match at.get(name)? {
                Some(RawBsonRef::Document(inner)) => at = inner,
                _ => return Ok(Found::EmptyOrMissing { remove: false }),
            }
        }
        Ok(match at.get(last)? {
            None | Some(RawBsonRef::Null | RawBsonRef::Undefined) => {
                Found::EmptyOrMissing { remove: false }
            }
            Some(RawBsonRef::Array(array)) if array.is_empty() => {
                Found::EmptyOrMissing { remove: true }
            }
            Some(RawBsonRef::Array(array)) => Found::Array(array.to_owned()),
            Some(_) => Found::Scalar,
        })
    }

    /// The document with the element's index set, where that is wanted.
    fn indexed(&self, document: RawDocumentBuf, index: RawBsonRef<'_>) -> Result<RawDocumentBuf> {
        match &self.unwind.index {
            Some(path) => set_path(&document, path, Some(index)),
            None => Ok(document),
        }
    }

    fn next_element(&mut self) -> Result<Option<RawDocumentBuf>> {
        let Some(mut open) = self.current.take() else { return Ok(None) };
        let Some(value) = open.elements.next() else { return Ok(None) };
        let index = open.index;
        open.index += 1;
        let value = Some(value.as_raw_bson_ref());
        let made = set_path(&open.document, &self.unwind.path, value)?;
        let made = self.indexed(made, RawBsonRef::Int64(index))?;
        self.current = Some(open);
        Ok(Some(made))
    }
}

impl DocumentSource for UnwindSource {
    fn next(&mut self) -> Result<Option<RawDocumentBuf>> {
        let mut passed = 0_u32;
        loop {
            if let Some(document) = self.next_element()? {
                return Ok(Some(document));
            }
            passed += 1;
            if passed.is_multiple_of(128) {
                self.run.env.check_interrupt()?;
            }
            let Some(document) = self.run.input.next()? else { return Ok(None) };
            match self.look(&document)? {
                Found::Scalar => return self.indexed(document, RawBsonRef::Null).map(Some),
                Found::EmptyOrMissing { remove } if self.unwind.preserve => {
                    let made = if remove {
                        set_path(&document, &self.unwind.path, None)?
                    } else {
                        document
                    };
                    return self.indexed(made, RawBsonRef::Null).map(Some);
                }
                Found::EmptyOrMissing { .. } => {}
                Found::Array(array) => {
                    let elements: Vec<RawBson> = (&*array)
                        .into_iter()
                        .map(|element| Ok(RawBson::from(element?)))
                        .collect::<Result<_>>()?;
                    // Each result replaces the array, so its bytes need not be carried along.
                    let document = set_path(&document, &self.unwind.path, Some(RawBsonRef::Null))?;
                    self.current =
                        Some(Open { document, elements: elements.into_iter(), index: 0 });
                }
            }
        }
    }

    fn park(&mut self) {
        self.run.input.park();
    }
}

/// The document with one value set (or removed) at a path of fields; missing or scalar parents
/// become documents.
pub(crate) fn set_path(
    document: &RawDocument,
    path: &[String],
    value: Option<RawBsonRef<'_>>,
) -> Result<RawDocumentBuf> {
    let extra = value.map_or(0, |_| 64);
    let mut out = Writer::with_capacity(document.as_bytes().len() + extra);
    let open = out.begin();
    set_level(Some(document), path, value, &mut out)?;
    out.end(open);
    crate::stage::check_document_size(out.len())?;
    out.finish()
}

fn set_level(
    document: Option<&RawDocument>,
    path: &[String],
    value: Option<RawBsonRef<'_>>,
    out: &mut Writer,
) -> Result<()> {
    let Some((first, rest)) = path.split_first() else { return Ok(()) };
    let put = |inner: Option<&RawDocument>, out: &mut Writer| -> Result<()> {
        match value {
            _ if !rest.is_empty() => {
                let open = out.begin_document(first);
                set_level(inner, rest, value, out)?;
                out.end(open);
            }
            Some(value) => out.value(first, value),
            None => {}
        }
        Ok(())
    };
    let mut placed = false;
    for element in document.into_iter().flat_map(raw::elements) {
        let element = element?;
        if element.name() != first {
            out.element(&element);
            continue;
        }
        placed = true;
        put(element.value()?.as_document(), out)?;
    }
    if !placed && value.is_some() {
        put(None, out)?;
    }
    Ok(())
}
