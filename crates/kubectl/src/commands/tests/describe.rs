//! `kubectl describe` as a whole: objects, what belongs to them, events, and columns that line up.

use super::*;

/// Describes one object of a path, with what else is asked for.
fn check(fake: Fake, collection: &str, object: Value, line: &str, expected: &str) {
    let mut object = object;
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if collection.contains("/namespaces/default/") {
        object["metadata"]["namespace"] = "default".into();
    }
    let fake = fake.answer(&format!("GET {collection}/{name}"), object);
    let ran = fake.run(&format!("describe {line} {name}"));
    assert_eq!(ran.err, "", "{line}: {:?}", ran.lines());
    assert_eq!(ran.out, expected, "{line}");
}

fn empty(kind: &str) -> Value {
    json!({"apiVersion": "v1", "kind": format!("{kind}List"), "metadata": {}, "items": []})
}

/// An API without events, pods and revisions.
fn quiet() -> Fake {
    Fake::new()
        .answer("GET /api/v1/namespaces/default/events", empty("Event"))
        .answer("GET /api/v1/events", empty("Event"))
        .answer(&format!("GET {PODS}"), empty("Pod"))
        .answer("GET /apis/apps/v1/namespaces/default/replicasets", empty("ReplicaSet"))
        .answer("GET /apis/discovery.k8s.io/v1/namespaces/default/endpointslices", empty("EndpointSlice"))
}

fn template(labels: Value) -> Value {
    json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "b"}]}})
}

#[test]
fn config_maps_show_texts_and_count_bytes() {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "conf"},
        "data": {"lines": "one\ntwo\n"}, "binaryData": {"bin": "AAEC"}});
    check(
        quiet(),
        "/api/v1/namespaces/default/configmaps",
        object,
        "cm",
        "\
Name:         conf
Namespace:    default
Labels:       <none>
Annotations:  <none>

Data
====
lines:
----
one
two



BinaryData
====
bin: 3 bytes

Events:  <none>
",
    );
}

#[test]
fn secrets_are_never_shown() {
    let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "sec"}, "type": "Opaque",
        "data": {"password": "aHVudGVyMg=="}});
    check(
        quiet(),
        "/api/v1/namespaces/default/secrets",
        object,
        "secret",
        "\
Name:         sec
Namespace:    default
Labels:       <none>
Annotations:  <none>

Type:  Opaque

Data
====
password:  7 bytes
",
    );
}

#[test]
fn services_have_addresses_and_ports() {
    let object = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "np"},
        "spec": {"type": "NodePort", "selector": {"a": "b"}, "externalIPs": ["1.2.3.4"], "clusterIP": "10.96.0.7",
            "clusterIPs": ["10.96.0.7"], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "sessionAffinity": "None", "internalTrafficPolicy": "Cluster", "externalTrafficPolicy": "Cluster",
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80, "nodePort": 30080}]}});
    check(
        quiet(),
        "/api/v1/namespaces/default/services",
        object,
        "svc",
        "\
Name:                     np
Namespace:                default
Labels:                   <none>
Annotations:              <none>
Selector:                 a=b
Type:                     NodePort
IP Family Policy:         SingleStack
IP Families:              IPv4
IP:                       10.96.0.7
IPs:                      10.96.0.7
External IPs:             1.2.3.4
Port:                     <unset>  80/TCP
TargetPort:               80/TCP
NodePort:                 <unset>  30080/TCP
Endpoints:                <none>
Session Affinity:         None
External Traffic Policy:  Cluster
Internal Traffic Policy:  Cluster
Events:                   <none>
",
    );
}

