//! Figures, each beside its limit or peer, as a table and as JSON.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::Error;

/// What several runs measured.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(pub(crate) Vec<f64>);

impl Samples {
    /// The middle one; of an even number, the mean of the two.
    pub(crate) fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        match sorted.len() {
            0 => f64::NAN,
            n if n % 2 == 1 => sorted[n / 2],
            n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
        }
    }

    /// The distance from the least to the greatest, as a part of the median; `None` where there was
    /// one run, or none, or nothing to be a part of.
    pub(crate) fn spread(&self) -> Option<f64> {
        let least = self.0.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let spread = (most - least) / self.median();
        (self.0.len() > 1 && spread.is_finite()).then_some(spread)
    }
}

/// What a figure has to reach.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// The ratio to what stands beside it, at least.
    RatioAtLeast(f64),
    /// The ratio to what stands beside it, at most.
    RatioAtMost(f64),
    /// The value itself, at most.
    ValueAtMost(f64),
}

/// One row of the table.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    /// What was done.
    pub(crate) name: String,
    /// Of the value, and of what stands beside it.
    pub(crate) unit: &'static str,
    /// What was measured.
    pub(crate) value: Samples,
    /// The limit or peer, by name, measured in the same run.
    pub(crate) beside: Option<(String, Samples)>,
    /// None where the figure is only stated.
    pub(crate) target: Option<Target>,
}

impl Figure {
    /// The value as a part of what stands beside it.
    pub(crate) fn ratio(&self) -> Option<f64> {
        let (_, beside) = self.beside.as_ref()?;
        Some(self.value.median() / beside.median())
    }

    fn reached(&self) -> Option<bool> {
        let of_ratio = |holds: &dyn Fn(f64) -> bool| self.ratio().map(holds);
        match self.target? {
            Target::RatioAtLeast(least) => of_ratio(&|ratio| ratio >= least),
            Target::RatioAtMost(most) => of_ratio(&|ratio| ratio <= most),
            Target::ValueAtMost(most) => Some(self.value.median() <= most),
        }
    }

    fn target(&self) -> Option<String> {
        self.target.map(|target| match target {
            Target::RatioAtLeast(least) => format!("ratio ≥ {least}"),
            Target::RatioAtMost(most) => format!("ratio ≤ {most}"),
            Target::ValueAtMost(most) => format!("≤ {}", shown(most)),
        })
    }

    fn cells(&self) -> [String; 7] {
        let beside = self.beside.as_ref();
        [
            self.name.clone(),
            format!("{} {}", shown(self.value.median()), self.unit)
                .trim_end()
                .to_owned(),
            beside.map_or_else(String::new, |(name, value)| {
                format!("{name}: {}", shown(value.median()))
            }),
            self.ratio()
                .map_or_else(String::new, |ratio| format!("{ratio:.2}")),
            self.target().unwrap_or_default(),
            match self.reached() {
                Some(true) => "yes".to_owned(),
                Some(false) => "NO".to_owned(),
                None => String::new(),
            },
            self.value
                .spread()
                .map_or_else(String::new, |spread| format!("{:.0} %", spread * 100.0)),
        ]
    }

    /// The row by itself.
    pub(crate) fn line(&self) -> String {
        format!("  {}", self.cells().join(" | "))
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "value": self.value.median(),
            "unit": self.unit,
            "beside": self.beside.as_ref().map(|(name, _)| name),
            "beside_value": self.beside.as_ref().map(|(_, value)| value.median()),
            "ratio": self.ratio(),
            "target": self.target(),
            "reached": self.reached(),
            "spread": self.value.spread(),
        })
    }
}

/// Three significant digits, and thousands apart.
pub(crate) fn shown(value: f64) -> String {
    if value.abs() < 100.0 && value.fract() == 0.0 {
        return format!("{value:.0}");
    }
    if value.abs() < 1.0 {
        return format!("{value:.3}");
    }
    if value.abs() < 100.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut shown = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            shown.push(' ');
        }
        shown.push(digit);
    }
    shown
}

/// All figures.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) figures: Vec<Figure>,
}

impl Report {
    /// As Markdown, which reads well on a terminal too.
    pub(crate) fn table(&self) -> String {
        let head = [
            "what", "measured", "beside", "ratio", "to reach", "reached", "spread",
        ];
        let mut rows = vec![head.map(str::to_owned)];
        rows.extend(self.figures.iter().map(Figure::cells));
        let widths: Vec<usize> = (0..head.len())
            .map(|column| {
                let cells = rows.iter().map(|row| row[column].chars().count());
                cells.max().unwrap_or(0)
            })
            .collect();
        let line = |cells: &[String; 7]| {
            let cells = cells.iter().zip(&widths);
            let cells: Vec<String> = cells.map(|(c, w)| format!("{c:<w$}")).collect();
            format!("| {} |", cells.join(" | "))
        };
        let rule: Vec<String> = widths.iter().map(|w| "-".repeat(w + 2)).collect();
        let mut lines = vec![
            String::new(),
            line(&rows[0]),
            format!("|{}|", rule.join("|")),
        ];
        lines.extend(rows[1..].iter().map(line));
        lines.join("\n")
    }

    /// As a list of JSON objects.
    pub(crate) fn write(&self, path: PathBuf) -> Result<(), Error> {
        let figures: Vec<Value> = self.figures.iter().map(Figure::json).collect();
        std::fs::write(path, serde_json::to_string_pretty(&figures)? + "\n")?;
        Ok(())
    }
}

/// Says something to whoever runs the bench.
#[allow(clippy::print_stdout, reason = "it is what a bench is for")]
pub(crate) fn say(line: &str) {
    println!("{line}");
}
