//! Volumes, claims and classes.

use serde_json::Value;

use super::source::{self, Of};
use super::{Context, head, in_line, items, map, or, plain, tags, text};
use crate::failure::Result;
use crate::resource::select::Query;

fn modes(object: &Value, path: &str) -> String {
    let short: Vec<&str> = items(object, path)
        .iter()
        .map(|mode| match mode.as_str().unwrap_or_default() {
            "ReadWriteOnce" => "RWO",
            "ReadOnlyMany" => "ROX",
            "ReadWriteMany" => "RWX",
            "ReadWriteOncePod" => "RWOP",
            other => other,
        })
        .collect();
    short.join(",")
}

fn finalizers(object: &Value) -> String {
    let texts: Vec<String> = items(object, "/metadata/finalizers").iter().map(plain).collect();
    format!("Finalizers:\t[{}]\n", texts.join(" "))
}

/// The class by its field, or by the annotation it had before there was one.
fn class_name(object: &Value) -> &str {
    let annotation = text(object, "/metadata/annotations/volume.beta.kubernetes.io~1storage-class");
    or(annotation, text(object, "/spec/storageClassName"))
}

fn status(object: &Value) -> String {
    match text(object, "/metadata/deletionTimestamp") {
        "" => format!("Status:\t{}\n", text(object, "/status/phase")),
        time => format!("Status:\tTerminating (lasts {})\n", super::since(time)),
    }
}

pub(super) async fn claim(cx: &Context<'_>, object: &Value) -> Result<String> {
    let mut out = head(object);
    out += &format!("StorageClass:\t{}\n", class_name(object));
    out += &status(object);
    out += &format!("Volume:\t{}\n", text(object, "/spec/volumeName"));
    out += &tags(object);
    out += &finalizers(object);
    let bound = !text(object, "/spec/volumeName").is_empty();
    out += &format!(
        "Capacity:\t{}\n",
        if bound { plain(&object["status"]["capacity"]["storage"]) } else { String::new() }
    );
    out += &format!("Access Modes:\t{}\n", if bound { modes(object, "/status/accessModes") } else { String::new() });
    if object["spec"]["volumeMode"].is_string() {
        out += &format!("VolumeMode:\t{}\n", text(object, "/spec/volumeMode"));
    }
    if object["spec"]["dataSource"].is_object() {
        out += "DataSource:\n";
        let source = &object["spec"]["dataSource"];
        if source["apiGroup"].is_string() {
            out += &format!("  APIGroup:\t{}\n", text(source, "/apiGroup"));
        }
        out += &format!("  Kind:\t{}\n  Name:\t{}\n", text(source, "/kind"), text(source, "/name"));
    }
    let mapping = cx.session.mapping("pods").await?;
    let query = Query { chunk: 500, ..Query::default() };
    let pods = cx.session.list(&mapping, text(object, "/metadata/namespace"), &query).await.unwrap_or_default();
    let name = text(object, "/metadata/name");
    let mounts = |pod: &&Value| {
        items(pod, "/spec/volumes").iter().any(|volume| text(volume, "/persistentVolumeClaim/claimName") == name)
    };
    // A claim that was made for a pod's ephemeral volume is owned by that pod.
    let owners = items(object, "/metadata/ownerReferences");
    let owned =
        |pod: &&Value| owners.iter().any(|owner| owner["kind"] == "Pod" && owner["uid"] == pod["metadata"]["uid"]);
    let mut users: Vec<&str> =
        pods.iter().filter(|pod| mounts(pod) || owned(pod)).map(|pod| text(pod, "/metadata/name")).collect();
    users.sort_unstable();
    out += &format!("Used By:\t{}\n", users.first().unwrap_or(&"<none>"));
    users.iter().skip(1).for_each(|user| out += &format!("\t{user}\n"));
    Ok(out + &claim_conditions(object))
}

fn claim_conditions(object: &Value) -> String {
    let conditions = items(object, "/status/conditions");
    if conditions.is_empty() {
        return String::new();
    }
    let mut out = String::from("Conditions:\n  Type\tStatus\tLastProbeTime\tLastTransitionTime\tReason\tMessage\n");
    out += "  ----\t------\t-----------------\t------------------\t------\t-------\n";
    for condition in conditions {
        // Go's zero, where nobody has looked yet.
        let when = |path: &str| super::time(or(text(condition, path), "0001-01-01T00:00:00Z"));
        out += &format!(
            "  {} \t{} \t{} \t{} \t{} \t{}\n",
            text(condition, "/type"),
            text(condition, "/status"),
            when("/lastProbeTime"),
            when("/lastTransitionTime"),
            text(condition, "/reason"),
            text(condition, "/message")
        );
    }
    out
}

