//! Plugin arguments of a KubeSchedulerConfiguration.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{NodeAffinity as Affinity, TopologySpreadConstraint};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::PREEMPTION;
use super::file::PluginConfig;
use crate::framework::Plugin;
use crate::plugins::balanced_allocation::BalancedAllocation;
use crate::plugins::inter_pod_affinity::InterPodAffinity;
use crate::plugins::node_affinity::NodeAffinity;
use crate::plugins::node_resources_fit::{NodeResourcesFit, Strategy};
use crate::plugins::pod_topology_spread::PodTopologySpread;
use crate::plugins::volume_binding::VolumeBinding;
use crate::profile::Profile;

/// What of a file cannot be taken, in upstream's words.
#[derive(Debug, thiserror::Error)]
pub(super) enum ArgumentError {
    #[error("decoding args for plugin {plugin:?}: expected kind {expected}, not {kind}")]
    Kind { plugin: String, expected: String, kind: String },
    #[error("decoding .profiles[*].pluginConfig: decoding args for plugin {plugin}: strict decoding error: {source}")]
    Decode { plugin: String, source: serde_json::Error },
    #[error("plugin {0:?} does not exist")]
    NoPlugin(String),
    #[error("hardPodAffinityWeight: Invalid value: {0}: not in valid range [0-100]")]
    AffinityWeight(i64),
    #[error("bindTimeoutSeconds: Invalid value: {0}: invalid BindTimeoutSeconds, should not be a negative value")]
    BindTimeout(i64),
    #[error("minCandidateNodesPercentage: Invalid value: {0}: not in valid range [0, 100]")]
    CandidatesPercentage(i64),
    #[error("minCandidateNodesAbsolute: Invalid value: {0}: not in valid range [0, inf)")]
    CandidatesAbsolute(i64),
    #[error("ignoredResourceGroups: Invalid value: {0:?}: resource group name can't contain '/'")]
    ResourceGroup(String),
    #[error(
        "scoringStrategy.resources: Invalid value: {weight}: resource weight of {resource} not in valid range [1, 100]"
    )]
    ResourceWeight { weight: i64, resource: String },
    #[error("requestedToCapacityRatio.shape: Required value: at least one point must be specified")]
    NoShape,
    #[error("requestedToCapacityRatio.shape: Invalid value: utilization values must be sorted in increasing order")]
    UnsortedShape,
    #[error("requestedToCapacityRatio.shape.utilization: Invalid value: {0}: not in valid range [0-100]")]
    Utilization(i64),
    #[error("requestedToCapacityRatio.shape.score: Invalid value: {0}: not in valid range [0-10]")]
    Score(i64),
    #[error(
        "scoringStrategy.type: Unsupported value: {0:?}: supported values: \"LeastAllocated\", \"MostAllocated\", \"RequestedToCapacityRatio\""
    )]
    Strategy(String),
    #[error("defaultingType: Invalid value: \"System\": when .defaultConstraints are specified")]
    SystemDefaulting,
    #[error("defaultingType: Unsupported value: {0:?}: supported values: \"List\", \"System\"")]
    Defaulting(String),
    #[error("defaultConstraints.maxSkew: Invalid value: {0}: not in valid range (0, inf)")]
    MaxSkew(i32),
    #[error(
        "defaultConstraints.labelSelector: Forbidden: constraint must not define a selector, as they deduced for each pod"
    )]
    ConstraintSelector,
    #[error(
        "defaultConstraints.whenUnsatisfiable: Unsupported value: {0:?}: supported values: \"DoNotSchedule\", \"ScheduleAnyway\""
    )]
    WhenUnsatisfiable(String),
}

/// Puts the plugin as configured in the place of the standard one; says whether there is such a plugin.
pub(super) fn apply(
    config: &PluginConfig,
    plugins: &mut [(Arc<dyn Plugin>, i64)],
    profile: &mut Profile,
) -> Result<bool, ArgumentError> {
    let args = config.args.clone().unwrap_or_else(|| Value::Object(Default::default()));
    let plugin: Arc<dyn Plugin> = match config.name.as_str() {
        "NodeResourcesFit" => Arc::new(fit(read(config, args)?)?),
        "NodeResourcesBalancedAllocation" => {
            let args: Balanced = read(config, args)?;
            match args.resources {
                None => Arc::new(BalancedAllocation::default()),
                Some(resources) => {
                    Arc::new(BalancedAllocation { resources: resources.into_iter().map(|each| each.name).collect() })
                }
            }
        }
        "InterPodAffinity" => {
            let args: InterPod = read(config, args)?;
            let weight = args.hard_pod_affinity_weight.unwrap_or(1);
            if !(0..=100).contains(&weight) {
                return Err(ArgumentError::AffinityWeight(weight));
            }
            Arc::new(InterPodAffinity {
                hard_pod_affinity_weight: weight,
                ignore_preferred_terms_of_existing_pods: args.ignore_preferred_terms_of_existing_pods.unwrap_or(false),
            })
        }
        "PodTopologySpread" => Arc::new(spread(read(config, args)?)?),
        "NodeAffinity" => Arc::new(NodeAffinity { added: read::<Added>(config, args)?.added_affinity }),
        "VolumeBinding" => {
            let args: Volumes = read(config, args)?;
            let seconds = args.bind_timeout_seconds.unwrap_or(600);
            let timeout = u64::try_from(seconds).map_err(|_| ArgumentError::BindTimeout(seconds))?;
            profile.volume_bind_timeout = Duration::from_secs(timeout);
            Arc::new(VolumeBinding { bind_timeout: profile.volume_bind_timeout })
        }
        PREEMPTION => {
            let args: Preemption = read(config, args)?;
            let percent = args.min_candidate_nodes_percentage.unwrap_or(10);
            let least = args.min_candidate_nodes_absolute.unwrap_or(100);
            if !(0..=100).contains(&percent) {
                return Err(ArgumentError::CandidatesPercentage(percent));
            }
            if least < 0 {
                return Err(ArgumentError::CandidatesAbsolute(least));
            }
            (profile.candidates_percent, profile.candidates_min) = (percent as usize, least as usize);
            return Ok(true);
        }
        // Nothing to set, but it may be named.
        "DynamicResources" => return Ok(true),
        name => return Ok(plugins.iter().any(|(plugin, _)| plugin.name() == name)),
    };
    for (place, _) in plugins.iter_mut().filter(|(standard, _)| standard.name() == plugin.name()) {
        *place = plugin.clone();
    }
    Ok(true)
}

