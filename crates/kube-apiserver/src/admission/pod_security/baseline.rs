//! Baseline: nothing that is known to lead from a container to its host.

use std::collections::BTreeSet;

use serde_json::Value;

use super::checks::{Check, Pod, Violation, containers, context, name, plural, quoted, setters, violation};
use super::policy::Level;

/// In the order of their ids, as findings are told.
pub const CHECKS: &[Check] = &[
    check("appArmorProfile", 0, app_armor),
    check("capabilities_baseline", 0, capabilities),
    check("hostNamespaces", 0, host_namespaces),
    check("hostPathVolumes", 0, host_paths),
    check("hostPorts", 0, host_ports),
    check("hostProbesAndHostLifecycle", 34, probe_hosts),
    check("privileged", 0, privileged),
    check("procMount_baseline", 0, proc_mount),
    check("seLinuxOptions", 0, se_linux),
    check("seccompProfile_baseline", 19, seccomp),
    check("sysctls", 0, sysctls),
    check("windowsHostProcess", 0, host_process),
];

const fn check(id: &'static str, since: u32, run: fn(&Pod<'_>) -> Option<Violation>) -> Check {
    Check { id, level: Level::Baseline, since, overrides: "", run }
}

const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// Safe sysctls, with the version since which they count as such.
const SYSCTLS: [(&str, u32); 12] = [
    ("kernel.shm_rmid_forced", 0),
    ("net.ipv4.ip_local_port_range", 0),
    ("net.ipv4.tcp_syncookies", 0),
    ("net.ipv4.ping_group_range", 0),
    ("net.ipv4.ip_unprivileged_port_start", 0),
    ("net.ipv4.ip_local_reserved_ports", 27),
    ("net.ipv4.tcp_keepalive_time", 29),
    ("net.ipv4.tcp_fin_timeout", 29),
    ("net.ipv4.tcp_keepalive_intvl", 29),
    ("net.ipv4.tcp_keepalive_probes", 29),
    ("net.ipv4.tcp_rmem", 32),
    ("net.ipv4.tcp_wmem", 32),
];

fn app_armor(pod: &Pod<'_>) -> Option<Violation> {
    const ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";
    let bad = |profile: &Value| !matches!(profile.as_str(), Some("RuntimeDefault" | "Localhost"));
    let own = pod.context("/appArmorProfile/type").filter(|profile| bad(profile));
    let named = pod.containers_where(|container| context(container, "/appArmorProfile/type").is_some_and(bad));
    let mut values: BTreeSet<String> = BTreeSet::new();
    values.extend(own.and_then(Value::as_str).map(String::from));
    values.extend(pod.containers().filter_map(|container| {
        context(container, "/appArmorProfile/type")
            .filter(|profile| bad(profile))
            .and_then(Value::as_str)
            .map(String::from)
    }));
    let annotations = pod.pod.pointer("/metadata/annotations").and_then(Value::as_object).into_iter().flatten();
    let allowed = |value: &str| matches!(value, "" | "runtime/default") || value.starts_with("localhost/");
    let annotated: Vec<String> = annotations
        .filter(|(key, value)| key.starts_with(ANNOTATION) && !allowed(value.as_str().unwrap_or("")))
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let mut parts = Vec::new();
    if let Some(setters) = setters(own.is_some(), &named) {
        let values: Vec<&String> = values.iter().collect();
        parts.push(format!("{setters} must not set AppArmor profile type to {}", quoted(&values)));
    }
    if !annotated.is_empty() {
        parts.push(format!("{} {}", plural("annotation", "annotations", annotated.len()), annotated.join(", ")));
    }
    if parts.is_empty() {
        return None;
    }
    let count = values.len() + annotated.len();
    violation(plural("forbidden AppArmor profile", "forbidden AppArmor profiles", count), parts.join("; "))
}

