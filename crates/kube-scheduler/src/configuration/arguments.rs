//! Plugin arguments of a KubeSchedulerConfiguration.

use std::collections::BTreeSet;
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
use crate::plugins::dynamic_resources::conditions::BINDING_TIMEOUT;
use crate::plugins::dynamic_resources::{self, DynamicResources};
use crate::plugins::inter_pod_affinity::InterPodAffinity;
use crate::plugins::node_affinity::NodeAffinity;
use crate::plugins::node_resources_fit::{NodeResourcesFit, Strategy};
use crate::plugins::pod_topology_spread::PodTopologySpread;
use crate::plugins::volume_binding::VolumeBinding;
use crate::profile::Profile;

/// Less is not taken: no driver makes a device ready at once.
const BINDING_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// What of a file cannot be taken, in upstream's words.
#[derive(Debug, thiserror::Error)]
pub(super) enum ArgumentError {
    #[error("decoding args for plugin {plugin:?}: expected kind {expected}, not {kind}")]
    Kind { plugin: String, expected: String, kind: String },
    #[error("decoding .profiles[*].pluginConfig: decoding args for plugin {plugin}: strict decoding error: {source}")]
    Decode { plugin: String, source: serde_json::Error },
    #[error("plugin {0:?} does not exist")]
    NoPlugin(String),
    #[error("{}", aggregated(.0))]
    Invalid(Vec<String>),
}