pub(crate) fn volume(object: &Value) -> String {
    let mut out = head(object) + &tags(object) + &finalizers(object);
    out += &format!("StorageClass:\t{}\n", class_name(object));
    out += &status(object);
    let claim = &object["spec"]["claimRef"];
    out += &if claim.is_object() {
        format!("Claim:\t{}/{}\n", text(claim, "/namespace"), text(claim, "/name"))
    } else {
        "Claim:\t\n".into()
    };
    out += &format!("Reclaim Policy:\t{}\n", text(object, "/spec/persistentVolumeReclaimPolicy"));
    out += &format!("Access Modes:\t{}\n", modes(object, "/spec/accessModes"));
    if object["spec"]["volumeMode"].is_string() {
        out += &format!("VolumeMode:\t{}\n", text(object, "/spec/volumeMode"));
    }
    out += &format!("Capacity:\t{}\n", plain(&object["spec"]["capacity"]["storage"]));
    out += &affinity(&object["spec"]["nodeAffinity"]["required"]);
    out += &format!("Message:\t{}\n", text(object, "/status/message"));
    out += "Source:\n";
    let spec = &object["spec"];
    let lines = if spec["csi"].is_object() {
        Some(super::volume::csi_lines(&spec["csi"], Of::PersistentVolume))
    } else {
        source::lines(spec, Of::PersistentVolume)
    };
    match lines {
        Some(lines) => lines.iter().for_each(|line| out += &format!("    {line}\n")),
        None => out += "  <unknown>\n",
    }
    out
}

/// The nodes from which a volume can be reached.
fn affinity(required: &Value) -> String {
    if !required.is_object() {
        return "Node Affinity:\t<none>\n".into();
    }
    let terms = items(required, "/nodeSelectorTerms");
    if terms.is_empty() {
        return "Node Affinity:\t\n  Required Terms:\t<none>\n".into();
    }
    let mut out = String::from("Node Affinity:\t\n  Required Terms:\t\n");
    for (at, term) in terms.iter().enumerate() {
        let expressions: Vec<String> = items(term, "/matchExpressions")
            .iter()
            .map(|expression| {
                let operator = text(expression, "/operator").to_lowercase();
                expressed(text(expression, "/key"), &operator, items(expression, "/values"))
            })
            .collect();
        out += &format!("    Term {at}:\t{}\n", or(&expressions.join("\n    \t"), "<none>"));
    }
    out
}

/// `zone in [a, b]`
fn expressed(key: &str, operator: &str, values: &[Value]) -> String {
    if values.is_empty() {
        format!("{key} {operator}")
    } else {
        format!("{key} {operator} [{}]", values.iter().map(plain).collect::<Vec<_>>().join(", "))
    }
}

pub(super) fn csi_node(object: &Value) -> String {
    let mut out = format!("Name:\t{}\n", text(object, "/metadata/name")) + &tags(object);
    out += &format!("CreationTimestamp:\t{}\nSpec:\n", super::time(text(object, "/metadata/creationTimestamp")));
    if object["spec"]["drivers"].is_array() {
        out += "  Drivers:\n";
    }
    for driver in items(object, "/spec/drivers") {
        out += &format!("    {}:\n      Node ID:\t{}\n", text(driver, "/name"), text(driver, "/nodeID"));
        if driver["allocatable"]["count"].is_number() {
            out += &format!("      Allocatables:\n        Count:\t{}\n", driver["allocatable"]["count"]);
        }
        if driver["topologyKeys"].is_array() {
            out += &format!("      Topology Keys:\t{}\n", super::bracketed(items(driver, "/topologyKeys")));
        }
    }
    out
}

pub(super) fn attributes_class(object: &Value) -> String {
    let mut out = format!("Name:\t{}\n", text(object, "/metadata/name"));
    out += &format!("Annotations:\t{}\n", in_line(&map(object, "/metadata/annotations")));
    out += &format!("DriverName:\t{}\n", text(object, "/driverName"));
    out + &format!("Parameters:\t{}\n", in_line(&map(object, "/parameters")))
}

pub(crate) fn class(object: &Value) -> String {
    let mut out = format!("Name:\t{}\n", text(object, "/metadata/name"));
    let is_default = |key: &str| object["metadata"]["annotations"][key] == "true";
    let default = is_default("storageclass.kubernetes.io/is-default-class")
        || is_default("storageclass.beta.kubernetes.io/is-default-class");
    out += &format!("IsDefaultClass:\t{}\n", if default { "Yes" } else { "No" });
    out += &format!("Annotations:\t{}\n", in_line(&map(object, "/metadata/annotations")));
    out += &format!("Provisioner:\t{}\n", text(object, "/provisioner"));
    out += &format!("Parameters:\t{}\n", in_line(&map(object, "/parameters")));
    out += &format!(
        "AllowVolumeExpansion:\t{}\n",
        match object["allowVolumeExpansion"].as_bool() {
            Some(true) => "True",
            Some(false) => "False",
            None => "<unset>",
        }
    );
    let options: Vec<String> = items(object, "/mountOptions").iter().map(plain).collect();
    out += &if options.is_empty() {
        "MountOptions:\t<none>\n".to_string()
    } else {
        format!("MountOptions:\n{}", options.iter().map(|option| format!("  {option}\n")).collect::<String>())
    };
    out += &format!("ReclaimPolicy:\t{}\n", text(object, "/reclaimPolicy"));
    out += &format!("VolumeBindingMode:\t{}\n", text(object, "/volumeBindingMode"));
    let topologies = items(object, "/allowedTopologies");
    if !topologies.is_empty() {
        out += "AllowedTopologies:\t\n";
    }
    for (at, term) in topologies.iter().enumerate() {
        let expressions: Vec<String> = items(term, "/matchLabelExpressions")
            .iter()
            .map(|expression| expressed(text(expression, "/key"), "in", items(expression, "/values")))
            .collect();
        out += &format!("  Term {at}:\t{}\n", or(&expressions.join("\n  \t"), "<none>"));
    }
    out
}