#[test]
fn deployments_show_strategy_template_and_conditions() {
    let conditions = json!([
        {"type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable"},
        {"type": "Progressing", "status": "Unknown", "reason": "DeploymentPaused"}]);
    let mut template = template(json!({"d": "e"}));
    template["metadata"]["annotations"] = json!({"x": "z"});
    template["spec"]["serviceAccountName"] = "sa".into();
    let object = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "dep", "creationTimestamp": "2026-01-02T03:04:05Z"},
        "spec": {"paused": true, "replicas": 2, "minReadySeconds": 3, "template": template,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
            "selector": {"matchLabels": {"d": "e"}, "matchExpressions": [{"key": "d", "operator": "Exists"}]}},
        "status": {"conditions": conditions}});
    let text = "\
Name:                   dep
Namespace:              default
CreationTimestamp:      TIME
Labels:                 <none>
Annotations:            <none>
Selector:               d=e,d
Replicas:               2 desired | 0 updated | 0 total | 0 available | 0 unavailable
StrategyType:           RollingUpdate
MinReadySeconds:        3
RollingUpdateStrategy:  25% max unavailable, 25% max surge
Pod Template:
  Labels:           d=e
  Annotations:      x: z
  Service Account:  sa
  Containers:
   a:
    Image:         b
    Port:          <none>
    Host Port:     <none>
    Environment:   <none>
    Mounts:        <none>
  Volumes:         <none>
  Node-Selectors:  <none>
  Tolerations:     <none>
Conditions:
  Type          Status   Reason
  ----          ------   ------
  Available     False    MinimumReplicasUnavailable
  Progressing   Unknown  DeploymentPaused
Events:         <none>
";
    // In the time zone of this machine.
    let time = jiff::Timestamp::from_second(1_767_323_045).expect("a time").to_zoned(jiff::tz::TimeZone::system());
    let text = text.replace("TIME", &time.strftime("%a, %d %b %Y %H:%M:%S %z").to_string());
    check(quiet(), DEPLOYMENTS, object, "deploy", &text);
}

#[test]
fn stateful_sets_show_their_claims() {
    let claim = json!({"metadata": {"name": "data", "labels": {"v": "w"}}, "spec": {"accessModes": ["ReadWriteOnce"],
        "storageClassName": "slow", "resources": {"requests": {"storage": "1Gi"}}}});
    let object = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "sts"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"s": "t"}}, "template": template(json!({"s": "t"})),
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
            "volumeClaimTemplates": [claim]}, "status": {"replicas": 0}});
    check(
        quiet(),
        "/apis/apps/v1/namespaces/default/statefulsets",
        object,
        "sts",
        "\
Name:               sts
Namespace:          default
CreationTimestamp:  <unset>
Selector:           s=t
Labels:             <none>
Annotations:        <none>
Replicas:           0 desired | 0 total
Update Strategy:    RollingUpdate
  Partition:        0
Pods Status:        0 Running / 0 Waiting / 0 Succeeded / 0 Failed
Pod Template:
  Labels:  s=t
  Containers:
   a:
    Image:         b
    Port:          <none>
    Host Port:     <none>
    Environment:   <none>
    Mounts:        <none>
  Volumes:         <none>
  Node-Selectors:  <none>
  Tolerations:     <none>
Volume Claims:
  Name:          data
  StorageClass:  slow
  Labels:        v=w
  Annotations:   <none>
  Capacity:      1Gi
  Access Modes:  [ReadWriteOnce]
Events:          <none>
",
    );
}

