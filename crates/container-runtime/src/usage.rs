//! What containers and pods use, from the kernel's readings to CRI's messages. Times are nanoseconds since 1970.

use cri::v1;
use linux::cgroup::{Psi, PsiLine, Stats};

use crate::image::Usage;

/// Processor time at an earlier moment, for the rate since then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuSample {
    pub timestamp_ns: i64,
    pub usage_ns: u64,
}

/// A container's writable layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WritableLayer {
    pub usage: Usage,
    /// Where the file system with the layers is mounted.
    pub mountpoint: String,
}

pub fn container(
    attributes: v1::ContainerAttributes,
    stats: &Stats,
    now_ns: i64,
    before: Option<CpuSample>,
    layer: Option<&WritableLayer>,
) -> v1::ContainerStats {
    v1::ContainerStats {
        attributes: Some(attributes),
        cpu: Some(cpu(stats, now_ns, before)),
        memory: Some(memory(stats, now_ns)),
        io: io(stats, now_ns),
        swap: stats.memory.swap_usage_bytes.map(|usage| v1::SwapUsage {
            timestamp: now_ns,
            swap_usage_bytes: value(usage),
            swap_available_bytes: stats.memory.swap_limit_bytes.and_then(|limit| value(limit.saturating_sub(usage))),
        }),
        writable_layer: layer.map(|layer| v1::FilesystemUsage {
            timestamp: now_ns,
            fs_id: Some(v1::FilesystemIdentifier { mountpoint: layer.mountpoint.clone() }),
            used_bytes: value(layer.usage.bytes),
            inodes_used: value(layer.usage.inodes),
        }),
    }
}

/// `stats` are those of the pod's group, `net_dev` the text of its `/proc/<pid>/net/dev`; a pod on the host's network has
/// none of its own.
pub fn sandbox(
    attributes: v1::PodSandboxAttributes,
    stats: &Stats,
    now_ns: i64,
    before: Option<CpuSample>,
    net_dev: Option<&str>,
    containers: Vec<v1::ContainerStats>,
) -> v1::PodSandboxStats {
    v1::PodSandboxStats {
        attributes: Some(attributes),
        linux: Some(v1::LinuxPodSandboxStats {
            cpu: Some(cpu(stats, now_ns, before)),
            memory: Some(memory(stats, now_ns)),
            network: net_dev.map(|text| network(text, now_ns)),
            process: Some(v1::ProcessUsage { timestamp: now_ns, process_count: value(stats.pids.current) }),
            containers,
            io: io(stats, now_ns),
        }),
        windows: None,
    }
}

/// The interface that pods get from the network.
const DEFAULT_INTERFACE: &str = "eth0";

fn network(net_dev: &str, now_ns: i64) -> v1::NetworkUsage {
    let interfaces: Vec<v1::NetworkInterfaceUsage> =
        net_dev.lines().filter_map(interface).filter(|interface| interface.name != "lo").collect();
    v1::NetworkUsage {
        timestamp: now_ns,
        default_interface: interfaces.iter().find(|interface| interface.name == DEFAULT_INTERFACE).cloned(),
        interfaces,
    }
}

/// `name: bytes packets errors drop fifo frame compressed multicast bytes packets errors ...`, received, then sent.
fn interface(line: &str) -> Option<v1::NetworkInterfaceUsage> {
    let (name, counts) = line.split_once(':')?;
    let counts: Vec<u64> = counts.split_whitespace().map_while(|count| count.parse().ok()).collect();
    let count = |place: usize| counts.get(place).copied().and_then(value);
    Some(v1::NetworkInterfaceUsage {
        name: name.trim().to_owned(),
        rx_bytes: Some(count(0)?),
        rx_errors: Some(count(2)?),
        tx_bytes: Some(count(8)?),
        tx_errors: Some(count(10)?),
    })
}

fn cpu(stats: &Stats, now_ns: i64, before: Option<CpuSample>) -> v1::CpuUsage {
    v1::CpuUsage {
        timestamp: now_ns,
        usage_core_nano_seconds: value(stats.cpu.usage_ns),
        usage_nano_cores: before
            .and_then(|before| nano_cores(before, CpuSample { timestamp_ns: now_ns, usage_ns: stats.cpu.usage_ns }))
            .and_then(value),
        psi: stats.pressure.as_ref().map(|pressure| psi(&pressure.cpu)),
    }
}

/// Only how long was waited for disks is told of them.
fn io(stats: &Stats, now_ns: i64) -> Option<v1::IoUsage> {
    let pressure = stats.pressure.as_ref()?;
    Some(v1::IoUsage { timestamp: now_ns, psi: Some(psi(&pressure.io)) })
}

