//! BSON to JavaScript and back.
//!
//! Always true: what a client's code leaves alone comes back as it went in, also the ints that
//! JavaScript takes for doubles: an object remembers which of its fields were ints, and a whole
//! number in such a field is one again. Other numbers come back as doubles, as in MongoDB.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bson::oid::ObjectId;
use bson::raw::{
    CString, RawArrayBuf, RawBinaryRef, RawBson, RawBsonRef, RawDocument, RawDocumentBuf,
};
use bson::spec::BinarySubtype;
use bson::{Binary, DateTime, Decimal128, Regex, Timestamp};
use rquickjs::function::Function;
use rquickjs::object::Filter;
use rquickjs::{Array, Coerced, Ctx, Object, Type, Value};
use std::collections::BTreeSet;
use std::str::FromStr;

/// How deep values may nest on their way back; also what stops a circle.
const MAX_DEPTH: usize = 150;

/// What the prelude keeps for the server.
#[derive(Clone)]
pub(crate) struct Helpers<'js> {
    pub(crate) ctx: Ctx<'js>,
    pub(crate) make: Function<'js>,
    pub(crate) tag: Function<'js>,
}

type Js<T> = rquickjs::Result<T>;

impl<'js> Helpers<'js> {
    /// One value more on its way in or out.
    fn poll(&self) -> Js<()> {
        limits::poll().map_err(|stopped| self.failure(stopped.message()))
    }

    pub(crate) fn value(&self, value: RawBsonRef<'_>) -> Js<Value<'js>> {
        self.poll()?;
        let ctx = &self.ctx;
        Ok(match value {
            RawBsonRef::Null => Value::new_null(ctx.clone()),
            RawBsonRef::Boolean(value) => Value::new_bool(ctx.clone(), value),
            RawBsonRef::Int32(value) => Value::new_int(ctx.clone(), value),
            RawBsonRef::Double(value) => Value::new_float(ctx.clone(), value),
            RawBsonRef::String(text) | RawBsonRef::Symbol(text) => self.text(text)?,
            RawBsonRef::Document(document) => self.object(document)?.into_value(),
            RawBsonRef::Array(array) => {
                let list = Array::new(ctx.clone())?;
                for (at, element) in array.into_iter().enumerate() {
                    list.set(at, self.value(element.map_err(|error| damaged(&error))?)?)?;
                }
                list.into_value()
            }
            RawBsonRef::Int64(value) => self.make.call(("long", value.to_string()))?,
            RawBsonRef::Decimal128(value) => self.make.call(("decimal", value.to_string()))?,
            RawBsonRef::ObjectId(id) => self.make.call(("oid", id.to_hex()))?,
            RawBsonRef::DateTime(date) => {
                self.make.call(("date", date.timestamp_millis() as f64))?
            }
            RawBsonRef::Timestamp(stamp) => {
                self.make.call(("timestamp", f64::from(stamp.time), f64::from(stamp.increment)))?
            }
            RawBsonRef::Binary(RawBinaryRef { subtype, bytes }) => {
                self.make.call(("binary", i32::from(u8::from(subtype)), BASE64.encode(bytes)))?
            }
            RawBsonRef::RegularExpression(regex) => {
                // `x` and `l` are PCRE's alone.
                let flags: String =
                    regex.options.as_str().chars().filter(|flag| "imsu".contains(*flag)).collect();
                self.make.call(("regex", regex.pattern.as_str(), flags))?
            }
            RawBsonRef::MinKey => self.make.call(("min",))?,
            RawBsonRef::MaxKey => self.make.call(("max",))?,
            RawBsonRef::JavaScriptCode(code) => self.text(code)?,
            RawBsonRef::JavaScriptCodeWithScope(code) => self.text(code.code)?,
            RawBsonRef::Undefined | RawBsonRef::DbPointer(_) => Value::new_undefined(ctx.clone()),
        })
    }

    fn text(&self, text: &str) -> Js<Value<'js>> {
        rquickjs::String::from_str(self.ctx.clone(), text).map(rquickjs::String::into_value)
    }

