//! Rules of workloads in upstream's words: one change at a time of an object that is good.

use serde_json::{Value, json};

use crate::testing::Rules;

fn workload(version: &str, kind: &str, more: Value) -> Rules {
    let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "w"}, "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}},
    }});
    crate::testing::merge(&mut object, &json!({"spec": more}));
    Rules::of(object)
}

fn spec(rules: &Rules, changes: Value, expected: &[&str]) {
    let expected: Vec<String> = expected.iter().map(|text| format!("spec.{text}")).collect();
    rules.create(json!({"spec": changes}), &expected.iter().map(String::as_str).collect::<Vec<_>>());
}

const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex \
                       used for validation is '[0-9]+%')";

#[test]
fn deployments() {
    let rules = workload("apps/v1", "Deployment", json!({}));
    spec(&rules, json!({"replicas": -1}), &["replicas: Invalid value: -1: must be greater than or equal to 0"]);
    spec(
        &rules,
        json!({"selector": null}),
        &[
            "selector: Required value",
            "template.metadata.labels: Invalid value: {\"app\":\"web\"}: `selector` does not match template `labels`",
        ],
    );
    spec(
        &rules,
        json!({"selector": {"matchLabels": {"app": "other"}}}),
        &["template.metadata.labels: Invalid value: {\"app\":\"web\"}: `selector` does not match template `labels`"],
    );
    spec(
        &rules,
        json!({"template": {"spec": {"restartPolicy": "Never"}}}),
        &["template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\""],
    );
    spec(
        &rules,
        json!({"template": {"spec": {"activeDeadlineSeconds": 5}}}),
        &["template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicaSet is not Supported"],
    );
    spec(
        &rules,
        json!({"minReadySeconds": 600}),
        &["progressDeadlineSeconds: Invalid value: 600: must be greater than minReadySeconds"],
    );
    spec(
        &rules,
        json!({"strategy": {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}}),
        &["strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'"],
    );
    let rolling = |unavailable: Value, surge: Value| json!({"strategy": {"rollingUpdate": {"maxUnavailable": unavailable, "maxSurge": surge}}});
    spec(
        &rules,
        rolling(json!(0), json!("0%")),
        &["strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0"],
    );
    spec(
        &rules,
        rolling(json!("101%"), json!("200%")),
        &["strategy.rollingUpdate.maxUnavailable: Invalid value: \"101%\": must not be greater than 100%"],
    );
    spec(
        &rules,
        rolling(json!("a"), json!(-1)),
        &[
            &format!("strategy.rollingUpdate.maxUnavailable: Invalid value: \"a\": {PERCENT}"),
            "strategy.rollingUpdate.maxSurge: Invalid value: -1: must be greater than or equal to 0",
        ],
    );
    rules.update(json!({"spec": {"selector": {"matchLabels": {"tier": "x"}}, "template": {"metadata": {"labels": {"tier": "x"}}}}}), &[
        "spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"web\",\"tier\":\"x\"}}: field is immutable",
    ]);
    rules.status(
        json!({}),
        json!({"replicas": 1, "readyReplicas": 2, "terminatingReplicas": -1}),
        &[
            "status.terminatingReplicas: Invalid value: -1: must be greater than or equal to 0",
            "status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas",
        ],
    );
    rules.status(
        json!({"collisionCount": 2}),
        json!({"collisionCount": 1}),
        &["status.collisionCount: Invalid value: 1: cannot be decremented"],
    );
}

#[test]
fn defaults_of_deployments() {
    let made = workload("apps/v1", "Deployment", json!({})).made(&Value::Null);
    let spec = &made["spec"];
    assert_eq!((&spec["replicas"], &spec["revisionHistoryLimit"]), (&json!(1), &json!(10)));
    assert_eq!(spec["progressDeadlineSeconds"], 600);
    let expected = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}});
    assert_eq!(spec["strategy"], expected);
}

