//! Tables for people, lines for programs.

use client::{Message, Mode, QueueInfo, StreamInfo, Subscription, TopicInfo};
use serde::Serialize;

/// Characters of a body in a table.
const BODY_CHARS_MAX: usize = 100;

/// Each thing as JSON, on a line of its own. A body that was spelt over many lines is in one here: in a
/// text of JSON line breaks are escaped, so those that are not mean nothing.
pub(crate) fn json_lines<T: Serialize>(things: &[T]) -> anyhow::Result<String> {
    let mut lines = String::new();
    for thing in things {
        let mut line = serde_json::to_string(thing)?;
        line.retain(|c| !matches!(c, '\n' | '\r'));
        lines.push_str(&line);
        lines.push('\n');
    }
    Ok(lines)
}

/// What came of a wish for something of this name.
pub(crate) fn made(name: &str, id: &str, created: bool) -> String {
    let what = if created { "was made" } else { "was there before" };
    format!("{name} {what}, as {id}\n")
}

pub(crate) fn queues(queues: &[QueueInfo]) -> String {
    let head = ["NAME", "MODE", "VISIBLE", "DELAYED", "INFLIGHT", "DEAD", "OLDEST"];
    let row = |queue: &QueueInfo| {
        let oldest = queue.oldest_visible_age_seconds.map_or("-".to_owned(), age);
        vec![
            queue.name.clone(),
            mode(queue.mode).to_owned(),
            queue.visible.to_string(),
            queue.delayed.to_string(),
            queue.inflight.to_string(),
            queue.dead.to_string(),
            oldest,
        ]
    };
    table(&head, &[2, 3, 4, 5, 6], &queues.iter().map(row).collect::<Vec<_>>())
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Standard => "standard",
        Mode::Fifo => "fifo",
    }
}

/// One queue, with all that is known of it, in the words of the flags that change it.
pub(crate) fn queue(queue: &QueueInfo) -> String {
    let or_none = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let backoff = &queue.retry_backoff;
    let backoff = match backoff.base_seconds {
        0 => "at once".to_owned(),
        base => {
            let jitter = if backoff.jitter { "with" } else { "without" };
            format!("{base}s, up to {}s, {jitter} jitter", backoff.max_seconds)
        }
    };
    let tags: Vec<_> = queue.tags.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let rates = &queue.rates;
    let rows = [
        ("name", queue.name.clone()),
        ("id", queue.queue_id.clone()),
        ("mode", mode(queue.mode).to_owned()),
        ("created", queue.created_at.clone()),
        ("visible", queue.visible.to_string()),
        ("delayed", queue.delayed.to_string()),
        ("inflight", queue.inflight.to_string()),
        ("dead", queue.dead.to_string()),
        ("bytes", queue.bytes.to_string()),
        ("oldest", or_none(queue.oldest_visible_age_seconds.map(age))),
        ("sent a second", format!("{:.2}", rates.publish_per_second)),
        ("received a second", format!("{:.2}", rates.receive_per_second)),
        ("done a second", format!("{:.2}", rates.ack_per_second)),
        ("failed a second", format!("{:.2}", rates.retry_per_second)),
        ("retention", format!("{}s", queue.retention_seconds)),
        ("visibility", format!("{}s", queue.default_visibility_timeout_seconds)),
        ("delay", format!("{}s", queue.delay_seconds)),
        ("receive wait", format!("{}s", queue.receive_wait_seconds)),
        ("max receives", or_none(queue.max_receive_count.map(|count| count.to_string()))),
        ("dead letter", or_none(queue.dead_letter_queue.clone())),
        ("backoff", backoff),
        ("dedup window", format!("{}s", queue.deduplication_window_seconds)),
        ("dedup by body", queue.deduplicate_by_body.to_string()),
        ("max messages", or_none(queue.max_messages.map(|max| max.to_string()))),
        ("max bytes", or_none(queue.max_bytes.map(|max| max.to_string()))),
        ("max sent a second", or_none(queue.max_publish_per_second.map(|max| max.to_string()))),
        ("max age", or_none(queue.max_age_seconds.map(|max| format!("{max}s")))),
        ("max inflight", queue.max_inflight.to_string()),
        ("max body bytes", queue.max_body_bytes.to_string()),
        ("large bodies", queue.large_bodies.to_string()),
        ("tags", or_none((!tags.is_empty()).then(|| one_line(&tags.join(","))))),
    ];
    rows.iter().map(|(name, value)| format!("{name:<17}  {value}\n")).collect()
}

/// One stream, with all that is known of it but its partitions.
pub(crate) fn stream(stream: &StreamInfo) -> String {
    let or_none = |value: Option<u64>| value.map_or("-".to_owned(), |value| value.to_string());
    let rows = [
        ("name", stream.name.clone()),
        ("id", stream.stream_id.clone()),
        ("created", stream.created_at.clone()),
        ("records", or_none(stream.records)),
        ("bytes", or_none(stream.bytes)),
        ("groups", stream.groups.to_string()),
        ("retention", stream.retention_seconds.map_or("-".to_owned(), |s| format!("{s}s"))),
        ("keep bytes", or_none(stream.retention_bytes)),
    ];
    rows.iter().map(|(name, value)| format!("{name:<10}  {value}\n")).collect()
}

