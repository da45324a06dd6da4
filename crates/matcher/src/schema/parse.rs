//! A schema document to its rules, with MongoDB's errors.

use super::{Additional, Check, Dependency, Properties, Rule, Schema, Types, unordered_key};
use crate::{Comparison, MAX_DEPTH, Pattern};
use bson::raw::{RawArray, RawBson, RawBsonRef, RawDocument};
use bsonval::number::Number;
use bsonval::types::{self, TypeSet};
use bsonval::{raw, show};
use errors::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};

/// Every keyword there is.
const KEYWORDS: &[&str] = &[
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "bsonType",
    "dependencies",
    "description",
    "encrypt",
    "encryptMetadata",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "not",
    "oneOf",
    "pattern",
    "patternProperties",
    "properties",
    "required",
    "title",
    "type",
    "uniqueItems",
];

/// Draft 4 has these; MongoDB does not.
const UNSUPPORTED: &[&str] = &["$ref", "$schema", "default", "definitions", "format", "id"];

pub(super) fn root(operand: RawBsonRef<'_>) -> Result<Schema> {
    let RawBsonRef::Document(document) = operand else {
        return Err(Error::type_mismatch("$jsonSchema must be an object"));
    };
    schema(document, 0)
}

/// The keywords of one schema by name.
struct Keywords<'a> {
    values: BTreeMap<&'a str, RawBsonRef<'a>>,
    depth: usize,
    rules: Vec<Rule>,
}

fn schema(document: &RawDocument, depth: usize) -> Result<Schema> {
    if depth >= MAX_DEPTH {
        return Err(Error::failed_to_parse(format!(
            "Maximum schema nesting depth of {MAX_DEPTH} exceeded"
        )));
    }
    let mut keywords = Keywords { values: read(document)?, depth, rules: Vec::new() };
    let title = keywords.text("title")?;
    let description = keywords.text("description")?;
    let types = keywords.types()?;
    keywords.strings()?;
    keywords.numbers()?;
    keywords.arrays()?;
    keywords.encryption(types.is_some())?;
    keywords.objects()?;
    keywords.logic()?;
    Ok(Schema { title, description, types, rules: keywords.rules })
}

fn read(document: &RawDocument) -> Result<BTreeMap<&str, RawBsonRef<'_>>> {
    let mut values = BTreeMap::new();
    for field in document {
        let (name, value) = field?;
        let name = name.as_str();
        if KEYWORDS.binary_search(&name).is_err() {
            return Err(Error::failed_to_parse(if UNSUPPORTED.contains(&name) {
                format!("$jsonSchema keyword '{name}' is not currently supported")
            } else {
                format!("Unknown $jsonSchema keyword: {name}")
            }));
        }
        if values.insert(name, value).is_some() {
            return Err(Error::failed_to_parse(format!("Duplicate $jsonSchema keyword: {name}")));
        }
    }
    Ok(values)
}

fn must_be(keyword: &str, what: &str) -> Error {
    Error::type_mismatch(format!("$jsonSchema keyword '{keyword}' must be {what}"))
}

fn refused(keyword: &str, why: &str) -> Error {
    Error::failed_to_parse(format!("$jsonSchema keyword '{keyword}' {why}"))
}