#[test]
fn daemon_sets_count_nodes() {
    let mut template = template(json!({"d": "s"}));
    template["spec"]["nodeSelector"] = json!({"disk": "ssd"});
    let object = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "ds"},
        "spec": {"selector": {"matchLabels": {"d": "s"}}, "template": template},
        "status": {"desiredNumberScheduled": 3, "currentNumberScheduled": 2, "updatedNumberScheduled": 1,
            "numberAvailable": 1, "numberMisscheduled": 4}});
    check(
        quiet(),
        "/apis/apps/v1/namespaces/default/daemonsets",
        object,
        "ds",
        "\
Name:           ds
Namespace:      default
Selector:       d=s
Node-Selector:  disk=ssd
Labels:         <none>
Annotations:    <none>
Desired Number of Nodes Scheduled: 3
Current Number of Nodes Scheduled: 2
Number of Nodes Scheduled with Up-to-date Pods: 1
Number of Nodes Scheduled with Available Pods: 1
Number of Nodes Misscheduled: 4
Pods Status:  0 Running / 0 Waiting / 0 Succeeded / 0 Failed
Pod Template:
  Labels:  d=s
  Containers:
   a:
    Image:         b
    Port:          <none>
    Host Port:     <none>
    Environment:   <none>
    Mounts:        <none>
  Volumes:         <none>
  Node-Selectors:  disk=ssd
  Tolerations:     <none>
Events:            <none>
",
    );
}

#[test]
fn replica_sets_count_their_pods_by_phase() {
    let owned = |name: &str, phase: &str, uid: &str| {
        let mut pod = pod(name);
        pod["status"]["phase"] = phase.into();
        pod["metadata"]["ownerReferences"] =
            json!([{"kind": "ReplicaSet", "name": "rs", "uid": uid, "controller": true}]);
        pod
    };
    // One of them belongs to somebody else, whose pods have the same labels.
    let pods = [
        owned("a", "Running", "mine"),
        owned("b", "Running", "mine"),
        owned("c", "Pending", "mine"),
        owned("d", "Failed", "mine"),
        owned("e", "Running", "another"),
    ];
    let object = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "rs", "uid": "mine"},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"r": "s"}}, "template": template(json!({"r": "s"}))},
        "status": {"replicas": 4}});
    let fake = Fake::new()
        .answer("GET /api/v1/namespaces/default/events", empty("Event"))
        .answer(&format!("GET {PODS}"), json!({"apiVersion": "v1", "kind": "PodList", "items": pods}));
    check(
        fake,
        "/apis/apps/v1/namespaces/default/replicasets",
        object,
        "rs",
        "\
Name:         rs
Namespace:    default
Selector:     r=s
Labels:       <none>
Annotations:  <none>
Replicas:     4 current / 3 desired
Pods Status:  2 Running / 1 Waiting / 0 Succeeded / 1 Failed
Pod Template:
  Labels:  r=s
  Containers:
   a:
    Image:         b
    Port:          <none>
    Host Port:     <none>
    Environment:   <none>
    Mounts:        <none>
  Volumes:         <none>
  Node-Selectors:  <none>
  Tolerations:     <none>
Events:            <none>
",
    );
}

#[test]
fn cron_jobs_say_when_they_run() {
    let mut template = template(json!({}));
    template["spec"]["containers"][0]["args"] = json!(["x"]);
    let object = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "cron"},
        "spec": {"schedule": "0 0 1 1 *", "suspend": true, "startingDeadlineSeconds": 10, "timeZone": "Etc/UTC",
            "concurrencyPolicy": "Allow", "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1,
            "jobTemplate": {"spec": {"template": template}}}});
    check(
        quiet(),
        "/apis/batch/v1/namespaces/default/cronjobs",
        object,
        "cronjob",
        "\
Name:                          cron
Namespace:                     default
Labels:                        <none>
Annotations:                   <none>
Schedule:                      0 0 1 1 *
Concurrency Policy:            Allow
Suspend:                       True
Time Zone:                     Etc/UTC
Successful Job History Limit:  3
Failed Job History Limit:      1
Starting Deadline Seconds:     10s
Selector:                      <unset>
Parallelism:                   <unset>
Completions:                   <unset>
Pod Template:
  Labels:  <none>
  Containers:
   a:
    Image:      b
    Port:       <none>
    Host Port:  <none>
    Args:
      x
    Environment:     <none>
    Mounts:          <none>
  Volumes:           <none>
  Node-Selectors:    <none>
  Tolerations:       <none>
Last Schedule Time:  <unset>
Active Jobs:         <none>
Events:              <none>
",
    );
}