#[test]
fn daemon_sets() {
    let rules = workload("apps/v1", "DaemonSet", json!({}));
    let rolling = |unavailable: Value, surge: Value| json!({"updateStrategy": {"rollingUpdate": {"maxUnavailable": unavailable, "maxSurge": surge}}});
    spec(
        &rules,
        rolling(json!(1), json!(1)),
        &["updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero"],
    );
    spec(
        &rules,
        rolling(json!(0), json!(0)),
        &["updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0"],
    );
    spec(
        &rules,
        rolling(json!(0), json!("101%")),
        &["updateStrategy.rollingUpdate.maxSurge: Invalid value: \"101%\": must not be greater than 100%"],
    );
    spec(
        &rules,
        json!({"template": {"spec": {"activeDeadlineSeconds": 1}}}),
        &["template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in DaemonSet is not Supported"],
    );
    spec(
        &rules,
        json!({"revisionHistoryLimit": -1, "minReadySeconds": -1}),
        &[
            "minReadySeconds: Invalid value: -1: must be greater than or equal to 0",
            "revisionHistoryLimit: Invalid value: -1: must be greater than or equal to 0",
        ],
    );
    // What may not change comes before what is wrong, as upstream has it.
    rules.update(json!({"spec": {"selector": {"matchLabels": {"tier": "x"}}}}), &[
        "spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"web\",\"tier\":\"x\"}}: field is immutable",
        "spec.template.metadata.labels: Invalid value: {\"app\":\"web\"}: `selector` does not match template `labels`",
    ]);
}

fn stateful_set(more: Value) -> Rules {
    workload("apps/v1", "StatefulSet", more)
}

#[test]
fn stateful_sets() {
    let rules = stateful_set(json!({}));
    spec(
        &rules,
        json!({"podManagementPolicy": "Random"}),
        &["podManagementPolicy: Invalid value: \"Random\": must be 'OrderedReady' or 'Parallel'"],
    );
    spec(
        &rules,
        json!({"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Keep"}}),
        &[
            "persistentVolumeClaimRetentionPolicy.whenDeleted: Unsupported value: \"Keep\": supported values: \"Retain\", \"Delete\"",
        ],
    );
    spec(
        &rules,
        json!({"updateStrategy": {"type": "OnDelete", "rollingUpdate": {"partition": 1}}}),
        &["updateStrategy.rollingUpdate: Invalid value: {\"Partition\":1,\"MaxUnavailable\":null}: only allowed for \
         updateStrategy 'RollingUpdate'"],
    );
    spec(
        &rules,
        json!({"updateStrategy": {"rollingUpdate": {"partition": -1}}, "ordinals": {"start": -1}}),
        &[
            "updateStrategy.rollingUpdate.partition: Invalid value: -1: must be greater than or equal to 0",
            "ordinals.start: Invalid value: -1: must be greater than or equal to 0",
        ],
    );
    spec(
        &rules,
        json!({"serviceName": "Web"}),
        &[
            "serviceName: Invalid value: \"Web\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or \
         '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation \
         is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
        ],
    );
    // The controller sets both, so nothing is said of them.
    spec(&rules, json!({"template": {"spec": {"hostname": "A", "subdomain": "B"}}}), &[]);
    let claim = json!({"volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}]});
    spec(
        &rules,
        claim,
        &[
            "volumeClaimTemplates[0].spec.accessModes: Required value: at least 1 access mode is required",
            "volumeClaimTemplates[0].spec.resources[storage]: Required value",
        ],
    );
    let good = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let mounted = json!({
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": good}],
        "template": {"spec": {"containers": [{"volumeMounts": [{"name": "data", "mountPath": "/data"}]}]}},
    });
    spec(&rules, mounted, &[]);
}

#[test]
fn updates_of_stateful_sets() {
    let rules = stateful_set(json!({}));
    rules.update(json!({"spec": {"replicas": 3, "minReadySeconds": 5, "revisionHistoryLimit": 3}}), &[]);
    let refusal = "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                   'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' \
                   are forbidden";
    rules.update(json!({"spec": {"serviceName": "other"}}), &[refusal]);
    rules.update(json!({"spec": {"podManagementPolicy": "Parallel"}}), &[refusal]);
    // What an older server took is no reason to refuse a change of something else.
    let old =
        json!({"spec": {"serviceName": "Web", "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}]}});
    rules.update_from(&old, json!({"spec": {"replicas": 2}}), &[]);
    rules.status(
        json!({}),
        json!({"replicas": 1, "readyReplicas": 1, "currentReplicas": 2, "availableReplicas": 0}),
        &["status.currentReplicas: Invalid value: 2: cannot be greater than status.replicas"],
    );
    rules.status(
        json!({}),
        json!({"replicas": 3, "readyReplicas": 1, "availableReplicas": 2}),
        &["status.availableReplicas: Invalid value: 2: cannot be greater than status.readyReplicas"],
    );
}

#[test]
fn revisions() {
    let rules = Rules::of(json!({
        "apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": "r"}, "revision": 1, "data": {"a": 1},
    }));
    rules.create(
        json!({"revision": -1, "data": null}),
        &["revision: Invalid value: -1: must be greater than or equal to 0", "data: Required value: data is mandatory"],
    );
    rules.create(json!({"data": ["x"]}), &["data: Required value: data must be a valid JSON object"]);
    rules.update(json!({"revision": 2}), &[]);
}

fn job(more: Value) -> Rules {
    let mut object = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "uid": "u"}, "spec": {
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}},
    }});
    crate::testing::merge(&mut object, &more);
    Rules::of(object)
}

