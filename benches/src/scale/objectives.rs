//! Upstream's service level objectives for API calls: for every verb and resource the 99th percentile, as the servers count it.
//! Mutating calls and reads of one object within a second, reads of a namespace within 5 s and of the cluster within 30 s.

use std::collections::BTreeMap;
use std::time::Instant;

use super::world::World;
use crate::report;

/// The percentile of fewer calls than this says nothing.
const CALLS_MIN: f64 = 100.0;
const FAMILY: &str = "apiserver_request_sli_duration_seconds_bucket{";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Objective {
    Mutating,
    ReadObject,
    ReadNamespace,
    ReadCluster,
}

impl Objective {
    fn name(self) -> &'static str {
        match self {
            Objective::Mutating => "scale: mutating calls, worst p99 of a verb and resource",
            Objective::ReadObject => "scale: reads of an object, worst p99 of a resource",
            Objective::ReadNamespace => "scale: reads of a namespace, worst p99 of a resource",
            Objective::ReadCluster => "scale: reads of the cluster, worst p99 of a resource",
        }
    }

    fn of(verb: &str, scope: &str) -> Option<Objective> {
        match (verb, scope) {
            ("POST" | "PUT" | "PATCH" | "APPLY" | "DELETE", _) => Some(Objective::Mutating),
            ("GET", _) | ("LIST", "resource") => Some(Objective::ReadObject),
            ("LIST", "namespace") => Some(Objective::ReadNamespace),
            ("LIST", "cluster") => Some(Objective::ReadCluster),
            _ => None,
        }
    }
}

/// Calls of one verb and resource: how many took no longer than each bound.
type Buckets = BTreeMap<u64, f64>;
type Counted = BTreeMap<(Objective, String), Buckets>;

/// What had been counted when the measuring began.
pub struct Objectives(Counted);

impl Objectives {
    pub async fn begin(world: &World) -> anyhow::Result<Objectives> {
        Ok(Objectives(counted(&world.metrics().await?)))
    }

    /// What was counted since then.
    pub async fn end(self, world: &World) -> anyhow::Result<()> {
        let mut now = counted(&world.metrics().await?);
        for (key, before) in &self.0 {
            let Some(buckets) = now.get_mut(key) else { continue };
            for (bound, count) in before {
                *buckets.entry(*bound).or_default() -= count;
            }
        }
        let mut worst: BTreeMap<Objective, (f64, &str)> = BTreeMap::new();
        for ((objective, what), buckets) in &now {
            let Some(p99) = percentile(buckets, 0.99) else { continue };
            let most = worst.entry(*objective).or_insert((0.0, ""));
            if p99 > most.0 {
                *most = (p99, what);
            }
        }
        for (objective, (seconds, what)) in worst {
            report::line(objective.name(), seconds * 1000.0, "ms");
            println!("    of {what}");
        }
        Ok(())
    }
}

fn counted(texts: &[String]) -> Counted {
    let mut all = Counted::new();
    for line in texts.iter().flat_map(|text| text.lines()).filter_map(|line| line.strip_prefix(FAMILY)) {
        let Some((labels, value)) = line.rsplit_once("} ") else { continue };
        let label = |name: &str| {
            let mut parts = labels.split("\",").map(|part| part.trim_end_matches('"').split_once("=\""));
            parts.find_map(|part| part.filter(|(key, _)| *key == name).map(|(_, value)| value))
        };
        let (Some(verb), Some(scope)) = (label("verb"), label("scope")) else { continue };
        let Some(objective) = Objective::of(verb, scope) else { continue };
        let (Some(bound), Ok(count)) = (label("le"), value.trim().parse::<f64>()) else { continue };
        let micros = if bound == "+Inf" { u64::MAX } else { (bound.parse::<f64>().unwrap_or(0.0) * 1e6) as u64 };
        let what = [Some(verb), label("resource"), label("subresource").filter(|name| !name.is_empty())];
        let what = what.into_iter().flatten().collect::<Vec<_>>().join(" ");
        *all.entry((objective, what)).or_default().entry(micros).or_default() += count;
    }
    all
}

/// As Prometheus takes it from buckets: evenly spread within one. In seconds.
fn percentile(buckets: &Buckets, part: f64) -> Option<f64> {
    let total = *buckets.get(&u64::MAX)?;
    if total < CALLS_MIN {
        return None;
    }
    let (mut low, mut below) = (0.0, 0.0);
    for (micros, count) in buckets {
        let bound = *micros as f64 / 1e6;
        if *count >= total * part {
            // What took longer than any bound took at least the longest.
            let share = if *micros == u64::MAX { return Some(low) } else { (total * part - below) / (count - below) };
            return Some(low + (bound - low) * share);
        }
        (low, below) = (bound, *count);
    }
    None
}

/// Whole lists once each, as seen by a client.
pub async fn reads(world: &World) -> anyhow::Result<()> {
    let lists = [
        ("LIST of all pods in JSON", "/api/v1/pods", "application/json"),
        ("LIST of all pods in protobuf", "/api/v1/pods", "application/vnd.kubernetes.protobuf"),
        ("Table of all pods", "/api/v1/pods", "application/json;as=Table;v=v1;g=meta.k8s.io"),
        ("LIST of a namespace's pods in JSON", "/api/v1/namespaces/scale-0/pods", "application/json"),
    ];
    for (name, path, accept) in lists {
        let began = Instant::now();
        let bytes = world.cluster.read(path, accept).await?;
        report::line(&format!("scale: {name}"), began.elapsed().as_secs_f64() * 1000.0, "ms");
        println!("    {:.1} MB", bytes as f64 / 1e6);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_of_servers_are_added_and_read_as_prometheus_does() {
        let line = |le: &str, count: u32| {
            format!(
                "{FAMILY}verb=\"POST\",group=\"\",version=\"v1\",resource=\"pods\",subresource=\"binding\",scope=\"resource\",\
                 component=\"apiserver\",le=\"{le}\"}} {count}\n"
            )
        };
        let text = line("0.1", 50) + &line("0.2", 99) + &line("+Inf", 100) + "other 3\n";
        let all = counted(&[text.clone(), text]);
        let buckets = &all[&(Objective::Mutating, "POST pods binding".to_owned())];
        assert_eq!(buckets.values().copied().collect::<Vec<f64>>(), [100.0, 198.0, 200.0]);
        assert!((percentile(buckets, 0.99).unwrap() - 0.2).abs() < 1e-9);
        assert!((percentile(buckets, 0.25).unwrap() - 0.05).abs() < 1e-9);
        // Longer than every bound.
        assert!((percentile(buckets, 0.999).unwrap() - 0.2).abs() < 1e-9);
        assert_eq!(percentile(&Buckets::from([(u64::MAX, 5.0)]), 0.99), None);
    }

    #[test]
    fn calls_are_held_against_the_objective_of_their_scope() {
        assert_eq!(Objective::of("LIST", "cluster"), Some(Objective::ReadCluster));
        assert_eq!(Objective::of("GET", "resource"), Some(Objective::ReadObject));
        assert_eq!(Objective::of("PATCH", "resource"), Some(Objective::Mutating));
        assert_eq!(Objective::of("WATCH", "cluster"), None);
    }
}
