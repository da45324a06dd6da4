//! Which rules of a schema a value breaks, in MongoDB's words.

use super::matches::{duplicate, encrypted, first_unlike, holds, missing, names_of, schema};
use super::{Additional, Check, Dependency, Properties, Rule, Schema, Types};
use crate::Pattern;
use crate::validator::owned;
use bson::raw::{RawArray, RawBsonRef, RawDocument};
use bson::{Bson, Document, doc};
use bsonval::{raw, types};
use errors::Result;

pub(super) fn root(part: &Schema, document: &RawDocument, inverted: bool) -> Result<Document> {
    let mut out = doc! { "operatorName": "$jsonSchema" };
    annotate(&mut out, part);
    if inverted {
        out.insert("reason", "schema matched");
    } else {
        out.insert("schemaRulesNotSatisfied", broken(part, RawBsonRef::Document(document))?);
    }
    Ok(out)
}

/// Adds the schema's own words.
fn annotate(out: &mut Document, part: &Schema) {
    if let Some(title) = &part.title {
        out.insert("title", title.as_str());
    }
    if let Some(description) = &part.description {
        out.insert("description", description.as_str());
    }
}

/// Every rule the value breaks; empty where it breaks none.
fn broken(part: &Schema, value: RawBsonRef<'_>) -> Result<Vec<Bson>> {
    let mut found = Vec::new();
    for rule in &part.rules {
        if let Some(detail) = explain(rule, value, part.types.as_ref())? {
            found.push(Bson::Document(detail));
        }
    }
    if let Some(types) = &part.types
        && !types.set.contains(value)
    {
        found.push(Bson::Document(doc! {
            "operatorName": types.keyword,
            "specifiedAs": { types.keyword: owned(types.spec.as_raw_bson_ref()) },
            "reason": "type did not match",
            "consideredValue": owned(value),
            "consideredType": types::name_of(value),
        }));
    }
    Ok(found)
}

fn explain(rule: &Rule, value: RawBsonRef<'_>, stated: Option<&Types>) -> Result<Option<Document>> {
    if let Some(detail) = wrong_type(rule, value, stated) {
        return Ok(Some(detail));
    }
    if holds(rule, value)? {
        return Ok(None);
    }
    let mut out = doc! { "operatorName": rule.keyword };
    match &rule.check {
        Check::AllOf(parts) | Check::AnyOf(parts) => {
            out.insert("schemasNotSatisfied", unsatisfied(parts, value)?);
        }
        Check::OneOf(parts) => one_of(&mut out, parts, value)?,
        Check::Not(_) => {
            out.insert("reason", "child expression matched");
        }
        Check::Encrypted(types) => {
            if let Err(reason) = encrypted(value, types.as_ref()) {
                out.insert("reason", reason);
            }
        }
        _ => match value {
            RawBsonRef::Document(document) if rule.check.is_about_documents() => {
                explain_document(&mut out, rule, document)?;
            }
            RawBsonRef::Array(array) if rule.check.is_about_arrays() => {
                explain_array(&mut out, rule, array)?;
            }
            value => scalar(&mut out, rule, value),
        },
    }
    Ok(Some(out))
}

/// A keyword of strings or numbers beside a `type` that names just that kind: another kind of
/// value breaks both.
fn wrong_type(rule: &Rule, value: RawBsonRef<'_>, stated: Option<&Types>) -> Option<Document> {
    let stated = stated.filter(|types| types.set.is_single())?;
    let (name, expected) = match &rule.check {
        Check::Pattern(_) if stated.set.contains(RawBsonRef::String("")) => {
            ("expectedTypes", Bson::from(vec!["regex", "string", "symbol"]))
        }
        Check::MaxLength(_) | Check::MinLength(_)
            if stated.set.contains(RawBsonRef::String("")) =>
        {
            ("expectedType", Bson::from("string"))
        }
        Check::MultipleOf(_) | Check::Compare(..) if stated.set.contains_number() => {
            ("expectedTypes", Bson::from(vec!["decimal", "double", "int", "long"]))
        }
        _ => return None,
    };
    let fits = match &rule.check {
        Check::MultipleOf(_) | Check::Compare(..) => types::is_number(value),
        _ => matches!(value, RawBsonRef::String(_)),
    };
    if fits {
        return None;
    }
    let mut out = doc! {
        "operatorName": rule.keyword,
        "specifiedAs": specified(rule),
        "reason": "type did not match",
        "consideredType": types::name_of(value),
    };
    out.insert(name, expected);
    out.insert("consideredValue", owned(value));
    Some(out)
}