/// Several problems as upstream joins them.
pub(super) fn aggregated(problems: &[String]) -> String {
    match problems {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

/// Nothing, or all that is wrong.
fn checked(problems: Vec<String>) -> Result<(), ArgumentError> {
    if problems.is_empty() { Ok(()) } else { Err(ArgumentError::Invalid(problems)) }
}

fn invalid(path: &str, value: impl std::fmt::Display, why: &str) -> String {
    format!("{path}: Invalid value: {value}: {why}")
}

/// Puts the plugin as configured in the place of the standard one; says whether there is such a plugin.
pub(super) fn apply(
    config: &PluginConfig,
    path: &str,
    plugins: &mut [(Arc<dyn Plugin>, i64)],
    profile: &mut Profile,
) -> Result<bool, ArgumentError> {
    let args = config.args.clone().unwrap_or_else(|| Value::Object(Default::default()));
    let plugin: Arc<dyn Plugin> = match config.name.as_str() {
        "NodeResourcesFit" => Arc::new(fit(read(config, args)?)?),
        "NodeResourcesBalancedAllocation" => Arc::new(balanced(read(config, args)?, path)?),
        "InterPodAffinity" => {
            let args: InterPod = read(config, args)?;
            let weight = args.hard_pod_affinity_weight.unwrap_or(1);
            if !(0..=100).contains(&weight) {
                let path = format!("{path}.hardPodAffinityWeight");
                return Err(ArgumentError::Invalid(vec![invalid(&path, weight, "not in valid range [0, 100]")]));
            }
            Arc::new(InterPodAffinity {
                hard_pod_affinity_weight: weight,
                ignore_preferred_terms_of_existing_pods: args.ignore_preferred_terms_of_existing_pods.unwrap_or(false),
            })
        }
        "PodTopologySpread" => Arc::new(spread(read(config, args)?, path)?),
        "NodeAffinity" => Arc::new(NodeAffinity { added: read::<Added>(config, args)?.added_affinity }),
        "VolumeBinding" => {
            profile.volume_bind_timeout = bind_timeout(&read(config, args)?, path)?;
            Arc::new(VolumeBinding { bind_timeout: profile.volume_bind_timeout })
        }
        PREEMPTION => {
            (profile.candidates_percent, profile.candidates_min) = candidates(&read(config, args)?, path)?;
            return Ok(true);
        }
        dynamic_resources::NAME => {
            profile.device_bind_timeout = binding_timeout(&read(config, args)?, path)?;
            Arc::new(DynamicResources { binding_timeout: profile.device_bind_timeout })
        }
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
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Volumes {
    bind_timeout_seconds: Option<i64>,
    shape: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Preemption {
    min_candidate_nodes_percentage: Option<i64>,
    min_candidate_nodes_absolute: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Devices {
    filter_timeout: Option<Value>,
    binding_timeout: Option<String>,
}

fn binding_timeout(args: &Devices, path: &str) -> Result<Duration, ArgumentError> {
    let mut problems = Vec::new();
    if args.filter_timeout.is_some() {
        let why = "devices are chosen within a fixed number of steps, which no time limits";
        problems.push(format!("{path}.filterTimeout: Forbidden: {why}"));
    }
    let mut timeout = BINDING_TIMEOUT;
    if let Some(text) = &args.binding_timeout {
        match machinery::duration::parse(text).map(Duration::try_from) {
            Ok(Ok(given)) if given >= BINDING_TIMEOUT_MIN => timeout = given,
            Ok(_) => problems.push(invalid(
                &format!("{path}.bindingTimeout"),
                format!("{text:?}"),
                "must be at least 1 second",
            )),
            Err(error) => {
                problems.push(invalid(&format!("{path}.bindingTimeout"), format!("{text:?}"), &error.to_string()))
            }
        }
    }
    checked(problems)?;
    Ok(timeout)
}

fn bind_timeout(args: &Volumes, path: &str) -> Result<Duration, ArgumentError> {
    let seconds = args.bind_timeout_seconds.unwrap_or(600);
    let mut problems = Vec::new();
    if seconds < 0 {
        let why = "invalid BindTimeoutSeconds, should not be a negative value";
        problems.push(invalid(&format!("{path}.bindTimeoutSeconds"), seconds, why));
    }
    if let Some(shape) = &args.shape {
        let why = "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring";
        problems.push(invalid(&format!("{path}.shape"), shape, why));
    }
    checked(problems)?;
    Ok(Duration::from_secs(seconds.unsigned_abs()))
}

/// The least share of nodes to look at, in percent, and the least number.
fn candidates(args: &Preemption, path: &str) -> Result<(usize, usize), ArgumentError> {
    let percent = args.min_candidate_nodes_percentage.unwrap_or(10);
    let least = args.min_candidate_nodes_absolute.unwrap_or(100);
    let percent_path = format!("{path}.minCandidateNodesPercentage");
    let least_path = format!("{path}.minCandidateNodesAbsolute");
    let mut problems = Vec::new();
    if !(0..=100).contains(&percent) {
        problems.push(invalid(&percent_path, percent, "not in valid range [0, 100]"));
    }
    if least < 0 {
        problems.push(invalid(&least_path, least, "not in valid range [0, inf)"));
    }
    if percent == 0 && least == 0 {
        let why = "cannot be zero at the same time as minCandidateNodesAbsolute";
        problems.push(invalid(&percent_path, percent, why));
        let why = "cannot be zero at the same time as minCandidateNodesPercentage";
        problems.push(invalid(&least_path, least, why));
    }
    checked(problems)?;
    Ok((percent as usize, least as usize))
}

fn balanced(args: Balanced, path: &str) -> Result<BalancedAllocation, ArgumentError> {
    let resources = args.resources.unwrap_or_default();
    let (mut seen, mut problems) = (BTreeSet::new(), Vec::new());
    for (index, resource) in resources.iter().enumerate() {
        if !seen.insert(&resource.name) {
            problems.push(format!("{path}.resources[{index}].name: Duplicate value: {:?}", resource.name));
        }
        if resource.weight() != 1 {
            problems.push(invalid(&format!("{path}.resources[{index}].weight"), resource.weight(), "must be 1"));
        }
    }
    checked(problems)?;
    if resources.is_empty() {
        return Ok(BalancedAllocation::default());
    }
    Ok(BalancedAllocation { resources: resources.into_iter().map(|each| each.name).collect() })
}

impl Weighed {
    /// Nothing said, or zero, is one.
    fn weight(&self) -> i64 {
        self.weight.filter(|weight| *weight != 0).unwrap_or(1)
    }
}

/// Upstream looks at these when it makes the plugin, so paths begin at the arguments.
fn fit(args: Fit) -> Result<NodeResourcesFit, ArgumentError> {
    let mut plugin = NodeResourcesFit {
        ignored_resources: args.ignored_resources.unwrap_or_default(),
        ignored_groups: args.ignored_resource_groups.unwrap_or_default(),
        ..NodeResourcesFit::default()
    };
    let mut problems = Vec::new();
    for (index, group) in plugin.ignored_groups.iter().enumerate().filter(|(_, group)| group.contains('/')) {
        let path = format!("ignoredResourceGroups[{index}]");
        problems.push(invalid(&path, format!("{group:?}"), "resource group name can't contain '/'"));
    }
    if let Some(scoring) = args.scoring_strategy {
        let kind = scoring.kind.as_deref().unwrap_or_default();
        if !STRATEGIES.contains(&kind) {
            problems.push(format!(
                "scoringStrategy.type: Unsupported value: {kind:?}: supported values: {}",
                STRATEGIES.map(|strategy| format!("{strategy:?}")).join(", ")
            ));
        }
        let resources = scoring.resources.unwrap_or_default();
        for (index, resource) in resources.iter().enumerate().filter(|(_, one)| !(1..=100).contains(&one.weight())) {
            let why = format!("resource weight of {} not in valid range (0, 100]", resource.name);
            problems.push(invalid(&format!("scoringStrategy.resources[{index}].weight"), resource.weight(), &why));
        }
        // What is listed stands for itself: the default resources are no part of it.
        if !resources.is_empty() {
            plugin.weights = resources.into_iter().map(|one| (one.name.clone(), one.weight())).collect();
        }
        plugin.strategy = strategy(kind, scoring.requested_to_capacity_ratio, &mut problems);
    }
    checked(problems)?;
    Ok(plugin)
}

const RATIO: &str = "RequestedToCapacityRatio";
const STRATEGIES: [&str; 3] = ["LeastAllocated", "MostAllocated", RATIO];

fn strategy(kind: &str, ratio: Option<Ratio>, problems: &mut Vec<String>) -> Strategy {
    let path = "scoringStrategy.requestedToCapacityRatio";
    match (kind, ratio) {
        (RATIO, Some(ratio)) => {
            let shape = ratio.shape.unwrap_or_default();
            problems.extend(shape_problems(&shape, &format!("{path}.shape")));
            Strategy::RequestedToCapacityRatio(shape.iter().map(|point| (point.utilization, point.score)).collect())
        }
        (RATIO, None) => {
            problems.push(format!("{path}: Required value: must be specified when type is {RATIO}"));
            Strategy::LeastAllocated
        }
        (kind, ratio) => {
            if ratio.is_some() {
                problems.push(format!("{path}: Forbidden: must be nil when type is not {RATIO}"));
            }
            if kind == "MostAllocated" { Strategy::MostAllocated } else { Strategy::LeastAllocated }
        }
    }
}

fn shape_problems(shape: &[Point], path: &str) -> Vec<String> {
    if shape.is_empty() {
        return vec![format!("{path}: Required value: at least one point must be specified")];
    }
    let mut problems = Vec::new();
    if let Some(before) = shape.windows(2).position(|pair| pair[0].utilization >= pair[1].utilization) {
        let (index, why) = (before + 1, "values must be sorted in increasing order");
        problems.push(invalid(&format!("{path}[{index}].utilization"), shape[index].utilization, why));
    }
    for (index, point) in shape.iter().enumerate() {
        for (name, value, most) in [("utilization", point.utilization, 100), ("score", point.score, 10)] {
            if !(0..=most).contains(&value) {
                let why = format!("not in valid range [0, {most}]");
                problems.push(invalid(&format!("{path}[{index}].{name}"), value, &why));
            }
        }
    }
    problems
}

fn spread(args: Spread, path: &str) -> Result<PodTopologySpread, ArgumentError> {
    let constraints = args.default_constraints.unwrap_or_default();
    let kind = args.defaulting_type.as_deref().filter(|kind| !kind.is_empty()).unwrap_or("System");
    let mut problems = Vec::new();
    if !matches!(kind, "System" | "List") {
        let supported = "supported values: \"System\", \"List\"";
        problems.push(format!("{path}.defaultingType: Unsupported value: {kind:?}: {supported}"));
    }
    if kind == "System" && !constraints.is_empty() {
        let why = "when .defaultConstraints are not empty";
        problems.push(invalid(&format!("{path}.defaultingType"), "\"System\"", why));
    }
    for (index, constraint) in constraints.iter().enumerate() {
        let others = &constraints[..index];
        problems.extend(constraint_problems(constraint, others, &format!("{path}.defaultConstraints[{index}]")));
    }
    checked(problems)?;
    if kind == "System" {
        return Ok(PodTopologySpread::default());
    }
    let defaults = constraints.into_iter().map(|constraint| {
        let forbids = constraint.when_unsatisfiable == "DoNotSchedule";
        (constraint.topology_key, i64::from(constraint.max_skew), forbids)
    });
    Ok(PodTopologySpread { defaults: defaults.collect(), system_defaults: false })
}

/// What is wrong with one of the default constraints, which come after `others`.
fn constraint_problems(one: &TopologySpreadConstraint, others: &[TopologySpreadConstraint], path: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if one.max_skew <= 0 {
        problems.push(invalid(&format!("{path}.maxSkew"), one.max_skew, "not in valid range (0, inf)"));
    }
    if one.topology_key.is_empty() {
        problems.push(format!("{path}.topologyKey: Required value: can not be empty"));
    }
    match one.when_unsatisfiable.as_str() {
        "" => problems.push(format!("{path}.whenUnsatisfiable: Required value: can not be empty")),
        "DoNotSchedule" | "ScheduleAnyway" => {}
        other => problems.push(format!(
            "{path}.whenUnsatisfiable: Unsupported value: {other:?}: supported values: \"DoNotSchedule\", \"ScheduleAnyway\""
        )),
    }
    if one.label_selector.is_some() {
        let why = "constraint must not define a selector, as they deduced for each pod";
        problems.push(format!("{path}.labelSelector: Forbidden: {why}"));
    }
    let same = |other: &TopologySpreadConstraint| {
        other.topology_key == one.topology_key && other.when_unsatisfiable == one.when_unsatisfiable
    };
    if others.iter().any(same) {
        let pair = format!("{{{}, {}}}", one.topology_key, one.when_unsatisfiable);
        problems.push(format!("{path}: Duplicate value: {pair:?}"));
    }
    problems
}
