//! Metrics that are looked at when somebody asks, as text that Prometheus reads.

use std::fmt::{Display, Write};

/// What a metric is.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// It goes up and down.
    Gauge,
    /// It only grows.
    Counter,
}

/// The text. A metric is named once, and its samples follow.
#[derive(Default)]
pub(crate) struct Page {
    text: String,
    name: &'static str,
}

impl Page {
    /// Begins a metric.
    pub(crate) fn metric(&mut self, name: &'static str, kind: Kind, help: &str) -> &mut Page {
        let kind = match kind {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
        };
        self.name = name;
        self.put(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
        self
    }

    /// A sample of the metric that was begun last.
    pub(crate) fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(self.name);
        for (number, (label, text)) in labels.iter().enumerate() {
            let before = if number == 0 { '{' } else { ',' };
            self.put(format_args!("{before}{label}=\"{}\"", Escaped(text)));
        }
        let after = if labels.is_empty() { "" } else { "}" };
        self.put(format_args!("{after} {value}\n"));
    }

    fn put(&mut self, text: std::fmt::Arguments<'_>) {
        self.text.write_fmt(text).expect("strings take everything");
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }
}

/// The value of a label between its quotes.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for char in self.0.chars() {
            match char {
                '\\' => f.write_str("\\\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                char => f.write_char(char)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_has_its_meaning_its_kind_and_its_samples() {
        let mut page = Page::default();
        page.metric("a", Kind::Gauge, "What it is").sample(&[], 1.5);
        page.metric("b_total", Kind::Counter, "Another");
        page.sample(&[("x", "1"), ("y", "\"\\\n")], 2);
        let expected = "# HELP a What it is\n# TYPE a gauge\na 1.5\n\
            # HELP b_total Another\n# TYPE b_total counter\n\
            b_total{x=\"1\",y=\"\\\"\\\\\\n\"} 2\n";
        assert_eq!(page.into_text(), expected);
    }
}