impl<'a> Keywords<'a> {
    fn get(&self, keyword: &str) -> Option<RawBsonRef<'a>> {
        self.values.get(keyword).copied()
    }

    fn add(&mut self, keyword: &'static str, spec: RawBsonRef<'_>, check: Check) {
        self.rules.push(Rule { keyword, spec: spec.into(), check });
    }

    /// Adds a keyword that holds schemas, whose text no message repeats.
    fn add_nested(&mut self, keyword: &'static str, check: Check) {
        self.rules.push(Rule { keyword, spec: RawBson::Null, check });
    }

    fn nested(&self, document: &RawDocument) -> Result<Schema> {
        schema(document, self.depth + 1)
    }

    fn text(&self, keyword: &str) -> Result<Option<String>> {
        match self.get(keyword) {
            None => Ok(None),
            Some(RawBsonRef::String(text)) => Ok(Some(text.to_owned())),
            Some(_) => Err(must_be(keyword, "of type string")),
        }
    }

    /// A whole number that is not negative.
    fn count(&self, keyword: &str) -> Result<Option<(RawBsonRef<'a>, i64)>> {
        let Some(value) = self.get(keyword) else { return Ok(None) };
        let shown = || show::field(keyword, value);
        let Some(number) = Number::from_bson(value) else {
            return Err(Error::failed_to_parse(format!("Expected a number in: {}", shown())));
        };
        let count = match (number.to_exact_i64(), value) {
            (Some(count), _) => count,
            (None, RawBsonRef::Double(double)) if double.is_nan() => {
                return Err(Error::failed_to_parse(format!(
                    "Expected an integer, but found NaN in: {}",
                    shown()
                )));
            }
            (None, RawBsonRef::Double(double)) if double.abs() < 9.2e18 => {
                return Err(Error::failed_to_parse(format!("Expected an integer: {}", shown())));
            }
            _ => {
                return Err(Error::failed_to_parse(format!(
                    "Cannot represent as a 64-bit integer: {}",
                    shown()
                )));
            }
        };
        if count < 0 {
            return Err(Error::failed_to_parse(format!(
                "Expected a non-negative number in: {}",
                shown()
            )));
        }
        Ok(Some((value, count)))
    }

    fn add_count(&mut self, keyword: &'static str, make: fn(i64) -> Check) -> Result<()> {
        if let Some((spec, count)) = self.count(keyword)? {
            self.add(keyword, spec, make(count));
        }
        Ok(())
    }

    fn types(&self) -> Result<Option<Types>> {
        let (keyword, value) = match (self.get("type"), self.get("bsonType")) {
            (Some(_), Some(_)) => {
                return Err(Error::failed_to_parse(
                    "Cannot specify both $jsonSchema keywords 'type' and 'bsonType'",
                ));
            }
            (Some(value), None) => ("type", value),
            (None, Some(value)) => ("bsonType", value),
            (None, None) => return Ok(None),
        };
        let set = type_set(keyword, value)?;
        Ok(Some(Types { keyword, spec: value.into(), set }))
    }

    fn strings(&mut self) -> Result<()> {
        if let Some(spec) = self.get("pattern") {
            let RawBsonRef::String(source) = spec else {
                return Err(must_be("pattern", "a string"));
            };
            self.add("pattern", spec, Check::Pattern(Pattern::new(source, "")?));
        }
        self.add_count("maxLength", Check::MaxLength)?;
        self.add_count("minLength", Check::MinLength)
    }

    fn numbers(&mut self) -> Result<()> {
        if let Some(spec) = self.get("multipleOf") {
            let Some(number) = Number::from_bson(spec) else {
                return Err(must_be("multipleOf", "a number"));
            };
            let divisor = number.to_decimal();
            if divisor.is_negative() || divisor.is_zero() || divisor.is_nan() {
                return Err(refused("multipleOf", "must have a positive value"));
            }
            self.add("multipleOf", spec, Check::MultipleOf(divisor));
        }
        self.bound("maximum", "exclusiveMaximum", Comparison::Lte, Comparison::Lt)?;
        self.bound("minimum", "exclusiveMinimum", Comparison::Gte, Comparison::Gt)
    }

    fn bound(
        &mut self,
        keyword: &'static str,
        exclusive: &str,
        within: Comparison,
        strictly: Comparison,
    ) -> Result<()> {
        let flag = self.get(exclusive);
        let Some(spec) = self.get(keyword) else {
            return match flag {
                None => Ok(()),
                Some(_) => {
                    Err(refused(keyword, &format!("must be a present if {exclusive} is present")))
                }
            };
        };
        if !types::is_number(spec) {
            return Err(must_be(keyword, "a number"));
        }
        let flag = match flag {
            None => None,
            Some(RawBsonRef::Boolean(flag)) => Some(flag),
            Some(_) => return Err(must_be(exclusive, "a boolean")),
        };
        let comparison = if flag == Some(true) { strictly } else { within };
        self.add(keyword, spec, Check::Compare(comparison, flag));
        Ok(())
    }

    fn arrays(&mut self) -> Result<()> {
        self.add_count("minItems", Check::MinItems)?;
        self.add_count("maxItems", Check::MaxItems)?;
        match self.get("uniqueItems") {
            None | Some(RawBsonRef::Boolean(false)) => {}
            Some(spec @ RawBsonRef::Boolean(true)) => {
                self.add("uniqueItems", spec, Check::UniqueItems);
            }
            Some(_) => return Err(must_be("uniqueItems", "a boolean")),
        }
        let from = self.items()?;
        self.additional_items(from)
    }

    /// Where additional items would begin: only a list of schemas leaves any.
    fn items(&mut self) -> Result<Option<usize>> {
        match self.get("items") {
            None => Ok(None),
            Some(RawBsonRef::Document(document)) => {
                let part = Box::new(self.nested(document)?);
                self.add_nested("items", Check::Items(part));
                Ok(None)
            }
            Some(RawBsonRef::Array(array)) => {
                let mut parts = Vec::new();
                for part in raw::values(array) {
                    match part? {
                        RawBsonRef::Document(document) => parts.push(self.nested(document)?),
                        other => {
                            return Err(Error::type_mismatch(format!(
                                "$jsonSchema keyword 'items' requires that each element of the \
                                 array is an object, but found a {}",
                                types::name_of(other)
                            )));
                        }
                    }
                }
                let from = parts.len();
                self.add_nested("items", Check::ItemList(parts));
                Ok(Some(from))
            }
            Some(other) => Err(must_be(
                "items",
                &format!("an array or an object, not {}", types::name_of(other)),
            )),
        }
    }

    fn additional_items(&mut self, from: Option<usize>) -> Result<()> {
        let Some(spec) = self.get("additionalItems") else { return Ok(()) };
        let check = match spec {
            RawBsonRef::Boolean(true) => None,
            RawBsonRef::Boolean(false) => from.map(Check::NoMoreItems),
            RawBsonRef::Document(document) => {
                let part = Box::new(self.nested(document)?);
                from.map(|from| Check::MoreItems(from, part))
            }
            other => {
                return Err(must_be(
                    "additionalItems",
                    &format!("either an object or a boolean, but got a {}", types::name_of(other)),
                ));
            }
        };
        if let Some(check) = check {
            let spec = if let RawBsonRef::Document(_) = spec { RawBsonRef::Null } else { spec };
            self.add("additionalItems", spec, check);
        }
        Ok(())
    }

    fn encryption(&mut self, typed: bool) -> Result<()> {
        if self.get("encryptMetadata").is_some_and(|value| value.as_document().is_none()) {
            return Err(must_be("encryptMetadata", "an object"));
        }
        let Some(spec) = self.get("encrypt") else { return Ok(()) };
        if typed {
            return Err(Error::failed_to_parse(
                "$jsonSchema keyword 'encrypt' cannot be used in conjunction with 'type', \
                 'encrypt' implies type 'bsonType::BinData'",
            ));
        }
        let RawBsonRef::Document(document) = spec else {
            return Err(must_be("encrypt", "an object"));
        };
        let set = match document.get("bsonType")? {
            None => None,
            Some(value) => Some(type_set("bsonType", value)?),
        };
        self.add_nested("encrypt", Check::Encrypted(set));
        Ok(())
    }

    fn objects(&mut self) -> Result<()> {
        let mut named = BTreeSet::new();
        if let Some(value) = self.get("properties") {
            let RawBsonRef::Document(document) = value else {
                return Err(must_be("properties", "an object"));
            };
            let properties = self.properties(document)?;
            named = properties.places.keys().cloned().collect();
            self.add_nested("properties", Check::Properties(properties));
        }
        let patterns = self.pattern_properties()?;
        self.additional_properties(named, patterns)?;
        if let Some(spec) = self.get("required") {
            let names = required(spec)?;
            self.add("required", spec, Check::Required(names));
        }
        self.add_count("minProperties", Check::MinProperties)?;
        self.add_count("maxProperties", Check::MaxProperties)?;
        self.dependencies()
    }

    fn properties(&self, document: &RawDocument) -> Result<Properties> {
        let mut properties = Properties::default();
        for field in document {
            let (name, value) = field?;
            let RawBsonRef::Document(part) = value else {
                return Err(Error::type_mismatch(format!(
                    "Nested schema for $jsonSchema property '{name}' must be an object"
                )));
            };
            let part = self.nested(part)?;
            properties.places.insert(name.as_str().to_owned(), properties.list.len());
            properties.list.push((name.as_str().to_owned(), part));
        }
        Ok(properties)
    }

    fn pattern_properties(&mut self) -> Result<Vec<Pattern>> {
        let Some(value) = self.get("patternProperties") else { return Ok(Vec::new()) };
        let RawBsonRef::Document(document) = value else {
            return Err(must_be("patternProperties", "an object"));
        };
        let mut list = Vec::new();
        for field in document {
            let (name, value) = field?;
            let RawBsonRef::Document(part) = value else {
                return Err(Error::type_mismatch(format!(
                    "$jsonSchema keyword 'patternProperties' has property '{name}' which is not \
                     an object"
                )));
            };
            list.push((Pattern::new(name.as_str(), "")?, self.nested(part)?));
        }
        let patterns = list.iter().map(|(pattern, _)| pattern.clone()).collect();
        self.add_nested("patternProperties", Check::PatternProperties(list));
        Ok(patterns)
    }

    fn additional_properties(
        &mut self,
        named: BTreeSet<String>,
        patterns: Vec<Pattern>,
    ) -> Result<()> {
        let schema = match self.get("additionalProperties") {
            None | Some(RawBsonRef::Boolean(true)) => return Ok(()),
            Some(RawBsonRef::Boolean(false)) => None,
            Some(RawBsonRef::Document(document)) => Some(Box::new(self.nested(document)?)),
            Some(_) => return Err(must_be("additionalProperties", "an object or a boolean")),
        };
        let check = Check::Additional(Additional { named, patterns, schema });
        self.add_nested("additionalProperties", check);
        Ok(())
    }

    fn dependencies(&mut self) -> Result<()> {
        let Some(value) = self.get("dependencies") else { return Ok(()) };
        let RawBsonRef::Document(document) = value else {
            return Err(must_be("dependencies", "an object"));
        };
        let mut list = Vec::new();
        for field in document {
            let (name, value) = field?;
            let dependency = match value {
                RawBsonRef::Document(part) => Dependency::Schema(self.nested(part)?),
                RawBsonRef::Array(array) => {
                    Dependency::Properties(dependent_names(name.as_str(), array)?)
                }
                other => {
                    return Err(Error::type_mismatch(format!(
                        "Property '{name}' in $jsonSchema keyword 'dependencies' must be either \
                         an object or an array, but found an element of type {}",
                        types::name_of(other)
                    )));
                }
            };
            list.push((name.as_str().to_owned(), dependency));
        }
        self.add_nested("dependencies", Check::Dependencies(list));
        Ok(())
    }

    fn logic(&mut self) -> Result<()> {
        for (keyword, make) in [
            ("allOf", Check::AllOf as fn(Vec<Schema>) -> Check),
            ("anyOf", Check::AnyOf),
            ("oneOf", Check::OneOf),
        ] {
            if let Some(value) = self.get(keyword) {
                let parts = self.list(keyword, value)?;
                self.add_nested(keyword, make(parts));
            }
        }
        match self.get("not") {
            None => {}
            Some(RawBsonRef::Document(document)) => {
                let part = Box::new(self.nested(document)?);
                self.add_nested("not", Check::Not(part));
            }
            Some(other) => {
                return Err(must_be(
                    "not",
                    &format!("an object, but found an element of type {}", types::name_of(other)),
                ));
            }
        }
        if let Some(spec) = self.get("enum") {
            let members = members(spec)?;
            self.add("enum", spec, Check::Enum(members));
        }
        Ok(())
    }

    fn list(&self, keyword: &str, value: RawBsonRef<'_>) -> Result<Vec<Schema>> {
        let RawBsonRef::Array(array) = value else {
            return Err(must_be(keyword, "an array"));
        };
        let mut parts = Vec::new();
        for part in raw::values(array) {
            match part? {
                RawBsonRef::Document(document) => parts.push(self.nested(document)?),
                other => {
                    return Err(must_be(
                        keyword,
                        &format!(
                            "an array of objects, but found an element of type {}",
                            types::name_of(other)
                        ),
                    ));
                }
            }
        }
        if parts.is_empty() {
            return Err(Error::bad_value(format!(
                "$jsonSchema keyword '{keyword}' must be a non-empty array"
            )));
        }
        Ok(parts)
    }
}

