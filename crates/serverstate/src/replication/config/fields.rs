//! Fields of a configuration's document, each read once and by its type.
//!
//! Always true: whatever is wrong is `InvalidReplicaSetConfig`, as MongoDB answers for configurations,
//! and names the field; a field that nobody asked for is refused by [`Fields::end`].

use bson::{Bson, Document};
use errors::{Code, Error, Result};

/// The refusal of a configuration that no set can have.
pub(super) fn invalid(message: impl Into<String>) -> Error {
    Error::new(Code::INVALID_REPLICA_SET_CONFIG, message.into())
}

/// A number of any of BSON's types, where it is one; a boolean counts as one or zero, as in MongoDB.
fn number(value: &Bson) -> Option<f64> {
    match value {
        Bson::Int32(number) => Some(f64::from(*number)),
        Bson::Int64(number) => Some(*number as f64),
        Bson::Double(number) => Some(*number),
        Bson::Boolean(set) => Some(f64::from(u8::from(*set))),
        _ => None,
    }
}

/// The fields of one document.
pub(super) struct Fields<'a> {
    of: &'static str,
    document: &'a Document,
    known: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    pub(super) fn new(of: &'static str, document: &'a Document) -> Self {
        Self { of, document, known: Vec::new() }
    }

    fn get(&mut self, name: &'static str) -> Option<&'a Bson> {
        self.known.push(name);
        self.document.get(name)
    }

    /// The refusal of a document without this field.
    pub(super) fn missing(&self, name: &str) -> Error {
        let of = self.of;
        invalid(format!("BSON field '{of}.{name}' is missing but a required field"))
    }

    fn wrong_type(&self, name: &str, wanted: &str) -> Error {
        let of = self.of;
        invalid(format!("BSON field '{of}.{name}' is of the wrong type, expected {wanted}"))
    }

    /// A refusal that names the field.
    pub(super) fn refuse(&self, name: &str, why: &str) -> Error {
        let of = self.of;
        invalid(format!("BSON field '{of}.{name}' {why}"))
    }

    pub(super) fn text(&mut self, name: &'static str) -> Result<Option<&'a str>> {
        match self.get(name) {
            None => Ok(None),
            Some(Bson::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong_type(name, "string")),
        }
    }

    /// True or false; numbers say it as well.
    pub(super) fn flag(&mut self, name: &'static str) -> Result<Option<bool>> {
        match self.get(name) {
            None => Ok(None),
            Some(value) => match number(value) {
                Some(number) => Ok(Some(number != 0.0)),
                None => Err(self.wrong_type(name, "bool")),
            },
        }
    }

    pub(super) fn number(
        &mut self,
        name: &'static str,
        least: f64,
        most: f64,
    ) -> Result<Option<f64>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let number = number(value).ok_or_else(|| self.wrong_type(name, "number"))?;
        if !(least..=most).contains(&number) {
            let why = format!("value must be within {least} and {most}, actual value '{number}'");
            return Err(self.refuse(name, &why));
        }
        Ok(Some(number))
    }

    pub(super) fn whole(
        &mut self,
        name: &'static str,
        least: i64,
        most: i64,
    ) -> Result<Option<i64>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let whole = match value {
            Bson::Int64(whole) => *whole,
            value => match number(value) {
                Some(number) if number.fract() == 0.0 => number as i64,
                Some(_) => return Err(self.refuse(name, "must be a whole number")),
                None => return Err(self.wrong_type(name, "number")),
            },
        };
        if !(least..=most).contains(&whole) {
            let why = format!("value must be within {least} and {most}, actual value '{whole}'");
            return Err(self.refuse(name, &why));
        }
        Ok(Some(whole))
    }

    pub(super) fn document(&mut self, name: &'static str) -> Result<Option<Document>> {
        match self.get(name) {
            None => Ok(None),
            Some(Bson::Document(document)) => Ok(Some(document.clone())),
            Some(_) => Err(self.wrong_type(name, "object")),
        }
    }

    pub(super) fn array(&mut self, name: &'static str) -> Result<Option<&'a [Bson]>> {
        match self.get(name) {
            None => Ok(None),
            Some(Bson::Array(values)) => Ok(Some(values)),
            Some(_) => Err(self.wrong_type(name, "array")),
        }
    }

    pub(super) fn object_id(&mut self, name: &'static str) -> Result<Option<bson::oid::ObjectId>> {
        match self.get(name) {
            None => Ok(None),
            Some(Bson::ObjectId(id)) => Ok(Some(*id)),
            Some(_) => Err(self.wrong_type(name, "objectId")),
        }
    }

    /// Refuses what nobody asked for.
    pub(super) fn end(self) -> Result<()> {
        let of = self.of;
        match self.document.keys().find(|name| !self.known.contains(&name.as_str())) {
            Some(name) => Err(invalid(format!("BSON field '{of}.{name}' is an unknown field."))),
            None => Ok(()),
        }
    }
}
