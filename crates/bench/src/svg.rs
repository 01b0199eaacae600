//! A chart without a library: one bar a line, as far as its target is reached.

use crate::stats::short;
use crate::table::Line;

const WIDTH: f64 = 860.0;
const LABEL: f64 = 170.0;
const BARS: f64 = 420.0;
const ROW: f64 = 30.0;
const TOP: f64 = 56.0;
/// Bars end here; a line that does better is cut, and its figure still shown.
const SCORE_MAX: f64 = 2.5;

const REACHED: &str = "#2f7d5b";
const MISSED: &str = "#c4553b";

/// The chart. A bar that reaches the line at 1 has reached its target, whichever way that points.
pub(crate) fn chart(lines: &[Line]) -> String {
    let height = TOP + ROW * lines.len() as f64 + 24.0;
    let one = LABEL + BARS / SCORE_MAX;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"#333\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"16\" y=\"26\" font-size=\"15\" font-weight=\"600\">Measured against target</text>\n\
         <text x=\"{one}\" y=\"46\" text-anchor=\"middle\" fill=\"#777\">target</text>\n"
    );
    for (number, line) in lines.iter().enumerate() {
        svg += &bar(line, TOP + ROW * number as f64);
    }
    let bottom = TOP + ROW * lines.len() as f64;
    svg += &format!(
        "<line x1=\"{one}\" y1=\"{TOP}\" x2=\"{one}\" y2=\"{bottom}\" stroke=\"#555\" \
         stroke-dasharray=\"3 3\"/>\n</svg>\n"
    );
    svg
}

fn bar(line: &Line, y: f64) -> String {
    let score = line.target.score(line.measured.value).clamp(0.0, SCORE_MAX);
    let width = score * BARS / SCORE_MAX;
    let colour = if line.reached() { REACHED } else { MISSED };
    let (middle, bar_y) = (y + 19.0, y + 6.0);
    let label_x = LABEL - 12.0;
    let text_x = LABEL + BARS + 14.0;
    let figures =
        format!("{}  ({} : {})", line.measured.text(), line.ours.text(), line.against.text());
    format!(
        "<text x=\"{label_x}\" y=\"{middle}\" text-anchor=\"end\">{}</text>\n\
         <rect x=\"{LABEL}\" y=\"{bar_y}\" width=\"{BARS}\" height=\"18\" rx=\"3\" fill=\"#f1f1ee\"/>\n\
         <rect x=\"{LABEL}\" y=\"{bar_y}\" width=\"{width:.1}\" height=\"18\" rx=\"3\" fill=\"{colour}\"/>\n\
         <text x=\"{text_x}\" y=\"{middle}\" fill=\"#555\">{}</text>\n",
        escape(line.name),
        escape(&figures),
    )
}

/// Bars that are compared with each other.
pub(crate) struct Group {
    pub(crate) title: String,
    /// A name and how much, each.
    pub(crate) bars: Vec<(String, f64)>,
}

/// A chart of groups, one below the other; the longest bar of each is as long as the others'.
pub(crate) fn bars(title: &str, groups: &[Group]) -> String {
    let row = ROW * 0.7;
    let count = groups.iter().map(|group| group.bars.len()).sum::<usize>();
    let height = TOP + row * count as f64 + ROW * 1.5 * groups.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"#333\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"16\" y=\"26\" font-size=\"15\" font-weight=\"600\">{}</text>\n",
        escape(title)
    );
    let mut y = TOP;
    for Group { title, bars } in groups {
        svg += &format!(
            "<text x=\"{LABEL}\" y=\"{y}\" font-weight=\"600\">{}</text>\n",
            escape(title)
        );
        let most = bars.iter().map(|(_, value)| *value).fold(1e-9, f64::max);
        for (number, (name, value)) in bars.iter().enumerate() {
            let top = y + 8.0 + row * number as f64;
            let (middle, width) = (top + 12.0, value / most * BARS);
            let (label_x, text_x) = (LABEL - 12.0, LABEL + width + 8.0);
            svg += &format!(
                "<text x=\"{label_x}\" y=\"{middle}\" text-anchor=\"end\">{}</text>\n\
                 <rect x=\"{LABEL}\" y=\"{top}\" width=\"{width:.1}\" height=\"15\" rx=\"3\" \
                 fill=\"{REACHED}\"/>\n\
                 <text x=\"{text_x:.1}\" y=\"{middle}\" fill=\"#555\">{}</text>\n",
                escape(name),
                short(*value)
            );
        }
        y += row * bars.len() as f64 + ROW * 1.5;
    }
    svg + "</svg>\n"
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::{Group, bars, chart};
    use crate::table::{Figure, Line, Target};

    #[test]
    fn a_line_becomes_a_bar_with_its_figures() {
        let figure = |value| Figure::new(value, " a<b");
        let line = Line::ratio("x", Target::AtLeast(0.5), 0.7, figure(7.0), figure(10.0), "");
        let svg = chart(&[line]);
        assert!(svg.contains("0.70×") && svg.contains("7.00 a&lt;b"), "{svg}");
        assert!(svg.contains("#2f7d5b") && svg.trim_end().ends_with("</svg>"), "{svg}");
    }

    #[test]
    fn the_longest_bar_of_a_group_is_full() {
        let bar = |name: &str, value| (name.to_owned(), value);
        let group = Group { title: "a".to_owned(), bars: vec![bar("x", 1.0), bar("y", 2.0)] };
        let svg = bars("t", &[group]);
        assert!(svg.contains("width=\"210.0\"") && svg.contains("width=\"420.0\""), "{svg}");
    }
}
