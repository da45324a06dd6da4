//! The tuples of values a document has under several paths at once: what an index stores and what
//! a sort compares.
//!
//! An array gives one tuple per element; paths that go through the same array take their values
//! from the same element. Two different arrays in one tuple are "parallel" and refused.

use crate::path::{Component, Path};
use crate::raw;
use bson::raw::{RawArray, RawBsonRef, RawDocument};
use errors::{Code, Error, Result};
use smallvec::SmallVec;

/// One tuple: a value per path, `None` where the field is missing. An empty array at the end of a
/// path gives `Undefined`, which sorts below null.
pub type Tuple<'a> = SmallVec<[Option<RawBsonRef<'a>>; 4]>;

/// What [`expand`] found besides the tuples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expansion {
    /// Per path: whether an array was entered on it (the index is "multikey" there).
    pub multikey: SmallVec<[bool; 4]>,
}

/// Where one path stands in the document.
#[derive(Clone, Copy)]
struct Slot<'a, 'p> {
    value: Option<RawBsonRef<'a>>,
    rest: &'p [Component],
    /// The value is final: an array here is taken whole.
    done: bool,
}

/// Hands every tuple of the document's values under `paths` to `emit`; tuples may repeat.
/// Arrays that do not share a parent give `CannotIndexParallelArrays`.
pub fn expand<'a>(
    document: &'a RawDocument,
    paths: &[Path],
    emit: &mut dyn FnMut(&[Option<RawBsonRef<'a>>]) -> Result<()>,
) -> Result<Expansion> {
    let mut expansion = Expansion { multikey: smallvec::smallvec![false; paths.len()] };
    let mut slots: SmallVec<[Slot<'a, '_>; 4]> = SmallVec::with_capacity(paths.len());
    for path in paths {
        slots.push(enter(document, path.components())?);
    }
    step(&slots, paths, &mut expansion, emit)?;
    Ok(expansion)
}

/// Walks fields until the path ends, the field is missing or an array stands in the way.
fn enter<'a, 'p>(document: &'a RawDocument, components: &'p [Component]) -> Result<Slot<'a, 'p>> {
    let mut current = document;
    let mut rest = components;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match raw::field(current, first.name())? {
            Some(RawBsonRef::Document(inner)) if !rest.is_empty() => current = inner,
            Some(RawBsonRef::Array(array)) => return at_array(array, rest),
            Some(value) if rest.is_empty() => {
                return Ok(Slot { value: Some(value), rest, done: true });
            }
            _ => break,
        }
    }
    Ok(Slot { value: None, rest: &[], done: true })
}

/// A numeric component right behind an array chooses that element, unless the elements are
/// documents which have a field of that name.
fn at_array<'a, 'p>(array: &'a RawArray, rest: &'p [Component]) -> Result<Slot<'a, 'p>> {
    if let Some((first, after)) = rest.split_first()
        && let Some(index) = first.index()
        && !any_document_has(array, first.name())?
    {
        return match array.get(index as usize)? {
            Some(RawBsonRef::Document(inner)) if !after.is_empty() => enter(inner, after),
            Some(RawBsonRef::Array(inner)) => at_array(inner, after),
            Some(value) if after.is_empty() => {
                Ok(Slot { value: Some(value), rest: after, done: true })
            }
            None | Some(_) => Ok(Slot { value: None, rest: &[], done: true }),
        };
    }
    Ok(Slot { value: Some(RawBsonRef::Array(array)), rest, done: false })
}

fn any_document_has(array: &RawArray, name: &str) -> Result<bool> {
    for element in raw::values(array) {
        if let RawBsonRef::Document(document) = element?
            && raw::field(document, name)?.is_some()
        {
            return Ok(true);
        }
    }
    Ok(false)
}

fn step<'a>(
    slots: &[Slot<'a, '_>],
    paths: &[Path],
    expansion: &mut Expansion,
    emit: &mut dyn FnMut(&[Option<RawBsonRef<'a>>]) -> Result<()>,
) -> Result<()> {
    let mut shared: Option<(usize, &'a RawArray)> = None;
    for (at, slot) in slots.iter().enumerate() {
        let (false, Some(RawBsonRef::Array(array))) = (slot.done, slot.value) else { continue };
        expansion.multikey[at] = true;
        match shared {
            Some((first, other)) if !std::ptr::eq(other.as_bytes(), array.as_bytes()) => {
                return Err(parallel(&paths[first], &paths[at]));
            }
            Some(_) => {}
            None => shared = Some((at, array)),
        }
    }
    let Some((_, array)) = shared else {
        let tuple: Tuple<'a> = slots.iter().map(|slot| slot.value).collect();
        return emit(&tuple);
    };
    if array.is_empty() {
        let next = descend(slots, None)?;
        return step(&next, paths, expansion, emit);
    }
    for element in raw::values(array) {
        let next = descend(slots, Some(element?))?;
        step(&next, paths, expansion, emit)?;
    }
    Ok(())
}

/// The slots that stand at the array move to one of its elements; `None` is the empty array.
fn descend<'a, 'p>(
    slots: &[Slot<'a, 'p>],
    element: Option<RawBsonRef<'a>>,
) -> Result<SmallVec<[Slot<'a, 'p>; 4]>> {
    let mut next = SmallVec::with_capacity(slots.len());
    for slot in slots {
        next.push(match (slot.done, element) {
            (true, _) => *slot,
            (false, None) => {
                let value = slot.rest.is_empty().then_some(RawBsonRef::Undefined);
                Slot { value, rest: &[], done: true }
            }
            (false, Some(value)) if slot.rest.is_empty() => {
                Slot { value: Some(value), rest: &[], done: true }
            }
            (false, Some(RawBsonRef::Document(inner))) => enter(inner, slot.rest)?,
            (false, Some(_)) => Slot { value: None, rest: &[], done: true },
        });
    }
    Ok(next)
}

fn parallel(a: &Path, b: &Path) -> Error {
    Error::new(
        Code::CANNOT_INDEX_PARALLEL_ARRAYS,
        format!("cannot index parallel arrays [{}] [{}]", b.as_str(), a.as_str()),
    )
}

#[cfg(test)]
mod tests;
