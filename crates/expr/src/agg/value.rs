//! The value an expression yields: missing, borrowed from the document, or its own.
//!
//! Always true: a value of its own that is larger than [`UNCHARGED_BYTES`] is charged to the
//! operation's memory from the moment its node has evaluated until it is dropped.

use bson::raw::{RawArray, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bsonval::raw::{self, size_of_ref};
use bsonval::types::{is_true, name_of};
use errors::Result;
use limits::{Charge, Growth, Part, UNCHARGED_BYTES};
use std::sync::Arc;

/// What an expression evaluates to.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// No value: the field is left out.
    Missing,
    /// Bytes of the input document, a constant or a variable.
    Ref(RawBsonRef<'a>),
    /// A computed value.
    Owned(OwnedValue),
    /// A computed value bound to a variable, so that reading it twice does not copy it.
    Shared(Arc<OwnedValue>),
}

/// A computed value with the memory it is charged for, where it is large.
#[derive(Debug)]
pub struct OwnedValue {
    value: RawBson,
    charge: Option<Box<Charge>>,
}

impl OwnedValue {
    /// The value.
    pub fn as_raw_bson_ref(&self) -> RawBsonRef<'_> {
        self.value.as_raw_bson_ref()
    }

    /// Charges the value where it is large and was not charged yet.
    pub(super) fn charge(&mut self) -> Result<()> {
        if self.charge.is_none() {
            let bytes = size_of_ref(self.as_raw_bson_ref());
            if bytes > UNCHARGED_BYTES {
                self.charge = Some(Box::new(limits::charge(Part::Values, bytes)?));
            }
        }
        Ok(())
    }
}

impl From<RawBson> for OwnedValue {
    fn from(value: RawBson) -> Self {
        Self { value, charge: None }
    }
}

impl Clone for OwnedValue {
    /// The copy is charged when it next is what a node yields.
    fn clone(&self) -> Self {
        self.value.clone().into()
    }
}

