//! Volumes of pods and templates.

use serde_json::Value;

use super::source::{self, Of};
use super::{items, number, or, plain, text};

pub(crate) fn volumes(list: &[Value], space: &str) -> String {
    if list.is_empty() {
        return format!("{space}Volumes:\t<none>\n");
    }
    let mut out = format!("{space}Volumes:\n");
    let name_indent = if space.is_empty() { "  " } else { "   " };
    for volume in list {
        out += &format!("{name_indent}{}:\n", text(volume, "/name"));
        let lines = lines(volume);
        if lines.is_empty() {
            out += "  <unknown>\n";
        }
        lines.iter().for_each(|line| out += &format!("    {line}\n"));
    }
    out
}

/// Annotations and attributes are cut behind so many bytes.
const PAIR_BYTES_MAX: usize = 140;

fn lines(volume: &Value) -> Vec<String> {
    if let Some(lines) = source::lines(volume, Of::Pod) {
        return lines;
    }
    if let Some(projected) = volume.get("projected") {
        return projected_lines(projected);
    }
    if let Some(downward) = volume.get("downwardAPI") {
        let mut out =
            vec!["Type:\tDownwardAPI (a volume populated by information about the pod)".into(), "Items:".into()];
        for item in items(downward, "/items") {
            let from = or(text(item, "/fieldRef/fieldPath"), text(item, "/resourceFieldRef/resource"));
            out.push(format!("  {from} -> {}", text(item, "/path")));
        }
        return out;
    }
    if let Some(csi) = volume.get("csi") {
        return csi_lines(csi, Of::Pod);
    }
    match volume.get("ephemeral") {
        Some(ephemeral) => ephemeral_lines(ephemeral),
        // A kind of source that is newer than this program.
        None => Vec::new(),
    }
}

fn projected_lines(projected: &Value) -> Vec<String> {
    let mut out = vec!["Type:\tProjected (a volume that contains injected data from multiple sources)".to_string()];
    for source in items(projected, "/sources") {
        let of = |kind: &str, title: &str| {
            let found = &source[kind];
            [format!("{title}:\t{}", text(found, "/name")), format!("Optional:\t{}", found["optional"] == true)]
        };
        if source["secret"].is_object() {
            out.extend(of("secret", "SecretName"));
        } else if source["downwardAPI"].is_object() {
            out.push("DownwardAPI:\ttrue".into());
        } else if source["configMap"].is_object() {
            out.extend(of("configMap", "ConfigMapName"));
        } else if source["serviceAccountToken"].is_object() {
            let seconds = number(source, "/serviceAccountToken/expirationSeconds");
            out.push(format!("TokenExpirationSeconds:\t{seconds}"));
        }
    }
    out
}

/// Volumes of CSI drivers; persistent ones have a handle.
pub(super) fn csi_lines(csi: &Value, of: Of) -> Vec<String> {
    let mut out = vec![
        "Type:\tCSI (a Container Storage Interface (CSI) volume source)".to_string(),
        format!("Driver:\t{}", text(csi, "/driver")),
        format!("FSType:\t{}", text(csi, "/fsType")),
    ];
    if of == Of::PersistentVolume {
        out.push(format!("VolumeHandle:\t{}", text(csi, "/volumeHandle")));
    }
    out.push(format!("ReadOnly:\t{}", csi["readOnly"] == true));
    out.extend(pairs("VolumeAttributes", &csi["volumeAttributes"], ""));
    out
}

fn ephemeral_lines(ephemeral: &Value) -> Vec<String> {
    let kind = "EphemeralVolume (an inline specification for a volume that gets created and deleted with the pod)";
    let mut out = vec![format!("Type:\t{kind}")];
    let claim = &ephemeral["volumeClaimTemplate"];
    if claim.is_object() {
        out.push(format!("StorageClass:\t{}", text(claim, "/spec/storageClassName")));
        out.push(format!("Volume:\t{}", text(claim, "/spec/volumeName")));
        out.extend(pairs("Labels", &claim["metadata"]["labels"], INDENT));
        out.extend(pairs("Annotations", &claim["metadata"]["annotations"], INDENT));
        // Of a claim that is only asked for, neither is known.
        out.extend(["Capacity:\t".into(), "Access Modes:\t".into()]);
        let mode = text(claim, "/spec/volumeMode");
        out.extend((!mode.is_empty()).then(|| format!("VolumeMode:\t{mode}")));
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