fn type_set(keyword: &str, value: RawBsonRef<'_>) -> Result<TypeSet> {
    let mut set = TypeSet::default();
    match value {
        RawBsonRef::String(alias) => add_alias(&mut set, keyword, alias)?,
        RawBsonRef::Array(array) => {
            let mut seen = BTreeSet::new();
            for alias in raw::values(array) {
                let RawBsonRef::String(alias) = alias? else {
                    return Err(Error::type_mismatch(format!(
                        "$jsonSchema keyword '{keyword}' array elements must be strings"
                    )));
                };
                if !seen.insert(alias) {
                    return Err(refused(keyword, &format!("has duplicate value: {alias}")));
                }
                add_alias(&mut set, keyword, alias)?;
            }
        }
        _ => return Err(must_be(keyword, "either a string or an array of strings")),
    }
    if set.is_empty() {
        return Err(refused(keyword, "must name at least one type"));
    }
    Ok(set)
}

fn add_alias(set: &mut TypeSet, keyword: &str, alias: &str) -> Result<()> {
    if alias == "integer" {
        return Err(Error::failed_to_parse(
            "$jsonSchema type 'integer' is not currently supported.",
        ));
    }
    let alias = match (keyword, alias) {
        ("bsonType", alias) => alias,
        (_, "boolean") => "bool",
        (_, "array" | "null" | "number" | "object" | "string") => alias,
        _ => return Err(Error::bad_value(format!("Unknown type name alias: {alias}"))),
    };
    set.add(RawBsonRef::String(alias))
}