fn read<T: DeserializeOwned>(config: &PluginConfig, mut args: Value) -> Result<T, ArgumentError> {
    if let Some(fields) = args.as_object_mut() {
        let expected = format!("{}Args", config.name);
        if let Some(kind) = fields.get("kind").and_then(Value::as_str).filter(|kind| *kind != expected) {
            let (plugin, kind) = (config.name.clone(), kind.to_owned());
            return Err(ArgumentError::Kind { plugin, expected, kind });
        }
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    serde_json::from_value(args).map_err(|source| ArgumentError::Decode { plugin: config.name.clone(), source })
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Fit {
    ignored_resources: Option<Vec<String>>,
    ignored_resource_groups: Option<Vec<String>>,
    scoring_strategy: Option<Scoring>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Scoring {
    #[serde(rename = "type")]
    kind: Option<String>,
    resources: Option<Vec<Weighed>>,
    requested_to_capacity_ratio: Option<Ratio>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Weighed {
    name: String,
    weight: Option<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ratio {
    shape: Option<Vec<Point>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Point {
    utilization: i64,
    score: i64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Balanced {
    resources: Option<Vec<Weighed>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct InterPod {
    hard_pod_affinity_weight: Option<i64>,
    ignore_preferred_terms_of_existing_pods: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Spread {
    default_constraints: Option<Vec<TopologySpreadConstraint>>,
    defaulting_type: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Added {
    added_affinity: Option<Affinity>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Volumes {
    bind_timeout_seconds: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Preemption {
    min_candidate_nodes_percentage: Option<i64>,
    min_candidate_nodes_absolute: Option<i64>,
}

fn fit(args: Fit) -> Result<NodeResourcesFit, ArgumentError> {
    let mut plugin = NodeResourcesFit {
        ignored_resources: args.ignored_resources.unwrap_or_default(),
        ignored_groups: args.ignored_resource_groups.unwrap_or_default(),
        ..NodeResourcesFit::default()
    };
    if let Some(group) = plugin.ignored_groups.iter().find(|group| group.contains('/')) {
        return Err(ArgumentError::ResourceGroup(group.clone()));
    }
    let Some(scoring) = args.scoring_strategy else { return Ok(plugin) };
    for resource in scoring.resources.into_iter().flatten() {
        let weight = resource.weight.unwrap_or(1);
        if !(1..=100).contains(&weight) {
            return Err(ArgumentError::ResourceWeight { weight, resource: resource.name });
        }
        plugin.weights.retain(|(name, _)| *name != resource.name);
        plugin.weights.push((resource.name, weight));
    }
    plugin.strategy = match scoring.kind.as_deref() {
        None | Some("LeastAllocated") => Strategy::LeastAllocated,
        Some("MostAllocated") => Strategy::MostAllocated,
        Some("RequestedToCapacityRatio") => {
            let shape = scoring.requested_to_capacity_ratio.and_then(|ratio| ratio.shape).unwrap_or_default();
            if shape.is_empty() {
                return Err(ArgumentError::NoShape);
            }
            if !shape.windows(2).all(|pair| pair[0].utilization < pair[1].utilization) {
                return Err(ArgumentError::UnsortedShape);
            }
            for point in &shape {
                if !(0..=100).contains(&point.utilization) {
                    return Err(ArgumentError::Utilization(point.utilization));
                }
                if !(0..=10).contains(&point.score) {
                    return Err(ArgumentError::Score(point.score));
                }
            }
            Strategy::RequestedToCapacityRatio(shape.iter().map(|point| (point.utilization, point.score)).collect())
        }
        Some(other) => {
            return Err(ArgumentError::Strategy(other.to_owned()));
        }
    };
    Ok(plugin)
}

fn spread(args: Spread) -> Result<PodTopologySpread, ArgumentError> {
    let constraints = args.default_constraints.unwrap_or_default();
    match args.defaulting_type.as_deref() {
        None | Some("System") if constraints.is_empty() => return Ok(PodTopologySpread::default()),
        Some("System") => {
            return Err(ArgumentError::SystemDefaulting);
        }
        None | Some("List") => {}
        Some(other) => {
            return Err(ArgumentError::Defaulting(other.to_owned()));
        }
    }
    for constraint in &constraints {
        if constraint.max_skew <= 0 {
            return Err(ArgumentError::MaxSkew(constraint.max_skew));
        }
        if constraint.label_selector.is_some() {
            return Err(ArgumentError::ConstraintSelector);
        }
        if !matches!(constraint.when_unsatisfiable.as_str(), "DoNotSchedule" | "ScheduleAnyway") {
            return Err(ArgumentError::WhenUnsatisfiable(constraint.when_unsatisfiable.clone()));
        }
    }
    let defaults = constraints.into_iter().map(|constraint| {
        let forbids = constraint.when_unsatisfiable == "DoNotSchedule";
        (constraint.topology_key, i64::from(constraint.max_skew), forbids)
    });
    Ok(PodTopologySpread { defaults: defaults.collect(), system_defaults: false })
}
