//! Devices that are not given whole: parts that consume counters which they share with other parts, and devices that several claims have
//! at the same time, each with a share of their capacity. Data in, data out.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::resource::v1::{CapacityRequestPolicy, Device, DeviceCapacity, ResourceSlice};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;
use machinery::quantity::Quantity;

use super::devices::{DeviceId, Offer};

/// What cannot be read was refused by the API server.
fn read(quantity: &Written) -> Quantity {
    Quantity::parse(&quantity.0).unwrap_or(Quantity::ZERO)
}

pub type Amounts = BTreeMap<String, Quantity>;

/// A counter of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Counter {
    driver: String,
    pool: String,
    set: String,
    name: String,
}

/// The counters of all pools, and what is consumed of them by devices that are taken.
#[derive(Default)]
pub(super) struct Counters {
    all: HashMap<Counter, Quantity>,
    consumed: HashMap<Counter, Quantity>,
}

fn consumption(slice: &ResourceSlice, device: &Device) -> Vec<(Counter, Quantity)> {
    let sets = device.consumes_counters.iter().flatten();
    let counters = sets.flat_map(|set| {
        set.counters.iter().map(|(name, counter)| {
            let counter_of = Counter {
                driver: slice.spec.driver.clone(),
                pool: slice.spec.pool.name.clone(),
                set: set.counter_set.clone(),
                name: name.clone(),
            };
            (counter_of, read(&counter.value))
        })
    });
    counters.collect()
}

impl Counters {
    pub(super) fn new<'a>(
        slices: impl Iterator<Item = &'a ResourceSlice> + Clone,
        is_taken: impl Fn(&DeviceId) -> bool,
    ) -> Counters {
        let mut counters = Counters::default();
        for slice in slices.clone() {
            for set in slice.spec.shared_counters.iter().flatten() {
                for (name, counter) in &set.counters {
                    let key = Counter {
                        driver: slice.spec.driver.clone(),
                        pool: slice.spec.pool.name.clone(),
                        set: set.name.clone(),
                        name: name.clone(),
                    };
                    counters.all.insert(key, read(&counter.value));
                }
            }
        }
        if counters.all.is_empty() {
            return counters;
        }
        for slice in slices {
            let devices = slice.spec.devices.iter().flatten().map(|device| Offer { slice, device });
            for offer in devices.filter(|offer| is_taken(&offer.id())) {
                for (counter, amount) in consumption(slice, offer.device) {
                    add(&mut counters.consumed, counter, amount);
                }
            }
        }
        counters
    }

    /// Whether a device can be given besides those that are taken and these. One that consumes what its pool does not have never can.
    pub(super) fn allow<'a>(&self, offer: &Offer, besides: impl Iterator<Item = Offer<'a>>) -> bool {
        let own = consumption(offer.slice, offer.device);
        if own.is_empty() {
            return true;
        }
        let mut consumed: HashMap<Counter, Quantity> = HashMap::new();
        for other in besides {
            for (counter, amount) in consumption(other.slice, other.device) {
                add(&mut consumed, counter, amount);
            }
        }
        own.into_iter().all(|(counter, amount)| {
            let taken = [&self.consumed, &consumed].map(|map| map.get(&counter).copied().unwrap_or(Quantity::ZERO));
            self.all.get(&counter).is_some_and(|all| taken[0] + taken[1] + amount <= *all)
        })
    }
}

fn add(to: &mut HashMap<Counter, Quantity>, counter: Counter, amount: Quantity) {
    let there = to.entry(counter).or_insert(Quantity::ZERO);
    *there = *there + amount;
}

/// What a request takes of each capacity of a device, besides what is consumed of it; nothing where it does not fit.
pub(super) fn share(device: &Device, asked: &Amounts, consumed: &Amounts) -> Option<Amounts> {
    let capacity: BTreeMap<&String, &DeviceCapacity> = device.capacity.iter().flatten().collect();
    if asked.keys().any(|name| !capacity.contains_key(name)) {
        return None;
    }
    let mut share = Amounts::new();
    for (name, capacity) in capacity {
        let own = rounded(asked.get(name).copied(), capacity);
        if capacity.request_policy.as_ref().is_some_and(|policy| violates(own, policy)) {
            return None;
        }
        let there = consumed.get(name).copied().unwrap_or(Quantity::ZERO);
        if there + own > read(&capacity.value) {
            return None;
        }
        share.insert(name.clone(), own);
    }
    Some(share)
}

