//! Containers, of pods and of templates.

use serde_json::Value;

use super::{items, map, number, or, plain, text, time};

/// `statuses` is none for templates. `space` stands before the title of templates' lists.
pub(crate) fn containers(title: &str, list: &[Value], statuses: Option<&[Value]>, space: &str, pod: &Value) -> String {
    let none = if list.is_empty() { " <none>" } else { "" };
    let mut out = format!("{space}{title}:{none}\n");
    let name_indent = if space.is_empty() { "  " } else { "   " };
    for container in list {
        let name = text(container, "/name");
        let status = statuses.and_then(|statuses| statuses.iter().find(|status| status["name"] == name));
        out += &format!("{name_indent}{name}:\n");
        out += &one(container, status, pod);
    }
    out
}

const PAD: &str = "    ";

fn one(container: &Value, status: Option<&Value>, pod: &Value) -> String {
    let mut out = String::new();
    if let Some(status) = status {
        out += &format!("{PAD}Container ID:\t{}\n", text(status, "/containerID"));
    }
    out += &format!("{PAD}Image:\t{}\n", text(container, "/image"));
    if let Some(status) = status {
        out += &format!("{PAD}Image ID:\t{}\n", text(status, "/imageID"));
    }
    let ports = items(container, "/ports");
    let list = |key: &str| {
        let texts: Vec<String> = ports
            .iter()
            .map(|port| {
                let shown = format!("{}/{}", number(port, key), or(text(port, "/protocol"), "TCP"));
                match text(port, "/name") {
                    "" => shown,
                    name => format!("{shown} ({name})"),
                }
            })
            .collect();
        if texts.is_empty() { "<none>".to_string() } else { texts.join(", ") }
    };
    let (singular, plural) = if ports.len() > 1 { ("Ports", "Host Ports") } else { ("Port", "Host Port") };
    out += &format!("{PAD}{singular}:\t{}\n{PAD}{plural}:\t{}\n", list("/containerPort"), list("/hostPort"));
    out += &seccomp(&container["securityContext"], PAD, "  ");
    for (title, key) in [("Command", "/command"), ("Args", "/args")] {
        let words = items(container, key);
        if !words.is_empty() {
            out += &format!("{PAD}{title}:\n");
            for word in words {
                for line in plain(word).split('\n') {
                    out += &format!("{PAD}  {line}\n");
                }
            }
        }
    }
    if let Some(status) = status {
        out += &state("State", &status["state"]);
        if status["lastState"]["terminated"].is_object() {
            out += &state("Last State", &status["lastState"]);
        }
        let ready = if status["ready"] == true { "True" } else { "False" };
        out += &format!("{PAD}Ready:\t{ready}\n{PAD}Restart Count:\t{}\n", number(status, "/restartCount"));
    }
    out += &resources(&container["resources"], PAD);
    for (title, key) in [("Liveness", "livenessProbe"), ("Readiness", "readinessProbe"), ("Startup", "startupProbe")] {
        if container[key].is_object() {
            out += &format!("{PAD}{title}:\t{}\n", probe(&container[key]));
        }
    }
    out += &environment(container, pod);
    out += &mounts(container);
    out
}

/// The seccomp profile of a security context; `inner` stands before the file's name, too.
pub(super) fn seccomp(context: &Value, indent: &str, inner: &str) -> String {
    let profile = &context["seccompProfile"];
    if !profile.is_object() {
        return String::new();
    }
    let mut out = format!("{indent}SeccompProfile:\t{}\n", text(profile, "/type"));
    if profile["type"] == "Localhost" {
        out += &format!("{indent}{inner}LocalhostProfile:\t{}\n", text(profile, "/localhostProfile"));
    }
    out
}

pub(crate) fn resources(resources: &Value, indent: &str) -> String {
    let mut out = String::new();
    for (title, key) in [("Limits", "/limits"), ("Requests", "/requests")] {
        let amounts = map(resources, key);
        if !amounts.is_empty() {
            out += &format!("{indent}{title}:\n");
        }
        for (name, amount) in amounts {
            out += &format!("{indent}  {name}:\t{}\n", plain(&amount));
        }
    }
    out
}

fn state(title: &str, state: &Value) -> String {
    if state["running"].is_object() {
        return format!("{PAD}{title}:\tRunning\n{PAD}  Started:\t{}\n", time(text(state, "/running/startedAt")));
    }
    if state["waiting"].is_object() {
        let reason = text(state, "/waiting/reason");
        let mut out = format!("{PAD}{title}:\tWaiting\n");
        if !reason.is_empty() {
            out += &format!("{PAD}  Reason:\t{reason}\n");
        }
        return out;
    }
    if state["terminated"].is_object() {
        let terminated = &state["terminated"];
        let mut out = format!("{PAD}{title}:\tTerminated\n");
        if !text(terminated, "/reason").is_empty() {
            out += &format!("{PAD}  Reason:\t{}\n", text(terminated, "/reason"));
        }
        if !text(terminated, "/message").is_empty() {
            out += &format!("{PAD}  Message:\t{}\n", text(terminated, "/message"));
        }
        out += &format!("{PAD}  Exit Code:\t{}\n", number(terminated, "/exitCode"));
        if number(terminated, "/signal") > 0 {
            out += &format!("{PAD}  Signal:\t{}\n", number(terminated, "/signal"));
        }
        out += &format!("{PAD}  Started:\t{}\n", time(text(terminated, "/startedAt")));
        out += &format!("{PAD}  Finished:\t{}\n", time(text(terminated, "/finishedAt")));
        return out;
    }
    format!("{PAD}{title}:\tWaiting\n")
}

