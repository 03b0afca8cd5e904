//! `KubeSchedulerConfiguration` files (kubescheduler.config.k8s.io/v1): read strictly, checked, and made into a [`Config`].

mod arguments;
mod file;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::framework::Plugin;
use crate::plugins;
use crate::profile::Profile;
use crate::queue::Limits;
use crate::{Config, Error};

use arguments::ArgumentError;
use file::{File, FileProfile, PluginSet};

const API_VERSION: &str = "kubescheduler.config.k8s.io/v1";
const KIND: &str = "KubeSchedulerConfiguration";
const PREEMPTION: &str = "DefaultPreemption";
/// Parts of upstream that are always there in ours: naming them changes nothing.
const BUILT_IN: [&str; 4] = ["PrioritySort", "DefaultBinder", "DynamicResources", PREEMPTION];

/// The settings that a file, in YAML or JSON, asks for.
pub fn read(text: &str) -> Result<Config, Error> {
    let decoded = machinery::codec::decode_yaml(text.as_bytes());
    let value = decoded.map_err(|error| Error::Configuration(error.to_string()))?.value;
    let said = |field: &str| value.get(field).and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
    if said("apiVersion") != API_VERSION || said("kind") != KIND {
        return Err(Error::Configuration(format!(
            "no kind {:?} is registered for version {:?}: expected {KIND} of {API_VERSION}",
            said("kind"),
            said("apiVersion")
        )));
    }
    let file: File = serde_json::from_value(value)
        .map_err(|error| Error::Configuration(format!("strict decoding error: {error}")))?;
    let problems = file.problems();
    if !problems.is_empty() {
        return Err(Error::Configuration(arguments::aggregated(&problems)));
    }
    let limits = Limits {
        backoff_first: Duration::from_secs(file.pod_initial_backoff_seconds.unwrap_or(1).max(0) as u64),
        backoff_max: Duration::from_secs(file.pod_max_backoff_seconds.unwrap_or(10).max(0) as u64),
        ..Limits::default()
    };
    let profiles = match file.profiles.as_deref().unwrap_or_default() {
        [] => vec![made(&file, 0, &FileProfile::default())?],
        profiles => {
            let made = profiles.iter().enumerate().map(|(index, profile)| made(&file, index, profile));
            made.collect::<Result<_, _>>()?
        }
    };
    Ok(Config { profiles, queue: limits, ..Config::default() })
}

fn made(file: &File, index: usize, wanted: &FileProfile) -> Result<Profile, Error> {
    let name = wanted.scheduler_name.clone().unwrap_or_else(|| "default-scheduler".into());
    let failed =
        |why: ArgumentError| Error::Configuration(format!("creating profile for scheduler name {name}: {why}"));
    let mut profile = Profile { scheduler_name: name.clone(), ..Profile::standard() };
    let percentage = wanted.percentage_of_nodes_to_score.or(file.percentage_of_nodes_to_score).unwrap_or(0);
    profile.percentage_of_nodes_to_score = percentage as u32;
    let mut all = plugins::standard();
    for (place, config) in wanted.plugin_config.iter().flatten().enumerate() {
        let path = format!("profiles[{index}].pluginConfig[{place}].args");
        let known = arguments::apply(config, &path, &mut all, &mut profile).map_err(failed)?;
        if !known {
            return Err(failed(ArgumentError::NoPlugin(config.name.clone())));
        }
    }
    let sets = wanted.plugins.clone().unwrap_or_default();
    for (_, set) in sets.all() {
        let named =
            set.enabled.iter().flatten().chain(set.disabled.iter().flatten()).map(|plugin| plugin.name.as_str());
        for plugin in named.filter(|name| *name != "*") {
            if !BUILT_IN.contains(&plugin) && !all.iter().any(|(known, _)| known.name() == plugin) {
                return Err(failed(ArgumentError::NoPlugin(plugin.to_owned())));
            }
        }
    }
    let everywhere = sets.multi_point.clone().unwrap_or_default();
    let remains = chosen(&everywhere, all);
    let filtering = [&sets.pre_filter, &sets.filter].into_iter().flatten();
    let dropped: BTreeSet<String> = filtering.clone().flat_map(|set| disabled(set, &remains)).collect();
    let kept = filtering.flat_map(|set| set.enabled.iter().flatten()).map(|plugin| plugin.name.clone());
    let kept: BTreeSet<String> = kept.collect();
    let filters = remains.iter().filter(|(plugin, _)| !dropped.contains(plugin.name()) || kept.contains(plugin.name()));
    profile.filters = filters.map(|(plugin, _)| plugin.clone()).collect();
    let scoring = sets.score.clone().unwrap_or_default();
    let scores = chosen(&scoring, remains);
    profile.scores = scores.into_iter().filter(|(_, weight)| *weight > 0).collect();
    let stops = [&sets.post_filter, &sets.multi_point].into_iter().flatten();
    let names = |list: &Option<Vec<file::NamedPlugin>>, all: bool| {
        list.iter().flatten().any(|plugin| plugin.name == PREEMPTION || (all && plugin.name == "*"))
    };
    profile.preempts =
        !stops.clone().any(|set| names(&set.disabled, true)) || stops.clone().any(|set| names(&set.enabled, false));
    Ok(profile)
}

type Weighed = Vec<(Arc<dyn Plugin>, i64)>;

fn disabled(set: &PluginSet, all: &Weighed) -> Vec<String> {
    let named: Vec<&str> = set.disabled.iter().flatten().map(|plugin| plugin.name.as_str()).collect();
    let all = all.iter().map(|(plugin, _)| plugin.name());
    all.filter(|name| named.contains(&"*") || named.contains(name)).map(str::to_owned).collect()
}

/// What is left of the plugins, with the weights that the set gives.
fn chosen(set: &PluginSet, all: Weighed) -> Weighed {
    let dropped = disabled(set, &all);
    let enabled = |name: &str| set.enabled.iter().flatten().find(|plugin| plugin.name == name);
    all.into_iter()
        .filter(|(plugin, _)| !dropped.iter().any(|name| name == plugin.name()) || enabled(plugin.name()).is_some())
        .map(|(plugin, weight)| {
            let given = enabled(plugin.name()).and_then(|plugin| plugin.weight).filter(|weight| *weight > 0);
            // A plugin that gives no scores has no weight, whatever the file says.
            let weight = if weight == 0 { 0 } else { given.unwrap_or(weight) };
            (plugin, weight)
        })
        .collect()
}
