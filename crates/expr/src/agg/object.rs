//! Operators on documents: merging, fields by computed name, documents as arrays and back.

use crate::agg::eval::{Scope, optional};
use crate::agg::function::{ANY, Function, Named, function};
use crate::agg::parse::Node;
use crate::agg::value::List;
use crate::agg::{Value, check_size, value_to_string};
use bson::raw::{CString, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bsonval::raw;
use bsonval::raw::size_of_ref;
use errors::{Error, Result};
use limits::{Growth, KeyMap, Part};

pub(super) const TABLE: &[Function] = &[
    function("$arrayToObject", 1, 1, array_to_object),
    function("$bsonSize", 1, 1, bson_size),
    function("$mergeObjects", 0, ANY, merge_objects),
    function("$objectToArray", 1, 1, object_to_array),
];

pub(super) const NAMED: &[Named] = &[
    Named {
        name: "$getField",
        args: &["field", "input"],
        required: 1,
        codes: (3041701, 3041701, 3041702),
        eval: get_field,
    },
    Named {
        name: "$setField",
        args: &["field", "input", "value"],
        required: 3,
        codes: (4161100, 4161101, 4161102),
        eval: set_field,
    },
    Named {
        name: "$unsetField",
        args: &["field", "input"],
        required: 2,
        codes: (4161100, 4161101, 4161102),
        eval: unset_field,
    },
];

/// Merges documents left to right: a later field replaces the value where the earlier one stood.
#[derive(Debug)]
pub(crate) struct Merger {
    fields: Vec<(CString, RawBson)>,
    places: KeyMap<String, usize>,
    bytes: usize,
    charged: Growth,
}

impl Default for Merger {
    fn default() -> Self {
        Self {
            fields: Vec::new(),
            places: KeyMap::default(),
            bytes: 0,
            charged: Growth::new(Part::Values),
        }
    }
}

/// What a field of a [`Merger`] takes beside its own bytes: its place in the list and in the map.
const FIELD_BYTES: usize = 160;

impl Merger {
    pub(crate) fn merge(&mut self, document: &RawDocument) -> Result<()> {
        for element in raw::elements(document) {
            let element = element?;
            let value = element.value()?;
            self.charged.reach(self.memory() + size_of_ref(value) + element.name().len())?;
            self.set(element.key().to_owned(), value.into())?;
        }
        Ok(())
    }

    pub(crate) fn set(&mut self, key: CString, value: RawBson) -> Result<()> {
        limits::poll()?;
        self.bytes += size_of_ref(value.as_raw_bson_ref());
        if let Some(at) = self.places.get(key.as_str()) {
            let old = std::mem::replace(&mut self.fields[*at].1, value);
            self.bytes = self.bytes.saturating_sub(size_of_ref(old.as_raw_bson_ref()));
            return Ok(());
        }
        self.bytes += key.as_str().len() + 2;
        self.places.insert(key.as_str().to_owned(), self.fields.len());
        self.fields.push((key, value));
        self.charged.reach(self.memory())
    }

    /// Roughly the bytes of the document.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Roughly the memory held.
    pub(crate) fn memory(&self) -> usize {
        self.bytes + self.fields.len() * FIELD_BYTES
    }

    pub(crate) fn to_document(&self) -> RawDocumentBuf {
        let mut built = RawDocumentBuf::new();
        for (key, value) in &self.fields {
            built.append(key, value);
        }
        built
    }
}

fn merge_objects<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    // One array argument is a list of documents.
    let single = if args.len() == 1 { args[0].elements() } else { None };
    let mut merger = Merger::default();
    let mut merge = |input: &Value<'_>| {
        if input.is_nullish() {
            return Ok(());
        }
        merger.merge(merge_input(input)?)?;
        check_size(merger.bytes)
    };
    match single {
        Some(mut elements) => elements.try_for_each(|input| merge(&input?))?,
        None => args.iter().try_for_each(merge)?,
    }
    Ok(merger.to_document().into())
}

/// The document to merge; anything else is refused with the operator's own text.
pub(crate) fn merge_input<'v>(input: &'v Value<'_>) -> Result<&'v RawDocument> {
    input.as_document().ok_or_else(|| {
        Error::location(
            40400,
            format!(
                "$mergeObjects requires object inputs, but input {} is of type {}",
                value_to_string(input.bson()),
                input.type_name()
            ),
        )
    })
}

