//! The order, the bytes and the way back, over fixed ladders and over random values.

use crate::*;
use bson::oid::ObjectId;
use bson::raw::{RawBson, RawBsonRef};
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, DateTime, Decimal128, Timestamp, bson, doc};
use proptest::prelude::*;
use std::cmp::Ordering;

const UP: Direction = Direction::Ascending;
const DOWN: Direction = Direction::Descending;

fn dec(text: &str) -> Bson {
    Bson::Decimal128(text.parse::<Decimal128>().unwrap())
}

fn raw(value: &Bson) -> RawBson {
    RawBson::try_from(value.clone()).unwrap()
}

fn cmp(a: &Bson, b: &Bson) -> Ordering {
    compare(raw(a).as_raw_bson_ref(), raw(b).as_raw_bson_ref())
}

fn key(values: &[Bson], directions: &[Direction]) -> (Vec<u8>, TypeBits) {
    let mut builder = KeyBuilder::new();
    for (value, direction) in values.iter().zip(directions) {
        builder.append_bson(value, *direction).unwrap();
    }
    builder.finish()
}

fn key1(value: &Bson) -> Vec<u8> {
    key(std::slice::from_ref(value), &[UP]).0
}

/// Every value is below the next; `compare`, both directions of keys and the way back agree.
fn check_ladder(ladder: &[Bson]) {
    for (i, a) in ladder.iter().enumerate() {
        for (j, b) in ladder.iter().enumerate() {
            assert_eq!(cmp(a, b), i.cmp(&j), "compare {a} with {b}");
            assert_eq!(compare_bson(a, b), i.cmp(&j), "compare_bson {a} with {b}");
            assert_eq!(key1(a).cmp(&key1(b)), i.cmp(&j), "keys of {a} and {b}");
            let down = |v: &Bson| key(std::slice::from_ref(v), &[DOWN]).0;
            assert_eq!(down(b).cmp(&down(a)), i.cmp(&j), "descending keys of {a} and {b}");
        }
        check_round_trip(std::slice::from_ref(a), &[UP]);
        check_round_trip(std::slice::from_ref(a), &[DOWN]);
    }
}

fn check_round_trip(values: &[Bson], directions: &[Direction]) {
    let (bytes, types) = key(values, directions);
    let back = decode(&bytes, types.as_bytes(), directions).unwrap();
    assert_eq!(back.len(), values.len());
    for (back, value) in back.iter().zip(values) {
        // Debug text tells -0.0 from 0.0, every type from every other, and lets NaN equal itself.
        assert_eq!(format!("{back:?}"), format!("{value:?}"));
    }
    assert_eq!(skip(&bytes, directions).unwrap(), bytes.len());
}

fn binary(subtype: BinarySubtype, bytes: &[u8]) -> Bson {
    Bson::Binary(Binary { subtype, bytes: bytes.to_vec() })
}

fn regex(pattern: &str, options: &str) -> Bson {
    Bson::RegularExpression(bson::Regex {
        pattern: pattern.try_into().unwrap(),
        options: options.try_into().unwrap(),
    })
}

fn code(text: &str, scope: bson::Document) -> Bson {
    Bson::JavaScriptCodeWithScope(bson::JavaScriptCodeWithScope { code: text.into(), scope })
}

