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
        "profiles[0].pluginConfig[0].args.hardPodAffinityWeight: Invalid value: 101: not in valid range [0, 100]",
    );
    assert!(read("apiVersion: v1\nkind: Pod\n").is_err());
}

/// One profile with the arguments of one plugin.
fn with_args(plugin: &str, args: &str) -> Result<Config, String> {
    file(&format!("profiles: [{{pluginConfig: [{{name: {plugin}, args: {args}}}]}}]"))
}

#[test]
fn bad_arguments_are_refused_in_upstreams_words() {
    let head = "creating profile for scheduler name default-scheduler: ";
    let check = |plugin: &str, args: &str, expected: &str| match with_args(plugin, args) {
        Ok(_) => panic!("{plugin} {args} was accepted"),
        Err(said) => {
            let at = "profiles[0].pluginConfig[0].args";
            assert_eq!(said.strip_prefix(head), Some(expected.replace('@', at).as_str()), "{plugin} {args}");
        }
    };
    let preemption = "DefaultPreemption";
    check(
        preemption,
        "{minCandidateNodesPercentage: 101}",
        "@.minCandidateNodesPercentage: Invalid value: 101: not in valid range [0, 100]",
    );
    check(
        preemption,
        "{minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 0}",
        "[@.minCandidateNodesPercentage: Invalid value: 0: cannot be zero at the same time as minCandidateNodesAbsolute, \
         @.minCandidateNodesAbsolute: Invalid value: 0: cannot be zero at the same time as minCandidateNodesPercentage]",
    );
    check(
        preemption,
        "{minCandidateNodesAbsolute: -1}",
        "@.minCandidateNodesAbsolute: Invalid value: -1: not in valid range [0, inf)",
    );
    let volumes = "VolumeBinding";
    check(
        volumes,
        "{bindTimeoutSeconds: -1}",
        "@.bindTimeoutSeconds: Invalid value: -1: invalid BindTimeoutSeconds, should not be a negative value",
    );
    assert!(with_args(volumes, "{shape: []}").is_err_and(|said| said.contains("unexpected field `shape`")));
    assert!(with_args(volumes, "{bindTimeout: 1}").is_err(), "unknown fields are refused");
    let balanced = "NodeResourcesBalancedAllocation";
    check(
        balanced,
        "{resources: [{name: cpu, weight: 2}, {name: cpu}]}",
        "[@.resources[0].weight: Invalid value: 2: must be 1, @.resources[1].name: Duplicate value: \"cpu\"]",
    );
    assert!(
        with_args("DynamicResources", "{filterTimeout: 1s}")
            .is_err_and(|said| said.contains(".args.filterTimeout: Forbidden"))
    );
    let devices = "DynamicResources";
    assert!(with_args(devices, "{kind: DynamicResourcesArgs}").is_ok());
    assert!(with_args(devices, "{bindingTimeout: 1s}").is_ok());
    let short = "@.bindingTimeout: Invalid value: \"999ms\": must be at least 1 second";
    check(devices, "{bindingTimeout: 999ms}", short);
    check(
        devices,
        "{bindingTimeout: soon}",
        "@.bindingTimeout: Invalid value: \"soon\": time: invalid duration \"soon\"",
    );
}

#[test]
fn bad_scoring_is_refused_in_upstreams_words() {
    let check = |args: &str, expected: &str| {
        let said = with_args("NodeResourcesFit", args).err().unwrap_or_else(|| panic!("{args} was accepted"));
        assert_eq!(said.split_once("default-scheduler: ").map(|(_, why)| why), Some(expected), "{args}");
    };
    check(
        "{ignoredResourceGroups: [a/b]}",
        "ignoredResourceGroups[0]: Invalid value: \"a/b\": resource group name can't contain '/'",
    );
    check(
        "{scoringStrategy: {type: Best}}",
        "scoringStrategy.type: Unsupported value: \"Best\": supported values: \"LeastAllocated\", \"MostAllocated\", \"RequestedToCapacityRatio\"",
    );
    check(
        "{scoringStrategy: {type: LeastAllocated, resources: [{name: cpu, weight: 1}, {name: memory, weight: 101}]}}",
        "scoringStrategy.resources[1].weight: Invalid value: 101: resource weight of memory not in valid range (0, 100]",
    );
    let ratio = "scoringStrategy.requestedToCapacityRatio";
    check(
        "{scoringStrategy: {type: RequestedToCapacityRatio}}",
        &format!("{ratio}: Required value: must be specified when type is RequestedToCapacityRatio"),
    );
    check(
        "{scoringStrategy: {type: MostAllocated, requestedToCapacityRatio: {}}}",
        &format!("{ratio}: Forbidden: must be nil when type is not RequestedToCapacityRatio"),
    );
    let shaped = |points: &str| {
        format!(
            "{{scoringStrategy: {{type: RequestedToCapacityRatio, requestedToCapacityRatio: {{shape: {points}}}}}}}"
        )
    };
    check(&shaped("[]"), &format!("{ratio}.shape: Required value: at least one point must be specified"));
    check(
        &shaped("[{utilization: 10, score: 1}, {utilization: 10, score: 2}]"),
        &format!("{ratio}.shape[1].utilization: Invalid value: 10: values must be sorted in increasing order"),
    );
    check(
        &shaped("[{utilization: -1, score: 11}]"),
        &format!(
            "[{ratio}.shape[0].utilization: Invalid value: -1: not in valid range [0, 100], \
             {ratio}.shape[0].score: Invalid value: 11: not in valid range [0, 10]]"
        ),
    );
    assert!(
        with_args("NodeResourcesFit", &shaped("[{utilization: 0, score: 0}, {utilization: 100, score: 10}]")).is_ok()
    );
}

