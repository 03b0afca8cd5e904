//! Volumes, claims and classes.

use serde_json::Value;

use super::{Context, head, items, map, or, plain, tags, text};
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

pub async fn claim(cx: &Context<'_>, object: &Value) -> Result<String> {
    let mut out = head(object);
    out += &format!("StorageClass:\t{}\n", text(object, "/spec/storageClassName"));
    let deleted = text(object, "/metadata/deletionTimestamp");
    out += &match deleted {
        "" => format!("Status:\t{}\n", text(object, "/status/phase")),
        time => format!("Status:\tTerminating (lasts {})\n", super::since(time)),
    };
    out += &format!("Volume:\t{}\n", text(object, "/spec/volumeName"));
    out += &tags(object);
    out += &finalizers(object);
    let bound = !text(object, "/spec/volumeName").is_empty();
    out += &format!(
        "Capacity:\t{}\n",
        if bound { plain(&object["status"]["capacity"]["storage"]) } else { String::new() }
    );
    out += &format!("Access Modes:\t{}\n", if bound { modes(object, "/status/accessModes") } else { String::new() });
    out += &format!("VolumeMode:\t{}\n", text(object, "/spec/volumeMode"));
    if object["spec"]["dataSource"].is_object() {
        out += "DataSource:\n";
        for (title, key) in [
            ("APIGroup", "/spec/dataSource/apiGroup"),
            ("Kind", "/spec/dataSource/kind"),
            ("Name", "/spec/dataSource/name"),
        ] {
            out += &format!("  {title}:\t{}\n", text(object, key));
        }
    }
    let mapping = cx.session.mapping("pods").await?;
    let query = Query { chunk: 500, ..Query::default() };
    let pods = cx.session.list(&mapping, text(object, "/metadata/namespace"), &query).await.unwrap_or_default();
    let name = text(object, "/metadata/name");
    let users: Vec<String> = pods
        .iter()
        .filter(|pod| {
            items(pod, "/spec/volumes").iter().any(|volume| text(volume, "/persistentVolumeClaim/claimName") == name)
        })
        .map(|pod| text(pod, "/metadata/name").to_string())
        .collect();
    out += &format!("Used By:\t{}\n", users.first().map_or("<none>", String::as_str));
    users.iter().skip(1).for_each(|user| out += &format!("\t{user}\n"));
    Ok(out)
}

pub fn volume(object: &Value) -> String {
    let mut out = head(object) + &tags(object) + &finalizers(object);
    out += &format!("StorageClass:\t{}\n", text(object, "/spec/storageClassName"));
    out += &format!("Status:\t{}\n", text(object, "/status/phase"));
    let claim = &object["spec"]["claimRef"];
    out += &match claim.is_object() {
        true => format!("Claim:\t{}/{}\n", text(claim, "/namespace"), text(claim, "/name")),
        false => "Claim:\t\n".into(),
    };
    out += &format!("Reclaim Policy:\t{}\n", text(object, "/spec/persistentVolumeReclaimPolicy"));
    out += &format!("Access Modes:\t{}\n", modes(object, "/spec/accessModes"));
    out += &format!("VolumeMode:\t{}\n", text(object, "/spec/volumeMode"));
    out += &format!("Capacity:\t{}\n", plain(&object["spec"]["capacity"]["storage"]));
    let terms = items(object, "/spec/nodeAffinity/required/nodeSelectorTerms");
    if terms.is_empty() {
        out += "Node Affinity:\t<none>\n";
    } else {
        out += "Node Affinity:\t\n  Required Terms:\t\n";
        for (at, term) in terms.iter().enumerate() {
            let expressions: Vec<String> = items(term, "/matchExpressions")
                .iter()
                .map(|expression| {
                    let values: Vec<String> = items(expression, "/values").iter().map(plain).collect();
                    format!(
                        "{} {} [{}]",
                        text(expression, "/key"),
                        text(expression, "/operator").to_lowercase(),
                        values.join(", ")
                    )
                })
                .collect();
            out += &format!("    Term {at}:\t{}\n", expressions.join("\n                \t"));
        }
    }
    out += &format!("Message:\t{}\n", text(object, "/status/message"));
    out += "Source:\n";
    let spec = &object["spec"];
    if spec["hostPath"].is_object() {
        out += "    Type:\tHostPath (bare host directory volume)\n";
        out += &format!(
            "    Path:\t{}\n    HostPathType:\t{}\n",
            text(spec, "/hostPath/path"),
            text(spec, "/hostPath/type")
        );
    } else if spec["local"].is_object() {
        out += &format!(
            "    Type:\tLocalVolume (a persistent volume backed by local storage on a node)\n    Path:\t{}\n",
            text(spec, "/local/path")
        );
    } else if spec["nfs"].is_object() {
        out += "    Type:\tNFS (an NFS mount that lasts the lifetime of a pod)\n";
        out += &format!(
            "    Server:\t{}\n    Path:\t{}\n    ReadOnly:\t{}\n",
            text(spec, "/nfs/server"),
            text(spec, "/nfs/path"),
            spec["nfs"]["readOnly"] == true
        );
    } else if spec["csi"].is_object() {
        out += "    Type:\tCSI (a Container Storage Interface (CSI) volume source)\n";
        out += &format!(
            "    Driver:\t{}\n    FSType:\t{}\n    VolumeHandle:\t{}\n    ReadOnly:\t{}\n",
            text(spec, "/csi/driver"),
            text(spec, "/csi/fsType"),
            text(spec, "/csi/volumeHandle"),
            spec["csi"]["readOnly"] == true
        );
    } else {
        out += "    Type:\t<unknown>\n";
    }
    out
}

pub fn class(object: &Value) -> String {
    let mut out = format!("Name:\t{}\n", text(object, "/metadata/name"));
    let default = object["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"] == "true";
    out += &format!("IsDefaultClass:\t{}\n", if default { "Yes" } else { "No" });
    let notes: Vec<String> =
        map(object, "/metadata/annotations").iter().map(|(key, value)| format!("{key}={}", plain(value))).collect();
    out += &format!("Annotations:\t{}\n", or(&notes.join(","), "<none>"));
    out += &format!("Provisioner:\t{}\n", text(object, "/provisioner"));
    let parameters: Vec<String> =
        map(object, "/parameters").iter().map(|(key, value)| format!("{key}={}", plain(value))).collect();
    out += &format!("Parameters:\t{}\n", or(&parameters.join(","), "<none>"));
    out += &format!(
        "AllowVolumeExpansion:\t{}\n",
        match object["allowVolumeExpansion"].as_bool() {
            Some(true) => "True",
            Some(false) => "False",
            None => "<unset>",
        }
    );
    let options: Vec<String> = items(object, "/mountOptions").iter().map(plain).collect();
    out += &match options.is_empty() {
        true => "MountOptions:\t<none>\n".to_string(),
        false => format!("MountOptions:\n{}", options.iter().map(|option| format!("  {option}\n")).collect::<String>()),
    };
    out += &format!("ReclaimPolicy:\t{}\n", text(object, "/reclaimPolicy"));
    out += &format!("VolumeBindingMode:\t{}\n", text(object, "/volumeBindingMode"));
    out
}