#[test]
fn types_follow_the_canonical_order() {
    check_ladder(&[
        Bson::MinKey,
        Bson::Undefined,
        Bson::Null,
        bson!(f64::NAN),
        bson!(f64::NEG_INFINITY),
        bson!(0),
        bson!(f64::INFINITY),
        bson!(""),
        bson!("a"),
        bson!("a\0"),
        bson!("a\0b"),
        bson!("a\u{1}"),
        bson!("a\u{2}"),
        bson!("aa"),
        bson!("b"),
        bson!({}),
        bson!({"a": 1}),
        bson!({"a": 2}),
        bson!({"a": 2, "b": 1}),
        bson!({"b": 0}),
        bson!({"a": "x"}),
        bson!({"a": {}}),
        bson!([]),
        bson!([1]),
        bson!([1, 2]),
        bson!([2]),
        bson!([[]]),
        binary(BinarySubtype::Generic, &[]),
        binary(BinarySubtype::Generic, &[9]),
        binary(BinarySubtype::Uuid, &[1]),
        binary(BinarySubtype::Generic, &[0, 0]),
        binary(BinarySubtype::Generic, &[7; 253]),
        binary(BinarySubtype::Generic, &[6; 254]),
        Bson::ObjectId(ObjectId::from_bytes([0; 12])),
        Bson::ObjectId(ObjectId::from_bytes([1; 12])),
        bson!(false),
        bson!(true),
        Bson::DateTime(DateTime::from_millis(i64::MIN)),
        Bson::DateTime(DateTime::from_millis(-1)),
        Bson::DateTime(DateTime::from_millis(0)),
        Bson::DateTime(DateTime::from_millis(i64::MAX)),
        Bson::Timestamp(Timestamp { time: 1, increment: 9 }),
        Bson::Timestamp(Timestamp { time: u32::MAX, increment: 0 }),
        regex("a", ""),
        regex("a", "i"),
        regex("b", ""),
        Bson::JavaScriptCode("f".into()),
        code("f", doc! {}),
        code("f", doc! {"x": 1}),
        code("g", doc! {}),
        Bson::MaxKey,
    ]);
}

#[test]
fn numbers_of_all_types_stand_on_one_line() {
    check_ladder(&[
        bson!(f64::NAN),
        bson!(f64::NEG_INFINITY),
        dec("-1E+400"),
        bson!(f64::MIN),
        bson!(-1e19),
        dec("-9223372036854775808.5"),
        bson!(i64::MIN),
        dec("-9223372036854775807.5"),
        bson!(i64::MIN + 1),
        bson!(-9007199254740993_i64),
        bson!(-9007199254740992.0),
        bson!(-129),
        bson!(-128),
        bson!(-127.5),
        bson!(-127),
        bson!(-1.5),
        bson!(-1),
        bson!(-0.1),
        dec("-0.1"),
        bson!(-5e-324),
        dec("-1E-6000"),
        bson!(0),
        dec("1E-6000"),
        dec("2E-6000"),
        bson!(5e-324),
        dec("0.1"),
        bson!(0.1),
        bson!(0.5),
        dec("0.9999999999999999999999999999999999"),
        bson!(1),
        dec("1.000000000000000000000000000000001"),
        dec("1.1"),
        bson!(1.1),
        bson!(127),
        bson!(128),
        bson!(i32::MAX),
        bson!(i64::from(i32::MAX) + 1),
        bson!(9007199254740992.0),
        bson!(9007199254740993_i64),
        bson!(i64::MAX),
        dec("9223372036854775807.25"),
        bson!(9223372036854775808.0),
        dec("9223372036854775808.1"),
        dec("9223372036854775808.2"),
        bson!(1e300),
        dec("1.000000000000000052504760255204421E+300"),
        bson!(f64::MAX),
        dec("1.8E+308"),
        dec("9.999999999999999999999999999999999E+6144"),
        bson!(f64::INFINITY),
    ]);
}

#[test]
fn equal_numbers_of_different_types_share_bytes_and_keep_their_types() {
    let groups = [
        vec![bson!(0), bson!(0_i64), bson!(0.0), bson!(-0.0), dec("0"), dec("-0"), dec("0E+3")],
        vec![bson!(1), bson!(1_i64), bson!(1.0), dec("1"), dec("1.0"), dec("1.000")],
        vec![bson!(-7), bson!(-7_i64), bson!(-7.0), dec("-7")],
        vec![bson!(0.5), dec("0.5"), dec("0.50")],
        vec![bson!(1.25), dec("1.25")],
        vec![bson!(i64::MIN), bson!(-9223372036854775808.0), dec("-9223372036854775808")],
        vec![bson!(f64::NAN), dec("NaN")],
        vec![bson!(f64::INFINITY), dec("Infinity")],
        vec![bson!("x"), Bson::Symbol("x".into())],
        vec![bson!([1, 2.0]), bson!([1.0, 2])],
    ];
    for group in &groups {
        for a in group {
            for b in group {
                assert_eq!(cmp(a, b), Ordering::Equal, "{a:?} {b:?}");
                assert_eq!(key1(a), key1(b), "{a:?} {b:?}");
            }
            check_round_trip(std::slice::from_ref(a), &[UP]);
            check_round_trip(std::slice::from_ref(a), &[DOWN]);
        }
    }
}

