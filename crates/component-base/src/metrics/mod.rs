//! The text that Prometheus reads. A component counts by itself, in whatever suits it, and writes a `Page` when it is asked:
//! there is no global registry, and what a component shows is the list of lines that its writer makes.

mod histogram;
pub mod process;
mod slis;

use std::fmt::{Display, Write};

pub use histogram::{Bounds, DEFAULT_SECONDS, Histogram, exponential};
pub use slis::Slis;

/// A family: its name, what it says, and its type. Names and words are upstream's.
#[derive(Clone, Copy, Debug)]
pub struct Metric<'a> {
    pub name: &'a str,
    pub help: &'a str,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl<'a> Metric<'a> {
    pub const fn counter(name: &'a str, help: &'a str) -> Metric<'a> {
        Metric { name, help, kind: Kind::Counter }
    }

    pub const fn gauge(name: &'a str, help: &'a str) -> Metric<'a> {
        Metric { name, help, kind: Kind::Gauge }
    }

    pub const fn histogram(name: &'a str, help: &'a str) -> Metric<'a> {
        Metric { name, help, kind: Kind::Histogram }
    }
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// Names and values, in the order in which they are written. Values may hold anything; they are escaped.
pub type Labels<'a> = [(&'a str, &'a str)];

/// Families, one after the other.
#[derive(Debug, Default)]
pub struct Page {
    text: String,
    /// The family whose head was written last.
    open: String,
}

impl Page {
    /// Starts a family, or goes on with the one that was written last.
    pub fn family<'p>(&'p mut self, metric: &Metric<'p>) -> Family<'p> {
        let Metric { name, help, kind } = *metric;
        if self.open != name {
            name.clone_into(&mut self.open);
            // Writing into a String cannot fail, here and below.
            let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {}", kind.name());
        }
        Family { text: &mut self.text, name }
    }

    /// A family of one value without labels.
    pub fn value(&mut self, metric: &Metric<'_>, value: impl Display) {
        self.family(metric).value(value);
    }

    pub fn text(self) -> String {
        self.text
    }
}

/// A family whose samples are being written.
pub struct Family<'p> {
    text: &'p mut String,
    name: &'p str,
}

impl Family<'_> {
    pub fn value(&mut self, value: impl Display) {
        self.line("", "", &value);
    }

    pub fn sample(&mut self, labels: &Labels<'_>, value: impl Display) {
        self.line("", &written(labels), &value);
    }

    /// A value that was measured earlier, at that time in milliseconds since 1970.
    pub fn sample_at(&mut self, labels: &Labels<'_>, value: impl Display, time_ms: i64) {
        self.line("", &written(labels), &format_args!("{value} {time_ms}"));
    }

    pub fn histogram(&mut self, labels: &Labels<'_>, histogram: &Histogram) {
        let (labels, seen) = (written(labels), histogram.seen());
        let comma = if labels.is_empty() { "" } else { "," };
        let mut below = 0;
        for (bound, count) in histogram.bounds().iter().zip(&seen.counts) {
            below += count;
            self.line("_bucket", &format!("{labels}{comma}le=\"{bound}\""), &below);
        }
        self.line("_bucket", &format!("{labels}{comma}le=\"+Inf\""), &seen.count);
        self.line("_sum", &labels, &seen.sum);
        self.line("_count", &labels, &seen.count);
    }

    fn line(&mut self, suffix: &str, labels: &str, value: &dyn Display) {
        let Family { text, name } = self;
        let _ = match labels {
            "" => writeln!(text, "{name}{suffix} {value}"),
            _ => writeln!(text, "{name}{suffix}{{{labels}}} {value}"),
        };
    }
}

fn written(labels: &Labels<'_>) -> String {
    let mut text = String::new();
    for (name, value) in labels {
        let comma = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{comma}{name}=\"");
        for sign in value.chars() {
            match sign {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                sign => text.push(sign),
            }
        }
        text.push('"');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_written_as_prometheus_reads_them() {
        const REQUESTS: Metric = Metric::counter("requests_total", "[STABLE] Requests by path.");
        const TOOK: Metric = Metric::histogram("took_seconds", "How long they took.");
        let took = Histogram::new(&[0.5, 1.0]);
        [0.25, 0.5, 0.75, 2.0].into_iter().for_each(|seconds| took.observe(seconds));
        let mut page = Page::default();
        page.value(&Metric::gauge("up", "Whether it is."), 1);
        page.family(&REQUESTS).sample(&[("path", "C:\\ \"x\"\n"), ("to", "[fd00::1]:53")], 2);
        page.family(&REQUESTS).sample_at(&[("path", "/")], 3, 1_800_000_000_000);
        page.family(&TOOK).histogram(&[], &took);
        page.family(&TOOK).histogram(&[("verb", "GET")], &Histogram::new(&[1.0]));
        assert_eq!(page.text(), include_str!("testdata/page.txt"));
    }
}