pub(crate) fn topics(topics: &[TopicInfo]) -> String {
    let row = |topic: &TopicInfo| {
        vec![topic.name.clone(), topic.subscriptions.len().to_string(), topic.created_at.clone()]
    };
    table(&["NAME", "SUBSCRIPTIONS", "CREATED"], &[1], &topics.iter().map(row).collect::<Vec<_>>())
}

pub(crate) fn subscriptions(subscriptions: &[Subscription]) -> String {
    let row = |subscription: &Subscription| {
        let filter = subscription.filter.as_ref().map(|filter| one_line(&filter.to_string()));
        vec![subscription.name.clone(), filter.unwrap_or_else(|| "-".to_owned())]
    };
    table(&["QUEUE", "FILTER"], &[], &subscriptions.iter().map(row).collect::<Vec<_>>())
}

pub(crate) const MESSAGE_HEAD: [&str; 5] = ["SEQUENCE", "RECEIVES", "SENT", "ATTRIBUTES", "BODY"];

pub(crate) fn message_row(message: &Message) -> Vec<String> {
    row(message, one_line)
}

fn row(message: &Message, shown: impl Fn(&str) -> String) -> Vec<String> {
    let attributes = message.attributes.iter();
    let attributes: Vec<_> = attributes.map(|(name, value)| format!("{name}={value}")).collect();
    let attributes = if attributes.is_empty() { "-".to_owned() } else { attributes.join(",") };
    vec![
        message.sequence.to_string(),
        message.receive_count.to_string(),
        message.sent_at.clone(),
        shown(&attributes),
        shown(message.raw_body.get()),
    ]
}

pub(crate) fn messages(messages: &[Message]) -> String {
    table(&MESSAGE_HEAD, &[0, 1], &messages.iter().map(message_row).collect::<Vec<_>>())
}

/// With all that is in them.
pub(crate) fn whole_messages(messages: &[Message]) -> String {
    let rows: Vec<_> = messages.iter().map(|message| row(message, escaped)).collect();
    table(&MESSAGE_HEAD, &[0, 1], &rows)
}

/// Shortened and [`escaped`].
pub(crate) fn one_line(text: &str) -> String {
    match text.char_indices().nth(BODY_CHARS_MAX) {
        Some((cut, _)) => escaped(&text[..cut]) + "…",
        None => escaped(text),
    }
}

/// Without control characters: a message must not steer the terminal.
fn escaped(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) }
    }
    line
}

/// 90 s is `1m`: how old, not when.
fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Columns as wide as they need; numbers stand at the right.
pub(crate) fn table(head: &[&str], right: &[usize], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].len()]).max().unwrap_or(0)
    };
    let mut widths: Vec<_> = (0..head.len()).map(width).collect();
    // Nothing is behind the last column that it would have to make room for.
    if let Some(last) = widths.last_mut().filter(|_| !right.contains(&(head.len() - 1))) {
        *last = 0;
    }
    let head: Vec<String> = head.iter().map(|&name| name.to_owned()).collect();
    let mut text = String::new();
    for row in std::iter::once(&head).chain(rows) {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            if right.contains(&column) {
                line.push_str(&format!("{cell:>width$}  "));
            } else {
                line.push_str(&format!("{cell:<width$}  "));
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows =
            [vec!["a".to_owned(), "1000".to_owned()], vec!["long".to_owned(), "1".to_owned()]];
        assert_eq!(table(&["N", "M"], &[1], &rows), "N        M\na     1000\nlong     1\n");
    }

    #[test]
    fn a_body_of_many_lines_is_one_line_of_json() {
        let text = r#"{"messageId":"m","receiveCount":1,"sequence":2,"sentAt":"t","body":BODY}"#;
        let text = text.replace("BODY", "{\n  \"a\": 1.50,\r\n  \"b\": \"x\\ny\"\n}");
        let message: Message = serde_json::from_str(&text).expect("a message");
        let lines = json_lines(&[&message, &message]).expect("JSON");
        assert_eq!(lines.lines().count(), 2, "{lines}");
        for line in lines.lines() {
            assert!(line.contains(r#""body":{  "a": 1.50,  "b": "x\ny"}"#), "{line}");
        }
    }

    #[test]
    fn bodies_are_one_harmless_line() {
        assert_eq!(one_line("a\nb\u{1b}[2J"), "a\\nb\\u{1b}[2J");
        assert_eq!(one_line(&"x".repeat(200)).chars().count(), 101);
        assert_eq!(one_line(&"ü".repeat(100)), "ü".repeat(100));
    }

    #[test]
    fn ages_are_short() {
        let shown: Vec<_> = [0, 59, 90, 7200, 200_000].into_iter().map(age).collect();
        assert_eq!(shown, ["0s", "59s", "1m", "2h", "2d"]);
    }
}
