//! Scripts: their values, their limits, their mistakes.

use super::*;
use bson::oid::ObjectId;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, DateTime, Document, Timestamp, doc};
use errors::{Code, Error};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}

fn call(source: &str, argument: Bson) -> Result<Bson> {
    let argument = RawBson::try_from(argument).unwrap();
    let value = Script::new(source, None).call(&[argument.as_raw_bson_ref()])?;
    Ok(Bson::try_from(value).unwrap())
}

#[test]
fn every_type_comes_back_as_it_went() {
    let values = doc! {
        "double": 1.5, "string": "a\u{1F600}", "object": { "a": { "b": 1 } }, "array": [1.5, "x", {}],
        "binary": Binary { subtype: BinarySubtype::Generic, bytes: vec![1, 2, 3, 255] },
        "uuid": Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] },
        "id": ObjectId::parse_str("0123456789abcdef01234567").unwrap(),
        "bool": true, "date": DateTime::from_millis(-1), "null": null,
        "regex": Bson::RegularExpression(bson::Regex {
            pattern: "^a".try_into().unwrap(), options: "im".try_into().unwrap(),
        }),
        "int": 7, "timestamp": Timestamp { time: 5, increment: u32::MAX },
        "long": i64::MAX, "decimal": "1.10".parse::<bson::Decimal128>().unwrap(),
        "min": Bson::MinKey, "max": Bson::MaxKey,
    };
    let back = call("function(x) { return x }", Bson::Document(values.clone())).unwrap();
    assert_eq!(back, Bson::Document(values));
}

#[test]
fn numbers_are_doubles_unless_their_field_held_an_int() {
    let source = "function(x) { x.a += 1; x.b = 1; x.c = NumberInt(3); return x }";
    let back = call(source, Bson::Document(doc! { "a": 1 })).unwrap();
    assert_eq!(back, Bson::Document(doc! { "a": 2, "b": 1.0, "c": 3 }));
    assert_eq!(call("function(x) { return x + 1 }", Bson::Int64(4)).unwrap(), Bson::Double(5.0));
}

#[test]
fn the_shells_types_can_be_made() {
    for (source, value) in [
        ("NumberLong('9223372036854775807')", Bson::Int64(i64::MAX)),
        ("NumberLong(5)", Bson::Int64(5)),
        ("new NumberInt(5)", Bson::Int32(5)),
        ("ISODate('1970-01-01T00:00:01Z')", Bson::DateTime(DateTime::from_millis(1000))),
        ("Timestamp(1, 2)", Bson::Timestamp(Timestamp { time: 1, increment: 2 })),
        (
            "UUID('07070707-0707-0707-0707-070707070707')",
            Bson::Binary(Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] }),
        ),
        (
            "UUID('07070707-0707-0707-0707-070707070707').toString()",
            Bson::String("UUID(\"07070707-0707-0707-0707-070707070707\")".into()),
        ),
        (
            "tojson({a: [1, 'x'], b: NumberLong(2)})",
            Bson::String("{ \"a\" : [ 1, \"x\" ], \"b\" : NumberLong(2) }".into()),
        ),
        ("undefined", Bson::Undefined),
    ] {
        assert_eq!(call(source, Bson::Null).unwrap(), value, "{source}");
    }
}

#[test]
fn code_may_be_a_function_an_expression_or_a_body() {
    let document = raw(&doc! { "a": 1, "list": [1, 2] });
    for source in [
        "this.a == 1",
        "this.a == 1;",
        "obj.a == 1",
        "return this.a == 1",
        "function() { return this.list.length == 2 }",
        "var x = this.a; return x == 1;",
        "if (this.a == 1) return true",
        "this.a == 1\n  && this.list.length == 2",
        "this.list.some(x => x == 2)",
        "() => obj.a == 1",
        "x => true",
        "this.returns === undefined",
    ] {
        assert!(Script::new(source, None).holds(&document).unwrap(), "{source}");
    }
    for source in
        ["this.a == 2", "if (this.a == 1) { true } else { false }", "(x, y = (1)) => false"]
    {
        assert!(!Script::new(source, None).holds(&document).unwrap(), "{source}");
    }
}

#[test]
fn a_scope_holds_variables_and_functions() {
    let scope =
        raw(&doc! { "n": 3, "f": Bson::JavaScriptCode("function(x) { return x * n }".into()) });
    let script = Script::new("function(x) { return f(x) }", Some(&scope));
    assert_eq!(script.call(&[RawBsonRef::Int32(2)]).unwrap(), RawBson::Double(6.0));
}