fn specified(rule: &Rule) -> Document {
    let mut out = doc! { rule.keyword: owned(rule.spec.as_raw_bson_ref()) };
    if let Check::Compare(_, Some(exclusive)) = rule.check {
        let name = if rule.keyword == "maximum" { "exclusiveMaximum" } else { "exclusiveMinimum" };
        out.insert(name, exclusive);
    }
    out
}

fn scalar(out: &mut Document, rule: &Rule, value: RawBsonRef<'_>) {
    let reason = match &rule.check {
        Check::Pattern(_) => "regular expression did not match",
        Check::MaxLength(_) | Check::MinLength(_) => "specified string length was not satisfied",
        Check::MultipleOf(_) => "considered value is not a multiple of the specified value",
        Check::Enum(_) => "value was not found in enum",
        _ => "comparison failed",
    };
    out.insert("specifiedAs", specified(rule));
    out.insert("reason", reason);
    out.insert("consideredValue", owned(value));
}

/// The schemas of a list that do not match, by position.
fn unsatisfied(parts: &[Schema], value: RawBsonRef<'_>) -> Result<Vec<Bson>> {
    let mut found = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let details = broken(part, value)?;
        if !details.is_empty() {
            let mut clause = doc! { "index": at as i32 };
            annotate(&mut clause, part);
            clause.insert("details", details);
            found.push(Bson::Document(clause));
        }
    }
    Ok(found)
}

fn one_of(out: &mut Document, parts: &[Schema], value: RawBsonRef<'_>) -> Result<()> {
    let mut matching = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        if schema(part, value)? {
            matching.push(Bson::Int32(at as i32));
        }
    }
    if matching.is_empty() {
        out.insert("schemasNotSatisfied", unsatisfied(parts, value)?);
    } else {
        out.insert("reason", "more than one subschema matched");
        out.insert("matchingSchemaIndexes", matching);
    }
    Ok(())
}

fn explain_array(out: &mut Document, rule: &Rule, array: &RawArray) -> Result<()> {
    let unlike = |out: &mut Document, from, part: &Schema, reason: &str| -> Result<()> {
        if let Some((at, item)) = first_unlike(array, from, part)? {
            out.insert("reason", reason);
            out.insert("itemIndex", at as i32);
            out.insert("details", broken(part, item)?);
        }
        Ok(())
    };
    match &rule.check {
        Check::Items(part) => {
            unlike(out, 0, part, "At least one item did not match the sub-schema")?;
        }
        Check::MoreItems(from, part) => {
            let reason = "At least one additional item did not match the sub-schema";
            unlike(out, *from, part, reason)?;
        }
        Check::ItemList(parts) => {
            let mut details = Vec::new();
            for (at, (part, item)) in parts.iter().zip(raw::values(array)).enumerate() {
                let found = broken(part, item?)?;
                if !found.is_empty() {
                    details.push(doc! { "itemIndex": at as i32, "details": found });
                }
            }
            out.insert("details", details);
        }
        Check::NoMoreItems(from) => {
            out.insert("specifiedAs", specified(rule));
            out.insert("reason", "found additional items");
            let items = raw::values(array).skip(*from).map(|item| item.map(owned));
            out.insert("additionalItems", items.collect::<Result<Vec<_>>>()?);
        }
        check => {
            out.insert("specifiedAs", specified(rule));
            let considered = owned(RawBsonRef::Array(array));
            if matches!(check, Check::UniqueItems) {
                out.insert("reason", "found a duplicate item");
                out.insert("consideredValue", considered);
                out.insert("duplicatedValue", duplicate(array)?.map_or(Bson::Null, owned));
            } else {
                out.insert("reason", "array did not match specified length");
                out.insert("consideredValue", considered);
            }
        }
    }
    Ok(())
}