/// Capabilities that containers add beyond those allowed, and who adds them.
pub fn added<'a>(pod: &Pod<'a>, allowed: &[&str]) -> (Vec<&'a str>, BTreeSet<&'a str>) {
    let mut names = Vec::new();
    let mut wrong = BTreeSet::new();
    for container in pod.containers() {
        let list = context(container, "/capabilities/add").and_then(Value::as_array);
        let bad: Vec<&str> =
            list.into_iter().flatten().filter_map(Value::as_str).filter(|one| !allowed.contains(one)).collect();
        if !bad.is_empty() {
            names.push(name(container));
            wrong.extend(bad);
        }
    }
    (names, wrong)
}

pub(crate) fn must_not_add(names: &[&str], wrong: &BTreeSet<&str>) -> String {
    let wrong: Vec<&&str> = wrong.iter().collect();
    format!("{} must not include {} in securityContext.capabilities.add", containers(names), quoted(&wrong))
}

fn capabilities(pod: &Pod<'_>) -> Option<Violation> {
    let (names, wrong) = added(pod, &CAPABILITIES);
    if names.is_empty() {
        return None;
    }
    violation("non-default capabilities", must_not_add(&names, &wrong))
}

fn host_namespaces(pod: &Pod<'_>) -> Option<Violation> {
    let used: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"]
        .into_iter()
        .filter(|field| pod.spec.get(*field) == Some(&Value::Bool(true)))
        .map(|field| format!("{field}=true"))
        .collect();
    if used.is_empty() {
        return None;
    }
    violation("host namespaces", used.join(", "))
}

fn host_paths(pod: &Pod<'_>) -> Option<Violation> {
    let volumes = pod.spec.get("volumes").and_then(Value::as_array).into_iter().flatten();
    let names: Vec<&str> =
        volumes.filter(|volume| volume.get("hostPath").is_some_and(|path| !path.is_null())).map(name).collect();
    if names.is_empty() {
        return None;
    }
    violation("hostPath volumes", format!("{} {}", plural("volume", "volumes", names.len()), quoted(&names)))
}

fn host_ports(pod: &Pod<'_>) -> Option<Violation> {
    let ports_of = |container: &Value| -> Vec<String> {
        let ports = container.get("ports").and_then(Value::as_array).into_iter().flatten();
        let used = ports.filter_map(|port| port.get("hostPort").and_then(Value::as_i64)).filter(|port| *port != 0);
        used.map(|port| port.to_string()).collect()
    };
    let names = pod.containers_where(|container| !ports_of(container).is_empty());
    if names.is_empty() {
        return None;
    }
    let ports: BTreeSet<String> = pod.containers().flat_map(ports_of).collect();
    let word = plural("hostPort", "hostPorts", ports.len());
    let list = ports.into_iter().collect::<Vec<_>>().join(", ");
    violation(word, format!("{} {} {word} {list}", containers(&names), plural("uses", "use", names.len())))
}

fn probe_hosts(pod: &Pod<'_>) -> Option<Violation> {
    const PLACES: [&str; 5] =
        ["/livenessProbe", "/readinessProbe", "/startupProbe", "/lifecycle/postStart", "/lifecycle/preStop"];
    let hosts_of = |container: &Value| -> Vec<String> {
        let handlers = PLACES.iter().filter_map(|place| container.pointer(place));
        let hosts = handlers.flat_map(|handler| [handler.pointer("/httpGet/host"), handler.pointer("/tcpSocket/host")]);
        hosts.flatten().filter_map(Value::as_str).filter(|host| !host.is_empty()).map(String::from).collect()
    };
    let mut names = pod.containers_where(|container| !hosts_of(container).is_empty());
    if names.is_empty() {
        return None;
    }
    names.sort_unstable();
    let hosts: BTreeSet<String> = pod.containers().flat_map(hosts_of).collect();
    let hosts: Vec<String> = hosts.into_iter().collect();
    let word = plural("probe or lifecycle host", "probe or lifecycle hosts", hosts.len());
    let detail = format!("{} {} {word} {}", containers(&names), plural("uses", "use", names.len()), quoted(&hosts));
    violation("probe or lifecycle host", detail)
}

