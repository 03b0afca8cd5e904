//! Nodes, with what their pods ask for.

use machinery::quantity::{Format, Quantity};
use serde_json::Value;

use super::{Context, annotations, items, map, pairs, plain, since, text, time};
use crate::failure::Result;
use crate::resource::select::Query;
use crate::session::Call;

pub(crate) async fn node(cx: &Context<'_>, object: &Value) -> Result<String> {
    let name = text(object, "/metadata/name");
    let mut out = identity(object);
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}");
    match cx.session.send(&Call::get(path)).await {
        Ok(lease) => out += &describe_lease(&lease),
        Err(failure) if failure.is_not_found() => {
            out += &format!("Lease:\tFailed to get lease: leases.coordination.k8s.io {name:?} not found\n");
        }
        Err(_) => {}
    }
    out += &conditions(object);
    out += &addresses_and_amounts(object);
    out += &system(object);
    let mapping = cx.session.mapping("pods").await?;
    let fields = format!("spec.nodeName={name},status.phase!=Succeeded,status.phase!=Failed");
    let query = Query { fields, chunk: 500, ..Query::default() };
    match cx.session.list(&mapping, "", &query).await {
        Ok(pods) => out += &allocated(object, &pods),
        Err(_) => out += "Pods:\tnot authorized\n",
    }
    Ok(out)
}

/// Name, roles, labels, annotations, and what keeps pods away.
fn identity(object: &Value) -> String {
    let mut out = format!("Name:\t{}\nRoles:\t{}\n", text(object, "/metadata/name"), roles(object));
    out += &pairs("Labels", "", &map(object, "/metadata/labels"));
    out += &annotations("Annotations", "", &map(object, "/metadata/annotations"));
    out += &format!("CreationTimestamp:\t{}\n", time(text(object, "/metadata/creationTimestamp")));
    let taints: Vec<String> = items(object, "/spec/taints").iter().map(taint).collect();
    if taints.is_empty() {
        out += "Taints:\t<none>\n";
    }
    for (at, taint) in taints.iter().enumerate() {
        out += &format!("{}\t{taint}\n", if at == 0 { "Taints:" } else { "" });
    }
    out + &format!("Unschedulable:\t{}\n", object["spec"]["unschedulable"] == true)
}

fn describe_lease(lease: &Value) -> String {
    format!(
        "Lease:\n  HolderIdentity:\t{}\n  AcquireTime:\t{}\n  RenewTime:\t{}\n",
        super::or(text(lease, "/spec/holderIdentity"), "<unset>"),
        time(text(lease, "/spec/acquireTime")),
        time(text(lease, "/spec/renewTime"))
    )
}

fn conditions(object: &Value) -> String {
    let conditions = items(object, "/status/conditions");
    if conditions.is_empty() {
        return String::new();
    }
    let mut out = String::from("Conditions:\n  Type\tStatus\tLastHeartbeatTime\tLastTransitionTime\tReason\tMessage\n");
    out += "  ----\t------\t-----------------\t------------------\t------\t-------\n";
    for condition in conditions {
        out += &format!(
            "  {} \t{} \t{} \t{} \t{} \t{}\n",
            text(condition, "/type"),
            text(condition, "/status"),
            time(text(condition, "/lastHeartbeatTime")),
            time(text(condition, "/lastTransitionTime")),
            text(condition, "/reason"),
            text(condition, "/message")
        );
    }
    out
}

fn addresses_and_amounts(object: &Value) -> String {
    let mut out = String::from("Addresses:\n");
    for address in items(object, "/status/addresses") {
        out += &format!("  {}:\t{}\n", text(address, "/type"), text(address, "/address"));
    }
    for (title, key) in [("Capacity", "/status/capacity"), ("Allocatable", "/status/allocatable")] {
        let amounts = map(object, key);
        if !amounts.is_empty() {
            out += &format!("{title}:\n");
            amounts.iter().for_each(|(name, amount)| out += &format!("  {name}:\t{}\n", plain(amount)));
        }
    }
    out
}