#[test]
fn claims_say_who_uses_them() {
    let mut user = pod("web");
    user["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "claim"}}]);
    let object = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "claim", "finalizers": ["kubernetes.io/pvc-protection"]},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "slow", "volumeMode": "Filesystem"},
        "status": {"phase": "Pending"}});
    let fake = Fake::new()
        .answer("GET /api/v1/namespaces/default/events", empty("Event"))
        .answer(&format!("GET {PODS}"), json!({"apiVersion": "v1", "kind": "PodList", "items": [user, pod("other")]}));
    check(
        fake,
        "/api/v1/namespaces/default/persistentvolumeclaims",
        object,
        "pvc",
        "\
Name:          claim
Namespace:     default
StorageClass:  slow
Status:        Pending
Volume:        
Labels:        <none>
Annotations:   <none>
Finalizers:    [kubernetes.io/pvc-protection]
Capacity:      
Access Modes:  
VolumeMode:    Filesystem
Used By:       web
Events:        <none>
",
    );
}

#[test]
fn cluster_wide_kinds() {
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": "pv", "labels": {"a": "c"}, "finalizers": ["kubernetes.io/pv-protection"]},
        "spec": {"storageClassName": "other", "persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem",
            "accessModes": ["ReadWriteOnce", "ReadOnlyMany"], "capacity": {"storage": "1Gi"},
            "hostPath": {"path": "/x", "type": ""}, "nodeAffinity": {"required": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}]}}},
        "status": {"phase": "Available"}});
    check(
        quiet(),
        "/api/v1/persistentvolumes",
        volume,
        "pv",
        "\
Name:              pv
Labels:            a=c
Annotations:       <none>
Finalizers:        [kubernetes.io/pv-protection]
StorageClass:      other
Status:            Available
Claim:             
Reclaim Policy:    Retain
Access Modes:      RWO,ROX
VolumeMode:        Filesystem
Capacity:          1Gi
Node Affinity:     
  Required Terms:  
    Term 0:        k in [v]
Message:           
Source:
    Type:          HostPath (bare host directory volume)
    Path:          /x
    HostPathType:  
Events:            <none>
",
    );
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "sc"},
        "provisioner": "p.example.com", "parameters": {"a": "b"}, "allowVolumeExpansion": true,
        "mountOptions": ["ro"], "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"});
    check(
        quiet(),
        "/apis/storage.k8s.io/v1/storageclasses",
        class,
        "sc",
        "\
Name:                  sc
IsDefaultClass:        No
Annotations:           <none>
Provisioner:           p.example.com
Parameters:            a=b
AllowVolumeExpansion:  True
MountOptions:
  ro
ReclaimPolicy:      Delete
VolumeBindingMode:  Immediate
Events:             <none>
",
    );
    let priority = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "pc"},
        "value": 5, "description": "text", "preemptionPolicy": "PreemptLowerPriority"});
    check(
        quiet(),
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        priority,
        "pc",
        "\
Name:              pc
Value:             5
GlobalDefault:     false
PreemptionPolicy:  PreemptLowerPriority
Description:       text
Annotations:       <none>
Events:            <none>
",
    );
}

#[test]
fn roles_and_bindings_are_tables_without_events() {
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "cr"},
        "rules": [{"nonResourceURLs": ["/healthz"], "verbs": ["get"]},
            {"apiGroups": ["e.com"], "resources": ["x/status"], "verbs": ["get"]}]});
    check(
        Fake::new(),
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        role,
        "clusterrole",
        "\
Name:         cr
Labels:       <none>
Annotations:  <none>
PolicyRule:
  Resources       Non-Resource URLs  Resource Names  Verbs
  ---------       -----------------  --------------  -----
                  [/healthz]         []              [get]
  x.e.com/status  []                 []              [get]
",
    );
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "rb"},
        "roleRef": {"kind": "Role", "name": "role"}, "subjects": [{"kind": "User", "name": "u"},
            {"kind": "ServiceAccount", "name": "sa", "namespace": "default"}]});
    check(
        Fake::new(),
        "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
        binding,
        "rolebinding",
        "\
Name:         rb
Labels:       <none>
Annotations:  <none>
Role:
  Kind:  Role
  Name:  role
Subjects:
  Kind            Name  Namespace
  ----            ----  ---------
  User            u     
  ServiceAccount  sa    default
",
    );
}

