//! Checksums that AWS itself was seen to give.

use sqs::digest;
use sqs::value::{Blob, MessageAttributeValue, MessageAttributes};

fn text(data_type: &str, value: &str) -> MessageAttributeValue {
    MessageAttributeValue {
        data_type: data_type.to_owned(),
        string_value: Some(value.to_owned()),
        ..MessageAttributeValue::default()
    }
}

fn blob(data_type: &str, value: &'static [u8]) -> MessageAttributeValue {
    MessageAttributeValue {
        data_type: data_type.to_owned(),
        binary_value: Some(Blob(value.into())),
        ..MessageAttributeValue::default()
    }
}

fn check(attributes: &[(&str, MessageAttributeValue)], expected: &str) {
    let given = attributes.iter().map(|(name, value)| (name, value));
    assert_eq!(digest::attributes(given).as_deref(), Some(expected));
    // The order in which they are given does not matter.
    let map: MessageAttributes =
        attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    assert_eq!(digest::attributes(&map).as_deref(), Some(expected));
    assert_eq!(digest::attributes(map.iter().rev()).as_deref(), Some(expected));
}

#[test]
fn bodies() {
    assert_eq!(digest::body("test"), "098f6bcd4621d373cade4e832627b4f6");
    assert_eq!(digest::body("This is a test message"), "fafb00f5732ab283681e124bf8747ed1");
}

#[test]
fn attributes_of_each_type() {
    check(&[("timestamp", text("Number", "1493147359900"))], "235c5c510d26fb653d073faed50ae77c");
    check(&[("timestamp", text("Number", "1493147359901"))], "994258b45346a2cc3f9cbb611aa7af30");
    let traced = b"traceparent\x1e00-774062d6c37081a5a0b9b5b88e30627c-2d2482211f6489da-01";
    check(&[("attr1", blob("Binary", traced))], "8cbe4db156db8a94db8b801b7addb984");
}

#[test]
fn several_attributes_in_the_order_of_their_names() {
    check(
        &[
            ("Help.Me", text("String", "Me")),
            ("Hello", text("String", "There")),
            ("General", text("String", "Kenobi")),
        ],
        "4c360f3fdafd970e05fae2f149d997f5",
    );
    check(
        &[
            ("ccc", text("String", "testjunk")),
            ("aaa", blob("Binary", b"\x02\x03\x04")),
            ("zzz", text("Number", "0230.01")),
            ("öther_encodings", text("String", "T\u{FC}st")),
        ],
        "8ae21a7957029ef04146b42aeaa18a22",
    );
}

/// Worked out from the documented layout with Python's `hashlib` and `struct`.
#[test]
fn a_suffix_is_part_of_the_type() {
    check(&[("n", text("Number.int", "42"))], "3b99c059e6bafef8133881a6b05a084f");
    check(&[("b", blob("Binary.png", b"\x00\xff"))], "8544a4a7ae2da55eae99062a5441ed51");
}

#[test]
fn no_attributes_have_no_checksum() {
    assert_eq!(digest::attributes(&MessageAttributes::new()), None);
}