pub(crate) fn probe(probe: &Value) -> String {
    let attributes = format!(
        "delay={}s timeout={}s period={}s #success={} #failure={}",
        number(probe, "/initialDelaySeconds"),
        number(probe, "/timeoutSeconds"),
        number(probe, "/periodSeconds"),
        number(probe, "/successThreshold"),
        number(probe, "/failureThreshold")
    );
    if probe["exec"].is_object() {
        let words: Vec<String> = items(probe, "/exec/command").iter().map(plain).collect();
        return format!("exec [{}] {attributes}", words.join(" "));
    }
    if probe["httpGet"].is_object() {
        let get = &probe["httpGet"];
        let scheme = or(text(get, "/scheme"), "HTTP").to_lowercase();
        let path = text(get, "/path");
        let path = if path.starts_with('/') || path.is_empty() { path.to_string() } else { format!("/{path}") };
        return format!("http-get {scheme}://{}:{}{path} {attributes}", text(get, "/host"), plain(&get["port"]));
    }
    if probe["tcpSocket"].is_object() {
        let socket = &probe["tcpSocket"];
        return format!("tcp-socket {}:{} {attributes}", text(socket, "/host"), plain(&socket["port"]));
    }
    if probe["grpc"].is_object() {
        let grpc = &probe["grpc"];
        return format!("grpc <pod>:{} {} {attributes}", number(grpc, "/port"), text(grpc, "/service"));
    }
    format!("unknown {attributes}")
}

fn environment(container: &Value, pod: &Value) -> String {
    let mut out = String::new();
    let sources = items(container, "/envFrom");
    if !sources.is_empty() {
        out += &format!("{PAD}Environment Variables from:\n");
        sources.iter().for_each(|source| out += &env_source(source));
    }
    let variables = items(container, "/env");
    if variables.is_empty() {
        return out + &format!("{PAD}Environment:\t<none>\n");
    }
    out += &format!("{PAD}Environment:\n");
    variables.iter().for_each(|variable| out += &env_variable(variable, container, pod));
    out
}

fn env_source(source: &Value) -> String {
    let (kind, from) = if source["configMapRef"].is_object() {
        ("ConfigMap", &source["configMapRef"])
    } else {
        ("Secret", &source["secretRef"])
    };
    let prefix = match text(source, "/prefix") {
        "" => String::new(),
        prefix => format!(" with prefix '{prefix}'"),
    };
    format!("{PAD}  {}\t{kind}{prefix}\tOptional: {}\n", text(from, "/name"), from["optional"] == true)
}

fn env_variable(variable: &Value, container: &Value, pod: &Value) -> String {
    let name = text(variable, "/name");
    let from = &variable["valueFrom"];
    let key = |reference: &Value, place: &str| {
        let (key, holder) = (text(reference, "/key"), text(reference, "/name"));
        format!("<set to the key '{key}' {place} '{holder}'>\tOptional: {}", reference["optional"] == true)
    };
    let shown = if from.is_null() {
        text(variable, "/value").replace('\n', &format!("\n{PAD}  \t"))
    } else if from["fieldRef"].is_object() {
        let path = text(from, "/fieldRef/fieldPath");
        format!("{} ({}:{path})", field(pod, path), or(text(from, "/fieldRef/apiVersion"), "v1"))
    } else if from["resourceFieldRef"].is_object() {
        let resource = text(from, "/resourceFieldRef/resource");
        format!("{} ({resource})", resource_value(container, resource))
    } else if from["secretKeyRef"].is_object() {
        key(&from["secretKeyRef"], "in secret")
    } else if from["configMapKeyRef"].is_object() {
        key(&from["configMapKeyRef"], "of config map")
    } else {
        return String::new();
    };
    format!("{PAD}  {name}:\t{shown}\n")
}

/// What the downward API would give, as far as it is known here.
fn field(pod: &Value, path: &str) -> String {
    let pointer = format!("/{}", path.replace('.', "/"));
    pod.pointer(&pointer).map(plain).unwrap_or_default()
}

fn resource_value(container: &Value, resource: &str) -> String {
    let (list, name) = resource.split_once('.').unwrap_or((resource, ""));
    let amount = plain(&container["resources"][list][name]);
    match amount.as_str() {
        "" if list == "limits" => "node allocatable".into(),
        "" => "0".into(),
        amount => match machinery::quantity::Quantity::parse(amount) {
            Ok(quantity) => quantity.value().to_string(),
            Err(_) => amount.to_string(),
        },
    }
}

fn mounts(container: &Value) -> String {
    let mut out = String::new();
    let mut list: Vec<&Value> = items(container, "/volumeMounts").iter().collect();
    if list.is_empty() {
        out += &format!("{PAD}Mounts:\t<none>\n");
    } else {
        list.sort_by_key(|mount| text(mount, "/mountPath"));
        out += &format!("{PAD}Mounts:\n");
        for mount in list {
            let mut flags = vec![if mount["readOnly"] == true { "ro".to_string() } else { "rw".into() }];
            if !text(mount, "/subPath").is_empty() {
                flags.push(format!("path={:?}", text(mount, "/subPath")));
            }
            out +=
                &format!("{PAD}  {} from {} ({})\n", text(mount, "/mountPath"), text(mount, "/name"), flags.join(","));
        }
    }
    let mut devices: Vec<&Value> = items(container, "/volumeDevices").iter().collect();
    devices.sort_by_key(|device| text(device, "/devicePath"));
    if !devices.is_empty() {
        // As upstream, which says of the mounts here once more that there are none.
        let none = if items(container, "/volumeMounts").is_empty() { "\t<none>" } else { "" };
        out += &format!("{PAD}Devices:{none}\n");
        for device in devices {
            out += &format!("{PAD}  {} from {}\n", text(device, "/devicePath"), text(device, "/name"));
        }
    }
    out
}