fn privileged(pod: &Pod<'_>) -> Option<Violation> {
    let names = pod.containers_where(|container| context(container, "/privileged") == Some(&Value::Bool(true)));
    if names.is_empty() {
        return None;
    }
    violation("privileged", format!("{} must not set securityContext.privileged=true", containers(&names)))
}

fn proc_mount(pod: &Pod<'_>) -> Option<Violation> {
    if pod.at_least(35) && pod.has_own_users() {
        return None;
    }
    unmasked(pod)
}

/// Containers that see more of /proc than is usual.
pub fn unmasked(pod: &Pod<'_>) -> Option<Violation> {
    let bad = |container: &Value| {
        context(container, "/procMount").and_then(Value::as_str).filter(|kind| *kind != "Default").map(String::from)
    };
    let names = pod.containers_where(|container| bad(container).is_some());
    if names.is_empty() {
        return None;
    }
    let values: BTreeSet<String> = pod.containers().filter_map(bad).collect();
    let values: Vec<String> = values.into_iter().collect();
    violation(
        "procMount",
        format!("{} must not set securityContext.procMount to {}", containers(&names), quoted(&values)),
    )
}

fn se_linux(pod: &Pod<'_>) -> Option<Violation> {
    let mut allowed = vec!["", "container_t", "container_init_t", "container_kvm_t"];
    if pod.at_least(31) {
        allowed.push("container_engine_t");
    }
    let text = |options: &Value, field: &str| options.get(field).and_then(Value::as_str).unwrap_or("").to_string();
    let bad = |options: &Value| {
        !allowed.contains(&text(options, "type").as_str())
            || !text(options, "user").is_empty()
            || !text(options, "role").is_empty()
    };
    let own = pod.context("/seLinuxOptions").filter(|options| bad(options));
    let named = pod.containers_where(|container| context(container, "/seLinuxOptions").is_some_and(bad));
    let setters = setters(own.is_some(), &named)?;
    let all: Vec<&Value> =
        own.into_iter().chain(pod.containers().filter_map(|container| context(container, "/seLinuxOptions"))).collect();
    let types: BTreeSet<String> =
        all.iter().map(|options| text(options, "type")).filter(|kind| !allowed.contains(&kind.as_str())).collect();
    let mut found = Vec::new();
    if !types.is_empty() {
        let types: Vec<String> = types.into_iter().collect();
        found.push(format!("{} {}", plural("type", "types", types.len()), quoted(&types)));
    }
    for field in ["user", "role"] {
        if all.iter().any(|options| !text(options, field).is_empty()) {
            found.push(format!("{field} may not be set"));
        }
    }
    violation("seLinuxOptions", format!("{setters} set forbidden securityContext.seLinuxOptions: {}", found.join("; ")))
}

fn seccomp(pod: &Pod<'_>) -> Option<Violation> {
    seccomp_setters(pod)
}

/// Those who chose a profile other than the two that are allowed.
pub(crate) fn seccomp_setters(pod: &Pod<'_>) -> Option<Violation> {
    const PLACE: &str = "/seccompProfile/type";
    let bad = |profile: &Value| !matches!(profile.as_str(), Some("RuntimeDefault" | "Localhost"));
    let own = pod.context(PLACE).filter(|profile| bad(profile));
    let named = pod.containers_where(|container| context(container, PLACE).is_some_and(bad));
    let setters = setters(own.is_some(), &named)?;
    let chosen = own.into_iter().chain(pod.containers().filter_map(|container| context(container, PLACE)));
    let values: BTreeSet<&str> = chosen.filter(|profile| bad(profile)).filter_map(Value::as_str).collect();
    let values: Vec<&str> = values.into_iter().collect();
    violation(
        "seccompProfile",
        format!("{setters} must not set securityContext.seccompProfile.type to {}", quoted(&values)),
    )
}

