//! What comes out: a table for people, JSON for programs, a chart.

use anyhow::{Context, Result};
use serde::Serialize;

use crate::proc::Setup;
use crate::stats::short;
use crate::svg;

/// What is to be reached.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Target {
    /// More is better.
    AtLeast(f64),
    /// Less is better.
    AtMost(f64),
}

impl Target {
    pub(crate) fn reached_by(self, value: f64) -> bool {
        match self {
            Target::AtLeast(target) => value >= target,
            Target::AtMost(target) => value <= target,
        }
    }

    /// How far the target is reached: 1 and more is reached, whichever way it points.
    pub(crate) fn score(self, value: f64) -> f64 {
        match self {
            Target::AtLeast(target) => value / target,
            Target::AtMost(target) => target / value.max(1e-9),
        }
    }

    fn text(self, unit: &str) -> String {
        match self {
            Target::AtLeast(target) => format!("≥ {}{unit}", short(target)),
            Target::AtMost(target) => format!("≤ {}{unit}", short(target)),
        }
    }
}

/// A number and what it counts.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    /// How much.
    pub(crate) value: f64,
    /// Of what; begins with a space if it is a word.
    pub(crate) unit: &'static str,
}

impl Figure {
    pub(crate) fn new(value: f64, unit: &'static str) -> Figure {
        Figure { value, unit }
    }

    pub(crate) fn text(&self) -> String {
        format!("{}{}", short(self.value), self.unit)
    }
}

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Line {
    /// Short, the same in every run.
    pub(crate) name: &'static str,
    /// In the unit of `measured`.
    pub(crate) target: Target,
    /// What the target is about.
    pub(crate) measured: Figure,
    /// Ours by the floor's, or by the peer's.
    pub(crate) ratio: f64,
    /// Ours.
    pub(crate) ours: Figure,
    /// The floor's or the peer's.
    pub(crate) against: Figure,
    /// What is compared with what.
    pub(crate) what: String,
    /// What else was seen.
    pub(crate) notes: Vec<String>,
}

impl Line {
    /// A line whose target is about the ratio itself.
    pub(crate) fn ratio(
        name: &'static str,
        target: Target,
        ratio: f64,
        ours: Figure,
        against: Figure,
        what: &str,
    ) -> Line {
        let measured = Figure::new(ratio, "×");
        let what = what.to_owned();
        Line { name, target, measured, ratio, ours, against, what, notes: Vec::new() }
    }

    /// A line whose target is a figure of its own.
    pub(crate) fn figure(
        name: &'static str,
        target: Target,
        measured: Figure,
        against: Figure,
        what: &str,
    ) -> Line {
        let ratio = measured.value / against.value.max(1e-9);
        let (ours, what) = (measured.clone(), what.to_owned());
        Line { name, target, measured, ratio, ours, against, what, notes: Vec::new() }
    }

    pub(crate) fn note(mut self, note: impl Into<String>) -> Line {
        self.notes.push(note.into());
        self
    }

    pub(crate) fn reached(&self) -> bool {
        self.target.reached_by(self.measured.value)
    }
}

fn cells(line: &Line) -> Vec<String> {
    vec![
        line.name.to_owned(),
        line.target.text(line.measured.unit),
        line.measured.text(),
        if line.reached() { "yes" } else { "NO" }.to_owned(),
        format!("{:.3}", line.ratio),
        line.ours.text(),
        line.against.text(),
    ]
}

/// Cells in columns, the first one to the left. All rows are as long as the first.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    let mut text = String::new();
    for row in rows {
        for (column, cell) in row.iter().enumerate() {
            let width = rows.iter().map(|r| r[column].chars().count()).max().unwrap_or(0);
            let pad = " ".repeat(width - cell.chars().count() + 2);
            if column == 0 { text += &(cell.clone() + &pad) } else { text += &(pad + cell) }
        }
        text.push('\n');
    }
    text
}

/// The table as text.
pub(crate) fn render(lines: &[Line]) -> String {
    let head = ["name", "target", "measured", "reached", "ratio", "ours", "against"];
    let head = std::iter::once(head.map(str::to_owned).to_vec());
    let mut text = columns(&head.chain(lines.iter().map(cells)).collect::<Vec<_>>());
    for line in lines {
        text += &format!("\n{}: {}\n", line.name, line.what);
        for note in &line.notes {
            text += &format!("  {note}\n");
        }
    }
    text
}

#[derive(Serialize)]
struct Results<'a> {
    smoke: bool,
    cores: usize,
    /// The machine's load average before the run.
    load_before: f64,
    lines: &'a [Line],
}

/// Above this, something else was running, and the figures are worth little.
const LOAD_MAX: f64 = 0.5;

/// Prints the table and writes `NAME.json` and `NAME.svg`.
pub(crate) fn conclude(setup: &Setup, name: &str, lines: &[Line], load_before: f64) -> Result<()> {
    println!("{}", render(lines));
    let results = Results { smoke: setup.smoke, cores: cores(), load_before, lines };
    let json = serde_json::to_vec_pretty(&results).context("results as JSON")?;
    save(setup, name, json, svg::chart(lines), load_before)
}

pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Says what the figures are worth, and writes them to `NAME.json` and `NAME.svg`.
pub(crate) fn save(
    setup: &Setup,
    name: &str,
    json: Vec<u8>,
    chart: String,
    load_before: f64,
) -> Result<()> {
    if load_before > LOAD_MAX {
        println!("The load average was {load_before} before this began: measure again in peace.");
    }
    if setup.smoke {
        println!("A smoke run: the figures show that everything runs, and nothing else.");
    }
    for (extension, bytes) in [("json", json), ("svg", chart.into_bytes())] {
        let path = setup.out.join(name).with_extension(extension);
        std::fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
        println!("wrote {}", path.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Figure, Line, Target, render};

    fn line(target: Target, value: f64) -> Line {
        let figure = Figure::new(value, " s");
        Line::figure("open", target, figure, Figure::new(2.0, " s"), "opening")
    }

    #[test]
    fn a_target_points_either_way() {
        assert!(line(Target::AtMost(5.0), 4.0).reached());
        assert!(!line(Target::AtMost(5.0), 6.0).reached());
        assert!(line(Target::AtLeast(5.0), 6.0).reached());
        assert!(Target::AtMost(5.0).score(4.0) > 1.0);
        assert!(Target::AtLeast(5.0).score(4.0) < 1.0);
    }

    #[test]
    fn the_table_shows_both_figures_and_whether_it_is_reached() {
        let text = render(&[line(Target::AtMost(5.0), 6.0)]);
        assert!(text.contains("≤ 5.00 s"), "{text}");
        assert!(text.contains("NO"), "{text}");
        assert!(text.contains("3.000"), "{text}");
    }
}
