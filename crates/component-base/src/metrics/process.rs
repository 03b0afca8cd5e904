//! What every process says of itself: time, memory, files.

use super::{Metric, Page};

const TICKS_PER_SECOND: f64 = 100.0;
const PAGE_BYTES: f64 = 4096.0;

/// When the process started.
pub fn started(page: &mut Page) {
    if let Some(seconds) = start_seconds() {
        page.value(&STARTED, seconds);
    }
}

/// The same, to the second; the epoch where `/proc` does not say.
pub fn start_time() -> jiff::Timestamp {
    let seconds = start_seconds().unwrap_or(0.0) as i64;
    jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::UNIX_EPOCH)
}

fn start_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let ticks = stat.rsplit(')').next().unwrap_or("").split_whitespace().nth(19);
    let ticks = ticks.and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    Some(booted().unwrap_or(0.0) + ticks / TICKS_PER_SECOND)
}

/// What the operating system says of this process.
pub fn write(page: &mut Page) {
    let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else { return };
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let number = |index: usize| fields.get(index).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    let files = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    page.value(&PROCESSOR_TIME, (number(11) + number(12)) / TICKS_PER_SECOND);
    page.value(&OPEN_FILES, files);
    page.value(&RESIDENT_MEMORY, number(21) * PAGE_BYTES);
    page.value(&VIRTUAL_MEMORY, number(20));
    started(page);
}

/// When the machine started, in seconds since the epoch.
fn booted() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime ")?.parse().ok())
}

const STARTED: Metric =
    Metric::gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.");
const PROCESSOR_TIME: Metric =
    Metric::counter("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.");
const OPEN_FILES: Metric = Metric::gauge("process_open_fds", "Number of open file descriptors.");
const RESIDENT_MEMORY: Metric = Metric::gauge("process_resident_memory_bytes", "Resident memory size in bytes.");
const VIRTUAL_MEMORY: Metric = Metric::gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_started_a_while_ago() {
        let age = jiff::Timestamp::now().duration_since(start_time());
        assert!((-2..24 * 3600).contains(&age.as_secs()), "{age:?}");
    }

    #[test]
    fn a_process_uses_time_memory_and_files() {
        let mut page = Page::default();
        write(&mut page);
        let text = page.text();
        for name in [
            "process_cpu_seconds_total",
            "process_open_fds",
            "process_resident_memory_bytes",
            "process_start_time_seconds",
        ] {
            let line =
                text.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap_or_else(|| panic!("{text}"));
            let value: f64 = line.rsplit(' ').next().unwrap().parse().unwrap();
            assert!(value >= 0.0 && (value > 0.0 || name.contains("cpu")), "{line}");
        }
    }
}
