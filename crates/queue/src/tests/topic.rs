//! What is published reaches those who subscribed.

use std::collections::BTreeMap;

use super::*;
use crate::filter::{Filter, Rule};
use crate::parcel::{Attribute, Body, Parcel};

const NEWS: &str = "news";

fn message(text: &str, kind: &str) -> NewMessage {
    let mut parcel = Parcel::new(Body::Text(text.into()));
    parcel.attributes.insert("kind".into(), Attribute::text("String", kind));
    NewMessage { parcel: parcel.encode(), ..new("") }
}

fn only(kind: &str) -> Option<Filter> {
    let rules = BTreeMap::from([("kind".to_owned(), vec![Rule::Is(kind.into())])]);
    Some(Filter { attributes: rules })
}

impl Bench {
    fn subscribe(&mut self, queue: &str, filter: Option<Filter>) -> Reply {
        let (topic, queue) = (NEWS.to_owned(), queue.to_owned());
        self.apply(&Command::Subscribe(Subscribe { topic, queue, filter }))
    }

    fn publish(&mut self, messages: Vec<NewMessage>) -> Vec<Published> {
        match self.apply(&Command::Publish(Publish { topic: NEWS.into(), messages })) {
            Reply::Published(published) => published,
            other => panic!("{other:?}"),
        }
    }

    fn got(&mut self, queue: &str) -> Vec<(String, MessageId)> {
        let text = |delivery: &Delivery| {
            String::from_utf8(Parcel::decode(&delivery.parcel).body.bytes().to_vec())
        };
        let got = self.receive_from(queue, 100);
        got.iter().map(|delivery| (text(delivery).expect("text"), delivery.id)).collect()
    }
}

fn with_topic() -> Bench {
    let mut bench = standard();
    let made = bench.apply(&Command::CreateTopic { topic: NEWS.into() });
    assert!(matches!(made, Reply::Created { new: true, .. }));
    bench
}

#[test]
fn every_subscription_gets_what_it_wants_once_in_order_under_one_name() {
    let mut bench = with_topic();
    for queue in ["all", "sport"] {
        bench.create(queue, Settings::usual(Mode::Standard));
    }
    assert_eq!(bench.subscribe("all", None), Reply::Subscribed { new: true });
    assert_eq!(bench.subscribe("sport", only("sport")), Reply::Subscribed { new: true });
    assert_eq!(bench.subscribe("sport", only("sport")), Reply::Subscribed { new: false });
    let sent = vec![message("a", "sport"), message("b", "weather"), message("c", "sport")];
    let published = bench.publish(sent);
    let counts: Vec<u32> = published.iter().map(|published| published.subscriptions).collect();
    assert_eq!(counts, [2, 1, 2]);
    bench.advance(1);
    let ids: Vec<MessageId> = published.iter().map(|published| published.id).collect();
    let named = |text: &str, at: usize| (text.to_owned(), ids[at]);
    assert_eq!(bench.got("all"), [named("a", 0), named("b", 1), named("c", 2)]);
    assert_eq!(bench.got("sport"), [named("a", 0), named("c", 2)]);
    let more = bench.publish(vec![message("d", "weather")]);
    assert_eq!((more[0].sequence, more[0].subscriptions), (4, 1));
}

#[test]
fn who_unsubscribes_or_has_no_queue_any_more_gets_nothing() {
    let mut bench = with_topic();
    for queue in ["left", "gone"] {
        bench.create(queue, Settings::usual(Mode::Standard));
        bench.subscribe(queue, None);
    }
    let left = Command::Unsubscribe { topic: NEWS.into(), queue: "left".into() };
    assert_eq!(bench.apply(&left), Reply::Unsubscribed);
    assert_eq!(bench.apply(&left), Reply::Refused(Refusal::NoSubscription));
    bench.apply(&Command::Delete { queue: "gone".into() });
    assert_eq!(bench.publish(vec![message("a", "x")])[0].subscriptions, 1);
    bench.advance(1);
    assert!(bench.got("left").is_empty());
    assert!(queue(&bench.rig.rows, TENANT, "gone").is_none(), "it is not made anew");
}

#[test]
fn a_subscription_with_order_keeps_groups_and_a_key_is_one_message() {
    let mut bench = with_topic();
    bench.create("ordered", Settings::usual(Mode::Fifo));
    bench.subscribe("ordered", None);
    let grouped = |text: &str| NewMessage { group: Some("g".into()), ..message(text, "x") };
    let keyed = NewMessage { dedup: Some([7; 16]), ..grouped("c") };
    bench.publish(vec![grouped("a"), grouped("b"), keyed.clone(), keyed]);
    bench.advance(1);
    let texts: Vec<String> = bench.got("ordered").into_iter().map(|(text, _)| text).collect();
    assert_eq!(texts, ["a", "b", "c"]);
}

#[test]
fn what_is_not_there_is_said_to_be_so() {
    let mut bench = standard();
    let none = Reply::Refused(Refusal::NoTopic);
    assert_eq!(bench.apply(&Command::DeleteTopic { topic: NEWS.into() }), none);
    assert_eq!(bench.subscribe("all", None), none);
    let publish = Publish { topic: NEWS.into(), messages: vec![message("a", "x")] };
    assert_eq!(bench.apply(&Command::Publish(publish)), none);
    let made = bench.apply(&Command::CreateTopic { topic: NEWS.into() });
    let again = bench.apply(&Command::CreateTopic { topic: NEWS.into() });
    let (Reply::Created { number, .. }, Reply::Created { number: same, new }) = (made, again)
    else {
        panic!("both are Created");
    };
    assert_eq!((number, false), (same, new));
    assert_eq!(bench.apply(&Command::DeleteTopic { topic: NEWS.into() }), Reply::Deleted);
}

#[test]
fn more_letters_than_an_entry_takes_are_refused_and_nothing_is_sent() {
    let mut bench = with_topic();
    for n in 0..100 {
        bench.create(&format!("q{n}"), Settings::usual(Mode::Standard));
        assert_eq!(bench.subscribe(&format!("q{n}"), None), Reply::Subscribed { new: true });
    }
    assert_eq!(bench.subscribe("one-more", None), Reply::Refused(Refusal::Subscriptions));
    let publish =
        |messages: Vec<NewMessage>| Command::Publish(Publish { topic: NEWS.into(), messages });
    let many = publish((0..41).map(|n| message(&n.to_string(), "x")).collect());
    assert_eq!(bench.apply(&many), Reply::Refused(Refusal::FanOut));
    let large = publish(vec![new(&"x".repeat(crate::PARCEL_BYTES_MAX + 1))]);
    assert_eq!(bench.apply(&large), Reply::Refused(Refusal::FanOut));
    assert_eq!(bench.described().counts.totals.sent, 0);
    let most = bench.publish((0..40).map(|n| message(&n.to_string(), "x")).collect());
    assert_eq!((most.len(), most[39].subscriptions), (40, 100));
    bench.advance(1);
    assert_eq!(bench.got("q99").len(), 40);
}
