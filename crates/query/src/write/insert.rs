//! `insert`: batches of documents, many in one engine transaction.
//!
//! Always true: a document that fails leaves nothing; the others of the batch stay.

use super::{CHUNK_BYTES, CHUNK_DOCUMENTS, check_target, in_transaction, note, object_id};
use crate::context::OpContext;
use crate::request::{InsertRequest, InsertResult, WriteError};
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use catalog::{MAX_DOCUMENT_BYTES, Namespace, Txn, check_document, check_id};
use errors::{Code, Error, Result};
use os::Os;
use std::borrow::Cow;

/// Inserts documents, creating the collection where it does not exist.
pub fn insert(
    ctx: &mut OpContext<'_>,
    ns: &Namespace,
    request: &InsertRequest<'_>,
) -> Result<InsertResult> {
    check_target(ctx, ns)?;
    let mut result = InsertResult::default();
    let mut next = 0;
    while next < request.documents.len() {
        let end = chunk_end(request.documents, next);
        let chunk = prepare(ctx.catalog.os(), &request.documents[next..end]);
        ensure(ctx, ns)?;
        let part = in_transaction(ctx, |txn| insert_chunk(txn, ns, &chunk, request.ordered))?;
        result.n += part.n;
        let mut stop = false;
        for WriteError { index, error } in part.errors {
            stop |= note(&mut result.errors, next + index, error, request.ordered)?;
        }
        if stop {
            break;
        }
        next = end;
    }
    Ok(result)
}

/// Creates the collection outside of the transaction: others may use it at once.
fn ensure(ctx: &OpContext<'_>, ns: &Namespace) -> Result<()> {
    if ctx.catalog.collection(ns).is_none() {
        ctx.catalog.ensure_collection(ns)?;
    }
    Ok(())
}

fn chunk_end(documents: &[&RawDocument], start: usize) -> usize {
    let mut bytes = 0;
    let mut end = start;
    while end < documents.len() && end - start < CHUNK_DOCUMENTS && bytes < CHUNK_BYTES {
        bytes += documents[end].as_bytes().len();
        end += 1;
    }
    end
}

/// A document fit for storing, or why it is not. Made once, however often the chunk repeats.
type Prepared<'a> = Result<Cow<'a, RawDocument>>;

fn prepare<'a>(os: &Os, documents: &[&'a RawDocument]) -> Vec<Prepared<'a>> {
    documents.iter().map(|document| fit(os, document)).collect()
}

fn fit<'a>(os: &Os, document: &'a RawDocument) -> Prepared<'a> {
    check_document(document)?;
    let fitted = with_id_first(os, document)?;
    if let Some(id) = fitted.get("_id")? {
        check_id(id)?;
    }
    check_size(&fitted)?;
    Ok(fitted)
}

/// Refuses what is larger than a document may be.
pub(crate) fn check_size(document: &RawDocument) -> Result<()> {
    let size = document.as_bytes().len();
    if size > MAX_DOCUMENT_BYTES {
        return Err(Error::new(
            Code::BAD_VALUE,
            format!(
                "object to insert too large. size in bytes: {size}, max size: {MAX_DOCUMENT_BYTES}"
            ),
        ));
    }
    Ok(())
}

/// `_id` is the first field of every stored document, and made where the client gave none.
pub(crate) fn with_id_first<'a>(os: &Os, document: &'a RawDocument) -> Prepared<'a> {
    if let Some(first) = document.iter().next() {
        let (name, _) = first?;
        if name.as_str() == "_id" {
            return Ok(Cow::Borrowed(document));
        }
    }
    let mut fitted = RawDocumentBuf::new();
    match document.get("_id")? {
        Some(id) => fitted.append(cstr!("_id"), id),
        None => fitted.append(cstr!("_id"), RawBsonRef::ObjectId(object_id::next(os))),
    }
    for element in document {
        let (name, value) = element?;
        if name.as_str() != "_id" {
            fitted.append(name, value);
        }
    }
    Ok(Cow::Owned(fitted))
}

fn insert_chunk(
    txn: &mut Txn,
    ns: &Namespace,
    documents: &[Prepared<'_>],
    ordered: bool,
) -> Result<InsertResult> {
    // Dropped since `ensure`: made anew when the statement is repeated.
    let Some(collection) = txn.open_for_write(ns)? else {
        txn.catalog().clone().ensure_collection(ns)?;
        return insert_chunk(txn, ns, documents, ordered);
    };
    let mut result = InsertResult::default();
    for (index, prepared) in documents.iter().enumerate() {
        let inserted = match prepared {
            Ok(document) => txn.insert_document(&collection, document),
            Err(error) => Err(error.clone()),
        };
        match inserted {
            Ok(()) => result.n += 1,
            Err(error) => {
                if note(&mut result.errors, index, error, ordered)? {
                    break;
                }
            }
        }
    }
    Ok(result)
}
