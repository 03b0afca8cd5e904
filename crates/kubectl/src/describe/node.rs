//! Nodes, with what their pods ask for.

use machinery::quantity::{Format, Quantity};
use serde_json::Value;

use super::{Context, annotations, items, map, pairs, plain, since, text, time};
use crate::failure::Result;
use crate::resource::select::Query;
use crate::session::Call;

pub(crate) async fn node(cx: &Context<'_>, object: &Value) -> Result<String> {
    let name = text(object, "/metadata/name");
    let mut out = format!("Name:\t{name}\nRoles:\t{}\n", roles(object));
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
    out += &format!("Unschedulable:\t{}\n", object["spec"]["unschedulable"] == true);
    let lease = cx
        .session
        .send(&Call::get(format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}")))
        .await;
    match lease {
        Ok(lease) => {
            let when = |path: &str| time(text(&lease, path));
            out += "Lease:\n";
            out += &format!("  HolderIdentity:\t{}\n", super::or(text(&lease, "/spec/holderIdentity"), "<unset>"));
            out +=
                &format!("  AcquireTime:\t{}\n  RenewTime:\t{}\n", when("/spec/acquireTime"), when("/spec/renewTime"));
        }
        Err(failure) if failure.is_not_found() => out += "Lease:\tFailed to get lease: ".to_string().as_str(),
        Err(_) => {}
    }
    if out.ends_with("Failed to get lease: ") {
        out += &format!("leases.coordination.k8s.io {name:?} not found\n");
    }
    let conditions = items(object, "/status/conditions");
    if !conditions.is_empty() {
        out += "Conditions:\n  Type\tStatus\tLastHeartbeatTime\tLastTransitionTime\tReason\tMessage\n";
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
    }
    out += "Addresses:\n";
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
    let about = &object["status"]["nodeInfo"];
    out += "System Info:\n";
    for (title, key) in [
        ("Machine ID", "/machineID"),
        ("System UUID", "/systemUUID"),
        ("Boot ID", "/bootID"),
        ("Kernel Version", "/kernelVersion"),
        ("OS Image", "/osImage"),
        ("Operating System", "/operatingSystem"),
        ("Architecture", "/architecture"),
        ("Container Runtime Version", "/containerRuntimeVersion"),
        ("Kubelet Version", "/kubeletVersion"),
    ] {
        out += &format!("  {title}:\t{}\n", text(about, key));
    }
    if !text(object, "/spec/podCIDR").is_empty() {
        out += &format!("PodCIDR:\t{}\n", text(object, "/spec/podCIDR"));
    }
    let ranges: Vec<String> = items(object, "/spec/podCIDRs").iter().map(plain).collect();
    if !ranges.is_empty() {
        out += &format!("PodCIDRs:\t{}\n", ranges.join(","));
    }
    if !text(object, "/spec/providerID").is_empty() {
        out += &format!("ProviderID:\t{}\n", text(object, "/spec/providerID"));
    }
    let mapping = cx.session.mapping("pods").await?;
    let fields = format!("spec.nodeName={name},status.phase!=Succeeded,status.phase!=Failed");
    let query = Query { fields, chunk: 500, ..Query::default() };
    match cx.session.list(&mapping, "", &query).await {
        Ok(pods) => out += &allocated(object, &pods),
        Err(_) => out += "Pods:\tnot authorized\n",
    }
    Ok(out)
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