/// Who asks for nothing gets the default, or all of it; who asks for something gets the next larger amount that the device gives.
fn rounded(asked: Option<Quantity>, capacity: &DeviceCapacity) -> Quantity {
    let policy = capacity.request_policy.as_ref();
    let Some(asked) = asked else {
        let default = policy.and_then(|policy| policy.default.as_ref());
        return read(default.unwrap_or(&capacity.value));
    };
    let Some(policy) = policy else { return asked };
    if let Some(range) = &policy.valid_range {
        let min = read(&range.min);
        if asked <= min {
            return min;
        }
        let Some(step) = range.step.as_ref().map(read).filter(|step| step.sign() > 0) else { return asked };
        return up_to_step(asked, min, step);
    }
    let mut larger = policy.valid_values.iter().flatten().map(read).filter(|value| *value >= asked);
    larger.next().unwrap_or(asked)
}

/// The smallest `min + n * step` that is not less.
fn up_to_step(asked: Quantity, min: Quantity, step: Quantity) -> Quantity {
    let milli = |quantity: Quantity| i128::from(quantity.milli_value());
    let (over, step_milli) = (milli(asked - min), milli(step).max(1));
    let steps = over.div_euclid(step_milli) + i128::from(over.rem_euclid(step_milli) != 0);
    // Doubling, so that a small step of a large range does not take long.
    let (mut total, mut power, mut left) = (min, step, steps);
    while left > 0 {
        if left & 1 == 1 {
            total = total + power;
        }
        power = power + power;
        left >>= 1;
    }
    total
}

fn violates(amount: Quantity, policy: &CapacityRequestPolicy) -> bool {
    if policy.default.as_ref().map(read) == Some(amount) {
        return false;
    }
    if let Some(range) = &policy.valid_range {
        return range.max.as_ref().is_some_and(|max| amount > read(max));
    }
    let values: Vec<Quantity> = policy.valid_values.iter().flatten().map(read).collect();
    !values.is_empty() && !values.contains(&amount)
}

/// As claims write it.
pub(super) fn written(amounts: &Amounts) -> BTreeMap<String, Written> {
    amounts.iter().map(|(name, amount)| (name.clone(), Written(amount.canonical()))).collect()
}

pub(super) fn amounts(written: Option<&BTreeMap<String, Written>>) -> Amounts {
    written.into_iter().flatten().map(|(name, amount)| (name.clone(), read(amount))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn device(policy: Value) -> Device {
        let capacity = json!({"memory": {"value": "10Gi", "requestPolicy": policy}});
        serde_json::from_value(json!({"name": "d", "allowMultipleAllocations": true, "capacity": capacity})).unwrap()
    }

    fn given(policy: Value, asked: Option<&str>, consumed: &str) -> Option<String> {
        let one = |text: &str| [("memory".to_owned(), Quantity::parse(text).unwrap())].into();
        let share = share(&device(policy), &asked.map(one).unwrap_or_default(), &one(consumed))?;
        Some(share["memory"].canonical())
    }

    #[test]
    fn a_share_follows_the_devices_policy() {
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(given(Value::Null, None, "0"), text("10Gi"), "all of it");
        assert_eq!(given(Value::Null, None, "1"), None);
        assert_eq!(given(Value::Null, Some("3Gi"), "7Gi"), text("3Gi"));
        assert_eq!(given(Value::Null, Some("3Gi"), "8Gi"), None);
        let values = json!({"default": "2Gi", "validValues": ["2Gi", "4Gi", "8Gi"]});
        assert_eq!(given(values.clone(), None, "8Gi"), text("2Gi"));
        assert_eq!(given(values.clone(), Some("3Gi"), "0"), text("4Gi"));
        assert_eq!(given(values, Some("9Gi"), "0"), None, "no such value");
        let range = json!({"default": "1Gi", "validRange": {"min": "1Gi", "max": "6Gi", "step": "2Gi"}});
        assert_eq!(given(range.clone(), Some("100Mi"), "0"), text("1Gi"));
        assert_eq!(given(range.clone(), Some("1100Mi"), "0"), text("3Gi"));
        assert_eq!(given(range.clone(), Some("5Gi"), "0"), text("5Gi"));
        assert_eq!(given(range, Some("5500Mi"), "0"), None, "the next step is too large");
        let other = [("cores".to_owned(), Quantity::parse("1").unwrap())].into();
        assert!(share(&device(Value::Null), &other, &Amounts::new()).is_none(), "it has no such capacity");
    }
}