#[test]
fn a_namespace_shows_its_limits() {
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "quota"},
        "spec": {"hard": {"pods": "50"}}, "status": {"hard": {"pods": "50"}, "used": {"pods": "1"}}});
    let limits = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "limits"}, "spec": {"limits": [
        {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "5Gi"}}]}});
    let fake = Fake::new()
        .objects("/api/v1/namespaces/team/resourcequotas", &[quota])
        .objects("/api/v1/namespaces/team/limitranges", &[limits]);
    let team = json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "team", "labels": {"kubernetes.io/metadata.name": "team"}}, "status": {"phase": "Active"}});
    check(
        fake,
        "/api/v1/namespaces",
        team,
        "ns",
        "\
Name:         team
Labels:       kubernetes.io/metadata.name=team
Annotations:  <none>
Status:       Active

Resource Quotas
  Name:     quota
  Resource  Used  Hard
  --------  ---   ---
  pods      1     50

Resource Limits
 Type                   Resource  Min  Max  Default Request  Default Limit  Max Limit/Request Ratio
 ----                   --------  ---  ---  ---------------  -------------  -----------------------
 PersistentVolumeClaim  storage   1Gi  5Gi  -                -              -
",
    );
}

#[test]
fn events_stand_at_the_end() {
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"},
        "type": "Warning", "reason": "Failed", "message": "it broke", "count": 1, "source": {"component": "kubelet"},
        "firstTimestamp": "2020-01-01T00:00:00Z", "lastTimestamp": "2020-01-01T00:00:00Z",
        "involvedObject": {"kind": "ConfigMap", "name": "conf", "namespace": "default"}});
    let path = "/api/v1/namespaces/default/configmaps/conf";
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "conf", "namespace": "default", "uid": "u"}});
    let fake = || {
        Fake::new()
            .answer(&format!("GET {path}"), map.clone())
            .objects("/api/v1/namespaces/default/events", std::slice::from_ref(&event))
    };
    let ran = fake().run("describe cm conf");
    let lines: Vec<&str> = ran.out.lines().skip_while(|line| *line != "Events:").collect();
    assert_eq!(lines.len(), 4, "{}", ran.out);
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
    assert_eq!(words(lines[1]), "Type Reason Age From Message");
    assert!(words(lines[3]).starts_with("Warning Failed ") && lines[3].contains("  kubelet  "), "{}", lines[3]);
    let asked = ran.request("GET /api/v1/namespaces/default/events").query("fieldSelector").to_owned();
    assert!(asked.contains("involvedObject.name=conf") && asked.contains("involvedObject.uid=u"), "{asked}");
    let quiet = fake().run("describe cm conf --show-events=false");
    assert!(!quiet.out.contains("Events") && quiet.requests.len() == 1, "{quiet:?}");
}

#[test]
fn a_prefix_names_all_that_begin_so() {
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}});
    let fake =
        || quiet().objects("/api/v1/namespaces/default/configmaps", &[map("conf-a"), map("conf-b"), map("other")]);
    let ran = fake().run("describe cm conf --show-events=false");
    let names: Vec<&str> = ran.out.lines().filter_map(|line| line.strip_prefix("Name:")).map(str::trim).collect();
    assert_eq!(names, ["conf-a", "conf-b"]);
    ended_badly(&fake().run("describe cm nothing"), "Error from server (NotFound): configmaps \"nothing\" not found\n");
}