#[test]
fn jobs() {
    let rules = job(json!({}));
    spec(
        &rules,
        json!({"parallelism": -1, "backoffLimit": -1}),
        &[
            "parallelism: Invalid value: -1: must be greater than or equal to 0",
            "backoffLimit: Invalid value: -1: must be greater than or equal to 0",
        ],
    );
    spec(
        &rules,
        json!({"template": {"spec": {"restartPolicy": "Always"}}}),
        &["template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\""],
    );
    spec(
        &rules,
        json!({"completionMode": "Sorted"}),
        &["completionMode: Unsupported value: \"Sorted\": supported values: \"NonIndexed\", \"Indexed\""],
    );
    spec(
        &rules,
        json!({"completionMode": "Indexed", "parallelism": 2}),
        &["completions: Required value: when completion mode is Indexed"],
    );
    spec(
        &rules,
        json!({"maxFailedIndexes": 1}),
        &[
            "backoffLimitPerIndex: Required value: when maxFailedIndexes is specified",
            "maxFailedIndexes: Invalid value: 1: requires indexed completion mode",
        ],
    );
    let domain = "must be a domain-prefixed path (such as \"acme.io/foo\")";
    spec(&rules, json!({"managedBy": "acme.io/foo"}), &[]);
    spec(&rules, json!({"managedBy": "foo"}), &[&format!("managedBy: Invalid value: \"foo\": {domain}")]);
    spec(&rules, json!({"managedBy": "acme.io/"}), &[&format!("managedBy: Invalid value: \"acme.io/\": {domain}")]);
    spec(
        &rules,
        json!({"managedBy": "acme.io/a b"}),
        &["managedBy: Invalid value: \"a b\": Invalid path (regex used for validation is \
         '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')"],
    );
    spec(
        &rules,
        json!({"managedBy": format!("acme.io/{}", "a".repeat(60))}),
        &["managedBy: Too long: may not be more than 63 bytes"],
    );
}