/// The rows of `System Info`, by their fields in `status.nodeInfo`.
const SYSTEM_INFO: &[(&str, &str)] = &[
    ("Machine ID", "/machineID"),
    ("System UUID", "/systemUUID"),
    ("Boot ID", "/bootID"),
    ("Kernel Version", "/kernelVersion"),
    ("OS Image", "/osImage"),
    ("Operating System", "/operatingSystem"),
    ("Architecture", "/architecture"),
    ("Container Runtime Version", "/containerRuntimeVersion"),
    ("Kubelet Version", "/kubeletVersion"),
];

fn system(object: &Value) -> String {
    let mut out = String::from("System Info:\n");
    for (title, key) in SYSTEM_INFO {
        out += &format!("  {title}:\t{}\n", text(&object["status"]["nodeInfo"], key));
    }
    out += &super::given(object, &[("PodCIDR", "/spec/podCIDR")]);
    let ranges: Vec<String> = items(object, "/spec/podCIDRs").iter().map(plain).collect();
    if !ranges.is_empty() {
        out += &format!("PodCIDRs:\t{}\n", ranges.join(","));
    }
    out + &super::given(object, &[("ProviderID", "/spec/providerID")])
}

fn roles(object: &Value) -> String {
    let mut found: Vec<String> = Vec::new();
    for (key, value) in map(object, "/metadata/labels") {
        if let Some(role) = key.strip_prefix("node-role.kubernetes.io/").filter(|role| !role.is_empty()) {
            found.push(role.to_string());
        } else if key == "kubernetes.io/role" && !plain(&value).is_empty() {
            found.push(plain(&value));
        }
    }
    if found.is_empty() { "<none>".into() } else { found.join(",") }
}

fn taint(taint: &Value) -> String {
    let (key, value, effect) = (text(taint, "/key"), text(taint, "/value"), text(taint, "/effect"));
    if value.is_empty() { format!("{key}:{effect}") } else { format!("{key}={value}:{effect}") }
}

/// What a pod asks for: its containers together, or its largest init container, sidecars counted with both.
fn asked(pod: &Value, list: &str, resource: &str) -> Quantity {
    let of = |container: &Value| milli(&container["resources"][list][resource]);
    let mut sum: i64 = items(pod, "/spec/containers").iter().map(of).sum();
    let (mut sidecars, mut largest) = (0, 0);
    for container in items(pod, "/spec/initContainers") {
        if container["restartPolicy"] == "Always" {
            sidecars += of(container);
            largest = largest.max(sidecars);
        } else {
            largest = largest.max(sidecars + of(container));
        }
    }
    sum = (sum + sidecars).max(largest) + milli(&pod["spec"]["overhead"][resource]);
    let format = if resource == "cpu" { Format::DecimalSi } else { Format::BinarySi };
    quantity(sum, format)
}

/// In thousandths, also of bytes: the numbers stay far below the limit.
fn milli(value: &Value) -> i64 {
    Quantity::from_value(value).map(|quantity| quantity.milli_value()).unwrap_or(0)
}

fn quantity(milli: i64, format: Format) -> Quantity {
    if milli % 1000 == 0 { Quantity::from_int(milli / 1000, format) } else { Quantity::from_milli(milli, format) }
}

