//! Computes usage rates from counters of kubelets. Pure: two measurements in, a rate out.

use std::collections::BTreeMap;

/// A container that is younger than this was measured from its start on, as upstream.
const FRESH_MILLIS: i64 = 15_000;
/// Rates over less are noise.
const WINDOW_MILLIS_MIN: i64 = 500;

/// Whose usage it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whose {
    Node,
    Container { namespace: String, pod: String, container: String },
}

/// One measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// Milliseconds since 1970.
    pub at: i64,
    pub started: Option<i64>,
    /// Processor time since the start.
    pub cpu_nanos: u64,
    pub memory_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    pub at: i64,
    pub window_millis: i64,
    /// Of a core, per second.
    pub cpu_nanos: u64,
    pub memory_bytes: u64,
}

/// The last two measurements of everything on one node.
#[derive(Clone, Debug, Default)]
pub struct Window {
    series: BTreeMap<Whose, Series>,
}

#[derive(Clone, Copy, Debug)]
struct Series {
    before: Option<Point>,
    last: Point,
}

impl Window {
    /// Takes in what one visit found; what it did not find has gone.
    pub fn push(&mut self, points: BTreeMap<Whose, Point>) {
        let mut old = std::mem::take(&mut self.series);
        for (whose, point) in points {
            let series = match old.remove(&whose) {
                None => Series { before: None, last: point },
                // The kubelet has not measured anew.
                Some(known) if point.at <= known.last.at => known,
                Some(known) => Series { before: Some(known.last), last: point },
            };
            self.series.insert(whose, series);
        }
    }

    pub fn node(&self) -> Option<Usage> {
        self.series.get(&Whose::Node).and_then(Series::usage)
    }

    /// Each container's usage by name; none where one of them is not known yet: half a pod would be scaled as if it were idle.
    pub fn pod(&self, namespace: &str, pod: &str) -> Option<BTreeMap<&str, Usage>> {
        let from = Whose::Container { namespace: namespace.into(), pod: pod.into(), container: String::new() };
        let mut found = BTreeMap::new();
        for (whose, series) in self.series.range(from..) {
            match whose {
                Whose::Container { namespace: other, pod: of, container } if other == namespace && of == pod => {
                    found.insert(container.as_str(), series.usage()?);
                }
                _ => break,
            }
        }
        (!found.is_empty()).then_some(found)
    }
}

impl Series {
    fn usage(&self) -> Option<Usage> {
        let last = self.last;
        // A counter that fell, or a later start, is another run of the container: what was before says nothing about it.
        let same = |before: &Point| before.cpu_nanos <= last.cpu_nanos && before.started == last.started;
        let from = match self.before.filter(same) {
            Some(before) => before,
            None => {
                let started = last.started.filter(|started| last.at - started < FRESH_MILLIS)?;
                Point { at: started, started: last.started, cpu_nanos: 0, memory_bytes: 0 }
            }
        };
        let window_millis = last.at - from.at;
        if window_millis < WINDOW_MILLIS_MIN {
            return None;
        }
        let used = u128::from(last.cpu_nanos - from.cpu_nanos) * 1000 / window_millis.unsigned_abs() as u128;
        let cpu_nanos = u64::try_from(used).unwrap_or(u64::MAX);
        Some(Usage { at: last.at, window_millis, cpu_nanos, memory_bytes: last.memory_bytes })
    }
}

/// Reads what a kubelet tells at `/metrics/resource`. Lines that are not understood are passed over.
pub fn read(text: &str) -> BTreeMap<Whose, Point> {
    let mut points: BTreeMap<Whose, Point> = BTreeMap::new();
    // Something has both or is not shown: the kubelet leaves out what it could not measure.
    let mut seen: BTreeMap<Whose, (bool, bool)> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, labels, value, at)) = sample(line) else { continue };
        let label = |wanted: &str| labels.iter().find(|(key, _)| key == wanted).map(|(_, value)| value.clone());
        let whose = if name.starts_with("node_") {
            Whose::Node
        } else {
            let names = (label("namespace"), label("pod"), label("container"));
            let (Some(namespace), Some(pod), Some(container)) = names else { continue };
            Whose::Container { namespace, pod, container }
        };
        let (point, seen) = (points.entry(whose.clone()).or_default(), seen.entry(whose).or_default());
        match name {
            "node_cpu_usage_seconds_total" | "container_cpu_usage_seconds_total" => {
                (point.cpu_nanos, point.at, seen.0) = ((value * 1e9) as u64, at.unwrap_or(0), true);
            }
            "node_memory_working_set_bytes" | "container_memory_working_set_bytes" => {
                (point.memory_bytes, seen.1) = (value as u64, true);
            }
            "container_start_time_seconds" => point.started = Some((value * 1000.0) as i64),
            _ => {}
        }
    }
    points.retain(|whose, point| point.at > 0 && seen.get(whose) == Some(&(true, true)));
    points
}

type Sample<'a> = (&'a str, Vec<(String, String)>, f64, Option<i64>);

