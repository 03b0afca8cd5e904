//! Capacity and allocatable resources of the node. Pure.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use machinery::quantity::{Format, Quantity};

use super::machine::Machine;
use crate::Config;

pub type Resources = BTreeMap<String, ApiQuantity>;

/// Everything there is. `storage_bytes` is the size of the filesystem that holds the pods' folders.
pub fn capacity(machine: &Machine, storage_bytes: u64, pods_max: u32) -> BTreeMap<String, Quantity> {
    let bytes = |bytes: u64| whole(bytes, Format::BinarySi);
    let mut resources = BTreeMap::from([
        ("cpu".into(), whole(machine.cpus, Format::DecimalSi)),
        ("memory".into(), bytes(machine.memory_bytes)),
        ("ephemeral-storage".into(), bytes(storage_bytes)),
        ("pods".into(), whole(u64::from(pods_max), Format::DecimalSi)),
    ]);
    for (size, total) in &machine.huge_pages {
        resources.insert(format!("hugepages-{}", whole(*size, Format::BinarySi).canonical()), bytes(*total));
    }
    resources
}

/// What is left after reservations. All pods together are held to it: eviction has the room above what they are promised.
pub(crate) fn unreserved(capacity: &BTreeMap<String, Quantity>, config: &Config) -> BTreeMap<String, Quantity> {
    let mut left = capacity.clone();
    for (name, amount) in &mut left {
        for reserved in [&config.kube_reserved, &config.system_reserved] {
            take(amount, reserved.get(name).and_then(|text| Quantity::parse(text).ok()));
        }
    }
    left
}

/// What the node as a whole keeps from pods: for Kubernetes, for the system, and before eviction.
pub(crate) fn reserved(capacity: &BTreeMap<String, Quantity>, config: &Config) -> BTreeMap<String, Quantity> {
    let of = |(name, whole): (&String, &Quantity)| {
        let evicted = config.eviction_hard.get("memory.available").filter(|_| name == "memory");
        let said = [&config.kube_reserved, &config.system_reserved].map(|all| all.get(name));
        let said = said.into_iter().flatten().filter_map(|text| Quantity::parse(text).ok());
        let sum = said.chain(evicted.and_then(|limit| threshold(limit, whole)));
        (name.clone(), sum.fold(Quantity::from_int(0, whole.format), |sum, one| sum + one))
    };
    capacity.iter().map(of).collect()
}

/// What pods are promised: what is left after reservations, what hard eviction keeps free, and pages that only huge-page
/// users can have.
pub fn allocatable(capacity: &BTreeMap<String, Quantity>, config: &Config) -> BTreeMap<String, Quantity> {
    let mut left = unreserved(capacity, config);
    for (name, amount) in &mut left {
        let signal = match name.as_str() {
            "memory" => "memory.available",
            "ephemeral-storage" => "nodefs.available",
            _ => continue,
        };
        take(amount, config.eviction_hard.get(signal).and_then(|limit| threshold(limit, &capacity[name])));
    }
    let huge: i64 =
        capacity.iter().filter(|(name, _)| name.starts_with("hugepages-")).map(|(_, size)| size.value()).sum();
    if let Some(memory) = left.get_mut("memory") {
        take(memory, Some(Quantity::from_int(huge, Format::BinarySi)));
    }
    left
}

/// A limit such as `100Mi` or `10%` of this much.
pub fn threshold(limit: &str, of: &Quantity) -> Option<Quantity> {
    match limit.trim().strip_suffix('%') {
        Some(percent) => {
            let share = percent.parse::<f64>().ok().filter(|percent| (0.0..=100.0).contains(percent))? / 100.0;
            Some(Quantity::from_int((of.as_f64() * share) as i64, Format::BinarySi))
        }
        None => Quantity::parse(limit.trim()).ok(),
    }
}

pub(crate) fn as_api(resources: &BTreeMap<String, Quantity>) -> Resources {
    resources.iter().map(|(name, amount)| (name.clone(), ApiQuantity(amount.canonical()))).collect()
}

fn take(amount: &mut Quantity, taken: Option<Quantity>) {
    let Some(taken) = taken else { return };
    let format = amount.format;
    *amount = *amount - taken;
    amount.format = format;
    if amount.sign() < 0 {
        *amount = Quantity::from_int(0, format);
    }
}

fn whole(amount: u64, format: Format) -> Quantity {
    Quantity::from_int(i64::try_from(amount).unwrap_or(i64::MAX), format)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(resources: &BTreeMap<String, Quantity>) -> Vec<String> {
        resources.iter().map(|(name, amount)| format!("{name}={amount}")).collect()
    }

    #[test]
    fn as_observed_on_a_real_node() {
        let machine = Machine {
            cpus: 2,
            memory_bytes: 24_684_100 * 1024,
            huge_pages: BTreeMap::from([(1 << 30, 0), (2 << 20, 0)]),
            ..Machine::default()
        };
        let capacity = capacity(&machine, 264_212_084 * 1024, 110);
        let expected = [
            "cpu=2",
            "ephemeral-storage=264212084Ki",
            "hugepages-1Gi=0",
            "hugepages-2Mi=0",
            "memory=24684100Ki",
            "pods=110",
        ];
        assert_eq!(texts(&capacity), expected);
        let mut config = crate::node::tests::config();
        config.eviction_hard = BTreeMap::from([("memory.available".into(), "50Mi".into())]);
        let expected = [
            "cpu=2",
            "ephemeral-storage=264212084Ki",
            "hugepages-1Gi=0",
            "hugepages-2Mi=0",
            "memory=24632900Ki",
            "pods=110",
        ];
        assert_eq!(texts(&allocatable(&capacity, &config)), expected);
    }

    #[test]
    fn reservations_huge_pages_and_shares() {
        let machine = Machine {
            cpus: 2,
            memory_bytes: 8 << 30,
            huge_pages: BTreeMap::from([(2 << 20, 1 << 30)]),
            ..Machine::default()
        };
        let mut config = crate::node::tests::config();
        config.kube_reserved = BTreeMap::from([("cpu".into(), "250m".into()), ("memory".into(), "1Gi".into())]);
        config.system_reserved = BTreeMap::from([("cpu".into(), "3".into()), ("memory".into(), "512Mi".into())]);
        config.eviction_hard =
            BTreeMap::from([("memory.available".into(), "512Mi".into()), ("nodefs.available".into(), "10%".into())]);
        let left = allocatable(&capacity(&machine, 1000, 5), &config);
        assert_eq!(texts(&left), ["cpu=0", "ephemeral-storage=900", "hugepages-2Mi=1Gi", "memory=5Gi", "pods=5"]);
    }
}
