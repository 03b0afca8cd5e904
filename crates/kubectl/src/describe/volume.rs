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
        for (key, value) in lines(volume) {
            out += &format!("    {key}:\t{value}\n");
        }
    }
    out
}

type Lines = Vec<(String, String)>;

fn lines(volume: &Value) -> Lines {
    let mut out: Lines = Vec::new();
    let mut add = |key: &str, value: String| out.push((key.into(), value));
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
        add("Items", String::new());
        for item in items(downward, "/items") {
            let from = or(text(item, "/fieldRef/fieldPath"), text(item, "/resourceFieldRef/resource"));
            out.push((format!("  {from} -> {}", text(item, "/path")), String::new()));
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
    } else if let Some(ephemeral) = volume.get("ephemeral") {
        add(
            "Type",
            "EphemeralVolume (an inline specification for a volume that gets created and deleted with the pod)".into(),
        );
        let class = text(ephemeral, "/volumeClaimTemplate/spec/storageClassName");
        add("StorageClass", class.into());
    } else if let Some(image) = volume.get("image") {
        add("Type", "Image (a container image or OCI artifact)".into());
        add("Reference", text(image, "/reference").into());
        add("PullPolicy", text(image, "/pullPolicy").into());
    } else {
        add("Type", "<unknown>".into());
    }
    out
}
