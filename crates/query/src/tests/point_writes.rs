//! Writes to one document by its `_id`: what they lock, wait for and look at.

use super::writes::{ask, delete_all};
use super::*;
use ::limits::{Account, LARGE_BYTES};
use catalog::{Isolation, TxnKind};
use errors::Error;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

#[test]
fn missing_document_is_waited_for_by_nobody() {
    let room = Room::with(&[doc! { "_id": 1 }]);
    let collection = room.catalog.collection(&room.ns).unwrap();
    // Somebody has made it, and has not committed yet.
    let mut maker = room.catalog.begin_clients(None, Duration::ZERO);
    let own = maker.open_for_write(&room.ns).unwrap().unwrap();
    maker.insert_document(&own, &raw(&doc! { "_id": 7 })).unwrap();
    let done = ask(doc! { "_id": 7 }, doc! { "$set": { "a": 1 } }).run(&room);
    assert_eq!((done.n, done.errors.len()), (0, 0), "neither waited for nor found");
    assert_eq!(delete_all(&room, doc! { "_id": 7 }, true), 0);
    maker.commit().unwrap();
    let done = ask(doc! { "_id": 7 }, doc! { "$set": { "a": 1 } }).run(&room);
    assert_eq!(done.n_modified, 1);
    assert_eq!(collection.count(), 2);
    room.check_valid();
}

#[test]
fn transaction_of_a_client_keeps_no_lock_of_what_is_not_there() {
    let room = Room::with(&[doc! { "_id": 1 }]);
    let mut txn = room.catalog.begin_bound(Isolation::ReadCommitted, Duration::ZERO).unwrap();
    let (filter, update) = (raw(&doc! { "_id": 7 }), raw(&doc! { "$set": { "a": 1 } }));
    let update = RawBsonRef::Document(&update);
    let request = UpdateRequest {
        updates: &[writes::plain(&filter, update)],
        ordered: true,
        let_variables: None,
    };
    let mut ctx = room.ctx();
    ctx.txn = Some(&mut txn);
    assert_eq!(crate::update(&mut ctx, &room.ns, &request).unwrap().n, 0);
    drop(ctx);
    // Another one may make it meanwhile.
    assert_eq!(room.insert(&[doc! { "_id": 7 }]).n, 1);
    txn.commit().unwrap();
    room.check_valid();
}

/// Asks, each time that an operation waits for memory, whether a document is locked, and ends the operation.
struct LooksAtLock {
    catalog: Arc<Catalog>,
    ns: Namespace,
    asked: AtomicU32,
}

impl ::limits::Interrupt for LooksAtLock {
    fn check(&self) -> Result<()> {
        let mut txn = self.catalog.begin(TxnKind::Statement);
        let collection = txn.open_for_write(&self.ns)?.expect("it is there");
        let key = collection.id_key(RawBsonRef::Int32(1))?;
        let free = txn.get_for_update_at_once(&collection, &key)?;
        assert!(free.is_some(), "who waits for memory holds no lock");
        self.asked.fetch_add(1, Ordering::Relaxed);
        Err(Error::new(Code::INTERRUPTED, "operation was interrupted"))
    }
}

#[test]
fn large_document_is_not_locked_while_its_writer_waits_for_memory() {
    let large = doc! { "_id": 1, "text": "x".repeat(2 * LARGE_BYTES) };
    let room = Room::with(&[large]);
    let account = Account::new(1 << 20);
    // Somebody has been admitted for more than there is: whoever comes next waits.
    let _all_of_it = account.admit(::limits::Part::Replies, 36 << 20, || Ok(())).unwrap();
    let (catalog, ns) = (Arc::clone(&room.catalog), room.ns.clone());
    let looks = Arc::new(LooksAtLock { catalog, ns, asked: AtomicU32::new(0) });
    // What was worked before does not count: nobody is asked before there is something to wait for.
    ::limits::check().unwrap();
    let scope = ::limits::enter(Arc::clone(&looks) as _, account);
    let filter = raw(&doc! { "_id": 1 });
    let statement =
        DeleteStatement { filter: &filter, only_one: true, hint: None, collation: None };
    let request = DeleteRequest { deletes: &[statement], ordered: true, let_variables: None };
    let refused = delete(&mut room.ctx(), &room.ns, &request).unwrap_err();
    assert_eq!(refused.code(), Code::INTERRUPTED);
    drop(scope);
    assert!(looks.asked.load(Ordering::Relaxed) > 0, "it has waited");
    assert_eq!(delete_all(&room, doc! { "_id": 1 }, true), 1);
    room.check_valid();
}
