//! Tables for people, lines for programs.

use client::{Message, QueueInfo};
use serde::Serialize;

/// Characters of a body in a table.
const BODY_CHARS_MAX: usize = 100;

/// Each thing as JSON, on a line of its own.
pub(crate) fn json_lines<T: Serialize>(things: &[T]) -> anyhow::Result<String> {
    let mut lines = String::new();
    for thing in things {
        lines.push_str(&serde_json::to_string(thing)?);
        lines.push('\n');
    }
    Ok(lines)
}

pub(crate) fn queues(queues: &[QueueInfo]) -> String {
    let head = ["NAME", "MODE", "VISIBLE", "DELAYED", "INFLIGHT", "DEAD", "OLDEST"];
    let row = |queue: &QueueInfo| {
        let mode = match queue.mode {
            client::Mode::Standard => "standard",
            client::Mode::Fifo => "fifo",
        };
        let oldest = queue.oldest_visible_age_seconds.map_or("-".to_owned(), age);
        vec![
            queue.name.clone(),
            mode.to_owned(),
            queue.visible.to_string(),
            queue.delayed.to_string(),
            queue.inflight.to_string(),
            queue.dead.to_string(),
            oldest,
        ]
    };
    table(&head, &[2, 3, 4, 5, 6], &queues.iter().map(row).collect::<Vec<_>>())
}

pub(crate) const MESSAGE_HEAD: [&str; 5] = ["SEQUENCE", "RECEIVES", "SENT", "ATTRIBUTES", "BODY"];

pub(crate) fn message_row(message: &Message) -> Vec<String> {
    let attributes = message.attributes.iter();
    let attributes: Vec<_> = attributes.map(|(name, value)| format!("{name}={value}")).collect();
    let attributes = if attributes.is_empty() { "-".to_owned() } else { attributes.join(",") };
    vec![
        message.sequence.to_string(),
        message.receive_count.to_string(),
        message.sent_at.clone(),
        one_line(&attributes),
        one_line(message.raw_body.get()),
    ]
}

pub(crate) fn messages(messages: &[Message]) -> String {
    table(&MESSAGE_HEAD, &[0, 1], &messages.iter().map(message_row).collect::<Vec<_>>())
}

/// Shortened, and without control characters: a message must not steer the terminal.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::new();
    for (count, c) in text.chars().enumerate() {
        if count == BODY_CHARS_MAX {
            line.push('…');
            break;
        }
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
    let widths: Vec<_> = (0..head.len()).map(width).collect();
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
    fn bodies_are_one_harmless_line() {
        assert_eq!(one_line("a\nb\u{1b}[2J"), "a\\nb\\u{1b}[2J");
        assert_eq!(one_line(&"x".repeat(200)).chars().count(), 101);
    }

    #[test]
    fn ages_are_short() {
        let shown: Vec<_> = [0, 59, 90, 7200, 200_000].into_iter().map(age).collect();
        assert_eq!(shown, ["0s", "59s", "1m", "2h", "2d"]);
    }
}