fn object_to_array<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    if args[0].is_nullish() {
        return Ok(Value::NULL);
    }
    let Some(document) = args[0].as_document() else {
        return Err(Error::location(
            40390,
            format!("$objectToArray requires a document input, found: {}", args[0].type_name()),
        ));
    };
    let mut built = List::default();
    for element in raw::elements(document) {
        let element = element?;
        let mut pair = RawDocumentBuf::new();
        pair.append(cstr!("k"), element.name());
        pair.append(cstr!("v"), element.value()?);
        built.push(RawBsonRef::Document(&pair))?;
    }
    Ok(built.finish())
}

fn array_to_object<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    if args[0].is_nullish() {
        return Ok(Value::NULL);
    }
    let Some(array) = args[0].as_array() else {
        return Err(Error::location(
            40386,
            format!("$arrayToObject requires an array input, found: {}", args[0].type_name()),
        ));
    };
    let mut merger = Merger::default();
    let mut pairs: Option<bool> = None;
    for element in raw::values(array) {
        let element = element?;
        let is_pair = match (element, pairs) {
            (RawBsonRef::Array(_), _) => true,
            (RawBsonRef::Document(_), _) => false,
            // The other one than what came first.
            (_, Some(first)) => !first,
            (other, None) => {
                return Err(Error::location(
                    40398,
                    format!(
                        "Unrecognised input type format for $arrayToObject: {}",
                        bsonval::types::name_of(other)
                    ),
                ));
            }
        };
        check_consistent(pairs, is_pair, element)?;
        pairs = Some(is_pair);
        let (key, value) = match element {
            RawBsonRef::Array(pair) => from_pair(pair)?,
            RawBsonRef::Document(pair) => from_document(pair)?,
            _ => continue,
        };
        let key = CString::try_from(key).map_err(|_| {
            let code = if is_pair { 4940400 } else { 4940401 };
            Error::location(code, "Key field cannot contain an embedded null byte")
        })?;
        merger.set(key, value.into())?;
    }
    Ok(merger.to_document().into())
}

fn check_consistent(before: Option<bool>, now: bool, element: RawBsonRef<'_>) -> Result<()> {
    if before.is_none_or(|before| before == now) {
        return Ok(());
    }
    let (code, first) = if now { (40391, "Object") } else { (40396, "Array") };
    Err(Error::location(
        code,
        format!(
            "$arrayToObject requires a consistent input format. Elements mustall be arrays or all \
             be objects. {first} was detected, now found: {}",
            bsonval::types::name_of(element)
        ),
    ))
}

fn from_pair(pair: &bson::raw::RawArray) -> Result<(&str, RawBsonRef<'_>)> {
    // One more than there may be tells as much as all of them, but for how many there are.
    let parts = raw::values(pair).take(3).collect::<Result<Vec<_>>>()?;
    let [key, value] = parts.as_slice() else {
        return Err(Error::location(
            40397,
            format!(
                "$arrayToObject requires an array of size 2 arrays,found array of size: {}",
                pair.into_iter().count()
            ),
        ));
    };
    let RawBsonRef::String(key) = *key else {
        return Err(Error::location(
            40395,
            format!(
                "$arrayToObject requires an array of key-value pairs, where the key must be of \
                 type string. Found key type: {}",
                bsonval::types::name_of(*key)
            ),
        ));
    };
    Ok((key, *value))
}

fn from_document(pair: &RawDocument) -> Result<(&str, RawBsonRef<'_>)> {
    let fields = raw::elements(pair).try_fold(0, |count, field| field.map(|_| count + 1))?;
    if fields != 2 {
        return Err(Error::location(
            40392,
            format!(
                "$arrayToObject requires an object keys of 'k' and 'v'. Found incorrect number \
                 of keys:{fields}"
            ),
        ));
    }
    let (Some(key), Some(value)) = (pair.get("k")?, pair.get("v")?) else {
        return Err(Error::location(
            40393,
            format!(
                "$arrayToObject requires an object with keys 'k' and 'v'. Missing either or both \
                 keys from: {}",
                crate::agg::convert::display_document(pair)
            ),
        ));
    };
    let RawBsonRef::String(key) = key else {
        return Err(Error::location(
            40394,
            format!(
                "$arrayToObject requires an object with keys 'k' and 'v', where the value of 'k' \
                 must be of type string. Found type: {}",
                bsonval::types::name_of(key)
            ),
        ));
    };
    Ok((key, value))
}