#[test]
fn common_values_are_short_and_need_no_type_bits() {
    let check = |value: Bson, len: usize| {
        let (bytes, types) = key(&[value], &[UP]);
        assert_eq!((bytes.len(), types.is_empty()), (len, true));
    };
    check(Bson::ObjectId(ObjectId::from_bytes([9; 12])), 13);
    check(bson!(0), 1);
    check(bson!(7), 2);
    check(bson!(-7), 2);
    check(bson!(1000), 3);
    check(bson!(1.5), 10);
    check(bson!("abc"), 5);
    check(bson!(i64::MAX), 9);
}

#[test]
fn bounds_enclose_every_key_with_the_prefix() {
    for direction in [UP, DOWN] {
        let prefix = |discriminator| {
            let mut builder = KeyBuilder::new();
            builder.append_bson(&bson!("m"), direction).unwrap();
            builder.append_discriminator(discriminator);
            builder.into_bytes()
        };
        for next in [Bson::MinKey, bson!("z"), Bson::MaxKey] {
            for second in [UP, DOWN] {
                let (inside, _) = key(&[bson!("m"), next.clone()], &[direction, second]);
                assert!(prefix(Discriminator::Before) < inside);
                assert!(inside < prefix(Discriminator::After));
            }
        }
    }
}

#[test]
fn a_suffix_key_survives_behind_the_parts() {
    let (id, _) = key(&[Bson::ObjectId(ObjectId::from_bytes([3; 12]))], &[UP]);
    let mut builder = KeyBuilder::new();
    builder.append_bson(&bson!({"a": [1, {"b": "x"}]}), DOWN).unwrap();
    builder.append_bson(&bson!(2.5), UP).unwrap();
    builder.append_bytes(&id);
    let (bytes, types) = builder.finish();
    let end = skip(&bytes, &[DOWN, UP]).unwrap();
    assert_eq!(&bytes[end..], id);
    let (values, at) = decode_prefix(&bytes, types.as_bytes(), &[DOWN, UP]).unwrap();
    assert_eq!((values, at), (vec![bson!({"a": [1, {"b": "x"}]}), bson!(2.5)], end));
}

#[test]
fn a_pointer_survives() {
    let bytes = b"\x19\0\0\0\x0c\0\x02\0\0\0n\0abcdefghijkl\0";
    let document = bson::raw::RawDocument::from_bytes(bytes.as_slice()).unwrap();
    let pointer = document.get("").unwrap().unwrap();
    let mut builder = KeyBuilder::new();
    builder.append(pointer, UP).unwrap();
    let (key, types) = builder.finish();
    let back = decode(&key, types.as_bytes(), &[UP]).unwrap();
    assert_eq!(back, vec![Bson::try_from(pointer).unwrap()]);
}

#[test]
fn nesting_beyond_the_limit_is_refused_both_ways() {
    let mut value = bson!([]);
    for _ in 0..=MAX_DEPTH {
        value = Bson::Array(vec![value]);
    }
    let mut builder = KeyBuilder::new();
    assert!(matches!(builder.append_bson(&value, UP), Err(Error::TooDeep)));
    assert!(builder.as_bytes().is_empty());
    let deep = vec![encode::lead::ARRAY; 10_000];
    assert!(matches!(decode(&deep, &[], &[UP]), Err(Error::TooDeep)));
    assert!(matches!(skip(&deep, &[UP]), Err(Error::TooDeep)));
}

