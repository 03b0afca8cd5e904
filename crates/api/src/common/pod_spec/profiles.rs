//! Seccomp and AppArmor profiles were annotations once. Where both are there they must agree.

use machinery::field::Errors;
use machinery::node::Node;

use super::text::descending_path;

const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const APPARMOR_CONTAINER: &str = "container.apparmor.security.beta.kubernetes.io/";

pub(crate) fn seccomp_annotations(errors: &mut Errors, meta: &Node, spec: &Node) {
    let annotations = meta.at("annotations");
    agree(errors, &annotations.key(SECCOMP_POD), &spec.at("securityContext").at("seccompProfile"), Words::SECCOMP);
    for container in LISTS.into_iter().flat_map(|list| spec.each(list)) {
        let annotation = annotations.key(&format!("{SECCOMP_CONTAINER}{}", container.text("name")));
        agree(errors, &annotation, &container.at("securityContext").at("seccompProfile"), Words::SECCOMP);
    }
}

/// The values of seccomp annotations, which upstream reports as if each were a field.
pub(crate) fn seccomp_values(errors: &mut Errors, annotations: &Node) {
    for (key, value) in annotations.entries() {
        if key != SECCOMP_POD && !key.starts_with(SECCOMP_CONTAINER) {
            continue;
        }
        let path = annotations.path.named(key);
        match value.str().strip_prefix("localhost/") {
            Some(local) => descending_path(errors, &path, &local.into()),
            None if ["runtime/default", "docker/default", "unconfined"].contains(&value.str()) => {}
            None => errors.invalid_value(&path, value.value, "must be a valid seccomp profile"),
        }
    }
}

pub(crate) fn apparmor_annotations(errors: &mut Errors, meta: &Node, spec: &Node) {
    if spec.at("os").text("name") == "windows" {
        return;
    }
    let annotations = meta.at("annotations");
    let pod_profile = spec.at("securityContext").at("appArmorProfile");
    for container in LISTS.into_iter().flat_map(|list| spec.each(list)) {
        let own = container.at("securityContext").at("appArmorProfile");
        let profile = if own.exists() { own.value } else { pod_profile.value };
        let annotation = annotations.key(&format!("{APPARMOR_CONTAINER}{}", container.text("name")));
        agree(errors, &annotation, &Node::new(profile, own.path), Words::APPARMOR);
    }
}

struct Words {
    name: &'static str,
    runtime_default: &'static [&'static str],
}

impl Words {
    const SECCOMP: Words = Words { name: "seccomp", runtime_default: &["runtime/default", "docker/default"] };
    const APPARMOR: Words = Words { name: "apparmor", runtime_default: &["runtime/default"] };
}

fn agree(errors: &mut Errors, annotation: &Node, profile: &Node, words: Words) {
    if !annotation.exists() || !profile.exists() {
        return;
    }
    let text = annotation.str();
    let local = text.strip_prefix("localhost/");
    let same_type = match profile.text("type") {
        "Unconfined" => text == "unconfined",
        "RuntimeDefault" => words.runtime_default.contains(&text),
        "Localhost" => local.is_some(),
        _ => true,
    };
    let name = words.name;
    if !same_type {
        errors.forbidden(&profile.at("type"), format!("{name} type in annotation and field must match"));
    } else if profile.text("type") == "Localhost" && local != profile.at("localhostProfile").value.as_str() {
        errors.forbidden(&profile.at("localhostProfile"), format!("{name} profile in annotation and field must match"));
    }
}
