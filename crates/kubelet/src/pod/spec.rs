//! Reading a pod's wishes: its containers of all kinds as one list, and what follows from the fields together.

use k8s_openapi::api::core::v1::{Container, EphemeralContainer, Pod, PodSpec};

use super::labels;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Init,
    /// An init container with `restartPolicy: Always`: runs beside the others, for as long as they do.
    Sidecar,
    Regular,
    Ephemeral,
}

impl Kind {
    /// How events name the part of the pod they are about.
    pub fn field_path(self, name: &str) -> String {
        match self {
            Kind::Init | Kind::Sidecar => format!("spec.initContainers{{{name}}}"),
            Kind::Regular => format!("spec.containers{{{name}}}"),
            Kind::Ephemeral => format!("spec.ephemeralContainers{{{name}}}"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartPolicy {
    Always,
    OnFailure,
    Never,
}

impl RestartPolicy {
    pub fn parse(text: Option<&str>) -> RestartPolicy {
        match text {
            Some("OnFailure") => RestartPolicy::OnFailure,
            Some("Never") => RestartPolicy::Never,
            _ => RestartPolicy::Always,
        }
    }
}

pub fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

pub fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

pub fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or_default()
}

/// As messages name a pod: `name_namespace(uid)`.
pub fn full_name(pod: &Pod) -> String {
    format!("{}_{}({})", name(pod), namespace(pod), uid(pod))
}

pub fn wishes(pod: &Pod) -> &PodSpec {
    static EMPTY: std::sync::LazyLock<PodSpec> = std::sync::LazyLock::new(PodSpec::default);
    pod.spec.as_ref().unwrap_or(&EMPTY)
}

pub(crate) fn is_static(pod: &Pod) -> bool {
    let annotations = pod.metadata.annotations.as_ref();
    let source = annotations.and_then(|all| all.get(labels::CONFIG_SOURCE));
    source.is_some_and(|source| source != "api")
}

pub fn is_mirror(pod: &Pod) -> bool {
    pod.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(labels::CONFIG_MIRROR))
}

pub fn host_network(pod: &Pod) -> bool {
    wishes(pod).host_network == Some(true)
}

pub(crate) fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

pub fn init_containers(pod: &Pod) -> impl DoubleEndedIterator<Item = &Container> {
    wishes(pod).init_containers.iter().flatten()
}

pub(crate) fn regular_containers(pod: &Pod) -> impl DoubleEndedIterator<Item = &Container> {
    wishes(pod).containers.iter()
}

pub fn ephemeral_containers(pod: &Pod) -> impl Iterator<Item = Container> + '_ {
    wishes(pod).ephemeral_containers.iter().flatten().map(as_container)
}

/// The container of that name, of whichever kind.
pub fn container(pod: &Pod, name: &str) -> Option<(Kind, Container)> {
    if let Some(found) = init_containers(pod).find(|container| container.name == name) {
        let kind = if is_sidecar(found) { Kind::Sidecar } else { Kind::Init };
        return Some((kind, found.clone()));
    }
    if let Some(found) = regular_containers(pod).find(|container| container.name == name) {
        return Some((Kind::Regular, found.clone()));
    }
    ephemeral_containers(pod).find(|container| container.name == name).map(|found| (Kind::Ephemeral, found))
}

/// The id of the process namespace's owner that an ephemeral container wants to see.
pub(crate) fn target_of<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    let mut all = wishes(pod).ephemeral_containers.iter().flatten();
    all.find(|container| container.name == name)?.target_container_name.as_deref().filter(|target| !target.is_empty())
}

pub fn restart_policy(pod: &Pod) -> RestartPolicy {
    RestartPolicy::parse(wishes(pod).restart_policy.as_deref())
}

/// Whether a container that ended so is started again.
pub fn restarts(pod: &Pod, kind: Kind, container: &Container, exit_code: i32) -> bool {
    if kind == Kind::Ephemeral {
        return false;
    }
    if rule_says_restart(container, exit_code) {
        return true;
    }
    let policy = match container.restart_policy.as_deref() {
        Some(own) => RestartPolicy::parse(Some(own)),
        None => restart_policy(pod),
    };
    match policy {
        // An init container that succeeded is done, even where others are always restarted.
        RestartPolicy::Always if kind == Kind::Init => exit_code != 0,
        RestartPolicy::Always => true,
        RestartPolicy::OnFailure => exit_code != 0,
        RestartPolicy::Never => false,
    }
}

fn rule_says_restart(container: &Container, exit_code: i32) -> bool {
    for rule in container.restart_policy_rules.iter().flatten() {
        let Some(codes) = &rule.exit_codes else { continue };
        let listed = codes.values.iter().flatten().any(|code| *code == exit_code);
        let matches = match codes.operator.as_str() {
            "In" => listed,
            "NotIn" => !listed,
            _ => false,
        };
        if matches {
            return rule.action == "Restart" || rule.action == "RestartAllContainers";
        }
    }
    false
}