#[test]
fn default_constraints_are_given_as_a_list() {
    let check = |args: &str, expected: &str| {
        let said = with_args("PodTopologySpread", args).err().unwrap_or_else(|| panic!("{args} was accepted"));
        let why = said.split_once("pluginConfig[0].args.").map(|(_, why)| why);
        assert_eq!(why, Some(expected), "{args}");
    };
    let one = "{topologyKey: zone, maxSkew: 1, whenUnsatisfiable: DoNotSchedule}";
    let system = "defaultingType: Invalid value: \"System\": when .defaultConstraints are not empty";
    check(&format!("{{defaultConstraints: [{one}]}}"), system);
    check(
        "{defaultingType: None}",
        "defaultingType: Unsupported value: \"None\": supported values: \"System\", \"List\"",
    );
    let list = |constraints: &str| format!("{{defaultingType: List, defaultConstraints: [{constraints}]}}");
    assert!(with_args("PodTopologySpread", &list(one)).is_ok());
    assert!(with_args("PodTopologySpread", "{defaultingType: List}").is_ok());
    check(&list(&format!("{one}, {one}")), "defaultConstraints[1]: Duplicate value: \"{zone, DoNotSchedule}\"");
    check(
        &list("{topologyKey: zone, maxSkew: 0, whenUnsatisfiable: ScheduleAnyway}"),
        "defaultConstraints[0].maxSkew: Invalid value: 0: not in valid range (0, inf)",
    );
    check(
        &list("{topologyKey: zone, maxSkew: 1, whenUnsatisfiable: Never}"),
        "defaultConstraints[0].whenUnsatisfiable: Unsupported value: \"Never\": supported values: \"DoNotSchedule\", \"ScheduleAnyway\"",
    );
    check(
        &list("{topologyKey: zone, maxSkew: 1, whenUnsatisfiable: DoNotSchedule, labelSelector: {}}"),
        "defaultConstraints[0].labelSelector: Forbidden: constraint must not define a selector, as they deduced for each pod",
    );
}

#[test]
fn plugins_that_are_gone_are_named() {
    let why = "was invalid in version \"kubescheduler.config.k8s.io/v1\" (KubeSchedulerConfiguration is version \"kubescheduler.config.k8s.io/v1\")";
    let check = |text: &str, path: &str| {
        assert_eq!(file(text).err(), Some(format!("{path}: Invalid value: \"EBSLimits\": {why}")));
    };
    let gone = "{enabled: [{name: NodePorts}, {name: EBSLimits}]}";
    check(&format!("profiles: [{{plugins: {{filter: {gone}}}}}]"), "profiles[0].plugins.filter.enabled[1]");
    check("profiles: [{pluginConfig: [{name: EBSLimits}]}]", "profiles[0].pluginConfig[0]");
}

#[test]
fn several_problems_are_told_together() {
    let said = file("parallelism: 0\npercentageOfNodesToScore: -1").err();
    let expected = "[parallelism: Invalid value: 0: should be an integer value greater than zero, \
        percentageOfNodesToScore: Invalid value: -1: not in valid range [0-100]]";
    assert_eq!(said.as_deref(), Some(expected));
}

#[test]
fn listed_resources_stand_for_themselves() {
    use crate::plugins::tests::memory_counts;
    // With CPU alone in the list, memory does not count; without a list, both do.
    let fit = |args: &str| {
        let config = with_args("NodeResourcesFit", args).expect("good arguments");
        config.profiles[0].plugin("NodeResourcesFit").expect("it is always there").clone()
    };
    assert!(!memory_counts(&*fit("{scoringStrategy: {type: LeastAllocated, resources: [{name: cpu, weight: 3}]}}")));
    assert!(memory_counts(&*fit("{scoringStrategy: {type: LeastAllocated}}")));
    assert!(memory_counts(&*fit("{scoringStrategy: {type: LeastAllocated, resources: [{name: memory, weight: 0}]}}")));
}