fn bson_size<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    if args[0].is_nullish() {
        return Ok(Value::NULL);
    }
    match args[0].as_document() {
        Some(document) => Ok(Value::int(document.as_bytes().len() as i32)),
        None => Err(Error::location(
            31393,
            format!("$bsonSize requires a document input, found: {}", args[0].type_name()),
        )),
    }
}

/// The `field` of `$setField` and `$unsetField` must be a constant text.
pub(super) fn check_constant_field(
    name: &str,
    given: Option<RawBsonRef<'_>>,
    node: &mut Option<Node>,
) -> Result<()> {
    if let Some(text) = given.and_then(RawBsonRef::as_str)
        && text.starts_with('$')
    {
        return Err(Error::location(
            4161108,
            format!(
                "A field path reference which is not allowed in this context. Did you mean \
                 {{$literal: '{text}'}}?"
            ),
        ));
    }
    let folded = node.take().map(Node::optimize);
    let constant = match &folded {
        Some(Node::Constant(value)) => value.as_ref().map(RawBson::as_raw_bson_ref),
        _ => {
            return Err(Error::location(
                4161106,
                format!(
                    "{name} requires 'field' to evaluate to a constant, but got a non-constant \
                     argument"
                ),
            ));
        }
    };
    if constant.and_then(RawBsonRef::as_str).is_none() {
        return Err(Error::location(
            4161107,
            format!(
                "{name} requires 'field' to evaluate to type String, but got {}",
                constant.map_or("missing", bsonval::types::name_of)
            ),
        ));
    }
    *node = folded;
    Ok(())
}

/// Evaluates the `field` argument, which must be a string.
fn field_name<'a>(node: Option<&'a Node>, scope: &Scope<'_, 'a>, op: &str) -> Result<String> {
    let value = optional(node, scope)?;
    match value.as_str() {
        Some(name) => Ok(name.to_owned()),
        None => Err(Error::location(
            if op == "$getField" { 3041704 } else { 4161107 },
            format!(
                "{op} requires 'field' to evaluate to type String, but got {}",
                value.type_name()
            ),
        )),
    }
}

fn get_field<'a>(args: &'a [Option<Node>], scope: &Scope<'_, 'a>) -> Result<Value<'a>> {
    let name = field_name(args[0].as_ref(), scope, "$getField")?;
    let input = optional(args[1].as_ref(), scope)?;
    if input.is_missing() {
        return Ok(Value::Missing);
    }
    if input.is_nullish() {
        return Ok(Value::NULL);
    }
    input.part(|value| match value {
        RawBsonRef::Document(document) => raw::field(document, &name),
        _ => Ok(None),
    })
}

fn set_field<'a>(args: &'a [Option<Node>], scope: &Scope<'_, 'a>) -> Result<Value<'a>> {
    let value = optional(args[2].as_ref(), scope)?;
    replace_field(args, scope, "$setField", &value)
}

fn unset_field<'a>(args: &'a [Option<Node>], scope: &Scope<'_, 'a>) -> Result<Value<'a>> {
    replace_field(args, scope, "$unsetField", &Value::Missing)
}

fn replace_field<'a>(
    args: &'a [Option<Node>],
    scope: &Scope<'_, 'a>,
    op: &str,
    new: &Value<'_>,
) -> Result<Value<'a>> {
    let name = field_name(args[0].as_ref(), scope, op)?;
    let input = optional(args[1].as_ref(), scope)?;
    if input.is_nullish() {
        return Ok(Value::NULL);
    }
    let Some(document) = input.as_document() else {
        return Err(Error::location(
            4161105,
            format!("{op} requires 'input' to evaluate to type Object"),
        ));
    };
    let mut memory = Growth::new(Part::Values);
    memory.reach(document.as_bytes().len() + new.get().map_or(0, size_of_ref))?;
    let mut built = RawDocumentBuf::new();
    let mut placed = false;
    for element in raw::elements(document) {
        let element = element?;
        if element.name() != name {
            built.append(element.key(), element.value()?);
        } else if let Some(value) = new.get() {
            built.append(element.key(), value);
            placed = true;
        }
    }
    if let (Some(value), false) = (new.get(), placed) {
        let key = CString::try_from(name).map_err(|_| {
            Error::location(4161108, format!("{op}: 'field' cannot contain null bytes"))
        })?;
        built.append(key, value);
    }
    Ok(built.into())
}