/// `name{key="value",...} number time`.
fn sample(line: &str) -> Option<Sample<'_>> {
    let (name, rest) = line.split_at(line.find(['{', ' '])?);
    let (labels, rest) = match rest.strip_prefix('{') {
        None => (Vec::new(), rest),
        Some(rest) => labels(rest)?,
    };
    let mut words = rest.split_ascii_whitespace();
    let value: f64 = words.next()?.parse().ok()?;
    let at = words.next().and_then(|word| word.parse().ok());
    (value.is_finite() && value >= 0.0).then_some((name, labels, value, at))
}

fn labels(mut rest: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(behind) = rest.strip_prefix('}') {
            return Some((labels, behind));
        }
        let (key, behind) = rest.split_once("=\"")?;
        let (mut value, mut signs) = (String::new(), behind.char_indices());
        let end = loop {
            match signs.next()? {
                (end, '"') => break end,
                (_, '\\') => match signs.next()?.1 {
                    'n' => value.push('\n'),
                    sign => value.push(sign),
                },
                (_, sign) => value.push(sign),
            }
        };
        labels.push((key.to_string(), value));
        rest = &behind[end + 1..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(at: i64, started: i64, cpu_millis: u64) -> Point {
        Point { at, started: Some(started), cpu_nanos: cpu_millis * 1_000_000, memory_bytes: 7 }
    }

    fn container(name: &str) -> Whose {
        Whose::Container { namespace: "a".into(), pod: "p".into(), container: name.into() }
    }

    #[test]
    fn rates() {
        // Measurements, then (window, thousandths of a core).
        let check = |points: &[Point], expected: Option<(i64, u64)>| {
            let mut window = Window::default();
            points.iter().for_each(|point| window.push(BTreeMap::from([(container("c"), *point)])));
            let found = window.pod("a", "p").map(|it| (it["c"].window_millis, it["c"].cpu_nanos / 1_000_000));
            assert_eq!(found, expected, "{points:?}");
        };
        let old = -100_000;
        check(&[point(0, old, 50)], None);
        check(&[point(0, old, 50), point(10_000, old, 5_050)], Some((10_000, 500)));
        check(&[point(0, old, 0), point(10_000, old, 10_000), point(20_000, old, 12_000)], Some((10_000, 200)));
        // The kubelet answers from what it measured before.
        check(&[point(0, old, 0), point(10_000, old, 1_000), point(10_000, old, 1_000)], Some((10_000, 100)));
        check(&[point(0, old, 0), point(100, old, 1_000)], None);
        // Started anew: measured from there, if that was lately.
        check(&[point(0, old, 900), point(10_000, 5_000, 1_000)], Some((5_000, 200)));
        check(&[point(0, old, 900), point(10_000, old, 100)], None);
        check(&[point(10_000, 8_000, 1_000)], Some((2_000, 500)));
    }

    #[test]
    fn a_pod_is_known_as_a_whole() {
        let mut window = Window::default();
        let both =
            |at, cpu| BTreeMap::from([(container("c"), point(at, -1, cpu)), (container("d"), point(at, -1, cpu))]);
        window.push(BTreeMap::from([(container("c"), point(0, -90_000, 0))]));
        window.push(BTreeMap::from([
            (container("c"), point(20_000, -90_000, 1)),
            (container("d"), point(20_000, -90_000, 1)),
        ]));
        assert_eq!(window.pod("a", "p"), None);
        window.push(both(30_000, 2));
        window.push(both(40_000, 3));
        assert_eq!(window.pod("a", "p").unwrap().len(), 2);
        assert_eq!(window.pod("a", "other"), None);
        window.push(BTreeMap::new());
        assert_eq!(window.pod("a", "p"), None);
    }

    #[test]
    fn what_kubelets_tell() {
        let text = "# TYPE node_cpu_usage_seconds_total counter\n\
            node_cpu_usage_seconds_total 12.5 2000\n\
            node_memory_working_set_bytes 1e+06 2000\n\
            container_cpu_usage_seconds_total{container=\"c\",namespace=\"a\",pod=\"p\"} 0.25 1500\n\
            container_memory_working_set_bytes{container=\"c\",namespace=\"a\",pod=\"p\"} 4096 1500\n\
            container_start_time_seconds{container=\"c\",namespace=\"a\",pod=\"p\"} 1.5\n\
            container_cpu_usage_seconds_total{container=\"half\",namespace=\"a\",pod=\"p\"} 0.25 1500\n\
            container_memory_working_set_bytes{container=\"x\\\"y\",namespace=\"a\",pod=\"p\"} NaN 1500\n\
            pod_cpu_usage_seconds_total{namespace=\"a\",pod=\"p\"} 0.25 1500\n\
            broken{container=\"c\n";
        let found = read(text);
        let node = Point { at: 2000, started: None, cpu_nanos: 12_500_000_000, memory_bytes: 1_000_000 };
        let one = Point { at: 1500, started: Some(1500), cpu_nanos: 250_000_000, memory_bytes: 4096 };
        assert_eq!(found, BTreeMap::from([(Whose::Node, node), (container("c"), one)]));
    }
}
