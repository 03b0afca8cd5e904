//! How much of the whole machine is in use: memory, processors, processes, network. Texts of the kernel, taken apart.

use crate::node::machine::meminfo;

use super::types::{InterfaceStats, NetworkStats, PsiData, PsiStats};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    pub total: u64,
    pub available: u64,
    pub usage: u64,
    pub working_set: u64,
    /// Pages that no file stands behind.
    pub rss: u64,
    pub swap_total: u64,
    pub swap_free: u64,
}

/// As the eviction manager counts: what is used, less the pages of files that could go without harm.
pub fn memory(text: &str) -> Memory {
    let fields = meminfo(text);
    let field = |name: &str| fields.get(name).copied().unwrap_or(0);
    let usage = field("MemTotal").saturating_sub(field("MemFree"));
    let working_set = usage.saturating_sub(field("Inactive(file)"));
    Memory {
        total: field("MemTotal"),
        available: field("MemTotal").saturating_sub(working_set),
        usage,
        working_set,
        rss: field("AnonPages"),
        swap_total: field("SwapTotal"),
        swap_free: field("SwapFree"),
    }
}

/// Page faults since boot, all and those that read a disk, from `/proc/vmstat`.
pub fn page_faults(text: &str) -> (Option<u64>, Option<u64>) {
    let field = |name: &str| {
        let mut fields = text.lines().filter_map(|line| line.split_once(' '));
        fields.find(|(found, _)| *found == name)?.1.trim().parse().ok()
    };
    (field("pgfault"), field("pgmajfault"))
}

/// How long was waited for a resource, from `/proc/pressure`; nothing where the kernel does not measure it.
pub fn pressure(text: &str) -> Option<PsiStats> {
    let linux::cgroup::Psi { some, full } = linux::cgroup::Psi::parse(text)?;
    let data = |line: linux::cgroup::PsiLine| PsiData {
        total: line.total_us.saturating_mul(1000),
        avg10: line.avg10,
        avg60: line.avg60,
        avg300: line.avg300,
    };
    Some(PsiStats { full: data(full), some: data(some) })
}

/// Nanoseconds of all processors since boot, from `/proc/stat`, which counts in hundredths of a second.
pub(crate) fn cpu_nanoseconds(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("cpu "))?;
    let times: Vec<u64> = line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; guests are counted in user.
    let busy: u64 =
        times.iter().enumerate().filter(|(index, _)| !matches!(index, 3 | 4 | 8..)).map(|(_, time)| time).sum();
    Some(busy * 10_000_000)
}

/// Threads that exist and threads that may, from `/proc/loadavg`, `pid_max` and `threads-max`.
pub fn processes(loadavg: &str, pid_max: &str, threads_max: &str) -> Option<(i64, i64)> {
    let running = loadavg.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()?;
    let limits = [pid_max, threads_max].into_iter().filter_map(|text| text.trim().parse::<i64>().ok());
    Some((running, limits.min()?))
}

/// `/proc/net/dev` with the interface of the default route, from `/proc/net/route`, first.
pub fn network(devices: &str, routes: &str, time: &str) -> Option<NetworkStats> {
    let interfaces: Vec<InterfaceStats> = devices.lines().filter_map(interface).filter(|it| it.name != "lo").collect();
    let default_route = routes.lines().skip(1).find_map(|line| {
        let mut words = line.split_whitespace();
        let name = words.next()?;
        (words.next()? == "00000000").then_some(name)
    });
    let default = interfaces.iter().find(|it| Some(it.name.as_str()) == default_route).or(interfaces.first())?.clone();
    Some(NetworkStats { time: time.to_owned(), default, interfaces })
}

fn interface(line: &str) -> Option<InterfaceStats> {
    let (name, numbers) = line.split_once(':')?;
    let numbers: Vec<u64> = numbers.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [rx_bytes, _, rx_errors, _, _, _, _, _, tx_bytes, _, tx_errors, ..] = numbers[..] else { return None };
    Some(InterfaceStats { name: name.trim().to_owned(), rx_bytes, rx_errors, tx_bytes, tx_errors })
}

/// When the machine started, in seconds since 1970, from `/proc/stat`.
pub(crate) fn boot_time(text: &str) -> Option<i64> {
    text.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_told_in_nanoseconds() {
        let text =
            "some avg10=1.50 avg60=0.25 avg300=0.00 total=1234\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n";
        let psi = pressure(text).unwrap();
        assert_eq!((psi.some.avg10, psi.some.avg60, psi.some.total, psi.full.total), (1.5, 0.25, 1_234_000, 5_000));
        assert_eq!(pressure(""), None);
    }

    #[test]
    fn memory_as_the_eviction_manager_counts() {
        let text = "MemTotal: 1000 kB\nMemFree: 300 kB\nInactive(file): 200 kB\nAnonPages: 90 kB\nSwapTotal: 50 kB\nSwapFree: 20 kB\n";
        let expected = Memory {
            total: 1000 << 10,
            available: 500 << 10,
            usage: 700 << 10,
            working_set: 500 << 10,
            rss: 90 << 10,
            swap_total: 50 << 10,
            swap_free: 20 << 10,
        };
        assert_eq!(memory(text), expected);
    }

    #[test]
    fn processors_processes_and_boot() {
        let stat = "cpu  100 1 50 9999 77 2 3 4 60 0\ncpu0 1 1 1\nbtime 1700000000\n";
        assert_eq!((cpu_nanoseconds(stat), boot_time(stat)), (Some(160 * 10_000_000), Some(1_700_000_000)));
        assert_eq!(processes("0.1 0.2 0.3 2/345 777\n", "32768\n", "100000\n"), Some((345, 32768)));
        assert_eq!(processes("", "32768", ""), None);
        assert_eq!(page_faults("pgfree 1\npgfault 70\npgmajfault 8\n"), (Some(70), Some(8)));
        assert_eq!(page_faults(""), (None, None));
    }

    #[test]
    fn the_interface_of_the_default_route_comes_first() {
        let devices = "Inter-| Receive\n face |bytes\n    lo: 5 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n  cni0: 7 1 0 0 0 0 0 0 8 1 0 0 0 0 0 0\n  eth0: 100 1 2 0 0 0 0 0 200 1 3 0 0 0 0 0\n";
        let routes = "Iface Destination Gateway\ncni0 0000F40A 0\neth0 00000000 0101A8C0\n";
        let network = network(devices, routes, "now").unwrap();
        let eth0 = InterfaceStats { name: "eth0".into(), rx_bytes: 100, rx_errors: 2, tx_bytes: 200, tx_errors: 3 };
        assert_eq!((network.default, network.interfaces.len()), (eth0, 2));
    }
}