/// Whether any container has a rule by which its end restarts all.
pub(crate) fn may_restart_all(pod: &Pod) -> bool {
    let mut rules =
        init_containers(pod).chain(regular_containers(pod)).flat_map(|container| &container.restart_policy_rules);
    rules.any(|rules| rules.iter().any(|rule| rule.action == "RestartAllContainers"))
}

/// Whether the end of this container with that code starts the whole pod anew.
pub(crate) fn restarts_all(container: &Container, exit_code: i32) -> bool {
    let rules = container.restart_policy_rules.iter().flatten();
    let mut matching = rules.filter(|rule| {
        rule.exit_codes.as_ref().is_some_and(|codes| {
            let listed = codes.values.iter().flatten().any(|code| *code == exit_code);
            (codes.operator == "In" && listed) || (codes.operator == "NotIn" && !listed)
        })
    });
    matching.next().is_some_and(|rule| rule.action == "RestartAllContainers")
}

/// Changes when a running container no longer is what is wished. Only name and image count, as upstream: all else is either
/// immutable or changed in place. The number itself is upstream's too, so that either kubelet keeps the other's containers.
pub fn hash(container: &Container) -> String {
    let [image, name] = [container.image.as_deref().unwrap_or_default(), &container.name].map(go_json);
    let json = format!("{{\"image\":{image},\"name\":{name}}}");
    // Upstream hashes not the bytes but how Go prints a slice of them.
    let bytes: Vec<String> = json.bytes().map(|byte| byte.to_string()).collect();
    format!("{:x}", fnv(format!("([]uint8)[{}]", bytes.join(" ")).bytes()))
}

/// Whether a container that carries this hash still is what is wished. Those that knarr 0.1 made carry another hash of the
/// same two fields, and a new kubelet must not start them anew.
pub(crate) fn is_current(recorded: &str, container: &Container) -> bool {
    let image = container.image.as_deref().unwrap_or_default();
    let former = || format!("{:x}", fnv(container.name.bytes().chain([0]).chain(image.bytes())));
    recorded == hash(container) || recorded == former()
}

/// 32 bits of FNV-1a.
fn fnv(bytes: impl Iterator<Item = u8>) -> u32 {
    bytes.fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// A string as Go's encoder writes it: what could be mistaken in a page of HTML or a script is escaped.
fn go_json(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out + "\""
}

pub(crate) fn termination_grace_seconds(pod: &Pod) -> i64 {
    wishes(pod).termination_grace_period_seconds.unwrap_or(30)
}

/// The folder of the pod's logs below the log folder.
pub(crate) fn log_owner(pod: &Pod, container: &str, id: &str) -> super::container_logs::Owner {
    super::container_logs::Owner {
        namespace: namespace(pod).to_owned(),
        pod: name(pod).to_owned(),
        container: container.to_owned(),
        id: id.to_owned(),
    }
}

pub(crate) fn log_folder(pod: &Pod) -> String {
    format!("{}_{}_{}", namespace(pod), name(pod), uid(pod))
}

fn as_container(ephemeral: &EphemeralContainer) -> Container {
    let it = ephemeral.clone();
    Container {
        args: it.args,
        command: it.command,
        env: it.env,
        env_from: it.env_from,
        image: it.image,
        image_pull_policy: it.image_pull_policy,
        lifecycle: it.lifecycle,
        liveness_probe: it.liveness_probe,
        name: it.name,
        ports: it.ports,
        readiness_probe: it.readiness_probe,
        resize_policy: it.resize_policy,
        resources: it.resources,
        restart_policy: it.restart_policy,
        restart_policy_rules: it.restart_policy_rules,
        security_context: it.security_context,
        startup_probe: it.startup_probe,
        stdin: it.stdin,
        stdin_once: it.stdin_once,
        termination_message_path: it.termination_message_path,
        termination_message_policy: it.termination_message_policy,
        tty: it.tty,
        volume_devices: it.volume_devices,
        volume_mounts: it.volume_mounts,
        working_dir: it.working_dir,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(name: &str, image: &str) -> Container {
        Container { name: name.into(), image: Some(image.into()), ..Default::default() }
    }

    #[test]
    fn hashes_are_those_of_upstream() {
        let check = |name: &str, image: &str, expected: &str| assert_eq!(hash(&container(name, image)), expected);
        // The first is the one that upstream promises never to change.
        check("test_container", "foo/image:v1", "8e45cbd0");
        check("main", "registry.k8s.io/e2e-test-images/agnhost:2.63.0", "728940db");
        check("main", "", "a9d38c3e");
        check("a", "x<y>&\"\\\n\u{2028}\u{7f}\u{1}\u{8}", "6ead7c14");
    }

    #[test]
    fn containers_of_the_former_hash_are_kept() {
        let wish = container("main", "demo");
        assert!(is_current(&hash(&wish), &wish));
        assert!(is_current("edb8aa9f", &wish));
        assert!(!is_current("", &wish) && !is_current("8e45cbd0", &wish));
    }
}