fn psi(waited: &Psi) -> v1::PsiStats {
    let line = |line: &PsiLine| v1::PsiData {
        total: line.total_us.saturating_mul(1000),
        avg10: line.avg10,
        avg60: line.avg60,
        avg300: line.avg300,
    };
    v1::PsiStats { full: Some(line(&waited.full)), some: Some(line(&waited.some)) }
}

/// Billionths of a processor. Nothing when no time has passed, or when the group was made anew.
fn nano_cores(before: CpuSample, now: CpuSample) -> Option<u64> {
    let passed = u128::try_from(now.timestamp_ns - before.timestamp_ns).ok().filter(|passed| *passed > 0)?;
    let used = u128::from(now.usage_ns.checked_sub(before.usage_ns)?);
    u64::try_from(used * 1_000_000_000 / passed).ok()
}

fn memory(stats: &Stats, now_ns: i64) -> v1::MemoryUsage {
    let memory = &stats.memory;
    v1::MemoryUsage {
        timestamp: now_ns,
        working_set_bytes: value(memory.working_set_bytes),
        // Only where there is a limit is it known what is left.
        available_bytes: memory.limit_bytes.and_then(|limit| value(limit.saturating_sub(memory.working_set_bytes))),
        usage_bytes: value(memory.usage_bytes),
        rss_bytes: value(memory.rss_bytes),
        page_faults: value(memory.page_faults),
        major_page_faults: value(memory.major_page_faults),
        psi: stats.pressure.as_ref().map(|pressure| psi(&pressure.memory)),
    }
}

fn value(value: u64) -> Option<v1::UInt64Value> {
    Some(v1::UInt64Value { value })
}

#[cfg(test)]
mod tests {
    use linux::cgroup::{Cpu, Memory, Pids};

    use super::*;

    fn stats() -> Stats {
        Stats {
            cpu: Cpu { usage_ns: 3_000_000_000, ..Cpu::default() },
            memory: Memory {
                usage_bytes: 500,
                working_set_bytes: 300,
                rss_bytes: 200,
                page_faults: 7,
                limit_bytes: Some(1000),
                ..Memory::default()
            },
            pids: Pids { current: 4, limit: None },
            ..Stats::default()
        }
    }

    fn number(value: &Option<v1::UInt64Value>) -> Option<u64> {
        value.as_ref().map(|value| value.value)
    }

    #[test]
    fn readings_become_messages() {
        let before = CpuSample { timestamp_ns: 1_000_000_000, usage_ns: 2_500_000_000 };
        let layer = WritableLayer { usage: Usage { bytes: 11, inodes: 2 }, mountpoint: "/data".to_owned() };
        let made = container(v1::ContainerAttributes::default(), &stats(), 3_000_000_000, Some(before), Some(&layer));
        let cpu = made.cpu.expect("processor");
        assert_eq!((cpu.timestamp, number(&cpu.usage_core_nano_seconds)), (3_000_000_000, Some(3_000_000_000)));
        assert_eq!(number(&cpu.usage_nano_cores), Some(250_000_000));
        let memory = made.memory.expect("memory");
        assert_eq!((number(&memory.working_set_bytes), number(&memory.available_bytes)), (Some(300), Some(700)));
        assert_eq!((number(&memory.rss_bytes), number(&memory.page_faults)), (Some(200), Some(7)));
        assert_eq!(number(&made.writable_layer.expect("layer").used_bytes), Some(11));
        assert!(made.swap.is_none());
    }

    #[test]
    fn a_rate_needs_time_and_the_same_group() {
        let sample = |timestamp_ns, usage_ns| CpuSample { timestamp_ns, usage_ns };
        assert_eq!(nano_cores(sample(5, 1), sample(5, 2)), None);
        assert_eq!(nano_cores(sample(1, 9), sample(2, 3)), None);
        assert_eq!(nano_cores(sample(0, 0), sample(1_000, 2_000)), Some(2_000_000_000));
    }

    #[test]
    fn interfaces_are_counted() {
        let text = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:    1000      10    0    0    0     0          0         0     1000      10    0    0    0     0       0          0
  eth0: 123456     100    1    0    0     0          0         0    65432      50    2    0    0     0       0          0
  net1:5 1 0 0 0 0 0 0 6 1 0 0 0 0 0 0
";
        let made = sandbox(v1::PodSandboxAttributes::default(), &stats(), 9, None, Some(text), Vec::new())
            .linux
            .expect("linux");
        let network = made.network.expect("network");
        let default = network.default_interface.expect("a default interface");
        assert_eq!((number(&default.rx_bytes), number(&default.tx_bytes)), (Some(123_456), Some(65_432)));
        assert_eq!((number(&default.rx_errors), number(&default.tx_errors)), (Some(1), Some(2)));
        let names: Vec<_> = network.interfaces.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["eth0", "net1"]);
        assert_eq!(number(&made.process.expect("processes").process_count), Some(4));
    }
}