impl Value<'_> {
    /// BSON null.
    pub const NULL: Self = Self::Ref(RawBsonRef::Null);

    /// A boolean.
    pub const fn bool(value: bool) -> Self {
        Self::Ref(RawBsonRef::Boolean(value))
    }

    /// A 32-bit integer.
    pub const fn int(value: i32) -> Self {
        Self::Ref(RawBsonRef::Int32(value))
    }

    /// A 32-bit integer where it fits, else a 64-bit one.
    pub fn narrow(value: i64) -> Self {
        Self::Ref(i32::try_from(value).map_or(RawBsonRef::Int64(value), RawBsonRef::Int32))
    }

    /// A string.
    pub fn string(value: impl Into<String>) -> Self {
        RawBson::String(value.into()).into()
    }

    /// The BSON value, or `None` when missing.
    pub fn get(&self) -> Option<RawBsonRef<'_>> {
        match self {
            Self::Missing => None,
            Self::Ref(value) => Some(*value),
            Self::Owned(value) => Some(value.as_raw_bson_ref()),
            Self::Shared(value) => Some(value.as_raw_bson_ref()),
        }
    }

    /// The BSON value; missing reads as undefined, which compares the same.
    pub fn bson(&self) -> RawBsonRef<'_> {
        self.get().unwrap_or(RawBsonRef::Undefined)
    }

    /// Missing, null or undefined.
    pub fn is_nullish(&self) -> bool {
        matches!(self.bson(), RawBsonRef::Null | RawBsonRef::Undefined)
    }

    /// No value at all.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Missing)
    }

    /// Truth as a condition: false, zero, null, undefined and missing are false.
    pub fn is_truthy(&self) -> bool {
        self.get().is_some_and(is_true)
    }

    /// The value on its own, `None` when missing.
    pub fn into_owned(self) -> Option<RawBson> {
        match self {
            Self::Missing => None,
            Self::Ref(value) => Some(value.into()),
            Self::Owned(made) => Some(made.value),
            Self::Shared(made) => Some(Arc::unwrap_or_clone(made).value),
        }
    }

    /// The value ready to be bound to a variable: reading it is cheap ever after.
    #[must_use]
    pub fn into_shared(self) -> Self {
        match self {
            Self::Owned(value) => Self::Shared(Arc::new(value)),
            other => other,
        }
    }

    /// The value free of borrowed bytes.
    pub fn detach<'b>(self) -> Value<'b> {
        match self {
            Value::Missing => Value::Missing,
            Value::Ref(value) => RawBson::from(value).into(),
            Value::Owned(value) => Value::Owned(value),
            Value::Shared(value) => Value::Shared(value),
        }
    }

    /// A part of this value (an element, a field): borrowed if this one is, else copied.
    pub(crate) fn part<F>(&self, pick: F) -> Result<Self>
    where
        F: for<'b> Fn(RawBsonRef<'b>) -> Result<Option<RawBsonRef<'b>>>,
    {
        Ok(match self {
            Self::Missing => Self::Missing,
            Self::Ref(value) => pick(*value)?.map_or(Self::Missing, Self::Ref),
            Self::Owned(value) => Self::copied(pick(value.as_raw_bson_ref())?),
            Self::Shared(value) => Self::copied(pick(value.as_raw_bson_ref())?),
        })
    }

    fn copied(value: Option<RawBsonRef<'_>>) -> Self {
        value.map_or(Self::Missing, |v| RawBson::from(v).into())
    }

    /// The value, charged for: what every node's value goes through.
    pub(crate) fn charged(mut self) -> Result<Self> {
        if let Self::Owned(made) = &mut self {
            made.charge()?;
        }
        Ok(self)
    }

    /// The array, if it is one.
    pub fn as_array(&self) -> Option<&RawArray> {
        self.get()?.as_array()
    }

    /// The document, if it is one.
    pub fn as_document(&self) -> Option<&RawDocument> {
        self.get()?.as_document()
    }

    /// The string, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        self.get()?.as_str()
    }

    /// The type's name as error messages spell it (`missing` for no value).
    pub fn type_name(&self) -> &'static str {
        self.get().map_or("missing", name_of)
    }
}

impl<'a> Value<'a> {
    /// The elements of an array, one at a time: borrowed where the array is, else copied. `None` if
    /// it is no array.
    pub(crate) fn elements(&self) -> Option<Elements<'_, 'a>> {
        match self {
            Self::Ref(RawBsonRef::Array(array)) => Some(Elements::Borrowed(array.into_iter())),
            _ => self.as_array().map(|array| Elements::Copied(array.into_iter())),
        }
    }

    /// The elements of an array side by side, for what must see them together; `None` if it is no
    /// array.
    pub(crate) fn references(&self) -> Result<Option<References<'_>>> {
        self.as_array().map_or(Ok(None), |array| {
            let mut references = References::default();
            references.extend(array)?;
            Ok(Some(references))
        })
    }
}

/// Goes over the elements of an array; polls at each.
pub(crate) enum Elements<'v, 'a> {
    Borrowed(bson::raw::RawArrayIter<'a>),
    Copied(bson::raw::RawArrayIter<'v>),
}

impl<'a> Elements<'_, 'a> {
    fn take(&mut self) -> Result<Option<Value<'a>>> {
        limits::poll()?;
        match self {
            Self::Borrowed(inner) => Ok(inner.next().transpose()?.map(Value::Ref)),
            Self::Copied(inner) => {
                let Some(element) = inner.next().transpose()? else { return Ok(None) };
                limits::poll_work(size_of_ref(element) / limits::BYTES_PER_UNIT)?;
                Value::from(RawBson::from(element)).charged().map(Some)
            }
        }
    }
}

impl<'a> Iterator for Elements<'_, 'a> {
    type Item = Result<Value<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.take().transpose()
    }
}