#[test]
fn what_is_emitted_is_handed_over_once() {
    let script = Script::new("function() { for (let x of this.list) emit(x, {n: 1}) }", None);
    let first = script.map(&raw(&doc! { "list": ["a", "b"] })).unwrap();
    assert_eq!(first.len(), 2);
    assert_eq!(first[1].0, RawBson::String("b".into()));
    assert_eq!(script.map(&raw(&doc! { "list": [] })).unwrap().len(), 0);
}

#[test]
fn mistakes_are_errors_and_the_next_call_is_served() {
    for source in ["nonsense(", "noSuchName", "function() { throw 'x' }", "function() { f() }"] {
        assert_eq!(call(source, Bson::Null).unwrap_err().code(), Code(139), "{source}");
    }
    let circle = call("function() { var a = {}; a.a = a; return a }", Bson::Null);
    assert_eq!(circle.unwrap_err().code(), Code(139));
    let deep = call("function() { function f() { return f() + 1 } return f() }", Bson::Null);
    assert_eq!(deep.unwrap_err().code(), Code(139));
    let large = "function() { var a = []; for (;;) a.push('x'.repeat(100000) + a.length) }";
    assert_eq!(call(large, Bson::Null).unwrap_err().code(), Code(139));
    assert_eq!(call("1", Bson::Null).unwrap(), Bson::Double(1.0));
}

/// Ends code at the third question; stores a function and a number.
#[derive(Default)]
struct Ticking {
    ticks: AtomicU64,
    /// The time it is.
    seconds: AtomicU64,
}

struct Never;

impl limits::Interrupt for Never {
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

/// A host whose operation is never over.
struct Patient;

impl Host for Patient {
    fn is_allowed(&self) -> bool {
        true
    }

    fn begin(&self) {}

    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn sleep(&self, _time: Duration) {}

    fn stored(&self) -> Result<RawDocumentBuf> {
        Ok(RawDocumentBuf::new())
    }
}

#[test]
fn code_that_sleeps_until_its_time_is_over_has_not_answered() {
    let _hosted = hosted_by(Arc::new(Ticking::default()));
    for source in [
        "function() { sleep(1000); return true }",
        "function() { try { sleep(1e9) } catch (e) {} }",
    ] {
        let error = call(source, Bson::Null).unwrap_err();
        assert_eq!(error.code(), Code::MAX_TIME_MS_EXPIRED, "{source}");
        let error = Script::new(source, None).holds(&RawDocumentBuf::new()).unwrap_err();
        assert_eq!(error.code(), Code::MAX_TIME_MS_EXPIRED, "{source}");
    }
}

#[test]
fn what_code_holds_is_charged_and_refused_where_there_is_no_room() {
    let account = limits::Account::new(8 << 20);
    let used = |account: &limits::Account| account.usage().of(limits::Part::Scripts);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let _scope = limits::enter(Arc::new(Never), Arc::clone(&account));
            let keeps =
                Script::new("function(n) { kept = 'x'.repeat(n) + n; return kept.length }", None);
            let call = |n: i32| keeps.call(&[RawBsonRef::Int32(n)]);
            let hosted = hosted_by(Arc::new(Patient));
            assert_eq!(call(1000).unwrap(), RawBson::Double(1004.0));
            let little = used(&account);
            assert!(little > 100 << 10, "{little}");
            call(4_000_000).unwrap();
            assert!(used(&account) > little + 3_900_000);
            let error = call(30_000_000).unwrap_err();
            assert_eq!(error.code(), Code::EXCEEDED_MEMORY_LIMIT, "{error}");
            call(1000).unwrap();
            assert!(used(&account) < 2 << 20, "the engine went: {}", used(&account));
            call(4_000_000).unwrap();
            drop((keeps, hosted));
            assert_eq!(account.total(), 0, "the last context has ended");
        });
    });
    assert_eq!(account.total(), 0, "the thread has ended");
}

#[test]
fn a_world_that_was_not_called_for_half_a_minute_goes() {
    let host = Arc::new(Ticking::default());
    let counts =
        Script::new("function() { return typeof seen == 'undefined' ? (seen = 1) : ++seen }", None);
    let call = |seconds: u64| {
        host.seconds.store(seconds, Ordering::Relaxed);
        let _hosted = hosted_by(Arc::clone(&host) as _);
        counts.call(&[]).unwrap()
    };
    assert_eq!(call(0), RawBson::Double(1.0));
    assert_eq!(call(29), RawBson::Double(2.0), "it is there");
    assert_eq!(call(50), RawBson::Double(3.0), "called in between");
    // Another operation of the thread is what notices.
    host.seconds.store(90, Ordering::Relaxed);
    drop(hosted_by(Arc::clone(&host) as _));
    assert_eq!(call(91), RawBson::Double(1.0), "a new one");
}

