//! The table that is printed: what was measured, beside what it is compared with, and the ratio of the two. All of it is printed
//! once more at the end, with what we aim at, what grows too fast with its size, and what broke.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::aims;

/// What was measured so far. The parts of a run measure one after the other and print as they go.
static ROWS: Mutex<Vec<Row>> = Mutex::new(Vec::new());
/// What grows too fast, and what broke.
static DEFECTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A cost that grows faster than its size to this power is a defect.
pub const EXPONENT_MAX: f64 = 1.1;

struct Row {
    what: String,
    ours: f64,
    unit: String,
    /// What it is compared with, and how many times better we are.
    theirs: Option<(f64, f64)>,
}

/// Whether more or less of something is better; the ratio is printed so that more is better for us.
#[derive(Clone, Copy)]
pub enum Better {
    More,
    Less,
}

pub fn machine() {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!("{cores} cores shared by the servers and the load; load average before: {}", load_average());
}

pub fn head(title: &str, other: &str) {
    println!("\n{title}\n{:<62} {:>16} {:>16} {:>9}", "", "knarr", other, "ratio");
}

/// One line with something to compare with.
pub fn compare(what: &str, ours: f64, theirs: f64, unit: &str, better: Better) {
    let ratio = match better {
        Better::More => ours / theirs,
        Better::Less => theirs / ours,
    };
    println!("{what:<62} {:>16} {:>16} {:>8.1}x", amount(ours, unit), amount(theirs, unit), ratio);
    note(what, ours, unit, Some((theirs, ratio)));
}

/// One line that stands for itself.
pub fn line(what: &str, ours: f64, unit: &str) {
    println!("{what:<62} {:>16}", amount(ours, unit));
    note(what, ours, unit, None);
}

fn note(what: &str, ours: f64, unit: &str, theirs: Option<(f64, f64)>) {
    let row = Row { what: what.trim().to_owned(), ours, unit: unit.to_owned(), theirs };
    ROWS.lock().unwrap_or_else(PoisonError::into_inner).push(row);
}

/// What a size costs at several sizes, per one of it, and the largest exponent between two neighbours: 1 is in proportion to the
/// size, 2 with its square. The points are sizes with their costs, smallest first.
pub fn curve(what: &str, of: &str, unit: &str, points: &[(f64, f64)]) {
    for (size, cost) in points {
        println!("{:<62} {:>16}", format!("    {what}, {size:.0} {of}: each"), small(cost / size, unit));
    }
    tell_exponent(what, of, points);
}

/// What one operation costs beside so many others, and the exponent: 0 where they do not matter to it.
pub fn growth(what: &str, of: &str, unit: &str, points: &[(f64, f64)]) {
    for (size, cost) in points {
        println!("{:<62} {:>16}", format!("    {what}, {size:.0} {of}"), small(*cost, unit));
    }
    tell_exponent(what, of, points);
}

fn tell_exponent(what: &str, of: &str, points: &[(f64, f64)]) {
    let Some(exponent) = exponent(points) else { return };
    line(&format!("{what}: exponent"), exponent, "");
    if exponent > EXPONENT_MAX {
        defect(format!("{what}: grows with the number of {of} to the power of {exponent:.2}, above {EXPONENT_MAX}"));
    }
}

/// The largest exponent between neighbours; none with fewer than two sizes.
fn exponent(points: &[(f64, f64)]) -> Option<f64> {
    let between = |pair: &[(f64, f64)]| (pair[1].1 / pair[0].1).ln() / (pair[1].0 / pair[0].0).ln();
    points.windows(2).filter(|pair| pair[1].0 > pair[0].0).map(between).reduce(f64::max)
}

/// Something did not work at this size; told now and once more at the end.
pub fn broke(what: &str, why: &str) {
    println!("{what} broke: {why}");
    defect(format!("{what} broke: {why}"));
}

fn defect(text: String) {
    DEFECTS.lock().unwrap_or_else(PoisonError::into_inner).push(text);
}

/// Everything that was measured and has something to be held against: what others do, or what we aim at.
pub fn summary() {
    let rows = ROWS.lock().unwrap_or_else(PoisonError::into_inner);
    println!("\n{:<62} {:>16} {:>16} {:>9} {:>20}", "measure", "knarr", "compared with", "ratio", "aim");
    for Row { what, ours, unit, theirs } in rows.iter() {
        let aim = aims::of(what);
        if theirs.is_none() && aim.is_none() {
            continue;
        }
        let theirs_shown = theirs.map_or(String::new(), |(theirs, _)| amount(theirs, unit));
        let ratio = theirs.map_or(String::new(), |(_, ratio)| format!("{ratio:.1}x"));
        let aim = aim.map_or(String::new(), |aim| {
            let met = if aim.is_met(*ours) { " met" } else { " missed" };
            format!("{}{met}", amount(aim.value, unit))
        });
        println!("{what:<62} {:>16} {theirs_shown:>16} {ratio:>9} {aim:>20}", amount(*ours, unit));
    }
    let defects = DEFECTS.lock().unwrap_or_else(PoisonError::into_inner);
    if !defects.is_empty() {
        println!("\ndefects:");
        defects.iter().for_each(|text| println!("  {text}"));
    }
}

/// A cost of one, which may be much smaller than its unit.
fn small(value: f64, unit: &str) -> String {
    match unit {
        "s" if value < 1.0 => amount(value * 1000.0, "ms"),
        "MiB" if value < 1.0 => amount(value * 1024.0, "KiB"),
        _ => amount(value, unit),
    }
}

fn amount(value: f64, unit: &str) -> String {
    match value {
        value if value >= 1000.0 => format!("{value:.0} {unit}"),
        value if value >= 10.0 => format!("{value:.1} {unit}"),
        value => format!("{value:.2} {unit}"),
    }
}

pub fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().unwrap_or("unknown").to_string()
}

/// Latencies of one run, sorted.
pub struct Latencies(Vec<Duration>);

impl Latencies {
    pub fn new(mut all: Vec<Duration>) -> Latencies {
        all.sort_unstable();
        Latencies(all)
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The latency in milliseconds that this part of all did not exceed.
    pub fn ms(&self, part: f64) -> f64 {
        let index = (self.0.len().saturating_sub(1) as f64 * part) as usize;
        self.0.get(index).map_or(f64::NAN, |latency| latency.as_secs_f64() * 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponent_is_that_of_the_steepest_step() {
        let flat = [(10.0, 1.0), (100.0, 10.0), (1000.0, 100.0)];
        assert!((exponent(&flat).unwrap() - 1.0).abs() < 1e-9);
        let bent = [(10.0, 1.0), (100.0, 10.0), (1000.0, 1000.0)];
        assert!((exponent(&bent).unwrap() - 2.0).abs() < 1e-9);
        // Neither one size nor the same size twice says how fast anything grows.
        assert_eq!(exponent(&flat[..1]), None);
        assert_eq!(exponent(&[flat[0], flat[0]]), None);
    }

    #[test]
    fn costs_of_one_are_told_in_a_unit_that_fits() {
        assert_eq!(small(0.0025, "s"), "2.50 ms");
        assert_eq!(small(2.5, "s"), "2.50 s");
        assert_eq!(small(0.015, "MiB"), "15.4 KiB");
    }
}
