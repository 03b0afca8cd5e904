//! Volumes of pods and templates.

use serde_json::Value;

use super::{items, number, or, plain, text};

pub fn volumes(list: &[Value], space: &str) -> String {
    if list.is_empty() {
        return format!("{space}Volumes:\t<none>\n");
    }
    let mut out = format!("{space}Volumes:\n");
    let name_indent = if space.is_empty() { "  " } else { "   " };
    for volume in list {
        out += &format!("{name_indent}{}:\n", text(volume, "/name"));
        for line in lines(volume) {
            out += &format!("    {line}\n");
        }
    }
    out
}

/// Annotations and attributes are cut behind so many bytes.
const PAIR_BYTES_MAX: usize = 140;

fn lines(volume: &Value) -> Vec<String> {
    let mut out = Vec::new();
    let mut add = |key: &str, value: String| out.push(format!("{key}:\t{value}"));
    if let Some(path) = volume.get("hostPath") {
        add("Type", "HostPath (bare host directory volume)".into());
        add("Path", text(path, "/path").into());
        add("HostPathType", text(path, "/type").into());
    } else if let Some(empty) = volume.get("emptyDir") {
        add("Type", "EmptyDir (a temporary directory that shares a pod's lifetime)".into());
        add("Medium", text(empty, "/medium").into());
        add(
            "SizeLimit",
            match plain(&empty["sizeLimit"]).as_str() {
                "" => "<unset>".into(),
                size => size.to_string(),
            },
        );
    } else if let Some(secret) = volume.get("secret") {
        add("Type", "Secret (a volume populated by a Secret)".into());
        add("SecretName", text(secret, "/secretName").into());
        add("Optional", (secret["optional"] == true).to_string());
    } else if let Some(map) = volume.get("configMap") {
        add("Type", "ConfigMap (a volume populated by a ConfigMap)".into());
        add("Name", text(map, "/name").into());
        add("Optional", (map["optional"] == true).to_string());
    } else if let Some(claim) = volume.get("persistentVolumeClaim") {
        add("Type", "PersistentVolumeClaim (a reference to a PersistentVolumeClaim in the same namespace)".into());
        add("ClaimName", text(claim, "/claimName").into());
        add("ReadOnly", (claim["readOnly"] == true).to_string());
    } else if let Some(projected) = volume.get("projected") {
        add("Type", "Projected (a volume that contains injected data from multiple sources)".into());
        for source in items(projected, "/sources") {
            if source["secret"].is_object() {
                add("SecretName", text(source, "/secret/name").into());
                add("Optional", (source["secret"]["optional"] == true).to_string());
            } else if source["downwardAPI"].is_object() {
                add("DownwardAPI", "true".into());
            } else if source["configMap"].is_object() {
                add("ConfigMapName", text(source, "/configMap/name").into());
                add("Optional", (source["configMap"]["optional"] == true).to_string());
            } else if source["serviceAccountToken"].is_object() {
                add("TokenExpirationSeconds", number(source, "/serviceAccountToken/expirationSeconds").to_string());
            }
        }
    } else if let Some(downward) = volume.get("downwardAPI") {
        add("Type", "DownwardAPI (a volume populated by information about the pod)".into());
        out.push("Items:".into());
        for item in items(downward, "/items") {
            let from = or(text(item, "/fieldRef/fieldPath"), text(item, "/resourceFieldRef/resource"));
            out.push(format!("  {from} -> {}", text(item, "/path")));
        }
    } else if let Some(nfs) = volume.get("nfs") {
        add("Type", "NFS (an NFS mount that lasts the lifetime of a pod)".into());
        add("Server", text(nfs, "/server").into());
        add("Path", text(nfs, "/path").into());
        add("ReadOnly", (nfs["readOnly"] == true).to_string());
    } else if let Some(csi) = volume.get("csi") {
        add("Type", "CSI (a Container Storage Interface (CSI) volume source)".into());
        add("Driver", text(csi, "/driver").into());
        add("FSType", text(csi, "/fsType").into());
        add("ReadOnly", (csi["readOnly"] == true).to_string());
        out.extend(pairs("VolumeAttributes", &csi["volumeAttributes"], ""));
    } else if let Some(ephemeral) = volume.get("ephemeral") {
        add(
            "Type",
            "EphemeralVolume (an inline specification for a volume that gets created and deleted with the pod)".into(),
        );
        let claim = &ephemeral["volumeClaimTemplate"];
        if claim.is_object() {
            add("StorageClass", text(claim, "/spec/storageClassName").into());
            add("Volume", text(claim, "/spec/volumeName").into());
            out.extend(pairs("Labels", &claim["metadata"]["labels"], INDENT));
            out.extend(pairs("Annotations", &claim["metadata"]["annotations"], INDENT));
            // Of a claim that is only asked for, neither is known.
            out.extend(["Capacity:\t".into(), "Access Modes:\t".into()]);
            let mode = text(claim, "/spec/volumeMode");
            out.extend((!mode.is_empty()).then(|| format!("VolumeMode:\t{mode}")));
        }
    } else if let Some(image) = volume.get("image") {
        add("Type", "Image (a container image or OCI artifact)".into());
        add("Reference", text(image, "/reference").into());
        add("PullPolicy", text(image, "/pullPolicy").into());
    } else {
        add("Type", "<unknown>".into());
    }
    out
}

const INDENT: &str = "    ";

/// Upstream indents what stands behind the title once more, and the word for nothing only inside of something else.
fn pairs(title: &str, map: &Value, nothing_indent: &str) -> Vec<String> {
    let map = map.as_object().filter(|map| !map.is_empty());
    let Some(map) = map else { return vec![format!("{title}:\t{nothing_indent}<none>")] };
    let mut all: Vec<String> = map.iter().map(|(key, value)| format!("{key}={}", plain(value))).collect();
    all.sort();
    let first = std::iter::once(format!("{title}:\t")).chain(std::iter::repeat(format!("{INDENT}\t")));
    let cut = |pair: &str| match pair.char_indices().find(|(at, letter)| at + letter.len_utf8() > PAIR_BYTES_MAX) {
        Some((at, _)) => format!("{}...", &pair[..at]),
        None => pair.to_string(),
    };
    first.zip(all).map(|(title, pair)| format!("{title}{INDENT}{}", cut(&pair))).collect()
}
