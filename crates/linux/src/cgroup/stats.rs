//! Statistics of a cgroup, in one shape for v1 and v2.

use super::{Group, Hierarchy};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    pub cpu: Cpu,
    pub memory: Memory,
    pub pids: Pids,
    pub io: Io,
    /// Only v2 has it, and only when the kernel measures it.
    pub pressure: Option<Pressure>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    pub usage_ns: u64,
    pub user_ns: u64,
    pub system_ns: u64,
    pub periods: u64,
    pub periods_throttled: u64,
    pub throttled_ns: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    pub usage_bytes: u64,
    /// Usage without the file pages that can be dropped at once: what eviction looks at.
    pub working_set_bytes: u64,
    pub rss_bytes: u64,
    pub page_faults: u64,
    pub major_page_faults: u64,
    /// None when unlimited.
    pub limit_bytes: Option<u64>,
    pub swap_usage_bytes: Option<u64>,
    pub swap_limit_bytes: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pids {
    pub current: u64,
    pub limit: Option<u64>,
}

/// Bytes of all devices together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Io {
    pub read_bytes: u64,
    pub write_bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pressure {
    pub cpu: Psi,
    pub memory: Psi,
    pub io: Psi,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Psi {
    pub some: PsiLine,
    pub full: PsiLine,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct PsiLine {
    pub avg10: f64,
    pub avg60: f64,
    pub avg300: f64,
    pub total_us: u64,
}

/// v1 says "no limit" with the largest multiple of a page.
const UNLIMITED_V1: u64 = 1 << 62;
/// The unit of `cpuacct.stat`; fixed in what the kernel shows.
const NANOSECONDS_PER_TICK: u64 = 10_000_000;

impl Group {
    /// What can be read; a group that is gone, or a controller that is missing, counts as unused.
    pub fn stats(&self) -> Stats {
        match self.cgroups.hierarchy {
            Hierarchy::V1 => self.stats_v1(),
            Hierarchy::V2 => self.stats_v2(),
        }
    }

    fn stats_v1(&self) -> Stats {
        let memory = self.read("memory", "memory.stat").unwrap_or_default();
        let usage = self.number("memory", "memory.usage_in_bytes").unwrap_or(0);
        let limited = |value: Option<u64>| value.filter(|limit| *limit < UNLIMITED_V1);
        let limit = limited(self.number("memory", "memory.limit_in_bytes"));
        let together = self.number("memory", "memory.memsw.usage_in_bytes");
        let together_limit = limited(self.number("memory", "memory.memsw.limit_in_bytes"));
        let ticks = self.read("cpuacct", "cpuacct.stat").unwrap_or_default();
        let throttling = self.read("cpu", "cpu.stat").unwrap_or_default();
        Stats {
            cpu: Cpu {
                usage_ns: self.number("cpuacct", "cpuacct.usage").unwrap_or(0),
                user_ns: keyed(&ticks, "user") * NANOSECONDS_PER_TICK,
                system_ns: keyed(&ticks, "system") * NANOSECONDS_PER_TICK,
                periods: keyed(&throttling, "nr_periods"),
                periods_throttled: keyed(&throttling, "nr_throttled"),
                throttled_ns: keyed(&throttling, "throttled_time"),
            },
            memory: Memory {
                usage_bytes: usage,
                working_set_bytes: usage.saturating_sub(keyed(&memory, "total_inactive_file")),
                rss_bytes: keyed(&memory, "total_rss"),
                page_faults: keyed(&memory, "total_pgfault"),
                major_page_faults: keyed(&memory, "total_pgmajfault"),
                limit_bytes: limit,
                swap_usage_bytes: together.map(|together| together.saturating_sub(usage)),
                swap_limit_bytes: together_limit.zip(limit).map(|(together, limit)| together.saturating_sub(limit)),
            },
            pids: self.pids(),
            io: io_v1(&self.read("blkio", "blkio.throttle.io_service_bytes_recursive").unwrap_or_default()),
            pressure: None,
        }
    }

    fn stats_v2(&self) -> Stats {
        let cpu = self.read("", "cpu.stat").unwrap_or_default();
        let memory = self.read("", "memory.stat").unwrap_or_default();
        let usage = self.number("", "memory.current").unwrap_or(0);
        Stats {
            cpu: Cpu {
                usage_ns: keyed(&cpu, "usage_usec") * 1000,
                user_ns: keyed(&cpu, "user_usec") * 1000,
                system_ns: keyed(&cpu, "system_usec") * 1000,
                periods: keyed(&cpu, "nr_periods"),
                periods_throttled: keyed(&cpu, "nr_throttled"),
                throttled_ns: keyed(&cpu, "throttled_usec") * 1000,
            },
            memory: Memory {
                usage_bytes: usage,
                working_set_bytes: usage.saturating_sub(keyed(&memory, "inactive_file")),
                rss_bytes: keyed(&memory, "anon"),
                page_faults: keyed(&memory, "pgfault"),
                major_page_faults: keyed(&memory, "pgmajfault"),
                limit_bytes: self.number("", "memory.max"),
                swap_usage_bytes: self.number("", "memory.swap.current"),
                swap_limit_bytes: self.number("", "memory.swap.max"),
            },
            pids: self.pids(),
            io: io_v2(&self.read("", "io.stat").unwrap_or_default()),
            pressure: self.pressure(),
        }
    }

    fn pids(&self) -> Pids {
        Pids { current: self.number("pids", "pids.current").unwrap_or(0), limit: self.number("pids", "pids.max") }
    }

    fn pressure(&self) -> Option<Pressure> {
        let read = |file: &str| self.read("", file).and_then(|text| Psi::parse(&text));
        let pressure = Pressure {
            cpu: read("cpu.pressure")?,
            memory: read("memory.pressure").unwrap_or_default(),
            io: read("io.pressure").unwrap_or_default(),
        };
        Some(pressure)
    }

    /// None for a missing file and for `max`.
    fn number(&self, controller: &str, file: &str) -> Option<u64> {
        self.read(controller, file)?.trim().parse().ok()
    }
}

/// The number after a key at the start of a line.
pub(super) fn keyed(text: &str, key: &str) -> u64 {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(found, _)| *found == key)
        .and_then(|(_, value)| value.trim().parse().ok())
        .unwrap_or(0)
}

/// Lines are `8:0 Read 4096`.
fn io_v1(text: &str) -> Io {
    let sum = |operation: &str| {
        text.lines()
            .map(|line| line.split(' ').collect::<Vec<_>>())
            .filter(|words| words.get(1) == Some(&operation))
            .filter_map(|words| words.get(2)?.parse::<u64>().ok())
            .sum()
    };
    Io { read_bytes: sum("Read"), write_bytes: sum("Write") }
}

/// Lines are `8:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0`.
fn io_v2(text: &str) -> Io {
    let sum = |key: &str| {
        text.split_whitespace().filter_map(|word| word.strip_prefix(key)?.strip_prefix('=')?.parse::<u64>().ok()).sum()
    };
    Io { read_bytes: sum("rbytes"), write_bytes: sum("wbytes") }
}

/// Lines are `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`.
impl Psi {
    /// As the kernel writes it, for a group or the whole machine; nothing where it does not measure it.
    pub fn parse(text: &str) -> Option<Psi> {
        let line = |kind: &str| {
            let words = text.lines().find_map(|line| line.strip_prefix(kind)).unwrap_or_default();
            let value = |key: &str| words.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
            let average = |key: &str| value(key).and_then(|text| text.parse().ok()).unwrap_or(0.0);
            PsiLine {
                avg10: average("avg10"),
                avg60: average("avg60"),
                avg300: average("avg300"),
                total_us: value("total").and_then(|text| text.parse().ok()).unwrap_or(0),
            }
        };
        (!text.is_empty()).then(|| Psi { some: line("some"), full: line("full") })
    }
}