#[test]
fn failures_and_successes_of_jobs() {
    let rules = job(json!({}));
    let rule = |rule: Value| json!({"podFailurePolicy": {"rules": [rule]}});
    let at = "podFailurePolicy.rules[0]";
    spec(
        &rules,
        rule(json!({"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]})),
        &[],
    );
    spec(
        &rules,
        rule(json!({})),
        &[
            &format!("{at}.action: Required value: valid values: [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]"),
            &format!("{at}: Invalid value: specifying one of OnExitCodes and OnPodConditions is required"),
        ],
    );
    spec(
        &rules,
        rule(
            json!({"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [0, 3, 2, 3], "containerName": "z"}}),
        ),
        &[
            &format!("{at}.action: Invalid value: \"FailIndex\": requires the backoffLimitPerIndex to be set"),
            &format!(
                "{at}.onExitCodes.containerName: Invalid value: \"z\": must be one of the container or initContainer names in the \
             pod template"
            ),
            &format!("{at}.onExitCodes.values[0]: Invalid value: 0: must not be 0 for the In operator"),
            &format!("{at}.onExitCodes.values[3]: Duplicate value: 3"),
            &format!("{at}.onExitCodes.values: Invalid value: [0,3,2,3]: must be ordered"),
        ],
    );
    let indexed = job(json!({"spec": {"completionMode": "Indexed", "completions": 3, "parallelism": 3}}));
    let success = |rule: Value| json!({"successPolicy": {"rules": [rule]}});
    let at = "successPolicy.rules[0]";
    spec(&indexed, success(json!({"succeededIndexes": "0-1", "succeededCount": 1})), &[]);
    spec(
        &indexed,
        success(json!({})),
        &[&format!("{at}: Required value: at least one of succeededCount or succeededIndexes must be specified")],
    );
    spec(
        &indexed,
        success(json!({"succeededCount": 4})),
        &[&format!(
            "{at}.succeededCount: Invalid value: 4: must be less than or equal to 3 (the number of specified completions)"
        )],
    );
    spec(
        &rules,
        success(json!({"succeededCount": 1})),
        &["successPolicy: Invalid value: {\"rules\":[{\"succeededCount\":1}]}: requires indexed completion mode"],
    );
}

/// A Job that is suspended and has no pods may be placed and sized anew, also one that ran before.
#[test]
fn suspended_jobs() {
    let status = json!({"conditions": [{"type": "Suspended", "status": "True"}], "startTime": "2030-01-01T00:00:00Z"});
    let check = |suspend: bool, status: &Value, template: Value, is_allowed: bool| {
        let mut old = job(json!({"spec": {"suspend": suspend}})).made(&Value::Null);
        old["status"] = status.clone();
        let mut new = old.clone();
        crate::testing::merge(&mut new, &json!({"spec": {"template": template}}));
        let mut errors = machinery::field::Errors::default();
        let root = machinery::node::Node::root;
        (crate::batch::job::KIND.validate_update)(&root(&new), &root(&old), &mut errors);
        let fields: Vec<&str> = errors.0.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields.is_empty(), is_allowed, "{template} {fields:?}");
    };
    let placed = json!({"spec": {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "a", "operator": "Exists"}]}});
    let sized = json!({"spec": {"containers": [{"resources": {"requests": {"cpu": "2"}}}]}});
    check(true, &status, placed.clone(), true);
    check(true, &status, sized.clone(), true);
    check(true, &status, json!({"metadata": {"labels": {"more": "x"}}}), true);
    check(true, &status, json!({"spec": {"containers": [{"image": "y"}]}}), false);
    check(false, &status, placed.clone(), false);
    check(true, &json!({}), placed.clone(), false);
    let busy = json!({"conditions": [{"type": "Suspended", "status": "True"}], "active": 1});
    check(true, &busy, placed, false);
    check(true, &busy, sized, false);
}

#[test]
fn cron_jobs() {
    let rules = Rules::of(json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"}, "spec": {
        "schedule": "*/5 * * * *",
        "jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}}},
    }}));
    spec(&rules, json!({"schedule": null}), &["schedule: Required value"]);
    spec(
        &rules,
        json!({"schedule": "TZ=UTC 0 0 * * *"}),
        &[
            "schedule: Invalid value: \"TZ=UTC 0 0 * * *\": cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
        ],
    );
    spec(
        &rules,
        json!({"timeZone": "Mars/Base"}),
        &["timeZone: Invalid value: \"Mars/Base\": unknown time zone Mars/Base"],
    );
    spec(
        &rules,
        json!({"concurrencyPolicy": "Queue", "startingDeadlineSeconds": -1}),
        &[
            "startingDeadlineSeconds: Invalid value: -1: must be greater than or equal to 0",
            "concurrencyPolicy: Unsupported value: \"Queue\": supported values: \"Allow\", \"Forbid\", \"Replace\"",
        ],
    );
    spec(
        &rules,
        json!({"jobTemplate": {"spec": {"manualSelector": true}}}),
        &["jobTemplate.spec.manualSelector: Unsupported value: true: supported values: \"nil\", \"false\""],
    );
    rules.create(
        json!({"metadata": {"name": "c".repeat(53)}}),
        &[&format!("metadata.name: Invalid value: \"{}\": must be no more than 52 characters", "c".repeat(53))],
    );
}

#[test]
fn replica_sets() {
    let rules = workload("apps/v1", "ReplicaSet", json!({}));
    spec(
        &rules,
        json!({"minReadySeconds": -1, "selector": {"matchLabels": {"app": "-"}}}),
        &[
            "minReadySeconds: Invalid value: -1: must be greater than or equal to 0",
            "selector.matchLabels: Invalid value: \"-\": a valid label must be an empty string or consist of alphanumeric \
             characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or \
             'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
            "selector: Invalid value: {\"matchLabels\":{\"app\":\"-\"}}: invalid label selector",
        ],
    );
    rules.status(
        json!({}),
        json!({"replicas": 2, "readyReplicas": 1, "availableReplicas": 2, "terminatingReplicas": -1}),
        &[
            "status.terminatingReplicas: Invalid value: -1: must be greater than or equal to 0",
            "status.availableReplicas: Invalid value: 2: cannot be greater than readyReplicas",
        ],
    );
}