    pub(crate) fn object(&self, document: &RawDocument) -> Js<Object<'js>> {
        let object = Object::new(self.ctx.clone())?;
        let mut ints = Vec::new();
        for element in document {
            let (name, value) = element.map_err(|error| damaged(&error))?;
            object.set(name.as_str(), self.value(value)?)?;
            if matches!(value, RawBsonRef::Int32(_)) {
                ints.push(name.as_str());
            }
        }
        if !ints.is_empty() {
            let _same: Value<'js> = self.make.call(("ints", object.clone(), ints))?;
        }
        Ok(object)
    }

    /// A value on its way back.
    pub(crate) fn bson(&self, value: &Value<'js>) -> Js<RawBson> {
        self.bson_at(value, 0)
    }

    fn bson_at(&self, value: &Value<'js>, depth: usize) -> Js<RawBson> {
        self.poll()?;
        if depth > MAX_DEPTH {
            return Err(self.failure("the result nests too deep, or holds itself"));
        }
        Ok(match value.type_of() {
            Type::Uninitialized | Type::Undefined | Type::Symbol => RawBson::Undefined,
            Type::Null => RawBson::Null,
            Type::Bool => RawBson::Boolean(value.as_bool().unwrap_or_default()),
            Type::Int | Type::Float => RawBson::Double(value.as_number().unwrap_or_default()),
            Type::BigInt => {
                let text: Coerced<String> = value.get()?;
                RawBson::Int64(text.0.parse().map_err(|_| self.failure("a BigInt beyond 64 bits"))?)
            }
            Type::String => RawBson::String(value.get()?),
            Type::Array => {
                let Some(array) = value.as_array() else { return Ok(RawBson::Null) };
                let mut list = RawArrayBuf::new();
                for element in array.iter::<Value<'js>>() {
                    list.push(self.bson_at(&element?, depth + 1)?);
                }
                RawBson::Array(list)
            }
            _ => self.tagged(value, depth)?,
        })
    }

    fn tagged(&self, value: &Value<'js>, depth: usize) -> Js<RawBson> {
        let tag: Option<Array<'js>> = self.tag.call((value.clone(),))?;
        let Some(tag) = tag else { return self.fields(value, &BTreeSet::new(), depth) };
        let kind: String = tag.get(0)?;
        Ok(match kind.as_str() {
            "ints" => {
                let names: Vec<String> = tag.get(1)?;
                self.fields(value, &names.into_iter().collect(), depth)?
            }
            "code" => RawBson::JavaScriptCode(tag.get(1)?),
            "date" => {
                let millis: f64 = tag.get(1)?;
                RawBson::DateTime(DateTime::from_millis(millis as i64))
            }
            "oid" => {
                let text: String = tag.get(1)?;
                RawBson::ObjectId(ObjectId::parse_str(text).map_err(|e| self.failure(&e))?)
            }
            "long" => {
                let text: String = tag.get(1)?;
                RawBson::Int64(text.parse().map_err(|e| self.failure(&e))?)
            }
            "int" => RawBson::Int32(tag.get(1)?),
            "decimal" => {
                let text: String = tag.get(1)?;
                RawBson::Decimal128(Decimal128::from_str(&text).map_err(|e| self.failure(&e))?)
            }
            "binary" => {
                let (subtype, text): (Coerced<i32>, String) = (tag.get(1)?, tag.get(2)?);
                let bytes = BASE64.decode(text).map_err(|e| self.failure(&e))?;
                let subtype = BinarySubtype::from(subtype.0 as u8);
                RawBson::Binary(Binary { subtype, bytes })
            }
            "timestamp" => {
                let (time, increment): (f64, f64) = (tag.get(1)?, tag.get(2)?);
                RawBson::Timestamp(Timestamp { time: time as u32, increment: increment as u32 })
            }
            "regex" => {
                let (pattern, flags): (String, String) = (tag.get(1)?, tag.get(2)?);
                let mut options: Vec<char> =
                    flags.chars().filter(|c| "imsu".contains(*c)).collect();
                options.sort_unstable();
                let options: String = options.into_iter().collect();
                RawBson::RegularExpression(Regex {
                    pattern: CString::try_from(pattern).map_err(|e| self.failure(&e))?,
                    options: CString::try_from(options).map_err(|e| self.failure(&e))?,
                })
            }
            "min" => RawBson::MinKey,
            "max" => RawBson::MaxKey,
            _ => self.bson_at(&tag.get(1)?, depth + 1)?,
        })
    }

    fn fields(&self, value: &Value<'js>, ints: &BTreeSet<String>, depth: usize) -> Js<RawBson> {
        let Some(object) = value.as_object() else { return Ok(RawBson::Undefined) };
        let mut document = RawDocumentBuf::new();
        for entry in object.own_props::<String, Value<'js>>(Filter::new().string().enum_only()) {
            let (name, value) = entry?;
            let mut value = self.bson_at(&value, depth + 1)?;
            if let RawBson::Double(number) = value
                && ints.contains(&name)
                && f64::from(number as i32).to_bits() == number.to_bits()
            {
                value = RawBson::Int32(number as i32);
            }
            let name = CString::try_from(name).map_err(|e| self.failure(&e))?;
            document.append(&name, value);
        }
        Ok(RawBson::Document(document))
    }

    /// An exception of our own.
    pub(crate) fn failure(&self, what: &(impl std::fmt::Display + ?Sized)) -> rquickjs::Error {
        rquickjs::Exception::throw_message(&self.ctx, &what.to_string())
    }
}

fn damaged(error: &bson::error::Error) -> rquickjs::Error {
    rquickjs::Error::new_into_js_message("bson", "object", error.to_string())
}