impl Host for Ticking {
    fn is_allowed(&self) -> bool {
        false
    }

    fn begin(&self) {
        self.ticks.store(0, Ordering::Relaxed);
    }

    fn check(&self) -> Result<()> {
        match self.ticks.fetch_add(1, Ordering::Relaxed) {
            0..3 => Ok(()),
            _ => Err(Error::new(Code::MAX_TIME_MS_EXPIRED, "operation exceeded time limit")),
        }
    }

    fn now(&self) -> Duration {
        Duration::from_secs(self.seconds.load(Ordering::Relaxed))
    }

    fn sleep(&self, time: Duration) {
        assert!(time <= Duration::from_millis(10), "it looks up now and then");
    }

    fn stored(&self) -> Result<RawDocumentBuf> {
        let twice = Bson::JavaScriptCode("function(x) { return factor * x }".into());
        Ok(raw(&doc! { "twice": twice, "factor": 2 }))
    }
}

#[test]
fn stored_functions_are_for_those_who_know_them() {
    let _hosted = hosted_by(Arc::new(Ticking::default()));
    let script = || Script::new("function(x) { return twice(x) }", None);
    let value = script().knowing_stored().call(&[RawBsonRef::Int32(4)]);
    assert_eq!(value.unwrap(), RawBson::Double(8.0));
    assert_eq!(script().call(&[RawBsonRef::Int32(4)]).unwrap_err().code(), Code(139));
    assert!(!is_allowed());
}

#[test]
fn the_host_ends_a_loop() {
    let hosted = hosted_by(Arc::new(Ticking::default()));
    let error = call("function() { for (;;) {} }", Bson::Null).unwrap_err();
    assert_eq!(error.code(), Code::MAX_TIME_MS_EXPIRED);
    drop(hosted);
    assert_eq!(call("1", Bson::Null).unwrap(), Bson::Double(1.0));
}

#[test]
fn sleep_rests_on_the_host_and_is_ended_by_it() {
    let under_a_host = |source: &str| {
        let _hosted = hosted_by(Arc::new(Ticking::default()));
        call(source, Bson::Null)
    };
    assert_eq!(under_a_host("function() { sleep(15); return 1 }").unwrap(), Bson::Double(1.0));
    let error = under_a_host("function() { sleep(1e9); for (;;) {} }").unwrap_err();
    assert_eq!(error.code(), Code::MAX_TIME_MS_EXPIRED);
    assert_eq!(under_a_host("sleep(NaN), 2").unwrap(), Bson::Double(2.0));
}

#[test]
fn scripts_do_not_see_each_others_globals() {
    let script = Script::new("function() { globalThis.x = 5; return x }", None);
    assert_eq!(script.call(&[]).unwrap(), RawBson::Double(5.0));
    assert_eq!(call("typeof x", Bson::Null).unwrap(), Bson::String("undefined".into()));
}

#[test]
fn where_there_is_no_room_for_an_engine_its_operation_gets_the_error() {
    let account = limits::Account::new(heap::EMPTY_BYTES as u64 / 2);
    let _scope = limits::enter(Arc::new(Never), Arc::clone(&account));
    let error = call("function(x) { return x }", Bson::Null).unwrap_err();
    assert_eq!(error.code(), Code::EXCEEDED_MEMORY_LIMIT, "{error}");
    assert_eq!(account.total(), 0);
}

/// From the first request of an engine that is being made to the last of the code's, each is refused in
/// turn, with all that follow; code that fails like this is an error, and the next call has an engine.
#[test]
fn every_refusal_of_memory_is_an_error() {
    let source = "function(x) { var parts = []; for (var i = 0; i < 50; i++) parts.push({ a: 'x' + i, b: [i] });
        return { json: JSON.stringify(parts), sorted: parts.map(p => p.a).sort(), m: /x(\\d)/.exec('x1')[1],
                 id: new ObjectId(), n: NumberLong(5), caught: (() => { try { null.x } catch (e) { return e.stack } })() } }";
    let mut granted = 0;
    let refused = (1..100_000).find(|_| {
        heap::planted::refuse_after(granted);
        let outcome = call(source, Bson::Document(doc! { "a": [1, "text"] }));
        let all_were_granted = heap::planted::end().is_some_and(|left| left > 0);
        granted += 1 + granted / 200;
        all_were_granted && outcome.is_ok()
    });
    assert!(refused.is_some_and(|refused| refused > 200), "{refused:?}");
}