fn required(value: RawBsonRef<'_>) -> Result<Vec<String>> {
    let RawBsonRef::Array(array) = value else {
        return Err(must_be(
            "required",
            &format!("an array, but found an element of type {}", types::name_of(value)),
        ));
    };
    let mut names = BTreeSet::new();
    for name in raw::values(array) {
        let name = match name? {
            RawBsonRef::String(name) => name,
            other => {
                return Err(must_be(
                    "required",
                    &format!(
                        "an array of strings, but found an element of type: {}",
                        types::name_of(other)
                    ),
                ));
            }
        };
        if !names.insert(name.to_owned()) {
            return Err(refused("required", "array cannot contain duplicate values"));
        }
    }
    if names.is_empty() {
        return Err(refused("required", "cannot be an empty array"));
    }
    Ok(names.into_iter().collect())
}

fn dependent_names(property: &str, array: &RawArray) -> Result<Vec<String>> {
    let place = format!("Property '{property}' in $jsonSchema keyword 'dependencies'");
    let mut names = BTreeSet::new();
    for name in raw::values(array) {
        let name = match name? {
            RawBsonRef::String(name) => name,
            other => {
                return Err(Error::type_mismatch(format!(
                    "{place} must be an array of strings, but found an element of type: {}",
                    types::name_of(other)
                )));
            }
        };
        if !names.insert(name.to_owned()) {
            return Err(Error::failed_to_parse(format!("{place} cannot contain duplicate values")));
        }
    }
    if names.is_empty() {
        return Err(Error::failed_to_parse(format!("{place} cannot be an empty array")));
    }
    Ok(names.into_iter().collect())
}

fn members(value: RawBsonRef<'_>) -> Result<BTreeSet<Vec<u8>>> {
    let RawBsonRef::Array(array) = value else {
        return Err(must_be(
            "enum",
            &format!("an array, but found an element of type {}", types::name_of(value)),
        ));
    };
    let mut members = BTreeSet::new();
    for member in raw::values(array) {
        if !members.insert(unordered_key(member?)?) {
            return Err(refused("enum", "array cannot contain duplicate values."));
        }
    }
    if members.is_empty() {
        return Err(refused("enum", "cannot be an empty array"));
    }
    Ok(members)
}