/// The bytes of version 1. A change here is a format change: see `docs/formats/keystring.md`.
#[test]
fn golden_bytes_of_version_1() {
    let golden = include_str!("golden_v1.txt");
    let mut written = String::new();
    for value in golden_values() {
        let (bytes, types) = key(std::slice::from_ref(&value), &[UP]);
        let line = [hex(&bytes), hex(types.as_bytes()), format!("{value:?}\n")];
        written.push_str(&line.join(" | "));
    }
    assert_eq!(golden, written);
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|b| [b >> 4, b & 15])
        .map(|n| char::from(b"0123456789abcdef"[n as usize]))
        .collect()
}

fn golden_values() -> Vec<Bson> {
    vec![
        Bson::MinKey,
        Bson::Undefined,
        Bson::Null,
        bson!(f64::NAN),
        bson!(-1e300),
        bson!(i64::MIN),
        bson!(-1000),
        bson!(-1.5),
        bson!(-0.25),
        bson!(0),
        bson!(-0.0),
        bson!(0.1),
        dec("0.1"),
        bson!(1),
        bson!(1_i64),
        bson!(1.0),
        dec("1.10"),
        bson!(70000),
        bson!(i64::MAX),
        bson!(f64::INFINITY),
        bson!("a\0b"),
        Bson::Symbol("s".into()),
        bson!({"a": 1, "b": ["x", null]}),
        binary(BinarySubtype::Uuid, &[1, 2]),
        Bson::ObjectId(ObjectId::from_bytes([0xAB; 12])),
        bson!(false),
        bson!(true),
        Bson::DateTime(DateTime::from_millis(1)),
        Bson::Timestamp(Timestamp { time: 1, increment: 2 }),
        regex("a.b", "i"),
        Bson::JavaScriptCode("f".into()),
        code("f", doc! {"x": 1}),
        Bson::MaxKey,
    ]
}

fn number() -> impl Strategy<Value = Bson> {
    let decimal = (any::<bool>(), 0u128..10u128.pow(34), -40i32..10, 0u32..35).prop_map(
        |(negative, coefficient, exponent, cut)| {
            let sign = if negative { "-" } else { "" };
            dec(&format!("{sign}{}E{exponent}", coefficient / 10u128.pow(cut.min(34))))
        },
    );
    prop_oneof![
        any::<i32>().prop_map(Bson::Int32),
        (-3i32..3).prop_map(Bson::Int32),
        any::<i64>().prop_map(Bson::Int64),
        (-3i64..3).prop_map(Bson::Int64),
        any::<f64>().prop_map(Bson::Double),
        (-8i32..8).prop_map(|quarters| Bson::Double(f64::from(quarters) / 4.0)),
        any::<i64>().prop_map(|v| Bson::Double(v as f64)),
        decimal,
        (-300i32..300).prop_map(|hundredths| dec(&format!("{hundredths}E-2"))),
        any::<i64>().prop_map(|v| dec(&format!("{v}"))),
        (1i32..2000).prop_map(|e| dec(&format!("1E-{e}"))),
    ]
}

fn value() -> impl Strategy<Value = Bson> {
    let text = "[\\x00-\\x03ab]{0,4}";
    let leaf = prop_oneof![
        8 => number(),
        4 => text.prop_map(Bson::String),
        1 => text.prop_map(Bson::Symbol),
        1 => Just(Bson::Null),
        1 => any::<bool>().prop_map(Bson::Boolean),
        1 => (-2i64..2).prop_map(|v| Bson::DateTime(DateTime::from_millis(v))),
        1 => any::<[u8; 12]>().prop_map(|v| Bson::ObjectId(ObjectId::from_bytes(v))),
        1 => proptest::collection::vec(any::<u8>(), 0..300)
            .prop_map(|bytes| binary(BinarySubtype::Generic, &bytes)),
        1 => (0u32..2, 0u32..2)
            .prop_map(|(time, increment)| Bson::Timestamp(Timestamp { time, increment })),
        1 => prop_oneof![Just(Bson::MinKey), Just(Bson::MaxKey), Just(Bson::Undefined)],
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Bson::Array),
            proptest::collection::vec(("[ab\\x01]{0,2}", inner), 0..3)
                .prop_map(|fields| Bson::Document(fields.into_iter().collect())),
        ]
    })
}

