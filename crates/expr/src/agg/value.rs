//! The value an expression yields: missing, borrowed from the document, or its own.

use crate::types::name_of;
use bson::raw::{RawArray, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use errors::Result;
use std::sync::Arc;

/// What an expression evaluates to.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// No value: the field is left out.
    Missing,
    /// Bytes of the input document, a constant or a variable.
    Ref(RawBsonRef<'a>),
    /// A computed value.
    Owned(RawBson),
    /// A computed value bound to a variable, so that reading it twice does not copy it.
    Shared(Arc<RawBson>),
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
        Self::Owned(RawBson::String(value.into()))
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
        self.get().is_some_and(is_truthy)
    }

    /// The value on its own, `None` when missing.
    pub fn into_owned(self) -> Option<RawBson> {
        match self {
            Self::Missing => None,
            Self::Ref(value) => Some(value.into()),
            Self::Owned(value) => Some(value),
            Self::Shared(value) => Some(Arc::unwrap_or_clone(value)),
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
            Value::Ref(value) => Value::Owned(value.into()),
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
        value.map_or(Self::Missing, |v| Self::Owned(v.into()))
    }

    /// The elements of an array, each borrowed where the array is; `None` if it is not one.
    pub(crate) fn elements(&self) -> Result<Option<Vec<Self>>> {
        match self {
            Self::Ref(RawBsonRef::Array(array)) => {
                array.into_iter().map(|e| Ok(Self::Ref(e?))).collect::<Result<_>>().map(Some)
            }
            _ => self.as_array().map_or(Ok(None), |array| {
                array
                    .into_iter()
                    .map(|e| Ok(Self::Owned(e?.into())))
                    .collect::<Result<_>>()
                    .map(Some)
            }),
        }
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

impl From<RawDocumentBuf> for Value<'_> {
    fn from(document: RawDocumentBuf) -> Self {
        Self::Owned(RawBson::Document(document))
    }
}

impl From<RawArrayBuf> for Value<'_> {
    fn from(array: RawArrayBuf) -> Self {
        Self::Owned(RawBson::Array(array))
    }
}

/// Truth of a present value as a condition.
pub fn is_truthy(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Null | RawBsonRef::Undefined | RawBsonRef::Boolean(false) => false,
        RawBsonRef::Int32(n) => n != 0,
        RawBsonRef::Int64(n) => n != 0,
        RawBsonRef::Double(n) => n != 0.0,
        RawBsonRef::Decimal128(n) => !crate::decimal::Decimal::from_bson(n).is_zero(),
        _ => true,
    }
}

/// Roughly the bytes of a value in BSON; no fewer than a fixed part.
pub(crate) fn size_of(value: RawBsonRef<'_>) -> usize {
    match value {
        RawBsonRef::String(s) | RawBsonRef::Symbol(s) | RawBsonRef::JavaScriptCode(s) => {
            s.len() + 5
        }
        RawBsonRef::Document(document) => document.as_bytes().len(),
        RawBsonRef::Array(array) => array.as_bytes().len(),
        RawBsonRef::Binary(binary) => binary.bytes.len() + 5,
        RawBsonRef::JavaScriptCodeWithScope(code) => {
            code.code.len() + code.scope.as_bytes().len() + 5
        }
        _ => 8,
    }
}
