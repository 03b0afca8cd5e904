//! Files as people write them, and what is wrong with them.

use super::*;

const HEAD: &str = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";

fn file(text: &str) -> Result<Config, String> {
    read(&format!("{HEAD}{text}")).map_err(|error| error.to_string())
}

fn weights(profile: &Profile) -> Vec<(&'static str, i64)> {
    profile.scores.iter().map(|(plugin, weight)| (plugin.name(), *weight)).collect()
}

#[test]
fn an_empty_file_changes_nothing() {
    let config = file("").expect("a good file");
    let standard = Profile::standard();
    assert_eq!(weights(&config.profiles[0]), weights(&standard));
    assert_eq!(config.profiles[0].scheduler_name, "default-scheduler");
    assert_eq!(config.profiles[0].filters.len(), standard.filters.len());
}

#[test]
fn profiles_choose_their_plugins() {
    let text = "
percentageOfNodesToScore: 70
podInitialBackoffSeconds: 2
podMaxBackoffSeconds: 20
profiles:
- schedulerName: packed
  percentageOfNodesToScore: 30
  plugins:
    score:
      disabled: [{name: '*'}]
      enabled: [{name: NodeResourcesFit, weight: 5}]
    filter:
      disabled: [{name: NodePorts}]
    postFilter:
      disabled: [{name: '*'}]
  pluginConfig:
  - name: NodeResourcesFit
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: NodeResourcesFitArgs
      scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 3}]}
  - name: VolumeBinding
    args: {bindTimeoutSeconds: 30}
- schedulerName: plain
  plugins:
    multiPoint:
      disabled: [{name: ImageLocality}]
      enabled: [{name: TaintToleration, weight: 9}]
";
    let config = file(text).expect("a good file");
    let [packed, plain] = &config.profiles[..] else { panic!("two profiles") };
    assert_eq!(weights(packed), [("NodeResourcesFit", 5)]);
    assert!(packed.plugin("NodePorts").is_none() && !packed.preempts);
    assert_eq!((packed.percentage_of_nodes_to_score, plain.percentage_of_nodes_to_score), (30, 70));
    assert_eq!(packed.volume_bind_timeout, Duration::from_secs(30));
    assert!(plain.preempts && plain.plugin("ImageLocality").is_none());
    assert!(weights(plain).contains(&("TaintToleration", 9)));
    assert_eq!(config.queue.backoff_max, Duration::from_secs(20));
}

#[test]
fn bad_files_are_refused_in_upstreams_words() {
    let check = |text: &str, expected: &str| match file(text) {
        Ok(_) => panic!("{text} was accepted"),
        Err(said) => assert!(said.contains(expected), "{text}: {said}"),
    };
    check("percentageOfNodesToScore: 101", "percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]");
    check("podInitialBackoffSeconds: -1", "podInitialBackoffSeconds: Invalid value: -1: must be greater than 0");
    check(
        "{podInitialBackoffSeconds: 5, podMaxBackoffSeconds: 1}".trim_matches(['{', '}']).replace(", ", "\n").as_str(),
        "podMaxBackoffSeconds: Invalid value: 1: must be greater than or equal to PodInitialBackoffSeconds",
    );
    check("profiles: [{schedulerName: a}, {schedulerName: a}]", "profiles[1].schedulerName: Duplicate value: \"a\"");
    check("profiles: [{schedulerName: a}, {}]", "profiles[1].schedulerName: Required value");
    check("wrong: 1", "strict decoding error: unknown field `wrong`");
    check("profiles: [{plugins: {score: {enabled: [{name: Nope}]}}}]", "plugin \"Nope\" does not exist");
    check("profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {x: 1}}]}]", "unknown field `x`");
    check(
        "profiles: [{pluginConfig: [{name: InterPodAffinity, args: {hardPodAffinityWeight: 101}}]}]",
        "hardPodAffinityWeight: Invalid value: 101: not in valid range [0-100]",
    );
    assert!(read("apiVersion: v1\nkind: Pod\n").is_err());
}