fn allocated(node: &Value, pods: &[Value]) -> String {
    let allocatable = if node["status"]["allocatable"].is_object() {
        &node["status"]["allocatable"]
    } else {
        &node["status"]["capacity"]
    };
    let share = |amount: &Quantity, resource: &str| match milli(&allocatable[resource]) {
        0 => 0,
        all => (amount.milli_value() as i128 * 100 / all as i128) as i64,
    };
    let shown = |amount: &Quantity, resource: &str| format!("{} ({}%)", amount.canonical(), share(amount, resource));
    let mut out = format!("Non-terminated Pods:\t({} in total)\n", pods.len());
    out += "  Namespace\tName\t\tCPU Requests\tCPU Limits\tMemory Requests\tMemory Limits\tAge\n";
    out += "  ---------\t----\t\t------------\t----------\t---------------\t-------------\t---\n";
    for pod in pods {
        out += &format!("  {}\t{}\t", text(pod, "/metadata/namespace"), text(pod, "/metadata/name"));
        for (list, resource) in [("requests", "cpu"), ("limits", "cpu"), ("requests", "memory"), ("limits", "memory")] {
            out += &format!("\t{}", shown(&asked(pod, list, resource), resource));
        }
        out += &format!("\t{}\n", since(text(pod, "/metadata/creationTimestamp")));
    }
    out += "Allocated resources:\n  (Total limits may be over 100 percent, i.e., overcommitted.)\n";
    out += "  Resource\tRequests\tLimits\n  --------\t--------\t------\n";
    let mut resources = vec!["cpu".to_string(), "memory".into(), "ephemeral-storage".into()];
    let others = map(allocatable, "")
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| !resources.contains(name) && name != "pods");
    let others: Vec<String> = others.collect();
    resources.extend(others);
    for resource in &resources {
        let total = |list: &str| {
            let sum: i64 = pods.iter().map(|pod| asked(pod, list, resource).milli_value()).sum();
            quantity(
                sum,
                if resource == "cpu"
                    || !(resource == "memory" || resource.contains("storage") || resource.starts_with("hugepages"))
                {
                    Format::DecimalSi
                } else {
                    Format::BinarySi
                },
            )
        };
        let (requests, limits) = (total("requests"), total("limits"));
        let known =
            ["cpu", "memory", "ephemeral-storage"].contains(&resource.as_str()) || resource.starts_with("hugepages");
        out += &if known {
            format!("  {resource}\t{}\t{}\n", shown(&requests, resource), shown(&limits, resource))
        } else {
            format!("  {resource}\t{}\t{}\n", requests.canonical(), limits.canonical())
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn container(requests: &str) -> Value {
        json!({"resources": {"requests": {"cpu": requests}}})
    }

    #[test]
    fn a_pod_asks_for_its_containers_or_its_largest_init_container() {
        let cpu = |pod: Value| asked(&pod, "requests", "cpu").canonical();
        let (small, large) = (container("100m"), container("1"));
        assert_eq!(cpu(json!({"spec": {"containers": [small, small]}})), "200m");
        assert_eq!(cpu(json!({"spec": {"containers": [small], "initContainers": [large]}})), "1");
        let mut sidecar = container("500m");
        sidecar["restartPolicy"] = "Always".into();
        assert_eq!(cpu(json!({"spec": {"containers": [small], "initContainers": [sidecar]}})), "600m");
        assert_eq!(cpu(json!({"spec": {"containers": [small], "overhead": {"cpu": "50m"}}})), "150m");
    }

    #[test]
    fn identity_names_roles_and_taints() {
        let node = json!({
            "metadata": {"name": "n", "labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "old"}},
            "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "value": "c", "effect": "NoExecute"}]},
        });
        let text = identity(&node);
        assert!(text.starts_with("Name:\tn\nRoles:\told,worker\n"), "{text}");
        assert!(text.ends_with("Taints:\ta:NoSchedule\n\tb=c:NoExecute\nUnschedulable:\tfalse\n"), "{text}");
    }

    #[test]
    fn shares_are_of_what_is_allocatable() {
        let node =
            json!({"status": {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "110", "example.com/gpu": "1"}}});
        let pod = json!({"metadata": {"namespace": "n", "name": "p"}, "spec": {"containers": [
            {"resources": {"requests": {"cpu": "500m", "example.com/gpu": "1"}, "limits": {"memory": "1Gi"}}}]}});
        let text = allocated(&node, &[pod]);
        assert!(text.starts_with("Non-terminated Pods:\t(1 in total)\n"), "{text}");
        for line in ["  cpu\t500m (25%)\t0 (0%)\n", "  memory\t0 (0%)\t1Gi (25%)\n", "  example.com/gpu\t1\t0\n"] {
            assert!(text.contains(line), "{line:?} in {text}");
        }
    }

    #[test]
    fn leases_and_system() {
        let lease = describe_lease(&json!({"spec": {"holderIdentity": "n"}}));
        assert_eq!(lease, "Lease:\n  HolderIdentity:\tn\n  AcquireTime:\t<unset>\n  RenewTime:\t<unset>\n");
        let node = json!({"spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"]}, "status": {"nodeInfo": {"osImage": "Linux"}}});
        let text = system(&node);
        assert!(text.contains("  OS Image:\tLinux\n"), "{text}");
        assert!(text.ends_with("PodCIDR:\t10.0.0.0/24\nPodCIDRs:\t10.0.0.0/24\n"), "{text}");
    }
}