fn direction() -> impl Strategy<Value = Direction> {
    prop_oneof![Just(UP), Just(DOWN)]
}

fn compare_tuples(a: &[Bson], b: &[Bson], directions: &[Direction]) -> Ordering {
    for ((a, b), direction) in a.iter().zip(b).zip(directions) {
        let order = cmp(a, b);
        if order.is_ne() {
            return if *direction == DOWN { order.reverse() } else { order };
        }
    }
    Ordering::Equal
}

fn hash_of(value: &Bson) -> u64 {
    let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
    hash_value_bson(value, &mut hasher);
    std::hash::Hasher::finish(&hasher)
}

/// A hasher that does not depend on how the bytes were cut.
struct Fnv(u64);

impl std::hash::Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn memcmp_of_keys_is_the_order_of_tuples(
        a in proptest::collection::vec(value(), 3),
        b in proptest::collection::vec(value(), 3),
        common in 0usize..3,
        directions in proptest::collection::vec(direction(), 3),
    ) {
        let mut b = b;
        b[..common].clone_from_slice(&a[..common]);
        let expected = compare_tuples(&a, &b, &directions);
        let (left, right) = (key(&a, &directions).0, key(&b, &directions).0);
        prop_assert_eq!(left.cmp(&right), expected);
    }

    #[test]
    fn memcmp_of_number_keys_is_the_order_of_numbers(a in number(), b in number()) {
        prop_assert_eq!(key1(&a).cmp(&key1(&b)), cmp(&a, &b));
        prop_assert_eq!(cmp(&a, &b), cmp(&b, &a).reverse());
        prop_assert_eq!(cmp(&a, &b).is_eq(), hash_of(&a) == hash_of(&b));
    }

    #[test]
    fn comparing_deserialised_values_gives_the_same_order(a in value(), b in value()) {
        prop_assert_eq!(compare_bson(&a, &b), cmp(&a, &b));
    }

    #[test]
    fn decoding_gives_back_what_was_encoded(
        values in proptest::collection::vec(value(), 0..4),
        directions in proptest::collection::vec(direction(), 4),
    ) {
        check_round_trip(&values, &directions[..values.len()]);
    }

    #[test]
    fn decoding_arbitrary_bytes_never_panics(
        bytes in proptest::collection::vec(any::<u8>(), 0..60),
        types in proptest::collection::vec(any::<u8>(), 0..8),
        directions in proptest::collection::vec(direction(), 0..4),
    ) {
        let decoded = decode_prefix(&bytes, &types, &directions).map(|(_, end)| end);
        if let Ok(end) = decoded {
            prop_assert_eq!(skip(&bytes, &directions).unwrap(), end);
        }
    }

    #[test]
    fn decoding_damaged_keys_never_panics(
        value in value(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let (mut bytes, types) = key(&[value], &[UP]);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(values) = decode(&bytes, types.as_bytes(), &[UP]) {
            prop_assert_eq!(values.len(), 1);
        }
    }
}

#[test]
fn usual_integers_are_written_as_all_numbers_are() {
    let edges = (0..63).flat_map(|bits| [(1_i64 << bits) - 1, 1 << bits, (1 << bits) + 1]);
    for value in edges.chain([i64::MAX, i64::MIN]).flat_map(|value| [value, value.wrapping_neg()]) {
        let expected = number::encode(number::Number::Int(value));
        let whole = [RawBsonRef::Int64(value)];
        for given in i32::try_from(value).map(RawBsonRef::Int32).into_iter().chain(whole) {
            let mut builder = KeyBuilder::new();
            builder.append(given, Direction::Ascending).unwrap();
            let (key, types) = builder.finish();
            assert_eq!(key, expected.as_bytes(), "{given:?}");
            let decoded = decode(&key, types.as_bytes(), &[Direction::Ascending]).unwrap();
            assert_eq!(RawBson::try_from(decoded[0].clone()).unwrap().as_raw_bson_ref(), given);
        }
    }
}
