//! The file as it is written. Unknown fields are refused, as upstream's strict decoding does.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct File {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    pub parallelism: Option<i64>,
    pub percentage_of_nodes_to_score: Option<i64>,
    pub pod_initial_backoff_seconds: Option<i64>,
    pub pod_max_backoff_seconds: Option<i64>,
    pub profiles: Option<Vec<FileProfile>>,
    // Settings of parts that a component of ours does not have, or takes from its command line.
    #[serde(rename = "leaderElection")]
    _leader_election: Option<Value>,
    #[serde(rename = "clientConnection")]
    _client_connection: Option<Value>,
    #[serde(rename = "enableProfiling")]
    _enable_profiling: Option<bool>,
    #[serde(rename = "enableContentionProfiling")]
    _enable_contention_profiling: Option<bool>,
    #[serde(rename = "delayCacheUntilActive")]
    _delay_cache_until_active: Option<bool>,
    pub extenders: Option<Vec<Value>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct FileProfile {
    pub scheduler_name: Option<String>,
    pub percentage_of_nodes_to_score: Option<i64>,
    pub plugins: Option<Plugins>,
    pub plugin_config: Option<Vec<PluginConfig>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Plugins {
    pub multi_point: Option<PluginSet>,
    pub pre_enqueue: Option<PluginSet>,
    pub queue_sort: Option<PluginSet>,
    pub pre_filter: Option<PluginSet>,
    pub filter: Option<PluginSet>,
    pub post_filter: Option<PluginSet>,
    pub pre_score: Option<PluginSet>,
    pub score: Option<PluginSet>,
    pub reserve: Option<PluginSet>,
    pub permit: Option<PluginSet>,
    pub pre_bind: Option<PluginSet>,
    pub bind: Option<PluginSet>,
    pub post_bind: Option<PluginSet>,
}

impl Plugins {
    pub fn all(&self) -> impl Iterator<Item = (&'static str, &PluginSet)> {
        let all = [
            ("multiPoint", &self.multi_point),
            ("preEnqueue", &self.pre_enqueue),
            ("queueSort", &self.queue_sort),
            ("preFilter", &self.pre_filter),
            ("filter", &self.filter),
            ("postFilter", &self.post_filter),
            ("preScore", &self.pre_score),
            ("score", &self.score),
            ("reserve", &self.reserve),
            ("permit", &self.permit),
            ("preBind", &self.pre_bind),
            ("bind", &self.bind),
            ("postBind", &self.post_bind),
        ];
        all.into_iter().filter_map(|(name, set)| Some((name, set.as_ref()?)))
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PluginSet {
    pub enabled: Option<Vec<NamedPlugin>>,
    pub disabled: Option<Vec<NamedPlugin>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NamedPlugin {
    pub name: String,
    pub weight: Option<i64>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PluginConfig {
    pub name: String,
    pub args: Option<Value>,
}

impl File {
    /// Everything that is wrong with it, in upstream's words.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if let Some(parallelism) = self.parallelism.filter(|parallelism| *parallelism <= 0) {
            problems.push(format!(
                "parallelism: Invalid value: {parallelism}: should be an integer value greater than zero"
            ));
        }
        let percentage = |path: String, value: Option<i64>, problems: &mut Vec<String>| {
            if let Some(value) = value.filter(|value| !(0..=100).contains(value)) {
                problems.push(format!("{path}: Invalid value: {value}: not in valid range [0-100]"));
            }
        };
        percentage("percentageOfNodesToScore".into(), self.percentage_of_nodes_to_score, &mut problems);
        let first = self.pod_initial_backoff_seconds.unwrap_or(1);
        let most = self.pod_max_backoff_seconds.unwrap_or(10);
        if first <= 0 {
            problems.push(format!("podInitialBackoffSeconds: Invalid value: {first}: must be greater than 0"));
        }
        if most < first {
            problems.push(format!(
                "podMaxBackoffSeconds: Invalid value: {most}: must be greater than or equal to PodInitialBackoffSeconds"
            ));
        }
        if self.extenders.as_ref().is_some_and(|extenders| !extenders.is_empty()) {
            problems.push("extenders: Forbidden: scheduler extenders are not available".into());
        }
        let mut names = BTreeSet::new();
        let several = self.profiles.as_ref().is_some_and(|profiles| profiles.len() > 1);
        for (index, profile) in self.profiles.iter().flatten().enumerate() {
            let path = format!("profiles[{index}]");
            percentage(format!("{path}.percentageOfNodesToScore"), profile.percentage_of_nodes_to_score, &mut problems);
            match profile.scheduler_name.as_deref() {
                None | Some("") if several => problems.push(format!("{path}.schedulerName: Required value")),
                Some("") => problems.push(format!("{path}.schedulerName: Required value")),
                Some(name) if !names.insert(name) => {
                    problems.push(format!("{path}.schedulerName: Duplicate value: {name:?}"));
                }
                _ => {}
            }
            for (point, set) in
                profile.plugins.iter().flat_map(Plugins::all).filter(|(point, _)| *point != "multiPoint")
            {
                for (place, plugin) in set.enabled.iter().flatten().enumerate().filter(|(_, one)| is_removed(&one.name))
                {
                    problems.push(removed(&format!("{path}.plugins.{point}.enabled[{place}]"), &plugin.name));
                }
            }
            let mut configured = BTreeSet::new();
            for (place, config) in profile.plugin_config.iter().flatten().enumerate() {
                if !configured.insert(&config.name) {
                    problems.push(format!("{path}.pluginConfig[{place}]: Duplicate value: {:?}", config.name));
                }
                if is_removed(&config.name) {
                    problems.push(removed(&format!("{path}.pluginConfig[{place}]"), &config.name));
                }
            }
        }
        problems
    }
}

/// Plugins that upstream had before this version of the file.
fn is_removed(plugin: &str) -> bool {
    matches!(plugin, "AzureDiskLimits" | "CinderLimits" | "EBSLimits" | "GCEPDLimits")
}

fn removed(path: &str, plugin: &str) -> String {
    let version = super::API_VERSION;
    let why = format!("was invalid in version {version:?} (KubeSchedulerConfiguration is version {version:?})");
    format!("{path}: Invalid value: {plugin:?}: {why}")
}