fn explain_document(out: &mut Document, rule: &Rule, document: &RawDocument) -> Result<()> {
    match &rule.check {
        Check::Properties(properties) => {
            out.insert("propertiesNotSatisfied", explain_properties(properties, document)?);
        }
        Check::PatternProperties(patterns) => {
            out.insert("details", explain_patterns(patterns, document)?);
        }
        Check::Additional(additional) => explain_additional(out, additional, document)?,
        Check::Required(names) => {
            out.insert("specifiedAs", specified(rule));
            let names: Vec<Bson> = missing(document, names)?.into_iter().map(Bson::from).collect();
            out.insert("missingProperties", names);
        }
        Check::Dependencies(list) => {
            out.insert("failingDependencies", explain_dependencies(list, document)?);
        }
        _ => {
            out.insert("specifiedAs", specified(rule));
            out.insert("reason", "specified number of properties was not satisfied");
            out.insert("numberOfProperties", document.iter_elements().count() as i32);
        }
    }
    Ok(())
}

fn explain_properties(properties: &Properties, document: &RawDocument) -> Result<Vec<Bson>> {
    let mut found = Vec::new();
    // Told in the order of the schema: find the broken ones by field first.
    let mut details: Vec<Vec<Bson>> = vec![Vec::new(); properties.list.len()];
    for field in document {
        let (name, value) = field?;
        if let Some(at) = properties.places.get(name.as_str()) {
            details[*at] = broken(&properties.list[*at].1, value)?;
        }
    }
    for ((name, part), details) in properties.list.iter().zip(details) {
        if !details.is_empty() {
            let mut property = doc! { "propertyName": name.as_str() };
            annotate(&mut property, part);
            property.insert("details", details);
            found.push(Bson::Document(property));
        }
    }
    Ok(found)
}

fn explain_patterns(patterns: &[(Pattern, Schema)], document: &RawDocument) -> Result<Vec<Bson>> {
    let mut found = Vec::new();
    for field in document {
        let (name, value) = field?;
        for (pattern, part) in patterns {
            if !pattern.is_match(name.as_str())? {
                continue;
            }
            let details = broken(part, value)?;
            if !details.is_empty() {
                found.push(Bson::Document(doc! {
                    "propertyName": name.as_str(),
                    "regexMatched": pattern.source(),
                    "details": details,
                }));
            }
        }
    }
    Ok(found)
}

fn explain_additional(
    out: &mut Document,
    additional: &Additional,
    document: &RawDocument,
) -> Result<()> {
    let mut names = Vec::new();
    for field in document {
        let (name, value) = field?;
        if !additional.concerns(name.as_str())? {
            continue;
        }
        let Some(part) = &additional.schema else {
            names.push(Bson::from(name.as_str()));
            continue;
        };
        let details = broken(part, value)?;
        if !details.is_empty() {
            out.insert("reason", "at least one additional property did not match the subschema");
            out.insert("failingProperty", name.as_str());
            out.insert("details", details);
            return Ok(());
        }
    }
    out.insert("specifiedAs", doc! { "additionalProperties": false });
    out.insert("additionalProperties", names);
    Ok(())
}

fn explain_dependencies(
    list: &[(String, Dependency)],
    document: &RawDocument,
) -> Result<Vec<Bson>> {
    let present = names_of(document)?;
    let mut found = Vec::new();
    for (name, dependency) in list {
        if !present.contains(name.as_str()) {
            continue;
        }
        let mut failing = doc! { "conditionalProperty": name.as_str() };
        match dependency {
            Dependency::Properties(names) => {
                let absent = names.iter().filter(|name| !present.contains(name.as_str()));
                let absent: Vec<Bson> = absent.map(|name| Bson::from(name.as_str())).collect();
                if absent.is_empty() {
                    continue;
                }
                failing.insert("missingProperties", absent);
            }
            Dependency::Schema(part) => {
                let details = broken(part, RawBsonRef::Document(document))?;
                if details.is_empty() {
                    continue;
                }
                failing.insert("details", details);
            }
        }
        found.push(Bson::Document(failing));
    }
    Ok(found)
}

impl Check {
    fn is_about_documents(&self) -> bool {
        matches!(
            self,
            Self::Properties(_)
                | Self::PatternProperties(_)
                | Self::Additional(_)
                | Self::Required(_)
                | Self::MinProperties(_)
                | Self::MaxProperties(_)
                | Self::Dependencies(_)
        )
    }

    fn is_about_arrays(&self) -> bool {
        matches!(
            self,
            Self::MinItems(_)
                | Self::MaxItems(_)
                | Self::UniqueItems
                | Self::Items(_)
                | Self::ItemList(_)
                | Self::NoMoreItems(_)
                | Self::MoreItems(..)
        )
    }
}