fn sysctls(pod: &Pod<'_>) -> Option<Violation> {
    let list = pod.context("/sysctls").and_then(Value::as_array).into_iter().flatten().map(name);
    let safe = |name: &str| SYSCTLS.iter().any(|(safe, since)| *safe == name && pod.at_least(*since));
    let wrong: Vec<&str> = list.filter(|name| !safe(name)).collect();
    if wrong.is_empty() {
        return None;
    }
    violation("forbidden sysctls", wrong.join(", "))
}

fn host_process(pod: &Pod<'_>) -> Option<Violation> {
    const PLACE: &str = "/windowsOptions/hostProcess";
    let own = pod.context(PLACE) == Some(&Value::Bool(true));
    let named = pod.containers_where(|container| context(container, PLACE) == Some(&Value::Bool(true)));
    let setters = setters(own, &named)?;
    violation("hostProcess", format!("{setters} must not set securityContext.windowsOptions.hostProcess=true"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::checks::{details, evaluate};
    use super::super::policy::{Standard, Version};

    fn check(version: Version, spec: serde_json::Value, expected: &str) {
        let found = evaluate(Standard { level: super::Level::Baseline, version }, &json!({"spec": spec}));
        assert_eq!(details(&found), expected, "{spec}");
    }

    #[test]
    fn what_reaches_the_host_is_found() {
        let latest = |spec, expected| check(Version::LATEST, spec, expected);
        let with = |context: serde_json::Value| json!({"containers": [{"name": "c", "securityContext": context}]});
        latest(json!({"containers": [{"name": "c"}]}), "");
        latest(json!({"hostNetwork": true, "hostPID": true}), "host namespaces (hostNetwork=true, hostPID=true)");
        latest(json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}), "hostPath volumes (volume \"v\")");
        latest(
            with(json!({"privileged": true})),
            "privileged (container \"c\" must not set securityContext.privileged=true)",
        );
        latest(
            with(json!({"capabilities": {"add": ["NET_ADMIN", "CHOWN"]}})),
            "non-default capabilities (container \"c\" must not include \"NET_ADMIN\" in securityContext.capabilities.add)",
        );
        latest(
            json!({"containers": [{"name": "c", "ports": [{"hostPort": 80}]}]}),
            "hostPort (container \"c\" uses hostPort 80)",
        );
        latest(
            with(json!({"procMount": "Unmasked"})),
            "procMount (container \"c\" must not set securityContext.procMount to \"Unmasked\")",
        );
        latest(
            json!({"securityContext": {"seLinuxOptions": {"type": "spc_t", "user": "u"}}}),
            "seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type \"spc_t\"; user may not be set)",
        );
        latest(
            with(json!({"seccompProfile": {"type": "Unconfined"}})),
            "seccompProfile (container \"c\" must not set securityContext.seccompProfile.type to \"Unconfined\")",
        );
        latest(
            json!({"securityContext": {"sysctls": [{"name": "kernel.msgmax"}]}}),
            "forbidden sysctls (kernel.msgmax)",
        );
        latest(
            json!({"containers": [{"name": "c", "livenessProbe": {"httpGet": {"host": "h"}}}]}),
            "probe or lifecycle host (container \"c\" uses probe or lifecycle host \"h\")",
        );
    }

    #[test]
    fn versions_differ() {
        let sysctl = json!({"securityContext": {"sysctls": [{"name": "net.ipv4.tcp_rmem"}]}});
        check(Version::minor(31), sysctl.clone(), "forbidden sysctls (net.ipv4.tcp_rmem)");
        check(Version::minor(32), sysctl, "");
        check(
            Version::minor(33),
            json!({"containers": [{"name": "c", "livenessProbe": {"httpGet": {"host": "h"}}}]}),
            "",
        );
    }
}