/// The elements of arrays side by side, where they stand in the arrays' bytes.
#[derive(Debug)]
pub(crate) struct References<'v> {
    items: Vec<RawBsonRef<'v>>,
    memory: Growth,
}

impl Default for References<'_> {
    fn default() -> Self {
        Self { items: Vec::new(), memory: Growth::new(Part::Values) }
    }
}

/// Room for so many comes first.
const FEW_REFERENCES: usize = 16;

impl<'v> References<'v> {
    /// Adds the elements of an array behind those there.
    pub(crate) fn extend(&mut self, array: &'v RawArray) -> Result<()> {
        for element in raw::values(array) {
            self.push(element?)?;
        }
        Ok(())
    }

    pub(crate) fn push(&mut self, element: RawBsonRef<'v>) -> Result<()> {
        if self.items.len() == self.items.capacity() {
            self.grow()?;
        }
        self.items.push(element);
        Ok(())
    }

    /// Makes room for half as many again. For a moment they stand in the old place and the new.
    fn grow(&mut self) -> Result<()> {
        let bytes = |items: usize| items.saturating_mul(size_of::<RawBsonRef<'_>>());
        let (held, len) = (self.items.capacity(), self.items.len());
        let wanted = held.saturating_add(held / 2).max(FEW_REFERENCES);
        self.memory.reach(bytes(held.saturating_add(wanted)))?;
        self.items.reserve_exact(wanted - len);
        self.memory.shrink(bytes(self.items.capacity()));
        Ok(())
    }

    /// In the order that `compare` says; equal ones keep theirs.
    pub(crate) fn sort_by(
        &mut self,
        mut compare: impl FnMut(RawBsonRef<'v>, RawBsonRef<'v>) -> std::cmp::Ordering,
    ) -> Result<()> {
        let items = std::mem::take(&mut self.items);
        self.items = limits::sort_by(items, |a, b| compare(*a, *b))?;
        Ok(())
    }

    /// Keeps those for which `wanted` says so.
    pub(crate) fn retain(
        &mut self,
        mut wanted: impl FnMut(RawBsonRef<'v>) -> Result<bool>,
    ) -> Result<()> {
        let mut kept = 0;
        for at in 0..self.items.len() {
            limits::poll()?;
            if wanted(self.items[at])? {
                self.items.swap(kept, at);
                kept += 1;
            }
        }
        self.items.truncate(kept);
        Ok(())
    }

    pub(crate) fn reverse(&mut self) {
        self.items.reverse();
    }
}

impl<'v> std::ops::Deref for References<'v> {
    type Target = [RawBsonRef<'v>];

    fn deref(&self) -> &Self::Target {
        &self.items
    }
}

/// What takes so many bytes is there twice while it is moved to where there is room for it to grow.
fn while_growing(bytes: usize) -> usize {
    bytes.saturating_mul(2)
}

/// An array that is being made: polls, and is charged before it grows.
#[derive(Debug)]
pub(crate) struct List {
    built: RawArrayBuf,
    memory: Growth,
}

impl Default for List {
    fn default() -> Self {
        Self { built: RawArrayBuf::new(), memory: Growth::new(Part::Values) }
    }
}

impl List {
    /// Grows an array that nobody else needs any more; `None` where the value is no array.
    pub(crate) fn growing(value: Value<'_>) -> Result<Option<Self>> {
        let bytes = value.get().map_or(0, size_of_ref);
        let mut memory = Growth::new(Part::Values);
        let (array, charge) = match value {
            Value::Owned(OwnedValue { value: RawBson::Array(array), charge }) => (array, charge),
            other => {
                memory.reach(bytes)?;
                let Some(RawBson::Array(array)) = other.into_owned() else { return Ok(None) };
                return Ok(Some(Self { built: array, memory }));
            }
        };
        Ok(Some(Self {
            built: array,
            memory: Growth::from_charge(Part::Values, charge.map(|charge| *charge)),
        }))
    }

    /// The bytes it takes by now.
    pub(crate) fn bytes(&self) -> usize {
        self.built.as_bytes().len()
    }

    /// Adds an element at the end.
    pub(crate) fn push(&mut self, element: RawBsonRef<'_>) -> Result<()> {
        let size = size_of_ref(element);
        limits::poll_work(1 + size / limits::BYTES_PER_UNIT)?;
        // A type byte, the position's digits and a NUL beside the element.
        let bytes = self.built.as_bytes().len() + size + 12;
        self.memory.reach(while_growing(bytes))?;
        self.built.push(element);
        super::check_size(self.built.as_bytes().len())
    }

    /// The array.
    pub(crate) fn finish<'a>(mut self) -> Value<'a> {
        self.memory.shrink(self.built.as_bytes().len());
        let charge = self.memory.into_charge().map(Box::new);
        Value::Owned(OwnedValue { value: RawBson::Array(self.built), charge })
    }

    /// An array of these.
    pub(crate) fn of<'v, 'a>(elements: impl Iterator<Item = RawBsonRef<'v>>) -> Result<Value<'a>> {
        let mut list = Self::default();
        for element in elements {
            list.push(element)?;
        }
        Ok(list.finish())
    }
}

/// A string that is being made: polls, and is charged before it grows.
#[derive(Debug)]
pub(crate) struct Text {
    built: String,
    memory: Growth,
}

impl Text {
    /// Grows a string that nobody else needs any more; `None` where the value is no string.
    pub(crate) fn growing(value: Value<'_>) -> Result<Option<Self>> {
        let bytes = value.get().map_or(0, size_of_ref);
        let mut memory = Growth::new(Part::Values);
        let (built, charge) = match value {
            Value::Owned(OwnedValue { value: RawBson::String(built), charge }) => (built, charge),
            other => {
                memory.reach(bytes)?;
                let Some(RawBson::String(built)) = other.into_owned() else { return Ok(None) };
                return Ok(Some(Self { built, memory }));
            }
        };
        Ok(Some(Self {
            built,
            memory: Growth::from_charge(Part::Values, charge.map(|charge| *charge)),
        }))
    }

    /// An empty string that will have so many bytes.
    pub(crate) fn with_capacity(bytes: usize) -> Result<Self> {
        super::check_size(bytes)?;
        let mut memory = Growth::new(Part::Values);
        memory.reach(bytes)?;
        Ok(Self { built: String::with_capacity(bytes), memory })
    }

    /// A copy of a text.
    pub(crate) fn of<'a>(text: &str) -> Result<Value<'a>> {
        let mut copy = Self::with_capacity(text.len())?;
        copy.push(text)?;
        Ok(copy.finish())
    }

    /// The text so far, to be changed where it stands.
    pub(crate) fn as_mut_str(&mut self) -> &mut str {
        &mut self.built
    }

    /// Adds text at the end.
    pub(crate) fn push(&mut self, text: &str) -> Result<()> {
        limits::poll_work(1 + text.len() / limits::BYTES_PER_UNIT)?;
        let bytes = self.built.len().saturating_add(text.len());
        super::check_size(bytes)?;
        self.memory.reach(while_growing(bytes))?;
        self.built.push_str(text);
        Ok(())
    }

    /// The string.
    pub(crate) fn finish<'a>(mut self) -> Value<'a> {
        self.memory.shrink(self.built.len());
        let charge = self.memory.into_charge().map(Box::new);
        Value::Owned(OwnedValue { value: RawBson::String(self.built), charge })
    }
}

impl From<RawBson> for Value<'_> {
    fn from(value: RawBson) -> Self {
        Self::Owned(value.into())
    }
}

impl From<RawDocumentBuf> for Value<'_> {
    fn from(document: RawDocumentBuf) -> Self {
        RawBson::Document(document).into()
    }
}
