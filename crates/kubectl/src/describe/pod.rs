//! Pods.

use serde_json::Value;

use super::container::{self, containers};
use super::{annotations, controller, items, map, number, pairs, since, text, time, volume};

pub(crate) fn pod(pod: &Value) -> String {
    let mut out = identity(pod);
    out += &container::seccomp(&pod["spec"]["securityContext"], "", "");
    out += &format!("IP:\t{}\n", text(pod, "/status/podIP"));
    let addresses = items(pod, "/status/podIPs");
    out += if addresses.is_empty() { "IPs:\t<none>\n" } else { "IPs:\n" };
    addresses.iter().for_each(|address| out += &format!("  IP:\t{}\n", text(address, "/ip")));
    if let Some(owner) = controller(pod) {
        out += &format!("Controlled By:\t{owner}\n");
    }
    out += &super::given(pod, &[("NominatedNodeName", "/status/nominatedNodeName")]);
    if pod["spec"]["resources"].is_object() {
        out += "Resources:\n";
        out += &container::resources(&pod["spec"]["resources"], "  ");
    }
    for (title, list, statuses) in [
        ("Init Containers", "/spec/initContainers", "/status/initContainerStatuses"),
        ("Containers", "/spec/containers", "/status/containerStatuses"),
        ("Ephemeral Containers", "/spec/ephemeralContainers", "/status/ephemeralContainerStatuses"),
    ] {
        if !items(pod, list).is_empty() || title == "Containers" {
            out += &containers(title, items(pod, list), Some(items(pod, statuses)), "", pod);
        }
    }
    out += &conditions(pod);
    out += &volume::volumes(items(pod, "/spec/volumes"), "");
    // A pod that no server has looked at, such as one of a file, has its class all the same.
    let class = match text(pod, "/status/qosClass") {
        "" => api::core::pod::qos::class(&pod["spec"]),
        class => class,
    };
    out += &format!("QoS Class:\t{class}\n");
    out += &pairs("Node-Selectors", "", &map(pod, "/spec/nodeSelector"));
    out += &tolerations(items(pod, "/spec/tolerations"), "");
    out += &spread(items(pod, "/spec/topologySpreadConstraints"), "");
    out + &group(&pod["spec"], "")
}

/// Who the pod is, where it runs, and how it is.
fn identity(pod: &Value) -> String {
    let mut out = super::head(pod);
    if pod["spec"]["priority"].is_number() {
        out += &format!("Priority:\t{}\n", number(pod, "/spec/priority"));
    }
    out += &super::given(
        pod,
        &[
            ("Priority Class Name", "/spec/priorityClassName"),
            ("Runtime Class Name", "/spec/runtimeClassName"),
            ("Service Account", "/spec/serviceAccountName"),
        ],
    );
    out += &match text(pod, "/spec/nodeName") {
        "" => "Node:\t<none>\n".to_string(),
        node => format!("Node:\t{node}/{}\n", text(pod, "/status/hostIP")),
    };
    if !text(pod, "/status/startTime").is_empty() {
        out += &format!("Start Time:\t{}\n", time(text(pod, "/status/startTime")));
    }
    out += &pairs("Labels", "", &map(pod, "/metadata/labels"));
    out += &annotations("Annotations", "", &map(pod, "/metadata/annotations"));
    let deleted = text(pod, "/metadata/deletionTimestamp");
    let ended = ["Failed", "Succeeded"].contains(&text(pod, "/status/phase"));
    if deleted.is_empty() || ended {
        out += &format!("Status:\t{}\n", text(pod, "/status/phase"));
    } else {
        out += &format!("Status:\tTerminating (lasts {})\n", since(deleted));
        out += &format!("Termination Grace Period:\t{}s\n", number(pod, "/metadata/deletionGracePeriodSeconds"));
    }
    out + &super::given(pod, &[("Reason", "/status/reason"), ("Message", "/status/message")])
}

/// What others have to say before the pod is ready, and what is true of it.
fn conditions(pod: &Value) -> String {
    let mut out = String::new();
    let gates = items(pod, "/spec/readinessGates");
    if !gates.is_empty() {
        out += "Readiness Gates:\n  Type\tStatus\n";
        for gate in gates {
            let kind = text(gate, "/conditionType");
            let found = items(pod, "/status/conditions").iter().find(|condition| condition["type"] == kind);
            out += &format!("  {kind} \t{} \n", found.map_or("<none>", |condition| text(condition, "/status")));
        }
    }
    let conditions = items(pod, "/status/conditions");
    if !conditions.is_empty() {
        out += "Conditions:\n  Type\tStatus\n";
        conditions.iter().for_each(|condition| {
            out += &format!("  {} \t{} \n", text(condition, "/type"), text(condition, "/status"))
        });
    }
    out
}

/// The group of pods that are scheduled together, if it is in one.
pub(crate) fn group(spec: &Value, indent: &str) -> String {
    if spec["schedulingGroup"].is_object() {
        format!("{indent}SchedulingGroup:\n  PodGroupName:\t{}\n", text(spec, "/schedulingGroup/podGroupName"))
    } else {
        String::new()
    }
}

pub(crate) fn tolerations(list: &[Value], indent: &str) -> String {
    if list.is_empty() {
        return format!("{indent}Tolerations:\t<none>\n");
    }
    let mut sorted: Vec<&Value> = list.iter().collect();
    sorted.sort_by_key(|toleration| text(toleration, "/key"));
    let texts: Vec<String> = sorted
        .into_iter()
        .map(|toleration| {
            let mut shown = text(toleration, "/key").to_string();
            if !text(toleration, "/value").is_empty() {
                shown += &format!("={}", text(toleration, "/value"));
            }
            if !text(toleration, "/effect").is_empty() {
                shown += &format!(":{}", text(toleration, "/effect"));
            }
            if toleration["operator"] == "Exists" && text(toleration, "/value").is_empty() {
                if text(toleration, "/key").is_empty() && text(toleration, "/effect").is_empty() {
                    shown += "op=Exists";
                } else {
                    shown += " op=Exists";
                }
            }
            if let Some(seconds) = toleration["tolerationSeconds"].as_i64() {
                shown += &format!(" for {seconds}s");
            }
            shown
        })
        .collect();
    let mut out = String::new();
    for (at, line) in texts.iter().enumerate() {
        let first = if at == 0 { "Tolerations:" } else { "" };
        out += &format!("{indent}{first}\t{line}\n");
    }
    out
}

pub(super) fn spread(list: &[Value], indent: &str) -> String {
    let mut out = String::new();
    let mut list: Vec<&Value> = list.iter().collect();
    list.sort_by_key(|constraint| text(constraint, "/topologyKey"));
    for (at, constraint) in list.into_iter().enumerate() {
        let first = if at == 0 { "Topology Spread Constraints:" } else { "" };
        let mut line = format!(
            "{}:{} when max skew {} is exceeded",
            text(constraint, "/topologyKey"),
            text(constraint, "/whenUnsatisfiable"),
            number(constraint, "/maxSkew")
        );
        if constraint["labelSelector"].is_object() {
            line += &format!(" for selector {}", super::selector(&constraint["labelSelector"]));
        }
        out += &format!("{indent}{first}\t{line}\n");
    }
    out
}
